import { closingIncomplete, partialCalls, withdrawal } from "../protocol/closing.ts";
import { closingEvent, openItems } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { Outlet } from "./outlet.ts";

/**
 * Closes everything that is open, innermost first.
 *
 * @param isWhole - what is open was said to its end; else texts are marked incomplete
 */
export function closeLeftovers(outlet: Outlet, isWhole: boolean): void {
  const open = openItems(outlet.wire);
  const cut = partialCalls(outlet.messages, open);
  if (cut.length > 0) outlet.sendUntransformed(withdrawal(outlet.messages, cut));
  const closing = isWhole ? closingEvent : closingIncomplete;
  for (const item of open) outlet.sendUntransformed(closing(item), (item.lane ?? "") as Path);
}
