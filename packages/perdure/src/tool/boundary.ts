import { type Json, NotJsonError, toJson } from "../protocol/json.ts";
import { MAX_PAYLOAD_BYTES, payloadOver } from "../protocol/payload.ts";
import type { Schema } from "../protocol/schema.ts";
import { type Issue, type Validated, validate } from "../protocol/validate.ts";
import type { ToolDefinition } from "./definition.ts";
import { HandlerError, InvalidAnswer, InvalidInput, InvalidOutput, ToolDefinitionError } from "./errors.ts";
import { isSuspension } from "./outcome.ts";
import { salvage } from "./salvage.ts";

/** What lies between a tool's typed functions and JSON: each way a value crosses, and the error when it cannot. */
export interface Boundary {
  /** The validated value of an input. @throws {@link InvalidInput} */
  readonly accept: (input: Json) => Promise<unknown>;
  /** The same at once. @throws {@link ToolDefinitionError} when the schema is asynchronous */
  readonly acceptNow: (input: Json) => unknown;
  /** The validated value of an answer to a suspension. @throws {@link InvalidAnswer} */
  readonly acceptAnswer: (answer: Json) => Promise<unknown>;
  /** A validated answer as the tool's output. @throws {@link InvalidAnswer} */
  readonly answerAsOutput: (answer: unknown) => Promise<Json>;
  /** Runs one of the tool's functions. @throws {@link HandlerError} for whatever it throws */
  readonly run: <T>(body: () => T | Promise<T>) => Promise<T>;
  /** What a body returned, as the log will hold it. @throws {@link InvalidOutput} */
  readonly record: (returned: unknown) => Promise<Json>;
  /** The error for something that went wrong before the body. */
  readonly failedBefore: (what: string, cause?: unknown) => HandlerError;
}

export function boundaryOf(tool: ToolDefinition): Boundary {
  const { name, effect } = tool;
  // `reduce` runs in the batch that ends the step: an asynchronous schema would fail there, after the effect, so it fails here, before.
  const inputAtOnce = tool.reduce !== undefined || tool.idempotencyKey !== undefined;

  return {
    async accept(input) {
      return inputAtOnce ? acceptNow(input) : await checkInput(input);
    },

    acceptNow,

    async acceptAnswer(answer) {
      const read = readJson(answer);
      if (!read.ok) throw new InvalidAnswer(name, read.issues, { cause: read.cause });
      if (!tool.answer) return read.value;
      const checked = await safely("the schema of the answer", () => validate(tool.answer as Schema, read.value));
      if (!checked.ok) throw new InvalidAnswer(name, checked.issues);
      return checked.value;
    },

    async answerAsOutput(answer) {
      const { output } = tool;
      const checked = output ? await safely("the schema of the output", () => validate(output, answer)) : valid(answer);
      if (!checked.ok) throw new InvalidAnswer(name, checked.issues);
      const read = readJson(checked.value);
      if (!read.ok) throw new InvalidAnswer(name, read.issues, { cause: read.cause });
      return read.value;
    },

    async run(body) {
      try {
        return await body();
      } catch (thrown) {
        throw toHandlerError(thrown);
      }
    },

    async record(returned) {
      if (isSuspension(returned)) throw unrecordable(returned, [{ path: "", message: "only `call` can suspend" }]);
      let checked: Validated<unknown>;
      try {
        checked = tool.output ? await validate(tool.output, returned) : valid(returned);
      } catch (cause) {
        throw unrecordable(returned, [{ path: "", message: "the schema of the output threw" }], cause);
      }
      if (!checked.ok) throw unrecordable(returned, checked.issues);
      const read = readJson(checked.value);
      if (!read.ok) throw unrecordable(returned, read.issues, read.cause);
      return read.value;
    },

    failedBefore,
  };

  function checkInput(input: Json): unknown {
    const read = readJson(input);
    if (!read.ok) throw new InvalidInput(name, read.issues, { cause: read.cause });
    const what = "the schema of the input";
    let checked: Validated<unknown> | Promise<Validated<unknown>>;
    try {
      checked = validate(tool.input, read.value);
    } catch (cause) {
      throw failedBefore(`${what} threw`, cause);
    }
    if (!(checked instanceof Promise)) return unwrap(checked);
    return checked.then(unwrap, (cause: unknown) => {
      throw failedBefore(`${what} threw`, cause);
    });
  }

  function acceptNow(input: Json): unknown {
    const value = checkInput(input);
    if (!(value instanceof Promise)) return value;
    value.catch(() => {}); // The error below is the one to see; unhandled, this one would end the process.
    throw new ToolDefinitionError(
      name,
      "its input validates asynchronously, but `reduce` and `idempotencyKey` need the value at once; move the check into `call`",
    );
  }

  function unwrap(checked: Validated<unknown>): unknown {
    if (!checked.ok) throw new InvalidInput(name, checked.issues);
    return checked.value;
  }

  async function safely<T>(what: string, check: () => T | Promise<T>): Promise<T> {
    try {
      return await check();
    } catch (cause) {
      throw failedBefore(`${what} threw`, cause);
    }
  }

  function failedBefore(what: string, cause?: unknown): HandlerError {
    return new HandlerError(`tool \`${name}\` did not run: ${what}`, {
      applied: "no",
      ...(cause !== undefined && { cause }),
    });
  }

  /** A read is never applied. Of an effect only its own word counts; that its text is public only where the tool wrote it is why the rest is wrapped. */
  function toHandlerError(thrown: unknown): HandlerError {
    if (thrown instanceof HandlerError) {
      if (effect !== "read" || thrown.applied === "no") return thrown;
      const { message, retryable, code, retryAfter } = thrown;
      return new HandlerError(message, {
        applied: "no",
        retryable,
        code,
        cause: thrown,
        ...(retryAfter !== undefined && { retryAfter }),
      });
    }
    const [applied, text] =
      effect === "read" ? (["no", "failed"] as const) : (["unknown", "failed, perhaps after it was applied"] as const);
    return new HandlerError(`tool \`${name}\` ${text}`, { applied, retryable: effect !== "write", cause: thrown });
  }

  function unrecordable(returned: unknown, issues: readonly Issue[], cause?: unknown): InvalidOutput {
    return new InvalidOutput(name, effect, issues, salvage(returned), cause === undefined ? undefined : { cause });
  }
}

type Read =
  | { readonly ok: true; readonly value: Json }
  | { readonly ok: false; readonly issues: readonly Issue[]; readonly cause?: unknown };

/** A value as JSON of a size that the log takes: it refuses larger ones, and after a body that is too late. */
function readJson(raw: unknown): Read {
  let value: Json;
  try {
    value = toJson(raw);
  } catch (cause) {
    const issue =
      cause instanceof NotJsonError
        ? { path: cause.path, message: `JSON cannot hold ${cause.found}` }
        : { path: "", message: "it cannot be read as JSON" };
    return { ok: false, issues: [issue], cause };
  }
  const bytes = payloadOver(value);
  if (bytes === null) return { ok: true, value };
  return {
    ok: false,
    issues: [{ path: "", message: `it has ${bytes} bytes of JSON; ${MAX_PAYLOAD_BYTES} are allowed` }],
  };
}

function valid(value: unknown): Validated<unknown> {
  return { ok: true, value };
}
