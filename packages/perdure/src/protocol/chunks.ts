/**
 * The order of `*_CHUNK` events, the short spelling that clients expand into START, CONTENT and END (AG-UI.md 2.5). A lane (a
 * subagent's work, or the parent agent's) has at most one chunk stream. Later chunks may leave its id out until something else of the
 * lane has closed it.
 */

import { beginCall } from "./calls.ts";
import { type Chunk as ChunkEvent, chunksClosedBy } from "./chunk-lanes.ts";
import type { AGUIEvent } from "./events.ts";
import { checkOwner, openMessage, refuse } from "./items.ts";
import type { Chunk, Wire } from "./wire.ts";

export function verifyChunk(w: Wire, event: ChunkEvent): Wire {
  const { kind, id, fields } = read(event);
  const lane = laneOf(w, event, kind, id);
  const pending = w.chunks?.get(lane);
  if (pending?.kind === kind && (id === undefined || id === pending.id)) {
    for (const [name, value] of Object.entries(fields)) {
      if (value === undefined || value === pending.fields[name]) continue;
      refuse("chunk-conflict", event, pending.id, `its ${name} is "${pending.fields[name]}", not "${value}"`);
    }
    const item = kind === "tool-call" ? w.known.get(pending.id) : w.messages.get(pending.id);
    checkOwner(w, item, event, pending.id);
    const more = kind === "tool-call" ? (event.delta ?? "") : "";
    return more === "" ? w : withChunk(w, lane, { ...pending, args: pending.args + more });
  }
  const closed = pending === undefined ? w : closeLane(w, lane);
  if (id === undefined) refuse("chunk-without-id", event, undefined, "nothing is open that it could go on with");
  switch (event.type) {
    case "TEXT_MESSAGE_CHUNK": {
      const { wire } = openMessage(closed, event, "text", id, closed.texts.get(id));
      const first = { role: event.role ?? "assistant", name: event.name };
      return withChunk({ ...wire, messagesShown: false }, lane, { kind, id, fields: first, args: "" });
    }
    case "REASONING_MESSAGE_CHUNK": {
      const { wire } = openMessage(closed, event, "reasoning-message", id, closed.reasonings.get(id));
      return withChunk({ ...wire, messagesShown: false }, lane, { kind, id, fields, args: "" });
    }
    case "TOOL_CALL_CHUNK": {
      const { toolCallName } = event;
      if (toolCallName === undefined) refuse("chunk-without-name", event, id, "a call's first chunk names the tool");
      const { wire, args } = beginCall(closed, event, { id, name: toolCallName, form: "chunk" });
      const chunk = { kind, id, fields, args: args + (event.delta ?? "") };
      return withChunk({ ...wire, messagesShown: false }, lane, chunk);
    }
    default:
      return event satisfies never;
  }
}

/** The wire without the chunk streams that an event closes. */
export function closeChunks(w: Wire, event: AGUIEvent): Wire {
  if (w.chunks === undefined) return w;
  switch (chunksClosedBy[event.type]) {
    case "all":
      return [...w.chunks.keys()].reduce(closeLane, w);
    case "lane":
      return closeLane(w, "subagentRunId" in event ? event.subagentRunId : undefined);
    default:
      return w;
  }
}

/** The wire without the chunk stream of a call, wherever it runs: having its result, the call is complete. */
export function closeChunkedCall(w: Wire, id: string): Wire {
  for (const [lane, chunk] of w.chunks ?? []) {
    if (chunk.kind === "tool-call" && chunk.id === id) return closeLane(w, lane);
  }
  return w;
}

function read(event: ChunkEvent): Pick<Chunk, "kind" | "fields"> & { readonly id: string | undefined } {
  switch (event.type) {
    case "TEXT_MESSAGE_CHUNK":
      return { kind: "text", id: event.messageId, fields: { role: event.role, name: event.name } };
    case "TOOL_CALL_CHUNK": {
      const { toolCallId: id, toolCallName, parentMessageId } = event;
      return { kind: "tool-call", id, fields: { toolCallName, parentMessageId } };
    }
    case "REASONING_MESSAGE_CHUNK":
      return { kind: "reasoning-message", id: event.messageId, fields: {} };
    default:
      return event satisfies never;
  }
}

function laneOf(w: Wire, event: ChunkEvent, kind: Chunk["kind"], id: string | undefined): string | undefined {
  const owner = event.subagentRunId;
  const lanes = [...(w.chunks ?? [])].filter(([, chunk]) => chunk.kind === kind);
  if (id !== undefined) {
    const [same] = lanes.find(([, chunk]) => chunk.id === id) ?? [];
    const goesOn = lanes.some(([, chunk]) => chunk.id === id);
    if (goesOn && owner !== undefined && owner !== same) {
      refuse(
        "owner",
        event,
        id,
        `"${id}" belongs to ${same === undefined ? "the parent agent" : `subagent "${same}"`}`,
      );
    }
    return goesOn ? same : owner;
  }
  if (owner !== undefined || w.chunks?.get(undefined)?.kind === kind) return owner;
  if (lanes.length > 1)
    refuse("chunk-ambiguous", event, undefined, `${lanes.length} lanes have a chunk stream it could mean`);
  return lanes[0]?.[0];
}

function withChunk(w: Wire, lane: string | undefined, chunk: Chunk): Wire {
  return { ...w, chunks: new Map(w.chunks).set(lane, chunk) };
}

function closeLane(w: Wire, lane: string | undefined): Wire {
  const chunk = w.chunks?.get(lane);
  if (chunk === undefined) return w;
  const rest = new Map(w.chunks);
  rest.delete(lane);
  const call = chunk.kind === "tool-call" ? w.known.get(chunk.id) : undefined;
  return {
    ...w,
    chunks: rest.size === 0 ? undefined : rest,
    known: call === undefined ? w.known : w.known.set(chunk.id, { ...call, args: chunk.args }),
  };
}
