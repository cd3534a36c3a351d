import type { ClientTool } from "../emit/types.ts";
import type { Message } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Agent, BodyAgent } from "../runtime/agent-definition.ts";
import type { CallOptions, DurableContext } from "../runtime/loop-context.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { BudgetDefinition } from "./agent-budget.ts";
import type { ModelOptions } from "./model-options.ts";
import type { FinishReason, ModelAnswer, ModelOutput } from "./model-output.ts";
import type { CallSettings } from "./model-port.ts";
import type { ToolResult } from "./prompt.ts";

/** One model call of a custom loop. It has either a `prompt` or `messages`. */
export interface ModelCallOptions extends ModelOptions {
  /** The system prompt. */
  readonly instructions?: string;
  /** What the user says. */
  readonly prompt?: string;
  /** The conversation: messages of the thread, turns that {@link LoopContext.model} returned, and what their calls gave. */
  readonly messages?: readonly (Message | ModelTurn | ToolResult)[];
  /** What the model may call. Nothing is run by itself: see {@link LoopContext.call}. */
  readonly tools?: readonly (ToolDefinition | DynTool)[];
  /** What it may call of the client's: `ctx.clientTools`, or some of them. One that is named as one of `tools` is left out. Default: none. */
  readonly clientTools?: readonly ClientTool[];
  /** How the model is asked: temperature, output limit and so on. */
  readonly settings?: CallSettings;
}

/** A call that a model made. {@link LoopContext.call} runs it. */
export interface ModelTurnCall {
  /** As on the wire. */
  readonly id: string;
  readonly name: string;
  readonly input: Json;
  /** Why it cannot be run, where the model wrote no JSON object. */
  readonly invalid?: string;
}

/** What a model has answered. */
export interface ModelTurn {
  /** The message that user interfaces show; null when it said nothing. */
  readonly messageId: string | null;
  readonly text: string;
  /** Readable reasoning, its parts as lines. */
  readonly reasoningText: string;
  readonly calls: readonly ModelTurnCall[];
  /** An answer that ended with `length` or `content-filter` is not whole: what that means is for the loop to say. */
  readonly finishReason: FinishReason;
  readonly usage: ModelAnswer["usage"];
  /** As the log holds it: with what its provider wants back. */
  readonly output: ModelOutput;
}

/** What the code of a custom loop holds: see {@link DurableContext}. */
export interface LoopContext<S = Json> extends DurableContext<S, LoopContext<S>> {
  /**
   * Asks a model, and shows its answer while it comes. The answer is recorded: a crash in the middle asks again, one behind it does not.
   *
   * @throws {@link StepFailed} when no model has given one
   */
  model(options: ModelCallOptions): Promise<ModelTurn>;
  /**
   * Runs a tool; or a call that a model made, whose result user interfaces see.
   *
   * @returns its output; of a model's call what became of it, for the next {@link model}: a failure, too, is for the model to read
   */
  call: DurableContext<S, LoopContext<S>>["call"] & ((call: ModelTurnCall) => Promise<ToolResult>);
  /**
   * Runs another agent, as a run of its own: with its own log, state and history, and shown as it goes as a subagent. What it asks of humans, it
   * asks through this run. The same as `ctx.call(agentTool(agent), { task: message })`.
   *
   * @param agent - one of the `agents` of this agent, or of `createRuntime`
   * @param message - its first user message
   * @returns its answer: its text, or its structured output
   * @throws `StepFailed` when it has failed or was cancelled
   */
  spawn(agent: Agent, message: string, options?: CallOptions): Promise<Json>;
}

/** An agent whose loop is code of the user's own. */
export interface LoopDefinition<S>
  extends Omit<BodyAgent<S>, "run" | "loop" | "models" | "instrument">,
    BudgetDefinition {
  run(ctx: LoopContext<S>): Promise<unknown>;
}
