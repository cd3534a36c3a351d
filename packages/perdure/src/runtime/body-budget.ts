/** The budget of a run whose loop is code of the user's, and what becomes of the code when a human stops the run at it. */
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import type { Path } from "../protocol/words.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { BodyAgent, ModelAsk } from "./agent-definition.ts";
import { type LoopBudget, limitsOf, type RunBudget } from "./budget.ts";
import type { Want } from "./loop-operations.ts";

/** Of an agent that `agent()` did not make. Its callers may limit it all the same. */
const OWN_LIMITS_NONE: RunBudget = { limits: {}, unpriced: [], audience: null, toolName: (name) => name };

/** @param loop - what the code has begun, which says what its models are asked and under which names its tools are known */
export function bodyBudget(
  { models }: Pick<BodyAgent, "models">,
  loop: { tool(name: string): DynTool | undefined; ask(path: Path): ModelAsk | undefined },
): LoopBudget {
  const budget = models?.budget ?? OWN_LIMITS_NONE;
  return {
    ...budget,
    toolName: (name) => loop.tool(name)?.name ?? budget.toolName(name),
    reserve({ run, path, left }) {
      return loop.ask(path)?.reserve?.(run.steps.get(path), left) ?? { input: 0, output: 0 };
    },
  };
}

/** @throws `AgentDefinitionError` where a run under a budget of dollars asks a model whose price is not known */
export function checkPrices({ kind, model, call }: Want, run: RunState, budget: RunBudget): void {
  if (kind !== "model" || run.steps.get(call.path)?.finished !== undefined) return;
  if (limitsOf(run, budget).usd !== undefined) model?.checkPrices();
}

/** That a human has stopped the run at its budget, and where in the log. */
export interface Stop {
  readonly question: Interrupt;
  readonly seq: number;
}

/** @returns undefined also where the run is given up: then nothing is waited for, and its code is not asked */
export function stopOf({ spending: { stop }, abandoned, answers }: RunState): Stop | undefined {
  if (stop === null || abandoned) return undefined;
  return { question: stop, seq: answers.get(stop.id)?.seq ?? -1 };
}

/** Whether nobody brings the end of a step any more, once the run is stopped. The driver ends what has begun, but a model that is not at work. */
export function isLeft({ kind, call: { path } }: Want, { steps, running }: RunState): boolean {
  const step = steps.get(path);
  return step === undefined || (kind === "model" && step.finished === undefined && !running.has(path));
}
