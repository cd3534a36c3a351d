/**
 * `*_CHUNK` events as the START, CONTENT and END that they stand for. What leaves is in one form, so whatever knows how an open block is ended,
 * taken back or begun again knows it of these too: a client that expands chunks itself ends a call in the middle of its arguments, and runs it.
 *
 * A stream of chunks goes on until something else of its agent or subagent comes from the same lane; the rules are those of
 * {@link verifyChunk}. The lanes are those of the program, so branches of one agent do not end each other's.
 */
import { type Chunk, isChunk, spelledOut, withChunkId } from "./chunk-lanes.ts";
import { closeChunkedCall, closeChunks, verifyChunk } from "./chunks.ts";
import type { AGUIEvent } from "./events.ts";
import { closingEvent, newWire, type OpenItem, openItems, type Chunk as Stream, type Wire } from "./wire.ts";

/** The streams of chunks that go on, by lane: a wire that knows nothing else. Immutable. */
export type ChunkStreams = ReadonlyMap<string, Wire>;

const TYPES: { readonly [K in Stream["kind"]]: Chunk["type"] } = {
  text: "TEXT_MESSAGE_CHUNK",
  "tool-call": "TOOL_CALL_CHUNK",
  "reasoning-message": "REASONING_MESSAGE_CHUNK",
};

/**
 * @param lane - the strand of program order that made the event
 * @returns what to send in its place, and the streams after it
 * @throws {@link ProtocolError} for a chunk that begins nothing and goes on with nothing, or contradicts what it goes on with
 */
export function expandChunks(
  streams: ChunkStreams,
  event: AGUIEvent,
  lane: string,
): { readonly events: readonly AGUIEvent[]; readonly streams: ChunkStreams } {
  if (isChunk(event)) {
    const before = streams.get(lane) ?? newWire();
    const after = verifyChunk(before, event);
    const events = [...endsBetween(before, after), ...spelled(before, event)];
    return { events, streams: withLane(streams, lane, after) };
  }
  let left = streams;
  const ends: AGUIEvent[] = [];
  for (const [path, before] of streams) {
    const closed = path === lane ? closeChunks(before, event) : before;
    // Having its result, a call is complete, whoever made it.
    const after = event.type === "TOOL_CALL_RESULT" ? closeChunkedCall(closed, event.toolCallId) : closed;
    if (after === before) continue;
    ends.push(...endsBetween(before, after));
    left = withLane(left, path, after);
  }
  return { events: [...ends, event], streams: left };
}

/** The streams of a lane without those that something else has ended, as its leg does for one that was cut. */
export function stillOpen(streams: ChunkStreams, lane: string, wire: Wire): ChunkStreams {
  const known = streams.get(lane);
  if (known?.chunks === undefined) return streams;
  const open = openItems(wire);
  const chunks = [...known.chunks].filter(([, { kind, id }]) =>
    open.some((item) => item.kind === kind && item.id === id),
  );
  if (chunks.length === known.chunks.size) return streams;
  return withLane(streams, lane, { ...known, chunks: chunks.length === 0 ? undefined : new Map(chunks) });
}

function withLane(streams: ChunkStreams, lane: string, wire: Wire): ChunkStreams {
  const lanes = new Map(streams);
  if (wire.chunks === undefined) lanes.delete(lane);
  else lanes.set(lane, wire);
  return lanes;
}

/** Only what begins a stream is a START, and only what says something follows it. */
function spelled(before: Wire, event: Chunk): readonly AGUIEvent[] {
  const open = [...(before.chunks ?? [])].map(([owner, { kind, id }]) => ({
    type: TYPES[kind],
    id,
    lane: owner ?? null,
  }));
  const named = withChunkId(open, event);
  if (!isChunk(named)) return [];
  const id = named.type === "TOOL_CALL_CHUNK" ? named.toolCallId : named.messageId;
  const goesOn = open.some((stream) => stream.type === named.type && stream.id === id);
  if (!goesOn) return spelledOut(named).filter((one) => one.type !== "TOOL_CALL_ARGS" || one.delta !== "");
  if (named.delta === undefined && named.metadata === undefined) return [];
  return spelledOut({ ...named, delta: named.delta ?? "" }).slice(-1);
}

function endsBetween(before: Wire, after: Wire): readonly AGUIEvent[] {
  const left = itemsOf(after);
  return itemsOf(before)
    .filter(({ kind, id }) => !left.some((item) => item.kind === kind && item.id === id))
    .map(closingEvent);
}

function itemsOf(wire: Wire): readonly OpenItem[] {
  return [...(wire.chunks ?? [])].map(([owner, { kind, id }]) => ({
    ...{ kind, id, lane: undefined, gone: false },
    ...(owner !== undefined && { subagentRunId: owner }),
  }));
}
