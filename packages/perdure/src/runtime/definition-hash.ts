import type { Agent } from "./agent-definition.ts";
import { sha256 } from "./hash.ts";

/** What an agent was when a run began, as far as its log may depend on it. */
export function definitionHash(agent: Agent): ReturnType<typeof sha256> {
  return sha256(agent.loop === undefined ? agent.name : JSON.stringify(agent.loop.describes));
}
