/** The durable operations of one lane of a custom loop: each says what step it is, and waits for its end. */
import { randomUUID } from "node:crypto";
import type { Strand } from "../emit/branches.ts";
import { AnswerInvalidError } from "../emit/errors.ts";
import type { Lane } from "../emit/lane.ts";
import type { Branch, ClientTool, RunContext } from "../emit/types.ts";
import type { Fact, StepKind } from "../log/entries.ts";
import { clientResult } from "../log/tool-result.ts";
import { deriveJsonSchema } from "../protocol/derive-schema.ts";
import { parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { ToolMessage } from "../protocol/events.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import { validateSync } from "../protocol/validate.ts";
import type { Path } from "../protocol/words.ts";
import type { ToolContext, ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { inlineTool } from "../tool/inline-tool.ts";
import {
  type Agent,
  isAgentTool,
  type LoopCall,
  type LoopModels,
  type PreparedModel,
  type ReadCall,
} from "./agent-definition.ts";
import type { CallOptions, LoopContext, OnceOptions, Question } from "./loop-context.ts";
import { AskCancelled, NeedsStore, StepFailed } from "./loop-errors.ts";
import type { Strands } from "./strands.ts";

/** A step that code waits for. */
export interface Want {
  readonly call: LoopCall;
  readonly kind: StepKind;
  readonly tool: DynTool | undefined;
  /** Of a model step. */
  readonly model?: PreparedModel;
  readonly strand: Strand;
  /** Told of the end of the step, unless the run was cancelled. */
  readonly ended: (finished: Fact<"step.finished">) => void;
  readonly failed: (error: unknown) => void;
}

/** What the operations need of the loop that they belong to. */
export interface LoopHost {
  readonly strands: Strands;
  /** The prefix of ids. */
  readonly uid: string;
  /** Erased once, and then known by its name. */
  toolOf(definition: ToolDefinition | DynTool): DynTool;
  /** Begins a step, or finds the one that is recorded. @throws what says that nothing is begun any more, or that the code does something else */
  want(want: Want): void;
  /** What was recorded of a reading, or records it. */
  reading<T extends string | number>(path: Path, kind: StepKind, name: string, read: () => T): T;
  /** Whether the record says more than the code has done again. */
  readonly isBehind: boolean;
  /** A race is decided: the other lanes begin nothing any more. */
  raced(path: Path, winner: number, lanes: number): void;
  /** @throws {@link NeedsStore} where the agent is none that `agent()` made */
  readonly modelsOfLoop: LoopModels;
  readonly now: () => number;
  readonly random: () => number;
  /** Notes which strand a context belongs to. */
  strandOf(context: object): Strand | undefined;
}

type Operations = Omit<LoopContext<never>, Exclude<keyof RunContext<never>, "parallel" | "interrupt">> & {
  model(options: unknown): Promise<unknown>;
  spawn(agent: Agent, message: string, options?: CallOptions): Promise<Json>;
};

/** @param ctx - the context without its durable operations */
export function operationsOf(
  host: LoopHost,
  ctx: RunContext<never>,
  lane: Lane,
  strand: Strand,
): Omit<Operations, "subagent"> {
  const readings = new Map<string, number>();

  /** The ordinals of readings are their own, so that a new one does not move any step. */
  function placeOfReading(name: string): Path {
    const ordinal = readings.get(name) ?? 0;
    readings.set(name, ordinal + 1);
    return inLane(`${name}${ordinal}`);
  }

  function inLane(name: string): Path {
    return (lane.path === "" ? name : `${lane.path}.${name}`) as Path;
  }

  const inLanes = Object.getPrototypeOf(ctx).parallel as RunContext<never>["parallel"];

  function step<T>(
    kind: StepKind,
    make: (path: Path) => Omit<LoopCall, "path" | "id" | "model" | "index"> & Partial<LoopCall>,
    tool: DynTool | undefined,
    read: (output: Json, path: Path, finished: Fact<"step.finished">) => T,
    model?: PreparedModel,
  ): Promise<T> {
    const promise = new Promise<T>((resolve, reject) => {
      const path = lane.begin();
      const call: LoopCall = { path, id: idAt(host.uid, path, "call", 0), model: null, index: 0, ...make(path) };
      const ended: Want["ended"] = (finished) => {
        try {
          if (finished.status === "ok") resolve(read(finished.output, path, finished));
          else reject(failureOf(call, finished));
        } catch (error) {
          reject(error);
        }
      };
      host.want({ call, kind, tool, strand, ended, failed: reject, ...(model !== undefined && { model }) });
    });
    // Code that does not wait for it is not to take the process down.
    promise.catch(() => {});
    return promise;
  }

  /** Runs a call that a model made; what became of it is for the model to read. */
  async function answer({ id, name, input, invalid }: ReadCall["call"], { path: model, index, tool }: MadeCall) {
    const call = { id, name, input, model, index, ...(invalid !== undefined && { invalid }) };
    const result = { callId: id, name };
    const isClients = tool === undefined && ctx.clientTool(name) !== undefined;
    try {
      const output = isClients ? await ofClient(call) : await step(kindOf(tool), () => call, tool, itself);
      return { ...result, output };
    } catch (error) {
      if (!(error instanceof StepFailed)) throw error;
      return { ...result, error: { code: error.code, message: error.told } };
    }
  }

  /** Ends when the client has sent its result: the run waits for it as it waits for a human. */
  function ofClient(call: Pick<LoopCall, "name" | "input"> & Partial<LoopCall>): Promise<string> {
    const begun = { ...call, step: "client-tool" } as const;
    return step(
      "client-tool",
      () => begun,
      undefined,
      (output, path) => {
        const result = clientResult(output as unknown as ToolMessage);
        if ("error" in result) throw new StepFailed(call.name, path, result.error, "unknown");
        return result.output;
      },
    );
  }

  const call = ((
    definition: ToolDefinition | ClientTool | ReadCall["call"],
    input: unknown,
    { show = true }: CallOptions = {},
  ) => {
    const made = modelCalls.get(definition);
    if (made !== undefined) return answer(definition as ReadCall["call"], made);
    const { name } = definition;
    const given = (): Json => toJson(input, `input of tool \`${name}\``);
    if (!("call" in definition || "callJson" in definition)) {
      if (ctx.clientTool(name) === undefined) throw new TypeError(noTool(name, ctx.clientTools));
      return ofClient({ name, input: given() });
    }
    const tool = host.toolOf(definition as ToolDefinition | DynTool);
    const shown = show ? {} : ({ isHidden: true } as const);
    const begun = { name, input: given(), ...shown };
    return step(kindOf(tool), () => begun, tool, itself);
  }) as LoopContext<never>["call"];

  return {
    model: (options: unknown) => {
      const prepared = host.modelsOfLoop.prepare(options);
      const call = { name: "model", input: null, isHidden: true } as const;
      const read = (output: Json, path: Path, { usage = [] }: Fact<"step.finished">): unknown => {
        const { turn, calls } = prepared.read(output, usage);
        for (const [index, { call: made, tool }] of calls.entries()) modelCalls.set(made, { path, index, tool });
        return turn;
      };
      return step("model", () => call, undefined, read, prepared);
    },

    call,

    spawn: (agent, message, options) => call(host.modelsOfLoop.toolOf(agent), { task: message }, options),

    once: ((name: string, first: OnceOptions | OnceBody, second?: OnceBody) => {
      const [options, body] = typeof first === "function" ? [{}, first] : [first, second as OnceBody];
      const { effect = "write", ...limits } = options;
      const tool = host.toolOf(
        inlineTool({ name, effect, ...limits, call: (_, attempt) => body(attempt as ToolContext<never, string>) }),
      );
      const call = { name, input: null, step: "custom", isHidden: true } as const;
      return step("custom", () => call, tool, itself);
    }) as LoopContext<never>["once"],

    ask: ((question: Question) => {
      lane.checkFree("ctx.ask()");
      const { message, schema, reason, audience = null, expiresIn, metadata } = question;
      const expected: Json = schema === undefined ? true : deriveJsonSchema(schema, "input");
      const isBoolean = isJsonObject(expected) && expected.type === "boolean";
      const asked = {
        ...{ reason: reason ?? (isBoolean ? "confirmation" : "input_required"), message, audience },
        schema: expected,
        ...(expiresIn !== undefined && { expiresIn: parseDuration(expiresIn, "expiresIn of ctx.ask()") }),
        ...(metadata !== undefined && { metadata: toJson(metadata, "metadata of a question") }),
      };
      const input = toJson({ message, schema: expected, audience }, "a question");
      return step(
        "ask",
        () => ({ name: "ask", input, step: "ask", isHidden: true, question: asked }),
        undefined,
        (answer, path) => (schema === undefined ? answer : parsed(schema, answer, path)),
      );
    }) as LoopContext<never>["ask"],

    sleep(duration) {
      lane.checkFree("ctx.sleep()");
      const ms = parseDuration(duration, "the duration of ctx.sleep()");
      return step(
        "sleep",
        () => ({ name: "sleep", input: ms, step: "sleep", isHidden: true }),
        undefined,
        () => {},
      );
    },

    receive: ((name: string, schema?: Schema) => {
      lane.checkFree("ctx.receive()");
      return step(
        "signal",
        () => ({ name, input: null, step: "signal", isHidden: true }),
        undefined,
        (payload, path) => (schema === undefined ? payload : parsed(schema, payload, path)),
      );
    }) as LoopContext<never>["receive"],

    now: () => host.reading(placeOfReading("now"), "clock", "now", host.now),
    random: () => host.reading(placeOfReading("random"), "random", "random", host.random),
    uuid: () => host.reading<string>(placeOfReading("uuid"), "random", "uuid", randomUUID),
    version: (name, max) =>
      host.reading(inLane(`version:${name}`), "custom", `version ${name}`, () => (host.isBehind ? 0 : max)),

    parallel: (async (branches: readonly Branch<LoopContext<never>>[]) => {
      let left = branches.length;
      if (left === 0) return [];
      host.strands.wait(strand);
      return await inLanes.call(
        ctx,
        branches.map((branch) => async (own: RunContext<never>) => {
          try {
            return await branch(own as LoopContext<never>);
          } finally {
            const ended = host.strandOf(own);
            if (ended !== undefined) host.strands.close(ended);
            left -= 1;
            if (left === 0) host.strands.resume(strand);
          }
        }),
      );
    }) as LoopContext<never>["parallel"],

    race: ((branches: readonly Branch<LoopContext<never>>[]) => {
      if (branches.length === 0) {
        const why = "ctx.race() has got no branches, so nobody would ever win; give it one at least";
        return Promise.reject(new PerdureError("RACE_EMPTY", why));
      }
      const path = lane.next;
      let isOver = false;
      const raced = new Promise<unknown>((resolve, reject) => {
        const over = (winner: number, settle: () => void): void => {
          if (isOver) return;
          isOver = true;
          host.strands.resume(strand);
          try {
            host.raced(path, winner, branches.length);
            settle();
          } catch (error) {
            reject(error);
          }
        };
        host.strands.wait(strand);
        const lanes = branches.map((branch, i) => async (own: RunContext<never>) => {
          try {
            const value = await branch(own as LoopContext<never>);
            over(i, () => resolve(value));
          } catch (error) {
            over(i, () => reject(error));
          } finally {
            const ended = host.strandOf(own);
            if (ended !== undefined) host.strands.close(ended);
          }
        });
        // The lanes settle what they have to settle themselves.
        inLanes.call(ctx, lanes).catch(reject);
      });
      raced.catch(() => {});
      return raced;
    }) as LoopContext<never>["race"],

    interrupt(...asks) {
      const never = (Object.getPrototypeOf(ctx).interrupt as RunContext<never>["interrupt"]).call(ctx, ...asks);
      host.strands.wait(strand);
      return never;
    },
  };
}

const itself = (output: Json): Json => output;

/** A call of an agent is a run of its own. */
function kindOf(tool: DynTool | undefined): StepKind {
  return isAgentTool(tool) ? "child" : "tool";
}

interface MadeCall {
  readonly path: Path;
  readonly index: number;
  readonly tool: DynTool | undefined;
}

/** The calls that code got from its models. */
const modelCalls = new WeakMap<object, MadeCall>();

function noTool(name: unknown, offered: readonly ClientTool[]): string {
  const names = offered.map((tool) => tool.name).join(", ") || "none";
  const what =
    typeof name === "string"
      ? `"${name}" is neither a tool of tool() nor one that the client offers (${names})`
      : "that is none";
  return `ctx.call() takes a tool and its input, or a call of a turn that ctx.model() returned: ${what}; look with ctx.clientTool(name) before you call a tool of the client's`;
}

type OnceBody = (attempt: ToolContext<never, string>) => unknown;

function failureOf({ name, path, step }: LoopCall, finished: Fact<"step.finished">): Error {
  if (finished.status !== "error") {
    return new StepFailed(name, path, { code: "CANCELLED", message: "it was cancelled" }, "no");
  }
  const { error, applied, output } = finished;
  if (step !== "ask") return new StepFailed(name, path, error, applied, output);
  return new AskCancelled(path, error.code === "ASK_EXPIRED" ? "expired" : "cancelled", error.message);
}

function parsed<A extends Schema>(schema: A, answer: Json, path: Path): Infer<A> {
  const checked = validateSync(schema, answer);
  if (!checked.ok) throw new AnswerInvalidError(path, checked.issues);
  return checked.value;
}

const NAMES = [
  "model",
  "call",
  "spawn",
  "once",
  "ask",
  "sleep",
  "receive",
  "race",
  "now",
  "random",
  "uuid",
  "version",
] as const;

/** For code that runs without a log: each durable operation says what it lacks. */
export function refuseDurable(ctx: object): void {
  for (const name of NAMES) {
    const refused = (): never => {
      throw new NeedsStore(`ctx.${name}()`);
    };
    Object.defineProperty(ctx, name, { value: refused, configurable: true });
  }
}
