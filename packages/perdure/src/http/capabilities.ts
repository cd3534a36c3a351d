/**
 * What an agent can do, as `GET /agents/:agent` says it. Said is what follows from the definition; what depends on more (on the model, on what a body
 * does) is left out, which to a client means "not known", until the definition's own `capabilities` say it.
 */
import type { AgentCapabilities, Tool } from "@ag-ui/core";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { type Agent, type AgentTool, isAgentTool, type LoopAgent } from "../runtime/agent-definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";

/** @param served - what of the transport depends on the server */
export function capabilitiesOf(agent: Agent, served: { readonly httpBinary: boolean }): AgentCapabilities {
  const { name, description, disconnect = "detach", emptyRequest = "hydrate", capabilities = {} } = agent;
  const derived: AgentCapabilities = {
    identity: { name, type: "perdure", ...(description !== undefined && { description }) },
    // Whatever the agent is, it is served from its log.
    transport: { streaming: true, resumable: true, websocket: false, pushNotifications: false, ...served },
    state: { snapshots: true, deltas: true, persistentState: true },
    ...(agent.loop !== undefined && ofLoop(agent)),
    ...(agent.loop !== undefined && agent.output !== undefined && { output: { structuredOutput: true } }),
    custom: { perdure: { disconnect, emptyRequest } },
  };
  // The one cast: both are AgentCapabilities, whose members are all optional.
  return overlaid(derived as Json, capabilities as Json) as AgentCapabilities;
}

/** The built-in loop shows what its model thinks, offers the tools of the client, and asks for what its own tools want to have asked. */
function ofLoop({ loop, approve }: LoopAgent): AgentCapabilities {
  const { tools } = loop;
  const approvals = tools.some((tool) => needsApproval(tool, approve));
  return {
    tools: {
      supported: true,
      items: tools.map((tool) => toolItem(tool, approve)),
      parallelCalls: true,
      clientProvided: true,
    },
    reasoning: { supported: true, streaming: true },
    ...ofSubagents(tools.filter(isAgentTool)),
    humanInTheLoop: {
      supported: tools.length > 0,
      // A call may suspend itself, or be a write of which nobody knows.
      interrupts: tools.length > 0,
      approvals,
      approveWithEdits: approvals,
    },
  };
}

function ofSubagents(tools: readonly AgentTool[]): Pick<AgentCapabilities, "multiAgent"> {
  if (tools.length === 0) return {};
  const subagents = tools.map(({ agent: { name }, description }) => ({ name, description }));
  return { multiAgent: { supported: true, delegation: true, subagents } };
}

function toolItem(tool: DynTool, approve: LoopAgent["approve"]): Tool {
  const { name, description, inputSchema, effect } = tool;
  const metadata = { effect, approval: needsApproval(tool, approve) };
  return { name, description, parameters: inputSchema, metadata };
}

function needsApproval({ mayNeedApproval, effect }: DynTool, approve: LoopAgent["approve"]): boolean {
  return mayNeedApproval || (approve === "write" && effect === "write");
}

/** Objects member by member; anything else, lists too, as a whole. */
function overlaid(base: Json, over: Json): Json {
  if (!isJsonObject(base) || !isJsonObject(over)) return over;
  const both: { [key: string]: Json } = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const before = both[key];
    both[key] = before === undefined ? value : overlaid(before, value);
  }
  return both;
}
