import type {
  Tool as ClientTool,
  ContentPart,
  Context,
  Message,
  RunAgentInput,
  TokenUsage,
  ToolMessage,
} from "@ag-ui/core";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Json, Jsonify } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import type { Duration, Principal } from "../protocol/words.ts";

/** An event that agent code may emit: any but the run's own lifecycle, which the runner alone writes. */
export type EmittableEvent = Exclude<AGUIEvent, { type: "RUN_STARTED" | "RUN_FINISHED" | "RUN_ERROR" }>;

/** What the context, its lanes, handles and a tool's context have in common. */
export interface Emitting<S> {
  /**
   * The run's state as a mutable draft. Nothing is sent before {@link publishState}; after it, take `state` anew: a nested reference
   * held across a publish is revoked and throws.
   */
  readonly state: S;
  /**
   * Sends what changed since the last publish as STATE_DELTA, or as STATE_SNAPSHOT where all of it did; nothing when nothing changed.
   *
   * @throws {@link NotJsonError} when something was put into the state that JSON cannot hold; nothing is sent then
   */
  publishState(): void;
  /** Changes the state in a function and publishes it. */
  updateState(change: (draft: S) => void): void;
  /** Sends a CUSTOM event. Names should carry a prefix of their owner (AG-UI 1.0, custom events). */
  custom(name: string, value: unknown): void;
  /**
   * Sends any event but the run's own lifecycle; it is transformed and verified like every other.
   *
   * @throws {@link ProtocolError} when the stream would stop being valid AG-UI; nothing is sent then
   */
  emit(event: EmittableEvent): void;
}

/** What an event of a block may carry beside its content. */
export interface BlockOptions {
  /**
   * JSON about the block, for the user interface. Clients keep it on the message or call; of one key the last value counts. The keys `ag-ui`
   * and `perdure` are taken.
   */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/** Owns one open block. Ending twice is fine; anything else after the end throws {@link HandleClosedError}; disposing never throws. */
export interface Handle<S> extends Emitting<S>, Disposable {
  /** The id that the block's events carry. */
  readonly id: string;
  /** @param last - for what is known when all is said, for example what it has cost */
  end(last?: BlockOptions): void;
}

export interface MessageOptions extends BlockOptions {
  /** Who speaks. Default: `assistant`. */
  readonly role?: "assistant" | "user" | "system" | "developer";
  /** The speaker's name, where several have the role. */
  readonly name?: string;
}

/** One open text message. */
export interface MessageHandle<S> extends Handle<S> {
  delta(text: string): void;
  /** Sends each piece of an async iterable as a delta, and waits while more than 1 MiB is unread. */
  pipe(text: AsyncIterable<string>): Promise<void>;
}

/** One open reasoning block: a span with one message, both under {@link Handle.id}. */
export interface ReasoningHandle<S> extends Handle<S> {
  delta(text: string): void;
  /** The provider's opaque blob for this reasoning, which the next request has to give back. */
  encryptedValue(blob: string): void;
}

/** One open tool call. */
export interface ToolCallHandle<S> extends Handle<S> {
  /** The id that the message with the result will carry. */
  readonly resultMessageId: string;
  /** The text of the arguments so far. */
  readonly rawArgs: string;
  /** Sends a piece of the arguments' JSON text, as providers stream it. */
  args(delta: string): void;
  /** Sends a value as the whole arguments. */
  argsJson(value: unknown): void;
  /**
   * The arguments as a value. No arguments at all read as `{}`.
   *
   * @throws {@link ArgumentsIncompleteError} while they are not a whole JSON text
   */
  parseArgs(): Json;
  /** @throws {@link ArgumentsInvalidError} when they are whole and do not fit the schema */
  parseArgs<T extends Schema>(schema: T): Infer<T>;
  /** The provider's opaque reasoning signature for this call. */
  encryptedValue(blob: string): void;
  /**
   * Ends the call and answers it.
   *
   * @returns the id of the tool message
   * @throws {@link ArgumentsIncompleteError} when the arguments are cut
   */
  result(content: string | readonly ContentPart[], options?: BlockOptions): string;
  /** Ends the call and answers it with the JSON text of a value. */
  resultJson(value: unknown, options?: BlockOptions): string;
  /**
   * Ends the call and leaves it unanswered, for the client to execute or a human to decide.
   *
   * @throws {@link ArgumentsIncompleteError} when the arguments are cut
   */
  end(last?: BlockOptions): void;
}

/** A step that the user interface shows as in progress. */
export interface StepHandle<S> extends Handle<S> {
  /** The name as it went out: a name that is open in another lane gets a suffix, for example `plan#2`. */
  readonly name: string;
}

/** One activity: structured content that the user interface shows and that changes in place. */
export interface ActivityHandle<C extends object> extends Disposable {
  readonly id: string;
  /** The content as last sent. */
  readonly content: Jsonify<C>;
  /** Changes the content and sends the difference. */
  update(change: (draft: C) => void): void;
  end(): void;
}

/** Either returns the handle, for `using`, or runs a body and closes the handle in `finally`. */
export interface Scoped<H, O> {
  (options?: O): H;
  <T>(body: (handle: H) => Promise<T> | T): Promise<T>;
  <T>(options: O, body: (handle: H) => Promise<T> | T): Promise<T>;
}

/** A question to a human. */
export interface Ask {
  /** How {@link RunContext.resumeFor} finds the answer. Default: derived from the run. */
  readonly id?: string;
  /** Default: `tool_call` with a `toolCallId`, else `input_required`. */
  readonly reason?: string;
  readonly message: string;
  /** What an answer has to look like. */
  readonly schema?: Schema;
  readonly toolCallId?: string;
  /** How long the question stands. Default: for ever. */
  readonly expiresIn?: Duration;
  /** For the user interface, on the interrupt's `metadata`. */
  readonly metadata?: Readonly<Record<string, Json>>;
}

/** A human's reply to one interrupt. */
export interface Reply<T = Json> {
  readonly status: "resolved" | "cancelled";
  readonly payload?: T;
}

export interface ToolCallOptions extends BlockOptions {
  /** Default: derived from the run, so the same in every attempt. */
  readonly id?: string;
  /** The assistant message that carries the call. Default: the client makes one. */
  readonly parentMessageId?: string;
}

export interface SubagentOptions extends BlockOptions {
  /** What kind of subagent it is, the same for each invocation; user interfaces show it. */
  readonly name: string;
  /** What it is for. */
  readonly description?: string;
  /**
   * The invocation's id. Default: a new one for each. One of your own lets a user interface see that a later run goes on with an invocation
   * that was suspended here; one that this run has used already is numbered (`writer#2`).
   */
  readonly id?: string;
  /** The call that the subagent carries out. */
  readonly parentToolCallId?: string;
  /** The message with that call. */
  readonly parentMessageId?: string;
}

/**
 * One open invocation of a subagent: a context whose every event carries the invocation's id, with a lane of its own. What is still open in
 * it when it ends is closed first. After the end it throws {@link HandleClosedError}; ending twice is fine; disposing never throws.
 */
export interface SubagentHandle<S> extends RunContext<S>, Disposable {
  /** The `subagentRunId` that its events carry. */
  readonly id: string;
  readonly name: string;
  /**
   * SUBAGENT_FINISHED. Leaving the scope sends it without a result.
   *
   * @throws {@link NotJsonError} for a result that JSON cannot hold; it is still open then
   */
  end(result?: unknown): void;
  /** SUBAGENT_ERROR, with as much of the error as clients may know: see {@link AgentError}. The run goes on. */
  fail(error: unknown): void;
}

/** The emitters of one lane: what its blocks, steps and activities are opened with. */
export interface LaneEmitting<S> extends Emitting<S> {
  /** A whole message at once. Returns its id. */
  say(text: string): string;
  /** A whole reasoning block at once. Returns its id. */
  think(text: string): string;
  readonly message: Scoped<MessageHandle<S>, MessageOptions>;
  readonly reasoning: Scoped<ReasoningHandle<S>, BlockOptions>;
  toolCall(name: string, options?: ToolCallOptions): ToolCallHandle<S>;
  toolCall<T>(name: string, body: (call: ToolCallHandle<S>) => Promise<T> | T): Promise<T>;
  toolCall<T>(name: string, options: ToolCallOptions, body: (call: ToolCallHandle<S>) => Promise<T> | T): Promise<T>;
  /**
   * Answers a call that ended earlier, also in an earlier run: only TOOL_CALL_RESULT goes out.
   *
   * @returns the id of the tool message
   */
  toolResult(toolCallId: string, content: string | readonly ContentPart[], options?: BlockOptions): string;
  toolResultJson(toolCallId: string, value: unknown, options?: BlockOptions): string;
  step(name: string, options?: BlockOptions): StepHandle<S>;
  step<T>(name: string, body: (step: StepHandle<S>) => Promise<T> | T): Promise<T>;
  step<T>(name: string, options: BlockOptions, body: (step: StepHandle<S>) => Promise<T> | T): Promise<T>;
  activity<C extends object>(type: string, content: C, options?: BlockOptions): ActivityHandle<C>;
  activity<C extends object, T>(
    type: string,
    content: C,
    body: (activity: ActivityHandle<C>) => Promise<T> | T,
  ): Promise<T>;
  activity<C extends object, T>(
    type: string,
    content: C,
    options: BlockOptions,
    body: (activity: ActivityHandle<C>) => Promise<T> | T,
  ): Promise<T>;
  raw(event: unknown, source?: string): void;
  /** Resolves when all that was emitted is in the log, or read where there is none. */
  flushed(): Promise<void>;
}

/** Work in a lane of its own. */
export type Branch<Lane> = (lane: Lane) => Promise<unknown>;
/** What branches give, each at its place. */
export type BranchResults<B extends readonly Branch<never>[]> = {
  -readonly [K in keyof B]: Awaited<ReturnType<B[K]>>;
};

/** What agent code holds: the request, the state, and the emitters of one lane. */
export interface RunContext<S = Json> extends LaneEmitting<S> {
  readonly threadId: string;
  readonly runId: string;
  readonly parentRunId: string | undefined;
  readonly input: RunAgentInput;
  /** The conversation as the request holds it. */
  readonly messages: readonly Message[];
  /** The text of the newest user message; "" when there is none. */
  lastUserText(): string;
  readonly clientTools: readonly ClientTool[];
  clientTool(name: string): ClientTool | undefined;
  readonly context: readonly Context[];
  readonly forwardedProps: Json;
  /** Aborted when the run is cancelled or the driver loses it. */
  readonly signal: AbortSignal;
  readonly principal: Principal;

  /** Replaces the whole state; sent by the next publish. */
  setState(next: S): void;
  /** Adds to RUN_FINISHED's usage. Entries of one provider and model are summed. */
  usage(entry: TokenUsage): void;

  /**
   * Begins a subagent, whose work the user interface shows as its own. It has a lane, so it may run while a block of this one is open (the call
   * that it carries out), and several may run side by side in {@link RunContext.parallel}. A question asked inside it suspends it.
   *
   * With a body it ends with the body: what that returns is its result, what that throws is its SUBAGENT_ERROR, and thrown on. `using` cannot
   * tell whether its scope was left by an exception, so there `fail` says it.
   */
  subagent(options: SubagentOptions): SubagentHandle<S>;
  subagent<T>(options: SubagentOptions, body: (sub: SubagentHandle<S>) => Promise<T> | T): Promise<T>;
  /**
   * Sends the conversation as a whole: MESSAGES_SNAPSHOT. Nobody needs it to keep clients up to date; it is how a conversation is made shorter
   * or put right, and the run's next requests begin with what it says.
   *
   * @param change - makes the new list of what clients hold, from the first message of the thread on; messages that stay keep their ids.
   * Left out, the list is sent as it is
   */
  messagesSnapshot(change?: (messages: readonly Message[]) => readonly Message[]): void;

  /**
   * Runs each branch in a lane of its own, where it may open a block beside those of the others.
   *
   * @returns what the branches give, in their order, each of its own type
   */
  parallel<B extends readonly Branch<RunContext<S>>[] | []>(branches: B): Promise<BranchResults<B>>;
  parallel<T>(branches: readonly ((lane: RunContext<S>) => Promise<T>)[]): Promise<T[]>;

  readonly isResume: boolean;
  /** The request's answers by interrupt id. */
  readonly resume: ReadonlyMap<string, Reply>;
  resumeFor(id: string): Reply | undefined;
  /** @throws {@link AnswerInvalidError} when a resolved answer does not fit the schema */
  resumeFor<T extends Schema>(id: string, schema: T): Reply<Infer<T>> | undefined;
  /**
   * Ends the leg with an interrupt and never resolves: the next request with `resume` runs the agent from the top with
   * {@link resumeFor} set. In parallel branches the leg ends when every other branch has ended or asked too, and lists all questions.
   */
  interrupt(...asks: readonly [Ask, ...Ask[]]): Promise<never>;
}

/**
 * The one extension point of the stream: rewrites each event before it is verified. It never sees a terminal event, and
 * passes STATE events on as they are, or {@link TransformerStateError} is thrown at the line that published.
 */
export interface Transformer<M extends Json = Json> {
  readonly name: string;
  readonly initial: M;
  step(memo: M, event: AGUIEvent): { readonly memo: M; readonly events: readonly AGUIEvent[] };
}

export type { ClientTool, ContentPart, Context, Message, RunAgentInput, TokenUsage, ToolMessage };
