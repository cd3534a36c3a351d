/**
 * What a run shows of its children. A child's frames are in the child's log; its parent's log refers to them, one by one, and says with the
 * place of the reference when they were shown. Whoever loads a parent's log puts in what the child has shown there (`shown`); all else is
 * worked out here, from the parent's own fold.
 *
 * 1. What a child says is shown as the work of a subagent, whose id is the child's uid. Its legs and its state are its own.
 * 2. A child's MESSAGES_SNAPSHOT is about its own messages: the parent's are as they were.
 * 3. Deltas of one block that follow each other in the child's log may be shown as one.
 */
import { attributed } from "../protocol/attribution.ts";
import { type AGUIEvent, type AGUIEventOf, event, type Message } from "../protocol/events.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { FrameRef } from "./entries.ts";
import { INTERRUPT_EVENT } from "./interrupts.ts";
import type { Announced, ShownChild } from "./run-state.ts";

/** The parent, before a frame of its child's. */
interface Shows {
  readonly held: { readonly messages: readonly Message[] };
  readonly subagents: { get(id: string): Announced | undefined };
}

export type ChildRef = Extract<FrameRef, { of: "CHILD" }>;

/** The lane of a parent in which it shows a lane of a child. */
export function childLane(step: Path, lane: Path): Path {
  return lane === "" ? step : (`${step}.${lane}` as Path);
}

/** Whether a parent shows a frame of a child: not what is about the child's legs and state. */
export function isShownOfChild({ type }: AGUIEvent): boolean {
  switch (type) {
    case "RUN_STARTED":
    case "RUN_FINISHED":
    case "RUN_ERROR":
    case "STATE_SNAPSHOT":
    case "STATE_DELTA":
      return false;
    default:
      return true;
  }
}

/** What a child has shown, as its parent shows it. */
export function childEvent({ held, subagents }: Shows, shown: AGUIEvent, uid: Uid): AGUIEvent {
  switch (shown.type) {
    case "MESSAGES_SNAPSHOT":
      return event("MESSAGES_SNAPSHOT", { messages: withChilds(held.messages, shown.messages, uid, subagents) });
    case "CUSTOM": {
      const { value } = shown;
      const asks = shown.name === INTERRUPT_EVENT && isJsonObject(value) && value.subagentRunId === undefined;
      return attributed(asks ? { ...shown, value: { ...value, subagentRunId: uid } } : shown, uid);
    }
    default:
      return attributed(shown, uid);
  }
}

/** The parent's messages with those of one child, and of its own children, as it has them now. */
function withChilds(
  messages: readonly Message[],
  childs: readonly Message[],
  uid: Uid,
  subagents: Shows["subagents"],
): readonly Message[] {
  const now = new Map(childs.map((message) => [message.id, message]));
  return messages.flatMap((message): readonly Message[] => {
    if (!isWork(message.subagentRunId, uid, subagents)) return [message];
    const child = now.get(message.id);
    if (child === undefined) return [];
    const own = child.subagentRunId === undefined ? { ...child, subagentRunId: uid } : child;
    return [jsonEqual(own as unknown as Json, message as unknown as Json) ? message : own];
  });
}

/** Whether what a subagent has made is a child's work, or that of one which it has begun. */
function isWork(subagent: string | undefined, uid: Uid, subagents: Shows["subagents"]): boolean {
  const seen = new Set<string>();
  for (let id = subagent; id !== undefined && !seen.has(id); id = subagents.get(id)?.started.parentSubagentRunId) {
    if (id === uid) return true;
    seen.add(id);
  }
  return false;
}

/** What clients were shown of a child once its frames up to `upTo` are out. */
export function afterChild(before: ShownChild | undefined, upTo: number, shown: AGUIEvent): ShownChild {
  const asks = before?.asks ?? new Map<string, AGUIEventOf<"CUSTOM">>();
  if (shown.type !== "CUSTOM" || shown.name !== INTERRUPT_EVENT || !isJsonObject(shown.value)) return { upTo, asks };
  const { id, state } = shown.value;
  if (typeof id !== "string") return { upTo, asks };
  const after = new Map(asks);
  if (state === "open") after.set(id, shown);
  else after.delete(id);
  return { upTo, asks: after };
}

type Delta = AGUIEventOf<"TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS">;

/** Two deltas of one block as one; undefined where that would lose something. */
export function joined(first: AGUIEvent, second: AGUIEvent): Delta | undefined {
  if (!isPlainDelta(first) || !isPlainDelta(second) || first.type !== second.type) return undefined;
  const isSame =
    first.type === "TOOL_CALL_ARGS"
      ? second.type === "TOOL_CALL_ARGS" && first.toolCallId === second.toolCallId
      : second.type !== "TOOL_CALL_ARGS" && first.messageId === second.messageId;
  if (!isSame || first.subagentRunId !== second.subagentRunId) return undefined;
  return { ...first, delta: first.delta + second.delta };
}

function isPlainDelta(event: AGUIEvent): event is Delta {
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
    case "TOOL_CALL_ARGS":
      return event.metadata === undefined && event.rawEvent === undefined && event.timestamp === undefined;
    default:
      return false;
  }
}
