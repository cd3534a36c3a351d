import type { RunState } from "../log/fold.ts";
import type { RunAgentInput } from "../protocol/events.ts";
import type { Principal } from "../protocol/words.ts";

/** The request as the body sees it: what came in first or newest, with the thread as the server knows it. */
export function inputOf({ run, leg, request, messages, shown }: RunState): RunAgentInput {
  const { tools = [], context = [], forwardedProps = null, protocolVersion, parentRunId } = request ?? {};
  return {
    threadId: run.thread ?? run.uid,
    runId: leg?.runId ?? run.uid,
    messages: [...messages],
    tools: [...tools],
    context: [...context],
    state: shown,
    ...(forwardedProps !== null && { forwardedProps }),
    ...(protocolVersion && { protocolVersion }),
    ...(parentRunId !== undefined && { parentRunId }),
  };
}

export function principalOf({ run, request }: RunState): Principal {
  return request?.principal ?? { ...run.owner, scopes: [] };
}
