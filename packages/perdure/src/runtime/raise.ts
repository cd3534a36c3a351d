import type { RunState } from "../log/fold.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { validateSync } from "../protocol/validate.ts";
import type { Principal } from "../protocol/words.ts";
import { type Agent, budgetOf } from "./agent-definition.ts";
import { answerSchema } from "./answer-schemas.ts";
import { mayAnswerFor } from "./answers.ts";
import { audienceOf, limitsOf } from "./budget.ts";
import { raiseSchema } from "./budget-question.ts";

/** Why somebody may not add to the limits of a run. */
export interface RaiseProblem {
  readonly status: 403 | 409 | 422;
  readonly code: "RAISE_FORBIDDEN" | "NO_BUDGET" | "RAISE_INVALID";
  readonly message: string;
  readonly details?: Json;
}

/**
 * @param agent - the run's, where this process has it
 * @param run - as it began
 * @returns what is wrong with the raise, if anything
 */
export function raiseProblem(
  agent: Agent | undefined,
  run: Pick<RunState, "run">,
  raise: Json,
  { scopes }: Principal,
): RaiseProblem | undefined {
  const budget = agent && budgetOf(agent);
  const limits = budget ? limitsOf(run, budget) : {};
  if (!budget || Object.keys(limits).length === 0) {
    const message = `agent "${agent?.name ?? "?"}" has no budget here, so there is nothing to raise`;
    return { status: 409, code: "NO_BUDGET", message };
  }
  const missing = mayAnswerFor(scopes, audienceOf(run, budget));
  if (missing !== undefined) {
    return { status: 403, code: "RAISE_FORBIDDEN", message: `to raise this budget the scope "${missing}" is needed` };
  }
  const validated = validateSync(answerSchema(raiseSchema), raise);
  if (!validated.ok) {
    const issues = validated.issues.map(({ path, message }) => ({ path, message }));
    const message = 'send what is to be added, for example { "steps": 10, "usd": 0.5, "time": "5m" }';
    return { status: 422, code: "RAISE_INVALID", message, details: { issues } };
  }
  const unlimited = Object.keys(isJsonObject(raise) ? raise : {}).filter((limit) => !Object.hasOwn(limits, limit));
  if (unlimited.length === 0) return undefined;
  const message = `agent "${agent?.name ?? ""}" has no limit on ${unlimited.join(", ")}; it has ${Object.keys(limits).join(", ")}`;
  return { status: 422, code: "RAISE_INVALID", message };
}
