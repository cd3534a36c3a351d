import type { AgentCapabilities } from "@ag-ui/core";
import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import { parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import { type Json, toJson } from "../protocol/json.ts";
import { describeIssues, validateSync } from "../protocol/validate.ts";
import type { Duration } from "../protocol/words.ts";
import type { BodyAgent, LoopAgent } from "../runtime/agent-definition.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { registry, type ToolRegistry } from "../tool/registry.ts";
import type { ToolSource } from "../tool/tool-source.ts";
import type { BudgetDefinition } from "./agent-budget.ts";
import { loopOverSources } from "./changing-tools.ts";
import { builtInLoop, type StepSettings } from "./loop.ts";
import { type LanguageModel, modelProblem } from "./model-port.ts";

/** An agent's definition is not usable. */
export class AgentDefinitionError extends PerdureError {
  override readonly name = "AgentDefinitionError";
  constructor(message: string) {
    super("AGENT_DEFINITION", message);
  }
}

/** An agent of the built-in loop: a model with tools. */
export interface ModelAgentDefinition<S> extends Omit<LoopAgent<S>, "loop" | "run">, BudgetDefinition {
  /** Any language model object of the AI SDK. */
  readonly model: LanguageModel;
  /** The system prompt. */
  readonly instructions?: string;
  /** Its own tools, and sources of tools, as `mcp()` of `perdure/mcp` gives them. */
  readonly tools?: readonly (ToolDefinition | DynTool | ToolSource)[];
  /**
   * How the model is asked: temperature, output limit and so on. Or a pure function of the step, whose result is recorded: each attempt at the step,
   * also after a crash, asks with it.
   */
  readonly settings?: StepSettings;
  /**
   * Asked in this order for the answer that the model before has not given: its attempts are used up, or it refuses (a wrong key, no such model, a
   * request that it does not take, an answer that its provider withheld). Each step begins with `model` again.
   */
  readonly fallbacks?: readonly LanguageModel[];
  /**
   * How often a model is asked again for one answer after a connection error, 408, 409, 429, 5xx, a time-out, or an answer that broke off: with
   * exponential back-off, and not before the provider's `Retry-After`. Default 2, for each model.
   */
  readonly maxRetries?: number;
  /** How long a model may be silent before its answer counts as failed, for example `"60s"`. Default for both: 5 minutes. */
  readonly timeouts?: {
    /** From the request to the first piece of the answer: text, reasoning or a call. */
    readonly firstToken?: Duration;
    /** From one piece of the answer to the next. */
    readonly betweenTokens?: Duration;
  };
}

/** What Node's fetch itself waits for the beginning of an answer, and for its next bytes. */
const SILENCE = "5m";

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Defines an agent: either a model with tools, which the built-in loop drives and which goes on after any crash, or a body of your own.
 *
 * @param definition - `name`: letters, digits, `_` and `-`, at most 64, as it stands in `POST /agents/:agent`; `state`: its schema and
 * initial value, which type `ctx.state`; `model`, `fallbacks`, `maxRetries`, `timeouts`, `settings`, `instructions`, `tools`, `approve`, `budget`, `pricing`; `capabilities`; or `run`: the body, whose returned JSON is RUN_FINISHED's `result`
 * @throws {@link AgentDefinitionError}, and {@link ToolDefinitionError} for its tools
 */
export function agent<S = Json>(definition: ModelAgentDefinition<S>): LoopAgent<S>;
export function agent<S = Json>(definition: BodyAgent<S>): BodyAgent<S>;
export function agent<S>(definition: ModelAgentDefinition<S> | BodyAgent<S>): LoopAgent<S> | BodyAgent<S> {
  const { name, capabilities } = definition;
  if (!NAME.test(name)) {
    throw new AgentDefinitionError(`agent name ${JSON.stringify(name)} has to match ${NAME}; it is part of a URL`);
  }
  if (capabilities !== undefined) checkCapabilities(name, capabilities);
  if ("model" in definition) {
    const { model, instructions = "", tools = [], settings = {}, fallbacks = [], ...rest } = definition;
    const { maxRetries = 2, timeouts = {}, budget, pricing, countTokens, ...common } = rest;
    if (common.approve !== undefined && common.approve !== "write") {
      throw new AgentDefinitionError(
        `agent "${name}" has approve: ${JSON.stringify(common.approve)}; it is "write" or left out`,
      );
    }
    const models = [model, ...fallbacks];
    for (const [i, given] of models.entries()) {
      const problem = modelProblem(given);
      const which = i === 0 ? "model" : `fallbacks[${i - 1}]`;
      if (problem !== undefined) throw new AgentDefinitionError(`${which} of agent "${name}" ${problem}`);
    }
    if (!Number.isSafeInteger(maxRetries) || maxRetries < 0) {
      throw new AgentDefinitionError(
        `agent "${name}" has maxRetries: ${String(maxRetries)}; it is a whole number from 0, which asks each model once`,
      );
    }
    const limit = (of: keyof typeof timeouts): number =>
      parseDuration(timeouts[of] ?? SILENCE, `timeouts.${of} of agent "${name}"`);
    const sources = tools.filter(isSource);
    const own = registry(tools.filter(isKnown));
    const budgeted = {
      ...{ budget, pricing, countTokens, mayHaveOtherTools: sources.length > 0 },
      fault: (what: string): Error => new AgentDefinitionError(`agent "${name}" ${what}`),
    };
    const loopOver = (known: ToolRegistry) =>
      builtInLoop({
        ...{ models, instructions, tools: known, settings, attempts: 1 + maxRetries, budgeted },
        timeouts: { firstToken: limit("firstToken"), betweenTokens: limit("betweenTokens") },
      });
    return Object.freeze({
      ...common,
      loop: sources.length === 0 ? loopOver(own) : loopOverSources(loopOver, [...own], sources),
    });
  }
  if (typeof definition.run !== "function") {
    throw new AgentDefinitionError(`agent "${name}" has neither a model nor a run(ctx); give it one of them`);
  }
  return Object.freeze({ ...definition });
}

function isSource(tool: ToolDefinition | DynTool | ToolSource): tool is ToolSource {
  return "ready" in tool;
}

function isKnown(tool: ToolDefinition | DynTool | ToolSource): tool is ToolDefinition | DynTool {
  return !isSource(tool);
}

/** What is wrong with them is said where they are written, not to the first client that asks. */
function checkCapabilities(name: string, capabilities: AgentCapabilities): void {
  const checked = validateSync(AgentCapabilitiesSchema, toJson(capabilities, `capabilities of agent "${name}"`));
  if (!checked.ok) {
    throw new AgentDefinitionError(
      `the capabilities of agent "${name}" are not AG-UI's AgentCapabilities: ${describeIssues(checked.issues)}`,
    );
  }
}
