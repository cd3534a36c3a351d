import type { AgentCapabilities } from "@ag-ui/core";
import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import { PerdureError } from "../protocol/errors.ts";
import { type Json, toJson } from "../protocol/json.ts";
import { describeIssues, validateSync } from "../protocol/validate.ts";
import type { BodyAgent, LoopAgent } from "../runtime/agent-definition.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { registry, type ToolRegistry } from "../tool/registry.ts";
import type { ToolSource } from "../tool/tool-source.ts";
import { loopOverSources } from "./changing-tools.ts";
import { builtInLoop } from "./loop.ts";
import type { CallSettings, LanguageModel } from "./model-port.ts";

/** An agent's definition is not usable. */
export class AgentDefinitionError extends PerdureError {
  override readonly name = "AgentDefinitionError";
  constructor(message: string) {
    super("AGENT_DEFINITION", message);
  }
}

/** An agent of the built-in loop: a model with tools. */
export interface ModelAgentDefinition<S> extends Omit<LoopAgent<S>, "loop" | "run"> {
  /** Any language model object of the AI SDK. */
  readonly model: LanguageModel;
  /** The system prompt. */
  readonly instructions?: string;
  /** Its own tools, and sources of tools, as `mcp()` of `perdure/mcp` gives them. */
  readonly tools?: readonly (ToolDefinition | DynTool | ToolSource)[];
  /** How the model is asked: temperature, output limit and so on. */
  readonly settings?: CallSettings;
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Defines an agent: either a model with tools, which the built-in loop drives and which goes on after any crash, or a body of your own.
 *
 * @param definition - `name`: letters, digits, `_` and `-`, at most 64, as it stands in `POST /agents/:agent`; `state`: its schema and
 * initial value, which type `ctx.state`; `model`, `instructions`, `tools`, `approve`; `capabilities`; or `run`: the body, whose returned JSON is RUN_FINISHED's `result`
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
    const { model, instructions = "", tools = [], settings = {}, ...common } = definition;
    if (common.approve !== undefined && common.approve !== "write") {
      throw new AgentDefinitionError(
        `agent "${name}" has approve: ${JSON.stringify(common.approve)}; it is "write" or left out`,
      );
    }
    const sources = tools.filter(isSource);
    const own = registry(tools.filter(isKnown));
    const loopOver = (known: ToolRegistry) => builtInLoop({ model, instructions, tools: known, settings });
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
