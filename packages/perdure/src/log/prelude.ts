import { withoutCalls } from "../protocol/closing.ts";
import { type AGUIEvent, event, type Message, PROTOCOL_VERSION, type ToolCall } from "../protocol/events.ts";
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
 * All subagents of the leg are announced again, those that have ended too: messages name them, and one that is begun later may name any of them
 * as its parent, which a client refuses if it has not heard of it. Not those of a run that is over, pruned or not: nothing comes of them.
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
  const subagents = state.finished === null ? [...state.subagents.values()] : [];
  return [
    event("RUN_STARTED", { threadId, runId, protocolVersion: PROTOCOL_VERSION }),
    { type: "STATE_SNAPSHOT", snapshot: state.shown },
    // What the conversation has lost may still be ended: so it is begun, and lost again.
    ...open.filter(({ gone }) => gone).map((item) => beginning(state, item)),
    event("MESSAGES_SNAPSHOT", { messages: state.messages.map((message) => withoutCalls(message, openCalls)) }),
    ...[...state.interrupts.values()].filter(isListed).map((interrupt) => interruptEvent(interrupt, "open")),
    ...(state.finished === null ? [...state.children.values()].flatMap(({ asks }) => [...asks.values()]) : []),
    ...subagents.map(({ started }) => started),
    ...subagents.flatMap(({ ended }) => ended ?? []),
    ...open
      .filter(({ kind, gone }) => !gone && kind !== "subagent" && kind !== "tool-call")
      .map((item) => beginning(state, item)),
    ...callsSoFar(state.messages, open),
    ...(state.leg === null ? [ending(state, as)] : []),
  ];
}

function ending(state: RunState, as: { readonly runId: string; readonly threadId: string }): AGUIEvent {
  if (state.lastLeg === null) throw new LogError(state.run.uid, "a prelude", "no leg has begun");
  return legEnding(state.lastLeg, as);
}

/** Begins an item again. What it holds is in the snapshot. */
function beginning(state: RunState, { kind, id, subagentRunId, metadata, toolCallName = "" }: OpenItem): AGUIEvent {
  switch (kind) {
    case "text": {
      const message = state.messages.find((other) => other.id === id);
      const name = message && "name" in message ? message.name : undefined;
      return event("TEXT_MESSAGE_START", { messageId: id, role: writerOf(message), name, subagentRunId });
    }
    case "reasoning":
      return event("REASONING_START", { messageId: id, subagentRunId });
    case "reasoning-message":
      return event("REASONING_MESSAGE_START", { messageId: id, role: "reasoning", subagentRunId });
    case "tool-call":
      return event("TOOL_CALL_START", { toolCallId: id, toolCallName, subagentRunId });
    case "step":
      return event("STEP_STARTED", { stepName: id, metadata, subagentRunId });
    case "subagent":
      return state.subagents.get(id)?.started ?? event("SUBAGENT_STARTED", { subagentRunId: id, name: id });
    default:
      return kind satisfies never;
  }
}

/** Begins open calls again with all that they hold, in the order in which their messages carry them. */
function callsSoFar(messages: readonly Message[], open: readonly OpenItem[]): readonly AGUIEvent[] {
  const items = new Map(open.filter(({ kind }) => kind === "tool-call").map((item) => [item.id, item]));
  if (items.size === 0) return [];
  return messages.flatMap((message) => {
    if (message.role !== "assistant") return [];
    return (message.toolCalls ?? []).flatMap((call) => {
      const item = items.get(call.id);
      return item === undefined
        ? []
        : callSoFar(call, { parentMessageId: message.id, subagentRunId: item.subagentRunId });
    });
  });
}

function callSoFar(
  { id: toolCallId, function: made, metadata, encryptedValue }: ToolCall,
  { parentMessageId, subagentRunId }: { readonly parentMessageId: string; readonly subagentRunId: string | undefined },
): readonly AGUIEvent[] {
  const { name: toolCallName, arguments: delta } = made;
  return [
    event("TOOL_CALL_START", { toolCallId, toolCallName, parentMessageId, metadata, subagentRunId }),
    ...(delta === "" ? [] : [event("TOOL_CALL_ARGS", { toolCallId, delta, subagentRunId })]),
    ...(encryptedValue === undefined ? [] : [encrypted(toolCallId, encryptedValue, subagentRunId)]),
  ];
}

function encrypted(entityId: string, encryptedValue: string, subagentRunId: string | undefined): AGUIEvent {
  return event("REASONING_ENCRYPTED_VALUE", { subtype: "tool-call", entityId, encryptedValue, subagentRunId });
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
