import type { AGUIEvent, Message } from "../protocol/events.ts";
import { closingEvent, type OpenItem, openItems } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { Outlet } from "./outlet.ts";
import { INCOMPLETE } from "./text.ts";
import { isWholeJson } from "./tool-call.ts";
import { withdrawal } from "./withdraw.ts";

/**
 * Closes everything that is open, innermost first.
 *
 * @param isWhole - what is open was said to its end; else texts are marked incomplete
 */
export function closeLeftovers(outlet: Outlet, isWhole: boolean): void {
  const open = openItems(outlet.wire);
  const cut = open.filter((item) => item.kind === "tool-call" && !isWholeJson(argumentsOf(outlet.messages, item.id)));
  if (cut.length > 0)
    outlet.sendUntransformed(
      withdrawal(
        outlet.messages,
        cut.map(({ id }) => id),
      ),
    );
  for (const item of open) outlet.sendUntransformed(closing(item, isWhole), (item.lane ?? "") as Path);
}

function closing(item: OpenItem, isWhole: boolean): AGUIEvent {
  const end = closingEvent(item);
  const isText = item.kind === "text" || item.kind === "reasoning-message";
  return isText && !isWhole ? { ...end, metadata: INCOMPLETE } : end;
}

function argumentsOf(messages: readonly Message[], toolCallId: string): string {
  for (const message of messages) {
    const call = message.role === "assistant" ? message.toolCalls?.find(({ id }) => id === toolCallId) : undefined;
    if (call !== undefined) return call.function.arguments;
  }
  return "";
}
