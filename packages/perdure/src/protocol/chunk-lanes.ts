/**
 * Chunks are a short spelling of START, CONTENT and END. A chunk may leave out its id and then goes on with what is open in its *lane*, which
 * is the subagent that it names, or the parent agent. This file knows what is open, and spells a chunk out; it refuses nothing, that is the
 * verifier's part. The rules are those of `transformChunks` in `@ag-ui/client` 1.0.0.
 */
import type { AGUIEvent, AGUIEventOf, AGUIEventType } from "./events.ts";

/** An event of the short spelling. */
export type Chunk = AGUIEventOf<"TEXT_MESSAGE_CHUNK" | "TOOL_CALL_CHUNK" | "REASONING_MESSAGE_CHUNK">;

/** A message or tool call that a chunk has begun and nothing has closed yet. At most one in a lane. */
export interface OpenChunk {
  readonly type: Chunk["type"];
  readonly id: string;
  /** The `subagentRunId` of its lane; `null` is the parent agent's. */
  readonly lane: string | null;
}

/** `event`, with the id filled in if it is a chunk that goes on with something open. */
export function withChunkId(open: readonly OpenChunk[], event: AGUIEvent): AGUIEvent {
  if (!isChunk(event) || idOf(event) !== undefined) return event;
  const id = continued(open, event)?.id;
  if (id === undefined) return event;
  return event.type === "TOOL_CALL_CHUNK" ? { ...event, toolCallId: id } : { ...event, messageId: id };
}

/** What is open after `event`; `open` itself if that does not change. */
export function withChunks(open: readonly OpenChunk[], event: AGUIEvent): readonly OpenChunk[] {
  if (isChunk(event)) return opening(open, event);
  if (open.length === 0) return open;
  const closes = chunksClosedBy[event.type];
  if (closes === "none") return open;
  if (closes === "all") return [];
  const lane = ("subagentRunId" in event && event.subagentRunId) || null;
  return without(open, lane);
}

/** The events that a chunk with an id stands for, without the END that comes later. Opening what is open already changes nothing. */
export function spelledOut(chunk: Chunk): AGUIEvent[] {
  switch (chunk.type) {
    case "TEXT_MESSAGE_CHUNK": {
      const { messageId, delta, role, name, ...rest } = chunk;
      if (messageId === undefined) return [];
      const named = { ...(role !== undefined && { role }), ...(name !== undefined && { name }) };
      const start: AGUIEvent = { ...rest, ...named, type: "TEXT_MESSAGE_START", messageId };
      return delta === undefined ? [start] : [start, { ...rest, type: "TEXT_MESSAGE_CONTENT", messageId, delta }];
    }
    case "REASONING_MESSAGE_CHUNK": {
      const { messageId, delta, ...rest } = chunk;
      if (messageId === undefined) return [];
      const start: AGUIEvent = { ...rest, type: "REASONING_MESSAGE_START", messageId, role: "reasoning" };
      return delta === undefined ? [start] : [start, { ...rest, type: "REASONING_MESSAGE_CONTENT", messageId, delta }];
    }
    case "TOOL_CALL_CHUNK": {
      const { toolCallId, toolCallName, parentMessageId, delta = "", ...rest } = chunk;
      if (toolCallId === undefined) return [];
      const args: AGUIEvent = { ...rest, type: "TOOL_CALL_ARGS", toolCallId, delta };
      // Only the first chunk of a call has to name the tool; without a name there is nothing to open.
      if (toolCallName === undefined) return [args];
      const parent = parentMessageId !== undefined && { parentMessageId };
      return [{ ...rest, ...parent, type: "TOOL_CALL_START", toolCallId, toolCallName }, args];
    }
  }
}

function opening(open: readonly OpenChunk[], event: Chunk): readonly OpenChunk[] {
  const before = continued(open, event);
  const id = idOf(event) ?? before?.id;
  if (id === undefined || before?.id === id) return open;
  const lane = event.subagentRunId ?? null;
  return [...without(open, lane), { type: event.type, id, lane }];
}

/** What `event` goes on with: what has its id, else what is open in its lane, else the only one of its kind. */
function continued(open: readonly OpenChunk[], event: Chunk): OpenChunk | undefined {
  const alike = open.filter((chunk) => chunk.type === event.type);
  const id = idOf(event);
  if (id !== undefined) return alike.find((chunk) => chunk.id === id);
  const { subagentRunId } = event;
  const ofLane = alike.find((chunk) => chunk.lane === (subagentRunId ?? null));
  return ofLane ?? (subagentRunId === undefined && alike.length === 1 ? alike[0] : undefined);
}

function without(open: readonly OpenChunk[], lane: string | null): readonly OpenChunk[] {
  return open.some((chunk) => chunk.lane === lane) ? open.filter((chunk) => chunk.lane !== lane) : open;
}

function idOf(event: Chunk): string | undefined {
  return event.type === "TOOL_CALL_CHUNK" ? event.toolCallId : event.messageId;
}

/** Whether an event is of the short spelling. */
export function isChunk(event: AGUIEvent): event is Chunk {
  return chunksClosedBy[event.type] === "chunk";
}

/** What an event closes that chunks have opened: nothing, what is open in its lane, or in all lanes. Chunks decide for themselves. */
export const chunksClosedBy: { readonly [T in AGUIEventType]: "none" | "lane" | "all" | "chunk" } = {
  RUN_STARTED: "all",
  RUN_FINISHED: "all",
  RUN_ERROR: "all",
  STEP_STARTED: "lane",
  STEP_FINISHED: "lane",
  TEXT_MESSAGE_START: "lane",
  TEXT_MESSAGE_CONTENT: "lane",
  TEXT_MESSAGE_END: "lane",
  TEXT_MESSAGE_CHUNK: "chunk",
  TOOL_CALL_START: "lane",
  TOOL_CALL_ARGS: "lane",
  TOOL_CALL_END: "lane",
  TOOL_CALL_CHUNK: "chunk",
  TOOL_CALL_RESULT: "lane",
  STATE_SNAPSHOT: "lane",
  STATE_DELTA: "lane",
  MESSAGES_SNAPSHOT: "all",
  ACTIVITY_SNAPSHOT: "none",
  ACTIVITY_DELTA: "none",
  REASONING_START: "lane",
  REASONING_MESSAGE_START: "lane",
  REASONING_MESSAGE_CONTENT: "lane",
  REASONING_MESSAGE_END: "lane",
  REASONING_MESSAGE_CHUNK: "chunk",
  REASONING_END: "lane",
  REASONING_ENCRYPTED_VALUE: "none",
  SUBAGENT_STARTED: "none",
  SUBAGENT_FINISHED: "lane",
  SUBAGENT_ERROR: "lane",
  RAW: "none",
  CUSTOM: "lane",
};
