import type { ActivityHandle, Branch, BranchResults, Emitting, LaneEmitting, SubagentOptions } from "../emit/types.ts";
import type { Json, Jsonify } from "../protocol/json.ts";
import type { Infer, InferInput, Schema } from "../protocol/schema.ts";
import type { Duration, Effect, Path, Uid } from "../protocol/words.ts";
import type { Judgement, Suspension } from "./outcome.ts";

/**
 * What the body of a tool holds during one attempt.
 *
 * @typeParam S - the agent's state
 * @typeParam Key - `string` for an effect, which always has a key; a `read` may have none
 */
export interface ToolContext<S = Json, Key extends string | undefined = string | undefined> extends Emitting<S> {
  /** The same in every attempt of this call. Give it to the service that does the work. */
  readonly idempotencyKey: Key;
  /** 1 for the first try. */
  readonly attempt: number;
  /** For services that can refuse an outdated driver: `epoch` grows whenever another one takes the run over. */
  readonly fence: { readonly run: Uid; readonly epoch: number };
  readonly run: Uid;
  readonly path: Path;
  /** Aborted on cancel, at the deadline, and when the driver loses the run. */
  readonly signal: AbortSignal;
  /** Opens an activity that the user interface shows beside the call. */
  activity<C extends object>(type: string, content: C): ActivityHandle<C>;
  /**
   * Begins a subagent that the user interface shows under this call; several may run side by side. With a body it ends with the body: what that
   * returns is its result, what that throws is its SUBAGENT_ERROR, and thrown on. What is still open when the attempt ends is closed; an attempt
   * that will be tried again, or that a crash has cut, is taken back from the screen with its subagents, and the next one begins others.
   *
   * @param options - `parentToolCallId` and `parentMessageId` are this call's by default
   */
  subagent(options: SubagentOptions): ToolSubagent<S>;
  subagent<T>(options: SubagentOptions, body: (sub: ToolSubagent<S>) => Promise<T> | T): Promise<T>;
  /** Sends a CUSTOM event `perdure.progress` with this call's id. */
  progress(value: unknown): void;
  /** Writes to the server's log, never to the stream. */
  log(message: string, data?: unknown): void;
}

/** The emitters of one lane of a tool's subagent. Its state is the attempt's. */
export interface ToolLane<S = Json> extends LaneEmitting<S> {
  /** Begins a subagent of this one. */
  subagent(options: SubagentOptions): ToolSubagent<S>;
  subagent<T>(options: SubagentOptions, body: (sub: ToolSubagent<S>) => Promise<T> | T): Promise<T>;
  /** Runs each branch in a lane of its own, where it may open a block beside those of the others. */
  parallel<B extends readonly Branch<ToolLane<S>>[] | []>(branches: B): Promise<BranchResults<B>>;
  parallel<T>(branches: readonly ((lane: ToolLane<S>) => Promise<T>)[]): Promise<T[]>;
}

/**
 * One open invocation of a subagent in a tool's body: every event carries its id. What is still open in it when it ends is closed first. After
 * the end it throws {@link HandleClosedError}; ending twice is fine; disposing never throws.
 */
export interface ToolSubagent<S = Json> extends ToolLane<S>, Disposable {
  /** The `subagentRunId` that its events carry. */
  readonly id: string;
  readonly name: string;
  /**
   * SUBAGENT_FINISHED. Leaving the scope sends it without a result.
   *
   * @throws {@link NotJsonError} for a result that JSON cannot hold; it is still open then
   */
  end(result?: unknown): void;
  /** SUBAGENT_ERROR, with as much of the error as clients may know: a {@link HandlerError} says what is in it. The call goes on. */
  fail(error: unknown): void;
}

/** What has to be confirmed by a human before the body runs. */
export type Approval = boolean | ApprovalRequest;

export interface ApprovalRequest {
  readonly message: string;
  readonly risk?: "low" | "medium" | "high";
  /** A scope that whoever answers needs; the one who asks cannot approve himself without it. */
  readonly audience?: string;
  /** How long the question stands, then it counts as rejected. Default: for ever. */
  readonly expiresIn?: Duration;
}

/** The data half of a tool: what it is called, what it does to the world, and how long it may take. */
export interface ToolMeta {
  /** What the model calls it: 1 to 64 of `A-Z a-z 0-9 _ -`. */
  readonly name: string;
  /** Former names, the oldest first: calls of parked runs still find it under them, and its business keys stay those of the oldest. */
  readonly aliases?: readonly string[];
  /** For the model. */
  readonly description: string;
  readonly effect: Effect;
  /** How long one attempt may take. Default: 5 minutes. A `write` that exceeds it is unknown. */
  readonly timeout?: Duration;
  /** How long after a write's attempt has ended something may still land. Default: 10 seconds; 0 where `reconcile` is linearizable. */
  readonly settle?: Duration;
  /** How long to wait for another run that holds the same business key. Default: 60 seconds. */
  readonly keyWait?: Duration;
  /** Lifts the rule that effects of one turn run one after the other. Default: true for `read` alone. */
  readonly parallel?: boolean;
  /** Attempts in all. Default: 3; a `write` uses them only after a failure that says `applied: "no"` and `retryable`. */
  readonly retry?: { readonly attempts: number };
}

/**
 * The behaviour half of a tool: a typed input, a typed output, and the call that turns one into the other, for **one attempt**.
 *
 * @typeParam Input - the validated arguments
 * @typeParam Output - what the tool returns
 * @typeParam Answer - what a human answers to a suspension
 * @typeParam S - the agent's state
 * @typeParam Key - type of the context's idempotency key
 * @typeParam Recorded - the output as the log holds it
 */
export interface ToolHandler<
  Input,
  Output,
  Answer = Json,
  S = Json,
  Key extends string | undefined = string | undefined,
  Recorded = Jsonify<Output>,
> {
  /**
   * Does the work. Throw {@link HandlerError} to say whether it was applied; anything else that a `write` throws counts as unknown.
   *
   * @returns the output, or {@link suspend} to wait for a human
   */
  call(input: Input, ctx: ToolContext<S, Key>): Output | Suspension | Promise<Output | Suspension>;
  /** Goes on with a human's validated answer. Without it the answer has to fit the output and is the result. */
  resume?(answer: Answer, input: Input, ctx: ToolContext<S, Key>): Output | Promise<Output>;
  /** Finds out whether a write whose outcome is unknown was applied. It must not change anything. */
  reconcile?(input: Input, ctx: ToolContext<S, Key>): Judgement<Output> | Promise<Judgement<Output>>;
  /**
   * What success does to the state, however the output was come by: live, from `reconcile`, an answer or another run with the same key.
   * Pure and synchronous; it gets the output as the log holds it.
   */
  reduce?(draft: S, output: Recorded, input: Input): void;
}

type KeyOf<E extends Effect> = E extends "read" ? string | undefined : string;

// Methods compare bivariantly, a function-typed member would not: it lets every tool be a ToolDefinition of unknowns.
type ApprovalRule<Input> = { rule(input: Input): Approval | Promise<Approval> }["rule"];

/** A tool with its types. Collections hold the erased form, {@link DynTool}, or this with nothing known about it. */
export interface ToolDefinition<
  I extends Schema = Schema,
  O extends Schema = Schema,
  A extends Schema = Schema,
  S = unknown,
  E extends Effect = Effect,
> extends ToolMeta,
    ToolHandler<Infer<I>, InferInput<O>, Infer<A>, S, KeyOf<E>, Jsonify<Infer<O>>> {
  readonly effect: E;
  /** The arguments. The JSON Schema for the model is derived from it. */
  readonly input: I;
  /** What `call` returns. Without it the output is any JSON. */
  readonly output?: O;
  /** What a human may answer to a suspension. Without it: the output where there is no `resume`, else any JSON. */
  readonly answer?: A;
  /** The agent's state schema. It types `ctx.state` and the draft of `reduce`; the agent validates. */
  readonly state?: Schema<unknown, S>;
  /** The business identity of a call: two calls with equal parts happen once, also in different runs. */
  idempotencyKey?(input: Infer<I>): readonly Json[];
  readonly approval?: Approval | ApprovalRule<Infer<I>>;
}

/** What a caller passes to a tool. */
export type ToolInput<T extends ToolDefinition> = InferInput<T["input"]>;

/** What a caller gets from a tool: its output as the log holds it. */
export type ToolOutput<T extends ToolDefinition> =
  T extends ToolDefinition<Schema, infer O> ? Jsonify<Infer<O>> : never;
