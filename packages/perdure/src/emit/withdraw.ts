import type { AGUIEvent, Message } from "../protocol/events.ts";

/**
 * The MESSAGES_SNAPSHOT that takes calls back from the screen. Sent before their END it keeps every stock client from running them;
 * an assistant message that held nothing else goes with them.
 */
export function withdrawal(messages: readonly Message[], toolCallIds: readonly string[]): AGUIEvent {
  const withdrawn = new Set(toolCallIds);
  return {
    type: "MESSAGES_SNAPSHOT",
    messages: messages.flatMap((message) => {
      if (message.role !== "assistant" || !message.toolCalls?.some(({ id }) => withdrawn.has(id))) return [message];
      const { toolCalls, ...rest } = message;
      const kept = toolCalls.filter(({ id }) => !withdrawn.has(id));
      if (kept.length > 0) return [{ ...rest, toolCalls: kept }];
      return rest.content === undefined ? [] : [rest];
    }),
  };
}
