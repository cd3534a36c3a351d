/**
 * What a reader from before AG-UI 1.0 gets in place of what would kill it (AG-UI.md 2.9, tested on `@ag-ui/client` 0.0.45 and 0.0.59).
 * The log holds 1.0; a gate stands at the way out. It has no memory: each event is mapped for itself, so a replay gives the same.
 *
 * Not a gate's: a reader on 0.0.45 dies of RUN_STARTED after RUN_ERROR, so its stream has to be closed there.
 */
import { contentToText } from "@ag-ui/core";
import type { AGUIEvent, AGUIEventOf, ContentPart, Message } from "./events.ts";

/**
 * The gate for a reader.
 *
 * @param protocolVersion - the version that the reader declared in its request; none, or one that cannot be read, means before 1.0
 * @returns the event as that reader can take it; null when it must not get it at all
 */
export function gateFor(protocolVersion: string | undefined): (event: AGUIEvent) => AGUIEvent | null {
  const major = /^(\d+)(?:\.\d+)*$/.exec(protocolVersion ?? "")?.[1];
  return major !== undefined && Number(major) >= 1 ? (event) => event : forPre1;
}

function forPre1(event: AGUIEvent): AGUIEvent | null {
  switch (event.type) {
    case "SUBAGENT_STARTED":
    case "SUBAGENT_FINISHED":
    case "SUBAGENT_ERROR":
      return null;
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
    case "TOOL_CALL_ARGS":
      return event.delta === "" ? null : unattributed(event);
    case "TEXT_MESSAGE_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
    case "TOOL_CALL_CHUNK":
      return withoutEmptyDelta(unattributed(event));
    case "STEP_STARTED":
    case "STEP_FINISHED": {
      // They know steps by name alone: a subagent's "plan" beside the parent's would be a step begun twice.
      if (event.subagentRunId === undefined) return event;
      return { ...unattributed(event), stepName: `${event.stepName}#${event.subagentRunId}` };
    }
    case "TOOL_CALL_RESULT":
      return { ...unattributed(event), content: contentToText(event.content) };
    case "MESSAGES_SNAPSHOT":
      return { ...event, messages: event.messages.map(messageForPre1) };
    case "RUN_STARTED": {
      if (event.input === undefined) return event;
      return { ...event, input: { ...event.input, messages: event.input.messages.map(messageForPre1) } };
    }
    case "RUN_FINISHED":
      return finishedForPre1(event);
    case "RUN_ERROR":
      return event;
    default:
      return unattributed(event);
  }
}

/** Without its SUBAGENT_STARTED an attribution names nobody; then the work is the run's. */
function unattributed<E extends { readonly subagentRunId?: string }>(event: E): E {
  if (event.subagentRunId === undefined) return event;
  return without(event, "subagentRunId");
}

/** A copy without an optional member. The one cast: what is optional may be missing, so the rest is of the same type. */
function without<E extends { readonly [K in M]?: unknown }, M extends string>(value: E, member: M): E {
  const { [member]: _, ...rest } = value;
  return rest as unknown as E;
}

function withoutEmptyDelta<E extends { readonly delta?: string }>(chunk: E): E {
  return chunk.delta === "" ? without(chunk, "delta") : chunk;
}

function finishedForPre1(event: AGUIEventOf<"RUN_FINISHED">): AGUIEvent {
  const { outcome, ...rest } = event;
  switch (outcome?.type) {
    case undefined:
      return event;
    case "success":
      return { ...rest, outcome: { type: "success" } };
    case "cancelled":
      return rest;
    case "interrupt":
      return { ...rest, outcome: { ...outcome, interrupts: outcome.interrupts.map(unattributed) } };
    default:
      return outcome satisfies never;
  }
}

function messageForPre1(message: Message): Message {
  const own = unattributed(message);
  if (own.role === "tool") return { ...own, content: contentToText(own.content) };
  if (own.role !== "user" || typeof own.content === "string") return own;
  return { ...own, content: own.content.flatMap(partForPre1) };
}

/** Media as it was called then. 0.0.45 knows no other, and no version before 1.0 knows a provider's file. */
interface BinaryPart {
  readonly type: "binary";
  readonly mimeType: string;
  readonly data?: string;
  readonly url?: string;
  readonly id?: string;
}

const ANY_OF: Readonly<Record<Exclude<ContentPart["type"], "text">, string>> = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  document: "application/octet-stream",
};

function partForPre1(part: ContentPart): ContentPart | [] {
  if (part.type === "text") return part;
  const { source } = part;
  const mimeType = source.mimeType ?? ANY_OF[part.type];
  // To them it would have no payload at all, which is fatal.
  if (source.value === "") return [];
  switch (source.type) {
    case "data":
      return asPart({ type: "binary", mimeType, data: source.value });
    case "url":
      return asPart({ type: "binary", mimeType, url: source.value });
    case "file":
      return asPart({ type: "binary", mimeType, id: source.value });
    default:
      return source satisfies never;
  }
}

/** The one cast to a type that 1.0 has retired: what leaves a gate is for readers that know no other. */
function asPart(part: BinaryPart): ContentPart {
  return part as unknown as ContentPart;
}
