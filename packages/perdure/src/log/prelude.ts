import { withoutCalls } from "../protocol/closing.ts";
import { type AGUIEvent, event, type Message, PROTOCOL_VERSION } from "../protocol/events.ts";
import { type OpenItem, openItems } from "../protocol/verify.ts";
import { interruptEvent, isListed } from "./interrupts.ts";
import { LogError } from "./log-error.ts";
import { legEnding } from "./render.ts";
import type { RunState } from "./run-state.ts";

/**
 * What a reader without a cursor is sent before what is live: it ends with the messages and state of one who has read everything, and with
 * the same things open. At rest it ends with the last leg's terminal event, and is the answer to a request that starts nothing.
 *
 * Open calls are not in its snapshot but begun again behind it: a client of 0.0.45 that finds a half call in a snapshot and then its START
 * shows it twice. Their message stays, so that it keeps its place.
 *
 * @param state - the run at the end of a batch; within one, what is being taken back would be begun again
 * @param as - the ids by which this reader knows thread and run
 * @throws {@link LogError} when no leg has begun
 */
export function prelude(
  state: RunState,
  as: { readonly runId: string; readonly threadId: string },
): readonly AGUIEvent[] {
  const { runId, threadId } = as;
  const open = openItems(state.wire).toReversed();
  const openCalls = new Set(open.filter(({ kind }) => kind === "tool-call").map(({ id }) => id));
  return [
    event("RUN_STARTED", { threadId, runId, protocolVersion: PROTOCOL_VERSION }),
    { type: "STATE_SNAPSHOT", snapshot: state.shown },
    event("MESSAGES_SNAPSHOT", { messages: state.messages.map((message) => withoutCalls(message, openCalls)) }),
    ...[...state.interrupts.values()].filter(isListed).map((interrupt) => interruptEvent(interrupt, "open")),
    ...open.flatMap((item) => beginning(state, item)),
    ...(state.leg === null ? [ending(state, as)] : []),
  ];
}

function ending(state: RunState, as: { readonly runId: string; readonly threadId: string }): AGUIEvent {
  if (state.lastLeg === null) throw new LogError(state.run.uid, "a prelude", "no leg has begun");
  return legEnding(state.lastLeg, as);
}

/** Begins again what is open, with all of it that a snapshot cannot hold. */
function beginning(state: RunState, { kind, id, subagentRunId }: OpenItem): readonly AGUIEvent[] {
  switch (kind) {
    case "text": {
      const message = state.messages.find((other) => other.id === id);
      const name = message && "name" in message ? message.name : undefined;
      return [event("TEXT_MESSAGE_START", { messageId: id, role: writerOf(message), name, subagentRunId })];
    }
    case "reasoning":
      return [event("REASONING_START", { messageId: id, subagentRunId })];
    case "reasoning-message":
      return [event("REASONING_MESSAGE_START", { messageId: id, role: "reasoning", subagentRunId })];
    case "tool-call":
      return callSoFar(state, id, subagentRunId);
    case "step":
      return [event("STEP_STARTED", { stepName: id, subagentRunId })];
    case "subagent":
      return [state.subagents.get(id) ?? event("SUBAGENT_STARTED", { subagentRunId: id, name: id })];
    default:
      return kind satisfies never;
  }
}

function callSoFar(state: RunState, toolCallId: string, subagentRunId: string | undefined): readonly AGUIEvent[] {
  for (const message of state.messages) {
    const call = message.role === "assistant" ? message.toolCalls?.find(({ id }) => id === toolCallId) : undefined;
    if (call === undefined) continue;
    const { name: toolCallName, arguments: delta } = call.function;
    return [
      event("TOOL_CALL_START", { toolCallId, toolCallName, parentMessageId: message.id, subagentRunId }),
      ...(delta === "" ? [] : [event("TOOL_CALL_ARGS", { toolCallId, delta, subagentRunId })]),
    ];
  }
  throw new LogError(
    state.run.uid,
    `open call "${toolCallId}"`,
    "no message carries it; a prelude is for the end of a batch",
  );
}

function writerOf(message: Message | undefined): "developer" | "system" | "assistant" | "user" {
  switch (message?.role) {
    case "developer":
    case "system":
    case "user":
      return message.role;
    default:
      return "assistant";
  }
}
