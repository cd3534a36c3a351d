import { isBlank, withoutCalls } from "../protocol/closing.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { hasCall, hasMessage, type Wire } from "../protocol/verify.ts";
import type { Attempt, Running } from "./run-state.ts";

export function newRunning(attempt: Attempt): Running {
  return { attempt, messages: new Map(), calls: new Set() };
}

/** What clients have been shown of an attempt once `event` is out. `wire` and `held` are from before it. */
export function afterShowing(
  running: Running,
  event: AGUIEvent,
  wire: Wire,
  held: { messages: readonly Message[] },
): Running {
  switch (event.type) {
    case "TEXT_MESSAGE_START":
    case "REASONING_MESSAGE_START":
    case "ACTIVITY_SNAPSHOT":
    case "ACTIVITY_DELTA":
    case "TOOL_CALL_RESULT":
      return withMessage(running, event.messageId, wire, held);
    case "TEXT_MESSAGE_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
      return event.messageId === undefined ? running : withMessage(running, event.messageId, wire, held);
    case "TOOL_CALL_START":
      return withCall(running, event.toolCallId, event.parentMessageId, wire, held);
    case "TOOL_CALL_CHUNK":
      return event.toolCallId === undefined
        ? running
        : withCall(running, event.toolCallId, event.parentMessageId, wire, held);
    default:
      return running;
  }
}

function withMessage(running: Running, id: string, wire: Wire, held: { messages: readonly Message[] }): Running {
  if (running.messages.has(id)) return running;
  const before = hasMessage(wire, id) ? held.messages.find((message) => message.id === id) : undefined;
  return { ...running, messages: new Map(running.messages).set(id, before ?? null) };
}

function withCall(
  running: Running,
  id: string,
  parentMessageId: string | undefined,
  wire: Wire,
  held: { messages: readonly Message[] },
): Running {
  if (running.calls.has(id) || hasCall(wire, id)) return running;
  const begun = { ...running, calls: new Set(running.calls).add(id) };
  // A client makes the message that carries a call, if it has none.
  const carrier = parentMessageId ?? id;
  return hasMessage(wire, carrier) ? begun : withMessage(begun, carrier, wire, held);
}

/**
 * The messages without what an attempt has shown: what it began is gone, what it changed is as it was.
 *
 * Not all can go. Clients keep all their reasoning when a snapshot carries none: where the attempt's is all there is, its first one stays,
 * empty. Activities stay, empty, where they stand: the attempt's next try goes on with them, and beside those of calls that run at the same
 * time there is no other way to keep their order. So texts of the attempt that stand before such a thing stay too.
 */
export function withoutAttempt(messages: readonly Message[], running: Running): readonly Message[] {
  const { messages: touched, calls } = running;
  const isBegun = (message: Message) => touched.get(message.id) === null;
  const keepsReasoning = messages.some((message) => message.role === "reasoning" && !isBegun(message));
  const firstReasoning = keepsReasoning ? -1 : messages.findIndex((message) => message.role === "reasoning");
  const lastActivity = messages.findLastIndex((message) => message.role === "activity" && isBegun(message));
  const anchor = Math.max(firstReasoning, lastActivity);
  return messages.flatMap((message, i): readonly Message[] => {
    const before = touched.get(message.id);
    if (before === undefined) {
      const left = withoutCalls(message, calls);
      return left !== message && isBlank(left) ? [] : [left];
    }
    if (before !== null) return [restored(before, message, calls)];
    const { id, subagentRunId } = message;
    const owned = subagentRunId === undefined ? {} : { subagentRunId };
    switch (message.role) {
      case "activity":
        return [{ id, role: "activity", activityType: message.activityType, content: {}, ...owned }];
      case "reasoning":
        return i === firstReasoning ? [{ id, role: "reasoning", content: "", ...owned }] : [];
      case "assistant":
        return i < anchor ? [{ id, role: "assistant", content: "", ...owned }] : [];
      default:
        return [];
    }
  });
}

/** The message as it was, but for calls: those that others have added to it meanwhile stay. */
function restored(before: Message, now: Message, calls: ReadonlySet<string>): Message {
  const left = withoutCalls(now, calls);
  if (before.role !== "assistant" || left.role !== "assistant") return before;
  const { toolCalls: _, ...rest } = before;
  return left.toolCalls === undefined ? rest : { ...rest, toolCalls: left.toolCalls };
}
