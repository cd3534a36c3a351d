import type { AGUIEvent, Message } from "../protocol/events.ts";
import { reduceMessages } from "../protocol/reduce.ts";
import {
  closingEvent,
  newWire,
  type OpenItem,
  openItems,
  ProtocolError,
  verify,
  type Wire,
} from "../protocol/verify.ts";

/**
 * A prelude for a reader that is inside a run and cannot be given exactly the rest: its cursor is not known any more, or it had none yet. What
 * comes of it is legal behind what the reader has seen, and leaves it with the same messages, state and open items as one who has just come.
 *
 * 1. RUN_STARTED is left out: for this reader the run has begun.
 * 2. What is open on both sides stays open, without an END and a START that would only look like one. What it has become meanwhile is in the
 *    snapshots; of an open call, which a prelude begins again behind its snapshot, the arguments so far are put there.
 * 3. What is open here alone has ended meanwhile. Its END comes behind the snapshots: whoever acts on it, as a front end that runs a call, finds
 *    it whole; and a call that was taken back is gone by then.
 *
 * @param prelude - from its RUN_STARTED to its last event
 * @param here - what the reader has seen
 */
export function splice(prelude: readonly AGUIEvent[], here: Wire): readonly AGUIEvent[] {
  const open = openItems(here);
  const there = new Set(openItems(prelude.reduce(observe, newWire())).map(keyOf));
  const stays = new Set(open.map(keyOf).filter((key) => there.has(key)));
  const begun = prelude.filter((event) => isAbout(event, stays));
  const rest = prelude.filter((event) => event.type !== "RUN_STARTED" && !isAbout(event, stays));
  const lastSnapshot = rest.findLastIndex(({ type }) => type === "STATE_SNAPSHOT" || type === "MESSAGES_SNAPSHOT");
  return [
    ...rest.slice(0, lastSnapshot + 1).map((event) => withBegun(event, begun)),
    ...open.filter((item) => !there.has(keyOf(item))).map(closingEvent),
    ...rest.slice(lastSnapshot + 1),
  ];
}

/** The wire after an event. What our verifier refuses changes nothing: here it only keeps count, and the published client is the judge. */
export function observe(wire: Wire, event: AGUIEvent): Wire {
  try {
    return verify(wire, event);
  } catch (error) {
    if (error instanceof ProtocolError) return wire;
    throw error;
  }
}

/** A step's name is only unique among those of its owner. */
function keyOf({ kind, id, subagentRunId }: Pick<OpenItem, "kind" | "id" | "subagentRunId">): string {
  return JSON.stringify(kind === "step" ? [kind, id, subagentRunId ?? null] : [kind, id]);
}

/** Whether an event of a prelude begins one of these items, or says what it is so far. */
function isAbout(event: AGUIEvent, keys: ReadonlySet<string>): boolean {
  switch (event.type) {
    case "TEXT_MESSAGE_START":
      return keys.has(keyOf({ kind: "text", id: event.messageId }));
    case "REASONING_START":
      return keys.has(keyOf({ kind: "reasoning", id: event.messageId }));
    case "REASONING_MESSAGE_START":
      return keys.has(keyOf({ kind: "reasoning-message", id: event.messageId }));
    case "TOOL_CALL_START":
    case "TOOL_CALL_ARGS":
      return keys.has(keyOf({ kind: "tool-call", id: event.toolCallId }));
    case "STEP_STARTED": {
      const { stepName: id, subagentRunId } = event;
      return keys.has(keyOf({ kind: "step", id, ...(subagentRunId !== undefined && { subagentRunId }) }));
    }
    case "SUBAGENT_STARTED":
      return keys.has(keyOf({ kind: "subagent", id: event.subagentRunId }));
    default:
      return false;
  }
}

function withBegun(event: AGUIEvent, begun: readonly AGUIEvent[]): AGUIEvent {
  if (event.type !== "MESSAGES_SNAPSHOT") return event;
  return { ...event, messages: [...begun.reduce<readonly Message[]>(reduceMessages, event.messages)] };
}
