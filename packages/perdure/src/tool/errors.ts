import { parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";
import { describeIssues, type Issue } from "../protocol/validate.ts";
import type { Duration, Effect } from "../protocol/words.ts";

export interface HandlerErrorOptions extends ErrorOptions {
  /** `no`: it is certain that nothing happened. Default: `unknown`. */
  readonly applied?: "no" | "unknown";
  /** Whether trying again may help. Default: no, for a failure that a tool names is mostly one that would be the same again. */
  readonly retryable?: boolean;
  /** Stable, for whoever branches on it. Default: `TOOL_FAILED`. */
  readonly code?: string;
  /** How long to wait before the next attempt, as a service's `Retry-After` says. */
  readonly retryAfter?: Duration;
}

/**
 * A tool's own failure. The message is public: the model reads it, and perhaps a user. What must stay on the server belongs in `cause`.
 */
export class HandlerError extends PerdureError {
  override readonly name = "HandlerError";
  readonly applied: "no" | "unknown";
  readonly retryable: boolean;
  /** Milliseconds. */
  readonly retryAfter: number | undefined;

  /** @throws {@link DurationError} when `retryAfter` is not a duration */
  constructor(message: string, options: HandlerErrorOptions = {}) {
    const { applied = "unknown", retryable = false, code = "TOOL_FAILED", retryAfter, ...rest } = options;
    super(code, message, rest);
    this.applied = applied;
    this.retryable = retryable;
    this.retryAfter = retryAfter === undefined ? undefined : parseDuration(retryAfter, "retryAfter of a HandlerError");
  }
}

/** The arguments do not fit the tool's input; the handler was not called. The message is written for the model. */
export class InvalidInput extends PerdureError {
  override readonly name = "InvalidInput";
  constructor(
    readonly tool: string,
    readonly issues: readonly Issue[],
    options?: ErrorOptions,
  ) {
    super(
      "INVALID_INPUT",
      `the arguments do not fit the input of tool \`${tool}\`: ${describeIssues(issues)}; correct them and call it again`,
      options,
    );
  }
}

/**
 * The tool did its work, but what it returned cannot be recorded. Trying again would do the work twice, so nobody does: for an effect,
 * `applied` is `yes`.
 */
export class InvalidOutput extends PerdureError {
  override readonly name = "InvalidOutput";
  readonly applied: "yes" | "no";
  constructor(
    readonly tool: string,
    effect: Effect,
    readonly issues: readonly Issue[],
    /** As much of the output as JSON could keep, for the log and for whoever has to look into it. */
    readonly kept: Json,
    options?: ErrorOptions,
  ) {
    const done = effect === "read" ? "" : "; what it did is done and must not be repeated";
    super(
      "OUTPUT_INVALID",
      `the output of tool \`${tool}\` cannot be recorded: ${describeIssues(issues)}${done}`,
      options,
    );
    this.applied = effect === "read" ? "no" : "yes";
  }
}

/** A human's answer does not fit what the suspended tool asked for; the question stays open. */
export class InvalidAnswer extends PerdureError {
  override readonly name = "InvalidAnswer";
  constructor(
    readonly tool: string,
    readonly issues: readonly Issue[],
    options?: ErrorOptions,
  ) {
    super(
      "INVALID_ANSWER",
      `the answer does not fit what tool \`${tool}\` asked for: ${describeIssues(issues)}; correct it and send it again`,
      options,
    );
  }
}

/** An `idempotent` or `write` tool was called without a key: a second attempt could not be told from a second order. */
export class MissingIdempotencyKey extends PerdureError {
  override readonly name = "MissingIdempotencyKey";
  constructor(
    readonly tool: string,
    effect: Effect,
  ) {
    super(
      "MISSING_IDEMPOTENCY_KEY",
      `tool \`${tool}\` has effect "${effect}" and was called without an idempotency key; give its context an idempotencyKey`,
    );
  }
}

/** `reduce` failed. The tool's effect and output stand; only the state does not follow. */
export class ReduceError extends PerdureError {
  override readonly name = "ReduceError";
  constructor(
    readonly tool: string,
    why: string,
    options?: ErrorOptions,
  ) {
    super(
      "REDUCE_FAILED",
      `reduce of tool \`${tool}\` ${why}; what the tool did stands, the state is as before`,
      options,
    );
  }
}

/** A tool is not defined as it has to be. Thrown where it is defined, before anything runs. */
export class ToolDefinitionError extends PerdureError {
  override readonly name = "ToolDefinitionError";
  constructor(
    readonly tool: string,
    why: string,
    options?: ErrorOptions,
  ) {
    super("TOOL_DEFINITION", `tool \`${tool}\`: ${why}`, options);
  }
}
