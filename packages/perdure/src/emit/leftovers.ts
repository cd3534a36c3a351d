import { closingIncomplete, partialCalls, withdrawal } from "../protocol/closing.ts";
import { type AGUIEvent, event, type Interrupt } from "../protocol/events.ts";
import { isWithin } from "../protocol/ids.ts";
import { closingEvent, type OpenItem, openItems } from "../protocol/verify.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Outlet, Stream } from "./outlet.ts";

/**
 * How what is left open is left. `whole`: it was said to its end. `suspended`: so were texts, while subagents wait for humans. `cut`: it
 * should have become more, and subagents have failed.
 */
export type Leaving =
  | { readonly type: "whole" }
  | { readonly type: "suspended"; readonly interrupts: readonly Interrupt[] }
  | { readonly type: "cut"; readonly error: RecordedError };

export interface Leftover {
  readonly event: AGUIEvent;
  readonly lane: Path;
}

/** What closes everything that is open in the lane at `path` and inside it, innermost first. */
export function leftovers(
  { wire, messages }: Pick<Stream, "wire" | "messages">,
  leaving: Leaving,
  path = "" as Path,
): readonly Leftover[] {
  const open = openItems(wire).filter(({ lane }) => isWithin((lane ?? "") as Path, path));
  const cut = partialCalls(messages, open);
  return [
    ...(cut.length > 0 ? [{ event: withdrawal(messages, cut), lane: path }] : []),
    ...open.map((item) => ({ event: endOf(item, leaving), lane: (item.lane ?? "") as Path })),
  ];
}

/** Closes what is open in the lane at `path` and inside it, on behalf of the runner. */
export function closeLeftovers(outlet: Outlet, leaving: Leaving, path?: Path): void {
  for (const { event: end, lane } of leftovers(outlet, leaving, path)) outlet.sendUntransformed(end, lane);
}

function endOf(item: OpenItem, leaving: Leaving): AGUIEvent {
  if (leaving.type === "cut") return closingIncomplete(item, leaving.error);
  if (leaving.type === "whole" || item.kind !== "subagent") return closingEvent(item);
  // Its own questions: one that waits only because a subagent of its own asked has none.
  const own = leaving.interrupts.filter(({ subagentRunId }) => subagentRunId === item.id).map(({ id }) => id);
  const interruptIds = own.length > 0 ? own : undefined;
  return event("SUBAGENT_FINISHED", { subagentRunId: item.id, outcome: { type: "suspended", interruptIds } });
}
