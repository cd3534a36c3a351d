import { PerdureError } from "../protocol/errors.ts";
import { type Agent, isAgentTool } from "./agent-definition.ts";

/**
 * The agents that are given, and those that they call: their runs are driven too.
 *
 * @throws {@link PerdureError} `AGENT_DEFINITION` when two have one name
 */
export function withCalledAgents(agents: ReadonlyMap<string, Agent>): ReadonlyMap<string, Agent> {
  const all = new Map(agents);
  const add = (caller: Agent): void => {
    const called = (caller.loop?.tools ?? []).flatMap((tool) => (isAgentTool(tool) ? [tool.agent] : []));
    const listed = caller.loop === undefined ? (caller.agents ?? []) : [];
    for (const agent of [...called, ...listed]) {
      const known = all.get(agent.name);
      if (known === agent) continue;
      if (known !== undefined) {
        const why = `agent "${caller.name}" calls an agent "${agent.name}", and another one has that name; rename one`;
        throw new PerdureError("AGENT_DEFINITION", why);
      }
      all.set(agent.name, agent);
      add(agent);
    }
  };
  for (const agent of agents.values()) add(agent);
  return all;
}
