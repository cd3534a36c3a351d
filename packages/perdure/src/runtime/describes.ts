import type { Loop } from "./agent-definition.ts";
import { sha256 } from "./hash.ts";

/** What a model step's record says of the agent that asked. */
export function describedAs({ describes: { instructions, tools } }: Pick<Loop, "describes">) {
  return { instructions: sha256(instructions), tools: sha256(JSON.stringify(tools)) };
}
