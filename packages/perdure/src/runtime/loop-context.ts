import type {
  Ask,
  Branch,
  BranchResults,
  ClientTool,
  RunContext,
  SubagentHandle,
  SubagentOptions,
} from "../emit/types.ts";
import type { Json, Jsonify } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import type { Duration, Effect } from "../protocol/words.ts";
import type { ToolContext, ToolDefinition, ToolHandler, ToolInput, ToolOutput } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";

/** How a step runs that is written where it is needed: see {@link DurableContext.once}. */
export interface OnceOptions<T = unknown> {
  /** What running it again would do. Default: `write`, so that what may be half done is never simply done again. */
  readonly effect?: Effect;
  /** How long one attempt may take. Default: 5 minutes. */
  readonly timeout?: Duration;
  /** How long after a write's attempt has ended something may still land. Default: 10 seconds. */
  readonly settle?: Duration;
  /** Attempts in all. Default: 3; a `write` uses them only after a failure that says that nothing was applied. */
  readonly retry?: { readonly attempts: number };
  /** Finds out whether a write whose outcome is unknown was applied. Without it a human is asked. */
  readonly reconcile?: NonNullable<ToolHandler<Json, T>["reconcile"]>;
}

/** A question that the run waits for: see {@link DurableContext.ask}. */
export interface Question<A extends Schema = Schema>
  extends Pick<Ask, "reason" | "message" | "expiresIn" | "metadata"> {
  /** What an answer has to look like. Default: anything. */
  readonly schema?: A;
  /** A scope that whoever answers needs. */
  readonly audience?: string;
}

export interface CallOptions {
  /** Whether user interfaces are shown the call. Default: true. */
  readonly show?: boolean;
}

/**
 * What the code of a custom loop holds: a {@link RunContext} whose operations below are recorded. When the process dies, when the run waits for a
 * human or for a time, and when a new version is deployed, the code is run again from the top: recorded steps return what they returned, what was
 * emitted is not emitted again, and the code goes on where it was. So between its steps it has to do the same every time.
 *
 * A step's place is the order in which its lane begins steps. Two that run side by side should have lanes of their own, by
 * {@link DurableContext.parallel}.
 *
 * What finds no room in the agent's budget waits until a human has raised it. After he has stopped the run, it and all that the code begins reject
 * with {@link BudgetExceeded}.
 *
 * @typeParam S - the agent's state
 * @typeParam Lane - the context of each branch: the same
 */
export interface DurableContext<S, Lane extends RunContext<S>> extends RunContext<S> {
  /**
   * Runs a tool, with all that its definition says: approval, attempts, keys, and what becomes of a write that a crash has cut.
   *
   * @returns its output, as the log holds it
   * @throws {@link StepFailed} when it has failed for good, was rejected, or nobody knows what came of it
   */
  call<T extends ToolDefinition>(tool: T, input: ToolInput<T>, options?: CallOptions): Promise<ToolOutput<T>>;
  call(tool: DynTool, input: unknown, options?: CallOptions): Promise<Json>;
  /**
   * Has the client run one of its tools, {@link RunContext.clientTools}: shows the call, ends the leg, and goes on when a request has brought the
   * result.
   *
   * @returns the text of the result as the client has sent it, which nobody has checked
   * @throws {@link StepFailed} `CLIENT_FAILED` when the client says so, `NOT_ANSWERED` when its user went on without it
   */
  call(tool: ClientTool, input: unknown): Promise<string>;
  /**
   * Runs a function once, whatever happens: when it has ended, its result is recorded. What it may not do twice says its `effect`.
   *
   * @param name - 1 to 64 of `A-Z a-z 0-9 _ -`; code that is run again is known by it
   * @returns what it returned, as JSON gives it back
   * @throws {@link StepFailed}
   */
  once<T>(name: string, body: (step: ToolContext<S, string>) => Promise<T> | T): Promise<Jsonify<T>>;
  once<T>(
    name: string,
    options: OnceOptions<T>,
    body: (step: ToolContext<S, string>) => Promise<T> | T,
  ): Promise<Jsonify<T>>;
  /**
   * Asks a human, and waits for the answer: for days, if need be, and without costing anything meanwhile.
   *
   * @throws {@link AskCancelled} when nobody answers, {@link BlockOpenError} while a block of this lane is open
   */
  ask<A extends Schema>(question: Question<A> & { readonly schema: A }): Promise<Infer<A>>;
  ask(question: Question): Promise<Json>;
  /** Waits, also over restarts. Longer than a second, it costs nothing meanwhile. @throws {@link BlockOpenError} */
  sleep(duration: Duration): Promise<void>;
  /**
   * Waits for a signal from outside: `runtime.signal(run, name, payload)`, or `POST /runs/:uid/signals/:name`. Signals are kept until somebody
   * receives them, the first one first. (`signal` is the context's AbortSignal.)
   *
   * @returns the signal's payload; null where it has none
   * @throws {@link BlockOpenError}, {@link AnswerInvalidError} when the payload does not fit the schema
   */
  receive<A extends Schema>(name: string, schema: A): Promise<Infer<A>>;
  receive(name: string): Promise<Json>;
  /** The time, in ms since the epoch: the same when the code is run again. */
  now(): number;
  /** A number in [0, 1): the same when the code is run again. */
  random(): number;
  /** A random UUID: the same when the code is run again. */
  uuid(): string;

  /**
   * For code that has changed while runs of it are under way: a run that has come past this place under the old code gets 0, for ever; any
   * other gets `max`, which is recorded.
   *
   * @param name - unique in its lane
   * @param max - the version that the code has now, from 1
   */
  version(name: string, max: number): number;

  /**
   * Runs each branch in a lane of its own and ends with the first that ends. The others lose: what they wait for rejects with {@link RaceLost},
   * their questions are withdrawn, their reads stop, their agents are cancelled, and a write that has begun is seen through, though nobody hears of it.
   *
   * @returns what the first one gives: the types of the branches may differ
   * @throws {@link PerdureError} `RACE_EMPTY` without a branch
   */
  race<B extends Branch<Lane>>(branches: readonly B[]): Promise<Awaited<ReturnType<B>>>;
  race<T>(branches: readonly ((lane: Lane) => Promise<T>)[]): Promise<T>;
  /** Runs each branch in a lane of its own. @returns what the branches give, in their order, each of its own type */
  parallel<B extends readonly Branch<Lane>[] | []>(branches: B): Promise<BranchResults<B>>;
  parallel<T>(branches: readonly ((lane: Lane) => Promise<T>)[]): Promise<T[]>;
  /** The subagent's own context can do all that this one can. */
  subagent(options: SubagentOptions): Lane & SubagentHandle<S>;
  subagent<T>(options: SubagentOptions, body: (sub: Lane & SubagentHandle<S>) => Promise<T> | T): Promise<T>;
}

/** A durable context as the runtime makes it; `agent/` adds the models. */
export interface LoopContext<S = Json> extends DurableContext<S, LoopContext<S>> {}
