import { PerdureError } from "../protocol/errors.ts";
import type { RunAgentInput } from "../protocol/events.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { describeIssues, type Issue, validate } from "../protocol/validate.ts";
import type { Agent } from "./agent-definition.ts";

/** The state in a request does not fit the agent's schema. */
export class StateInvalidError extends PerdureError {
  override readonly name = "StateInvalidError";
  constructor(
    readonly agent: string,
    readonly issues: readonly Issue[],
  ) {
    super("STATE_INVALID", `the state sent to agent "${agent}" does not fit its schema: ${describeIssues(issues)}`);
  }
}

/**
 * The state of a new run: the request's, which may hold a person's edits; where the request has none (`null`, `{}` and absence all mean
 * none) the thread's last, or else the agent's initial one.
 *
 * @throws {@link StateInvalidError} when the request's does not fit the agent's schema
 */
export async function startingState<S>(agent: Agent<S>, input: RunAgentInput, last?: Json): Promise<Json> {
  const sent = (input.state ?? null) as Json;
  const isAbsent = sent === null || (isJsonObject(sent) && Object.keys(sent).length === 0);
  if (isAbsent && last !== undefined) return last;
  if (isAbsent)
    return agent.state === undefined
      ? (sent ?? {})
      : toJson(agent.state.initial(), `initial state of agent "${agent.name}"`);
  if (agent.state?.schema === undefined) return sent;
  const validated = await validate(agent.state.schema, sent);
  if (!validated.ok) throw new StateInvalidError(agent.name, validated.issues);
  return toJson(validated.value, `state of agent "${agent.name}"`);
}
