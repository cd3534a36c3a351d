import type { AgentCapabilities } from "@ag-ui/core";
import { AgentCapabilitiesSchema } from "@ag-ui/core/schemas";
import { type Json, toJson } from "../protocol/json.ts";
import { isSchema, NO_SCHEMA, type Schema } from "../protocol/schema.ts";
import { describeIssues, validateSync } from "../protocol/validate.ts";
import type { Arrival, BodyAgent, LoopAgent } from "../runtime/agent-definition.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { registry, type ToolRegistry } from "../tool/registry.ts";
import type { ToolSource } from "../tool/tool-source.ts";
import { agentBudget, type BudgetDefinition } from "./agent-budget.ts";
import { loopOverSources } from "./changing-tools.ts";
import type { Compaction } from "./compaction.ts";
import { AgentDefinitionError } from "./definition-error.ts";
import { builtInLoop, type StepSettings } from "./loop.ts";
import type { LoopDefinition } from "./loop-context.ts";
import { loopModels } from "./loop-models.ts";
import { type ModelOptions, readModelOptions } from "./model-options.ts";
import { type LanguageModel, modelProblem } from "./model-port.ts";
import { ANSWER_TOOL, type OutputMode, type StructuredOutput, structuredOutput } from "./structured-output.ts";

/** An agent of the built-in loop: a model with tools. */
export interface ModelAgentDefinition<S, O = unknown>
  extends Omit<LoopAgent<S, O>, "loop" | "run">,
    BudgetDefinition,
    ModelOptions {
  /** Other models, by names of yours: a fork may go on with one in place of `model`, for itself and the later turns of its thread. */
  readonly models?: Readonly<Record<string, LanguageModel>>;
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
   * How the model is asked for an {@link LoopAgent.output}: `json`, as JSON by the provider; `tool`, by a call of `final_answer`, which
   * every model can. Default `auto`: `json` where the model object says `supportsStructuredOutputs`, else `tool`.
   */
  readonly outputMode?: OutputMode;
  /** How often the model is told what was wrong with an output and asked again, in one run. Default 2; 0: never. */
  readonly outputRepairs?: number;
  /** What becomes of a conversation that has grown too long. Default: models are asked with all of it. */
  readonly compaction?: Compaction;
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Defines an agent: either a model with tools, which the built-in loop drives and which goes on after any crash, or a body of your own.
 *
 * @param definition - `name`: letters, digits, `_` and `-`, at most 64, as it stands in `POST /agents/:agent`; `state`: its schema and
 * initial value, which type `ctx.state`; `model`, `models`, `fallbacks`, `maxRetries`, `timeouts`, `settings`, `instructions`, `tools`, `approve`, `budget`, `pricing`; `output`: the schema of a structured answer; `compaction`; `capabilities`; or `run`: the body, whose returned JSON is RUN_FINISHED's `result`, with `budget` and `pricing` for what it does through its context
 * @throws {@link AgentDefinitionError}, and {@link ToolDefinitionError} for its tools
 */
export function agent<S = Json, O = unknown>(definition: ModelAgentDefinition<S, O>): LoopAgent<S, O>;
export function agent<S = Json>(definition: LoopDefinition<S>): BodyAgent<S>;
export function agent<S>(definition: ModelAgentDefinition<S> | LoopDefinition<S>): LoopAgent<S> | BodyAgent<S> {
  const { name, capabilities } = definition;
  if (!NAME.test(name)) {
    throw new AgentDefinitionError(`agent name ${JSON.stringify(name)} has to match ${NAME}; it is part of a URL`);
  }
  if (capabilities !== undefined) checkCapabilities(name, capabilities);
  for (const [setting, arrival = "refuse"] of [
    ["whileActive", definition.whileActive],
    ["whileParked", definition.whileParked],
  ] as const) {
    if (ARRIVALS.has(arrival)) continue;
    throw new AgentDefinitionError(
      `agent "${name}" has ${setting}: ${JSON.stringify(arrival)}; it is "refuse", "queue" or "cancel-and-go"`,
    );
  }
  const fault = (what: string): Error => new AgentDefinitionError(`agent "${name}" ${what}`);
  if ("model" in definition) {
    const {
      model,
      models = {},
      fallbacks,
      maxRetries,
      timeouts,
      instructions = "",
      tools = [],
      settings = {},
      ...rest
    } = definition;
    const { outputMode = "auto", outputRepairs = 2, compaction, budget, pricing, countTokens, ...common } = rest;
    if (common.approve !== undefined && common.approve !== "write") {
      throw new AgentDefinitionError(
        `agent "${name}" has approve: ${JSON.stringify(common.approve)}; it is "write" or left out`,
      );
    }
    const patience = { fallbacks, maxRetries, timeouts };
    const asked = readModelOptions({ model, ...patience }, `agent "${name}"`);
    const sources = tools.filter(isSource);
    const own = registry(tools.filter(isKnown));
    const budgeted = { budget, pricing, countTokens, mayHaveOtherTools: sources.length > 0, fault };
    const outputOf = (by: LanguageModel) =>
      readOutput(name, by, common.output, { mode: outputMode, repairs: outputRepairs });
    const output = outputOf(model);
    const alternatives = Object.fromEntries(
      Object.entries(models).map(([other, by]) => {
        const whose = `models.${other} of agent "${name}"`;
        if (other === "") throw fault('has a model named ""; a fork has to name it: give it another key in models');
        return [other, { models: readModelOptions({ ...patience, model: by }, whose).models, output: outputOf(by) }];
      }),
    );
    if (compaction !== undefined) checkCompaction(name, compaction);
    const loopOver = (known: ToolRegistry) => {
      if (output !== undefined && known.get(ANSWER_TOOL) !== undefined) {
        throw new AgentDefinitionError(
          `agent "${name}" has an output and a tool named "${ANSWER_TOOL}", by which models give it; rename the tool`,
        );
      }
      return builtInLoop({
        ...{ ...asked, alternatives, instructions, tools: known, settings, output, compaction, budgeted },
      });
    };
    // A budget in money that lacks the price of one says so now.
    for (const other of Object.keys(alternatives)) loopOver(own).as({ model: other });
    return Object.freeze({
      ...common,
      loop: sources.length === 0 ? loopOver(own) : loopOverSources(loopOver, [...own], sources),
    });
  }
  if (typeof definition.run !== "function") {
    throw new AgentDefinitionError(`agent "${name}" has neither a model nor a run(ctx); give it one of them`);
  }
  const { budget, pricing, countTokens, ...common } = definition;
  const limited = agentBudget({
    ...{ budget, pricing, countTokens, fault },
    // What its code asks and calls is known when it does.
    ...{ models: [], mayHaveOtherTools: true, toolName: () => undefined },
    called: common.agents ?? [],
  });
  // What the context has more than the runtime gives it, `loopModels` gives it.
  return Object.freeze({ ...common, models: loopModels(name, limited) }) as BodyAgent<S>;
}

function isSource(tool: ToolDefinition | DynTool | ToolSource): tool is ToolSource {
  return "ready" in tool;
}

function isKnown(tool: ToolDefinition | DynTool | ToolSource): tool is ToolDefinition | DynTool {
  return !isSource(tool);
}

function readOutput(
  name: string,
  model: LanguageModel,
  output: Schema | undefined,
  { mode, repairs }: { readonly mode: OutputMode; readonly repairs: number },
): StructuredOutput | undefined {
  if (output === undefined) return undefined;
  if (!OUTPUT_MODES.has(mode)) {
    throw new AgentDefinitionError(
      `agent "${name}" has outputMode: ${JSON.stringify(mode)}; it is "auto", "json" or "tool"`,
    );
  }
  if (!Number.isInteger(repairs) || repairs < 0) {
    throw new AgentDefinitionError(`agent "${name}" has outputRepairs: ${repairs}; it is a whole number from 0`);
  }
  if (!isSchema(output)) throw new AgentDefinitionError(`the output of agent "${name}" ${NO_SCHEMA}`);
  try {
    return structuredOutput(output, { mode, repairs, model });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new AgentDefinitionError(`there is no JSON Schema of the output of agent "${name}": ${why}`, { cause });
  }
}

function checkCompaction(name: string, { after, keep = 0, by }: Compaction): void {
  const isFull = Number.isFinite(after) && after > 0 && Number.isInteger(keep) && keep >= 0;
  if (!isFull) {
    throw new AgentDefinitionError(
      `agent "${name}" has compaction: { after: ${after}, keep: ${keep} }; after is tokens over 0, keep is turns, whole, from 0`,
    );
  }
  const problem = by === undefined || typeof by === "function" ? undefined : modelProblem(by);
  if (problem !== undefined) throw new AgentDefinitionError(`compaction.by of agent "${name}" ${problem}`);
}

const ARRIVALS: ReadonlySet<string> = new Set<Arrival>(["refuse", "queue", "cancel-and-go"]);

const OUTPUT_MODES: ReadonlySet<string> = new Set<OutputMode>(["auto", "json", "tool"]);

/** What is wrong with them is said where they are written, not to the first client that asks. */
function checkCapabilities(name: string, capabilities: AgentCapabilities): void {
  const checked = validateSync(AgentCapabilitiesSchema, toJson(capabilities, `capabilities of agent "${name}"`));
  if (!checked.ok) {
    throw new AgentDefinitionError(
      `the capabilities of agent "${name}" are not AG-UI's AgentCapabilities: ${describeIssues(checked.issues)}`,
    );
  }
}
