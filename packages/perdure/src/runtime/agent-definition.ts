import type { AgentCapabilities } from "@ag-ui/core";
import type { Transformer } from "../emit/types.ts";
import type { Interrupt, NewEntry } from "../log/entries.ts";
import type { AskedOfModel } from "../log/fixture.ts";
import type { RunState, StepState } from "../log/fold.ts";
import type { Reserved } from "../log/spent.ts";
import type { Message, TokenUsage, UserMessage } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Schema } from "../protocol/schema.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { Left, LoopBudget, RunBudget } from "./budget.ts";
import type { LoopContext } from "./loop-context.ts";
import type { ModelEmitter } from "./model-emitter.ts";
import type { ModelPolicy } from "./model-retry.ts";

/** The typed state of an agent. */
export interface StateDefinition<S> {
  /** What a state sent by a client has to fit. Without it any JSON is taken. */
  readonly schema?: Schema<unknown, S>;
  /** The state of a new thread. */
  readonly initial: () => S;
}

/** What a user's message does that arrives before the run before it has ended. */
export type Arrival = "refuse" | "queue" | "cancel-and-go";

/** What every agent has. */
interface AgentCommon<S> {
  readonly name: string;
  readonly description?: string;
  readonly state?: StateDefinition<S>;
  /** Rewrite the stream before it is verified, in this order. */
  readonly transformers?: readonly Transformer[];
  /** What a closed connection means: the run goes on, or it is cancelled when its last reader has been gone for 10 s. Default `detach`. */
  readonly disconnect?: "detach" | "cancel";
  /**
   * What becomes of a user's message that arrives while a run of its thread is active: it is refused (409 `RUN_ACTIVE`); it waits, durably, and
   * becomes the next run when those before it have ended; or those are cancelled, and it begins when they have ended. Default `refuse`.
   */
  readonly whileActive?: Arrival;
  /** The same while the run waits for answers to questions (else 409 `INTERRUPTS_OPEN`). Default `refuse`. */
  readonly whileParked?: Arrival;
  /** What a request without a message means on a thread at rest: show it, or run again. Default `hydrate`. */
  readonly emptyRequest?: "hydrate" | "run";
  /** What `GET /agents/NAME` says beside, or in place of, what follows from the definition: its version, what it can read, and so on. */
  readonly capabilities?: AgentCapabilities;
  /**
   * Whether assistant messages that the thread does not know, with the results of their calls, become part of its history, as text: nothing is
   * run for them. For front ends that bring a conversation from elsewhere. Default: they are the client's own affair.
   */
  readonly importHistory?: boolean;
  /** Whether a client may bring `system` and `developer` messages: they steer the model as `instructions` do. Default `refuse`. */
  readonly systemMessages?: "refuse" | "allow";
}

/** An agent whose body is a function: one leg at a time. */
export interface BodyAgent<S = unknown> extends AgentCommon<S> {
  // A method, because methods compare bivariantly: so agents of all states go into one list.
  run(ctx: LoopContext<S>): Promise<unknown>;
  readonly loop?: undefined;
  /** Agents that its code calls: their runs are driven without their being among those of `createRuntime`, which gives each a route of its own. */
  readonly agents?: readonly Agent[];
  readonly models?: LoopModels;
  /** Puts something between its tools and models and who runs them, for tests. */
  readonly instrument?: { tool(tool: DynTool): DynTool; model(ask: ModelAsk): ModelAsk };
}

/** An agent that a loop drives by folding the log. */
export interface LoopAgent<S = unknown, O = unknown> extends AgentCommon<S> {
  /** What the agent answers with: the run's output, validated, and RUN_FINISHED's `result`. Without it the answer is text. */
  readonly output?: Schema<unknown, O>;
  /** `"write"`: every call of a `write` tool waits for a human, also where the tool itself asks for none. A tool's own request is kept. */
  readonly approve?: "write";
  readonly loop: Loop;
  readonly run?: undefined;
}

/** An agent as the runtime needs it. */
export type Agent<S = unknown> = BodyAgent<S> | LoopAgent<S>;

export function budgetOf(agent: Agent): RunBudget | undefined {
  return agent.loop === undefined ? agent.models?.budget : (agent.loop.budget ?? undefined);
}

/** A tool whose calls are runs of an agent. The driver begins those and follows them; its `callJson` is never called. */
export interface AgentTool extends DynTool {
  readonly agent: Agent;
  /** What the child is asked: its first user message. @throws what the user's mapping throws */
  messageFor(input: Json): Promise<UserMessage["content"]>;
}

export function isAgentTool(tool: DynTool | undefined): tool is AgentTool {
  return tool !== undefined && "agent" in tool;
}

/** A step that a loop wants: a call that a recorded model step made, or what the code of a custom loop has begun. */
export interface LoopCall {
  readonly path: Path;
  /** Ours, as on the wire. */
  readonly id: string;
  readonly name: string;
  readonly input: Json;
  /** Why the call cannot be run, where the model wrote no JSON object. */
  readonly invalid?: string;
  /** The model step that made the call; null: code of a custom loop began it. */
  readonly model: Path | null;
  /** Which of the model step's calls it is. */
  readonly index: number;
  /** Default: `tool`. */
  readonly step?: "tool" | "client-tool" | "custom" | "ask" | "sleep" | "signal";
  /** Nobody waits for it any more: it ends as after a cancel. */
  readonly isLost?: true;
  /** Clients are not shown the call. */
  readonly isHidden?: true;
  /** Of an `ask`. */
  readonly question?: Pick<Interrupt, "reason" | "message" | "schema" | "audience" | "metadata"> & {
    /** Milliseconds. */
    readonly expiresIn?: number;
  };
}

/** A step of the loop's own, between model steps and calls. It changes nothing outside, so it may run again until it has an outcome. */
export interface OwnStep {
  readonly path: Path;
  readonly name: string;
  readonly input: Json;
  /** @param maxOutputTokens - the most that a model may answer which it asks, under a budget */
  run(
    signal: AbortSignal,
    maxOutputTokens?: number,
  ): Promise<{ readonly output: Json; readonly usage?: readonly TokenUsage[] }>;
  /** Pure, of one that asks a model: the upper bound of that, within what is left where that is possible. */
  readonly reserve?: (left: Left) => Reserved;
  /** Whether a failure may be over the next time. Default: no. */
  mayRetry?(error: unknown): boolean;
}

/** What a loop wants next. */
export type Next =
  | { readonly next: "model"; readonly path: Path }
  | { readonly next: "calls"; readonly calls: readonly LoopCall[] }
  | { readonly next: "own"; readonly step: OwnStep }
  /** `outputOf`: the step whose output is that of the run; of a model step, its text. */
  | { readonly next: "finish"; readonly outputOf: Path }
  | { readonly next: "fail"; readonly error: RecordedError }
  /** What the code of a custom loop waits for. `isBusy`: it runs by itself; `isOver`: it has ended. */
  | {
      readonly next: "steps";
      readonly models: readonly Path[];
      readonly calls: readonly LoopCall[];
      readonly isBusy: boolean;
      readonly isOver: boolean;
    };

export interface ModelStep {
  readonly run: RunState;
  /** The finished runs of the thread before this one, oldest first. */
  readonly before: readonly RunState[];
  readonly path: Path;
  /** Which of the loop's models is asked. */
  readonly model: number;
  /** As the step's input records them. */
  readonly settings: Json;
  /** The most that it may answer, under a budget. Tokens. */
  readonly maxOutputTokens?: number;
  readonly signal: AbortSignal;
  readonly emit: ModelEmitter;
}

/** A model step that is asked, whoever wants to know. */
export interface ModelAsk {
  readonly path: Path;
  readonly policy: ModelPolicy;
  /** Called before anything of the attempt is recorded. */
  prepare?(signal: AbortSignal): Promise<void>;
  /** Its first entry. */
  started(run: RunState): NewEntry;
  /** Pure: the upper bound of the next attempt, within what is left where that is possible. For code of a custom loop. */
  reserve?(step: StepState | undefined, left: Left): Reserved;
  /** Asks one of the policy's models. @throws `ModelError` for what the model fails with */
  call(request: {
    readonly run: RunState;
    /** The index of the model. */
    readonly model: number;
    /** The most that it may answer, under a budget. Tokens. */
    readonly maxOutputTokens?: number;
    readonly signal: AbortSignal;
    readonly emit: ModelEmitter;
  }): Promise<{ readonly output: Json; readonly usage: readonly TokenUsage[] }>;
}

/** What asks models for the code of a custom loop, within its budget. `agent()` makes it. */
export interface LoopModels {
  readonly budget: RunBudget;
  /**
   * @param options - as the code gave them
   * @throws `AgentDefinitionError` when they cannot be asked
   */
  prepare(options: unknown): PreparedModel;
  /** The agent as a tool whose input is a task. */
  toolOf(agent: Agent): AgentTool;
}

export interface PreparedModel {
  ask(path: Path): ModelAsk;
  /** Asked for under a budget of dollars. @throws `AgentDefinitionError` that names a model without a price */
  checkPrices(): void;
  /** What the model is asked. */
  asks(): AskedOfModel;
  /** What the code gets, with the calls in it. */
  read(output: Json, usage: readonly TokenUsage[]): { readonly turn: unknown; readonly calls: readonly ReadCall[] };
}

/** A call that a model made, as the code gets it, and the tool that it means. */
export interface ReadCall {
  readonly call: { readonly id: string; readonly name: string; readonly input: Json; readonly invalid?: string };
  readonly tool: DynTool | undefined;
}

/** The steps of an agent between its tools: pure decisions, and the model calls. */
/** What the thread of a fork keeps of it. */
export interface AsForked {
  readonly instructions?: string | undefined;
  readonly model?: string | undefined;
}

export interface Loop {
  readonly tools: readonly DynTool[];
  /**
   * By name, also by former ones.
   *
   * @param path - of the step that it is for: code of a custom loop may give each its own
   */
  tool(name: string, path?: Path): DynTool | undefined;
  /** What every model call of this agent rests on, for the record of its input. */
  readonly describes: { readonly instructions: string; readonly tools: Json; readonly settings: Json };
  /** The model step that code of a custom loop has begun at a place. */
  ask?(path: Path): ModelAsk | undefined;
  /** Whom its model steps ask. */
  readonly models: ModelPolicy;
  /** Pure: how a model step that begins now is asked. */
  settings(run: RunState, path: Path): Json;
  /** The names of the models that a fork may have in place of its own. */
  readonly alternatives: readonly string[];
  /** The same agent, as a fork may have it: under another system prompt, with another of its models. One that it does not have (any more) is its own. */
  as(fork: AsForked): Loop;
  readonly budget?: LoopBudget | null;
  /** Pure: what the log asks for, whatever runs at the moment. `before`: the thread's runs before this one, oldest first. */
  next(run: RunState, before: readonly RunState[]): Next;
  /** Pure: what a model step would be asked now, of a run as it is when the step begins. */
  asks(step: Pick<ModelStep, "run" | "before" | "settings">): AskedOfModel;
  /** What of these messages no model can be given, as sentences: it is left out. */
  unusable(messages: readonly Message[]): readonly string[];
  /** The loop as one driver sees it, where its tools may change: those stand still until the next {@link refresh}. Default: itself. */
  forDriver?(): Loop;
  /**
   * Brings tools that may change up to date. Asked for before anything is decided about recorded calls, and when a model step begins; never
   * between, so that a call meets the tools that its model was offered.
   *
   * @throws when they cannot be had now; `callModel` fails of the same then
   */
  refresh?(signal: AbortSignal): Promise<void>;
  /** The runtime stops: lets go of what the tools hold open. */
  close?(): Promise<void>;
  /** One model call. Streams through `emit` and resolves to what the log keeps. @throws {@link ModelError} for what the model fails with */
  callModel(step: ModelStep): Promise<{ readonly output: Json; readonly usage: readonly TokenUsage[] }>;
}
