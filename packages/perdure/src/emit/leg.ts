/**
 * One leg: RUN_STARTED … one terminal event. It owns what the lanes of the leg share (outlet, state, questions, usage) and the two ends.
 * Who calls the agent's code and decides how it ended is the runner's business.
 *
 * L1. RUN_STARTED is the first event, and exactly one terminal event is the last, on every way out.
 * L2. Before the terminal event everything open is closed, innermost first; a call with partial arguments is withdrawn before its END.
 * L3. After the terminal event nothing leaves: a left-behind body gets RunInterrupted from each operation.
 */
import { aggregateTokenUsage } from "@ag-ui/core";
import { deriveJsonSchema } from "../protocol/derive-schema.ts";
import { parseDuration } from "../protocol/duration.ts";
import {
  type AGUIEvent,
  event,
  type Interrupt,
  type Message,
  PROTOCOL_VERSION,
  type RunAgentInput,
} from "../protocol/events.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import type { Schema } from "../protocol/schema.ts";
import { checkShape } from "../protocol/shape.ts";
import { pendingToolCalls } from "../protocol/verify.ts";
import type { Path, Principal, RecordedError } from "../protocol/words.ts";
import { Strand } from "./branches.ts";
import { LaneContext, type Session } from "./context.ts";
import { CANCELLED, DuplicateInterruptError, publicError, RunInterrupted } from "./errors.ts";
import { Lane, shortPrefix } from "./lane.ts";
import { closeLeftovers, type Leaving } from "./leftovers.ts";
import { type Memory, Outlet, type Stream } from "./outlet.ts";
import { Published, stateUpdates } from "./published.ts";
import type { Ask, Reply, RunContext, TokenUsage, Transformer } from "./types.ts";

/** How the agent's code ended. */
export type LegEnd =
  | { readonly type: "success"; readonly result: Json }
  | { readonly type: "interrupt" }
  | { readonly type: "cancelled" }
  | { readonly type: "error"; readonly error: RecordedError };

export interface LegOptions {
  readonly input: RunAgentInput;
  /** The state at the start, already chosen and valid. */
  readonly state: Json;
  readonly principal: Principal;
  readonly stream: Stream;
  /** The state in the hands of somebody who keeps it. Default: one that is kept nowhere. */
  readonly published?: Published;
  /** The request's answers by interrupt id. Default: its `resume` entries. */
  readonly resume?: ReadonlyMap<string, Reply>;
  /** The id on the wire of a question that has one of its own. Default: that one. */
  readonly questionId?: (ask: Ask) => string | undefined;
  /** Keeps ids apart between runs. Default: the run id. */
  readonly idPrefix?: string;
  readonly transformers?: readonly Transformer[];
  /** Where the memos of transformers are kept. Default: nowhere. */
  readonly memory?: Memory;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  /** Default: contexts can do what needs no runtime. */
  readonly equip?: Session["equip"];
}

export class Leg<S> implements Session {
  readonly input: RunAgentInput;
  readonly principal: Principal;
  readonly outlet: Outlet;
  readonly state: Published;
  readonly resume: ReadonlyMap<string, Reply>;
  readonly usage: TokenUsage[] = [];
  /** Resolves when every strand that could go on waits for a human. */
  readonly rested: Promise<void>;
  readonly context: RunContext<S>;
  readonly #abort = new AbortController();
  readonly #interrupts: Interrupt[] = [];
  readonly #now: () => number;
  readonly #questionId: (ask: Ask) => string | undefined;
  readonly #equip: Session["equip"] | undefined;
  #isOver = false;

  constructor(options: LegOptions) {
    const { input, state, principal, stream, transformers = [], now = Date.now } = options;
    this.input = input;
    this.principal = principal;
    this.#now = now;
    this.#questionId = options.questionId ?? (({ id }) => id);
    this.#equip = options.equip;
    this.state = options.published ?? new Published("state", state, stateUpdates);
    this.resume = options.resume ?? repliesOf(input);
    this.outlet = new Outlet(stream, transformers, options.memory);
    const { promise, resolve } = resolvable();
    this.rested = promise;
    this.context = new LaneContext<S>(
      this,
      new Lane("" as Path, options.idPrefix ?? shortPrefix(input.runId), takenIds(input.messages)),
      new Strand(resolve),
    );
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** The questions so far. */
  get interrupts(): readonly Interrupt[] {
    return this.#interrupts;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  begin(): void {
    const { threadId, runId, parentRunId, state } = this.input;
    this.outlet.sendUntransformed(
      event("RUN_STARTED", { threadId, runId, parentRunId, protocolVersion: PROTOCOL_VERSION }),
    );
    // A client that sent no state patches `{}`.
    if (!jsonEqual(this.state.shown, (state ?? {}) as Json)) this.state.snapshot(this.#send);
  }

  ask(asks: readonly Ask[], lane: Lane, subagentRunId?: string): void {
    const interrupts = asks.map((ask) => ({
      ...this.#interruptOf(ask, lane),
      ...(subagentRunId !== undefined && { subagentRunId }),
    }));
    const { threadId, runId } = this.input;
    // Checked here, because at the leg's end a wrong question would cost the others too.
    checkShape(event("RUN_FINISHED", { threadId, runId, outcome: { type: "interrupt", interrupts } }));
    const ids = new Set(this.#interrupts.map(({ id }) => id));
    for (const { id } of interrupts) {
      if (ids.has(id)) throw new DuplicateInterruptError(id);
      ids.add(id);
    }
    this.#interrupts.push(...interrupts);
  }

  equip(context: RunContext<never>, lane: Lane, strand: Strand): void {
    this.#equip?.(context, lane, strand);
  }

  #interruptOf(ask: Ask, lane: Lane): Interrupt {
    const { reason, message, schema, toolCallId, expiresIn, metadata } = ask;
    const responseSchema = schema === undefined ? undefined : responseSchemaOf(schema);
    return {
      id: this.#questionId(ask) ?? lane.mint("interrupt"),
      reason: reason ?? defaultReason(toolCallId, responseSchema),
      message,
      ...(toolCallId !== undefined && { toolCallId }),
      ...(responseSchema !== undefined && { responseSchema }),
      ...(expiresIn !== undefined && { expiresAt: new Date(this.#now() + parseDuration(expiresIn)).toISOString() }),
      ...(metadata !== undefined && { metadata: { ...metadata } }),
    };
  }

  /** Tells the agent's code that it is to end. What it still says leaves, until the leg is ended. */
  abort(because: RunInterrupted["because"]): void {
    this.#abort.abort(new RunInterrupted(this.input.runId, because));
  }

  /** Nothing leaves any more, and nothing is said about it: whoever goes on runs the agent's code anew. */
  drop(because: RunInterrupted["because"]): void {
    this.#isOver = true;
    this.outlet.close(new RunInterrupted(this.input.runId, because));
  }

  /** Ends the leg (L1, L2, L3). A second call does nothing. */
  end(how: LegEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    try {
      this.#close(how);
    } catch (error) {
      // What should have been sent was not valid, perhaps before anything was closed.
      const told = publicError(error);
      closeLeftovers(this.outlet, { type: "cut", error: told });
      this.outlet.sendUntransformed(event("RUN_ERROR", told));
      throw error;
    } finally {
      this.outlet.close(new RunInterrupted(this.input.runId, how.type === "cancelled" ? "cancelled" : "ended"));
      if (how.type !== "success") this.#abort.abort(this.outlet.closed);
    }
  }

  #close(how: LegEnd): void {
    if (how.type === "success" || how.type === "interrupt") this.state.publish(this.#send);
    closeLeftovers(this.outlet, leavingBy(how, this.#interrupts));
    const { threadId, runId } = this.input;
    const usage = this.usage.length === 0 ? undefined : aggregateTokenUsage(this.usage);
    if (how.type === "error") {
      this.#send(event("RUN_ERROR", { ...how.error, usage }));
      return;
    }
    const finished = { threadId, runId, usage };
    if (how.type === "cancelled") {
      this.#send(event("RUN_FINISHED", { ...finished, outcome: { type: "cancelled" } }));
    } else if (how.type === "interrupt") {
      // AG-UI 1.0, interrupts: both snapshots precede an interrupting end.
      this.state.snapshot(this.#send);
      this.#send({ type: "MESSAGES_SNAPSHOT", messages: [...this.outlet.messages] });
      this.#send(event("RUN_FINISHED", { ...finished, outcome: { type: "interrupt", interrupts: this.#interrupts } }));
    } else {
      const pendingToolCallIds = [...pendingToolCalls(this.outlet.wire)];
      this.#send(
        event("RUN_FINISHED", {
          ...finished,
          result: how.result,
          outcome: { type: "success", ...(pendingToolCallIds.length > 0 && { pendingToolCallIds }) },
        }),
      );
    }
  }

  readonly #send = (sent: AGUIEvent): void => this.outlet.sendUntransformed(sent);
}

function leavingBy(how: LegEnd, interrupts: readonly Interrupt[]): Leaving {
  switch (how.type) {
    case "success":
      return { type: "whole" };
    case "interrupt":
      return { type: "suspended", interrupts };
    case "cancelled":
      return { type: "cut", error: CANCELLED };
    case "error":
      return { type: "cut", error: how.error };
    default:
      return how satisfies never;
  }
}

function repliesOf({ resume = [] }: RunAgentInput): ReadonlyMap<string, Reply> {
  return new Map(
    resume.map(({ interruptId, status, payload }) => [
      interruptId,
      payload === undefined ? { status } : { status, payload: payload as Json },
    ]),
  );
}

/** A schema that accepts anything may be written as `true`; the wire knows objects only. */
function responseSchemaOf(schema: Schema): { [key: string]: Json } {
  const derived = deriveJsonSchema(schema, "input");
  return isJsonObject(derived) ? { ...derived } : {};
}

function defaultReason(toolCallId: string | undefined, responseSchema: unknown): string {
  if (toolCallId !== undefined) return "tool_call";
  return isJsonObject(responseSchema) && responseSchema.type === "boolean" ? "confirmation" : "input_required";
}

/** Whether an id is one of a message or a call among these. */
export function takenIds(messages: readonly Message[]): (id: string) => boolean {
  let ids: Set<string> | undefined;
  return (id) => {
    ids ??= new Set(
      messages.flatMap((message) => [
        message.id,
        ...(message.role === "assistant" ? (message.toolCalls ?? []).map((call) => call.id) : []),
      ]),
    );
    return ids.has(id);
  };
}

function resolvable(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
