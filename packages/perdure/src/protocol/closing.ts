/**
 * How what is open leaves the screen before its time. A call is never shown ended with partial arguments: a front end that runs calls on
 * their END would run half of one. So it is taken back first, by a snapshot that does not have it. Text and reasoning stay, marked.
 */
import { type AGUIEvent, type AGUIEventOf, event, type Message } from "./events.ts";
import { closingEvent, type OpenItem } from "./wire.ts";
import type { RecordedError } from "./words.ts";

/** On the END of what should have become more. */
export const INCOMPLETE = { perdure: { incomplete: true } };

/**
 * The MESSAGES_SNAPSHOT that takes calls back from the screen. Sent before their END it keeps every stock client from running them;
 * an assistant message that held nothing else goes with them.
 */
export function withdrawal(messages: readonly Message[], toolCallIds: readonly string[]): AGUIEvent {
  const withdrawn = new Set(toolCallIds);
  return event("MESSAGES_SNAPSHOT", {
    messages: messages.flatMap((message) => {
      const left = withoutCalls(message, withdrawn);
      return left !== message && isBlank(left) ? [] : [left];
    }),
  });
}

/** The message without these calls; itself if it has none of them. */
export function withoutCalls(message: Message, toolCallIds: ReadonlySet<string>): Message {
  if (message.role !== "assistant" || !message.toolCalls?.some(({ id }) => toolCallIds.has(id))) return message;
  const { toolCalls, ...rest } = message;
  const kept = toolCalls.filter(({ id }) => !toolCallIds.has(id));
  return kept.length > 0 ? { ...rest, toolCalls: kept } : rest;
}

/** Whether it was only there to carry calls. */
export function isBlank(message: Message): boolean {
  return message.role === "assistant" && message.content === undefined && message.toolCalls === undefined;
}

/** The open calls that have to be withdrawn before they are ended. */
export function partialCalls(messages: readonly Message[], open: readonly OpenItem[]): readonly string[] {
  return open
    .filter((item) => item.kind === "tool-call" && !isWholeJson(argumentsOf(messages, item.id)))
    .map(({ id }) => id);
}

/** The END of something that did not come to its own end. `error`: why, for a subagent. */
export function closingIncomplete(item: OpenItem, error: RecordedError): AGUIEvent {
  if (item.kind === "subagent") return subagentError(item.id, error);
  const end = closingEvent(item);
  return item.kind === "text" || item.kind === "reasoning-message" ? { ...end, metadata: INCOMPLETE } : end;
}

export function subagentError(subagentRunId: string, { message, code }: RecordedError): AGUIEventOf<"SUBAGENT_ERROR"> {
  return event("SUBAGENT_ERROR", { subagentRunId, message, code });
}

/** Whether a call may be ended with these arguments; none at all stand for `{}`. */
export function isWholeJson(args: string): boolean {
  if (args === "") return true;
  try {
    JSON.parse(args);
    return true;
  } catch {
    return false;
  }
}

function argumentsOf(messages: readonly Message[], toolCallId: string): string {
  for (const message of messages) {
    const call = message.role === "assistant" ? message.toolCalls?.find(({ id }) => id === toolCallId) : undefined;
    if (call !== undefined) return call.function.arguments;
  }
  return "";
}
