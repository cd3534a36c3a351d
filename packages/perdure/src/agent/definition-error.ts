import { PerdureError } from "../protocol/errors.ts";

/** An agent's definition is not usable. */
export class AgentDefinitionError extends PerdureError {
  override readonly name = "AgentDefinitionError";
  constructor(message: string, options?: ErrorOptions) {
    super("AGENT_DEFINITION", message, options);
  }
}
