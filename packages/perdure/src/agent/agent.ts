import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";
import type { Agent } from "../runtime/agent-definition.ts";

/** An agent's definition is not usable. */
export class AgentDefinitionError extends PerdureError {
  override readonly name = "AgentDefinitionError";
  constructor(message: string) {
    super("AGENT_DEFINITION", message);
  }
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Defines an agent.
 *
 * @param definition - `name`: letters, digits, `_` and `-`, at most 64, as it stands in `POST /agents/:agent`; `state`: its schema and
 * initial value, which type `ctx.state`; `run`: the body, whose returned JSON is RUN_FINISHED's `result`
 * @throws {@link AgentDefinitionError}
 */
export function agent<S = Json>(definition: Agent<S>): Agent<S> {
  if (!NAME.test(definition.name)) {
    throw new AgentDefinitionError(
      `agent name ${JSON.stringify(definition.name)} has to match ${NAME}; it is part of a URL`,
    );
  }
  if (typeof definition.run !== "function") {
    throw new AgentDefinitionError(`agent "${definition.name}" has no run(ctx); give it one`);
  }
  return Object.freeze({ ...definition });
}
