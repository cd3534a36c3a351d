import { isBlank, withoutCalls } from "../protocol/closing.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { hasCall, hasMessage, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { Attempt, Running } from "./run-state.ts";

export function newRunning(attempt: Attempt): Running {
  return { attempt, messages: new Map(), calls: new Set(), state: false };
}

/** Whether `lane` is the step's own lane or one inside it. */
export function isWithin(lane: Path, step: Path): boolean {
  return step === "" || lane === step || lane.startsWith(`${step}.`);
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
    case "STATE_SNAPSHOT":
    case "STATE_DELTA":
      return running.state ? running : { ...running, state: true };
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
 * Clients keep all their reasoning when a snapshot carries none. Where the attempt's is all there is, its first one stays, empty; and so do
 * texts before it, because a repeated attempt goes on with what has its id, where it stands.
 */
export function withoutAttempt(
  messages: readonly Message[],
  { messages: touched, calls }: Running,
): readonly Message[] {
  const isBegun = (message: Message) => touched.get(message.id) === null;
  const isHeldOpen = messages.some((message) => message.role === "reasoning" && !isBegun(message));
  const anchor = isHeldOpen ? -1 : messages.findIndex((message) => message.role === "reasoning");
  return messages.flatMap((message, i): readonly Message[] => {
    const before = touched.get(message.id);
    if (before !== undefined && before !== null) return [before];
    if (before === undefined) {
      const left = withoutCalls(message, calls);
      return left !== message && isBlank(left) ? [] : [left];
    }
    const isText = message.role === "reasoning" || message.role === "assistant";
    if (i > anchor || !isText) return [];
    const { id, role, subagentRunId } = message;
    return [{ id, role, content: "", ...(subagentRunId !== undefined && { subagentRunId }) }];
  });
}

/** Activities that an attempt began and a snapshot of `kept` cannot remove: it speaks of activities only if it carries one. */
export function stubbornActivities(messages: readonly Message[], running: Running, kept: readonly Message[]) {
  if (kept.some((message) => message.role === "activity")) return [];
  return messages
    .filter((message) => message.role === "activity")
    .filter(({ id }) => running.messages.get(id) === null);
}
