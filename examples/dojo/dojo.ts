/** The features of the AG-UI dojo, each an agent of its own, where the dojo looks for them: `POST /FEATURE`. */
import { type Agent, createRuntime, type Runtime } from "perdure";
import { agenticChat } from "./features/agentic-chat.ts";
import { agenticChatReasoning } from "./features/agentic-chat-reasoning.ts";
import { agenticGenerativeUi } from "./features/agentic-generative-ui.ts";
import { backendToolRendering } from "./features/backend-tool-rendering.ts";
import { humanInTheLoop } from "./features/human-in-the-loop.ts";
import { interrupt } from "./features/interrupt.ts";
import { predictiveStateUpdates } from "./features/predictive-state-updates.ts";
import { sharedState } from "./features/shared-state.ts";
import { subagents } from "./features/subagents.ts";
import { subgraphs } from "./features/subgraphs.ts";
import { toolBasedGenerativeUi } from "./features/tool-based-generative-ui.ts";

export interface Pace {
  /** Between two pieces of what a model, or a task, brings. Milliseconds. */
  readonly delayMs: number;
}

export const features: readonly { readonly name: string; readonly agent: (pace: Pace) => Agent }[] = [
  { name: "agentic_chat", agent: agenticChat },
  { name: "backend_tool_rendering", agent: backendToolRendering },
  { name: "human_in_the_loop", agent: humanInTheLoop },
  { name: "agentic_generative_ui", agent: agenticGenerativeUi },
  { name: "tool_based_generative_ui", agent: toolBasedGenerativeUi },
  { name: "shared_state", agent: sharedState },
  { name: "predictive_state_updates", agent: predictiveStateUpdates },
  { name: "agentic_chat_reasoning", agent: agenticChatReasoning },
  { name: "interrupt", agent: interrupt },
  { name: "subgraphs", agent: subgraphs },
  { name: "subagents", agent: subagents },
];

export function dojo(pace: Pace): Runtime {
  const runtime = createRuntime({ agents: features.map(({ agent }) => agent(pace)) });
  return { ...runtime, fetch: (request, env) => runtime.fetch(toAgent(request), env) };
}

/** The runtime has its agents at `/agents/NAME`. */
function toAgent(request: Request): Request {
  const url = new URL(request.url);
  if (!features.some(({ name }) => url.pathname === `/${name}`)) return request;
  url.pathname = `/agents${url.pathname}`;
  const { method, headers, body, signal } = request;
  // `duplex` is asked for wherever a body is a stream; the type does not know it.
  return new Request(url, { method, headers, body, signal, duplex: "half" } as RequestInit);
}
