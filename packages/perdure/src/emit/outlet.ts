/**
 * The outlet is the one way out of a leg: every event is transformed and handed to the stream, which verifies and keeps it, synchronously.
 * It does not know lanes, handles or state.
 *
 * O1. What {@link Outlet.send} is given leaves whole or not at all.
 * O2. After {@link Outlet.close} nothing of agent code leaves.
 * O3. Events that close things pass even when the backlog is full, so a full backlog never costs an END or a terminal event.
 * O4. Chunks leave as the events that they stand for, so one item never comes in two forms.
 */

import { isChunk } from "../protocol/chunk-lanes.ts";
import type { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { type ChunkStreams, expandChunks, stillOpen } from "../protocol/expand-chunks.ts";
import type { Json } from "../protocol/json.ts";
import type { Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import { BacklogFullError, type RunInterrupted, TransformerStateError } from "./errors.ts";
import type { Transformer } from "./types.ts";

/** Where a leg's events go, verified on the way: to a reader, or to the log. */
export interface Stream {
  /** The verifier's state: what is open, which calls wait for a result. */
  readonly wire: Wire;
  /** The messages that a reader holds who has read everything. */
  readonly messages: readonly Message[];
  /** Takes all of the events or none. @throws {@link ProtocolError} */
  take(events: readonly AGUIEvent[], lane: Path): void;
  /** What was taken and not delivered yet. Bytes, an estimate. */
  readonly pendingBytes: number;
  /** Resolves when at most `bytes` are pending. */
  drained(bytes: number): Promise<void>;
}

/** Above this pumps wait. Bytes. */
const SOFT_BACKLOG = 1024 * 1024;
/** Above this emitting throws. Bytes. */
const HARD_BACKLOG = 16 * 1024 * 1024;

/** Where the memos of transformers outlive the leg. */
export interface Memory {
  readonly memos: Readonly<Record<string, Json>>;
  /** Called with each memo that has changed. */
  readonly keep: (transformer: string, memo: Json) => void;
}

const FORGETFUL: Memory = { memos: {}, keep: () => {} };

/** The way out as the emitters of a lane see it: the leg's, or that of a subagent within it. */
export interface Exit extends Pick<Stream, "wire" | "messages"> {
  /** Why nothing leaves any more, if so. */
  readonly closed: PerdureError | undefined;
  /**
   * Sends events of agent code.
   *
   * @throws {@link Exit.closed}, {@link BacklogFullError} over 16 MiB unread, {@link ProtocolError} when the stream would stop being valid
   */
  send(lane: Path, ...events: readonly AGUIEvent[]): void;
  /** Sends events that close something (O3). */
  sendClosing(lane: Path, ...events: readonly AGUIEvent[]): void;
  /** Resolves when pumps may go on. */
  drained(): Promise<void>;
  /** Resolves when everything was taken. */
  flushed(): Promise<void>;
  /** Whether a pump has to wait now: cheaper to ask than to await. */
  readonly congested: boolean;
}

export class Outlet implements Exit {
  #memos: Json[];
  #chunks: ChunkStreams = new Map();
  #closed: RunInterrupted | undefined;
  readonly #stream: Stream;
  readonly #transformers: readonly Transformer[];
  readonly #memory: Memory;

  constructor(stream: Stream, transformers: readonly Transformer[] = [], memory: Memory = FORGETFUL) {
    this.#stream = stream;
    this.#transformers = transformers;
    this.#memory = memory;
    this.#memos = transformers.map(({ name, initial }) => memory.memos[name] ?? initial);
  }

  get wire(): Wire {
    return this.#stream.wire;
  }

  get messages(): readonly Message[] {
    return this.#stream.messages;
  }

  get closed(): RunInterrupted | undefined {
    return this.#closed;
  }

  send(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (this.#closed) throw this.#closed;
    if (this.#stream.pendingBytes > HARD_BACKLOG) throw new BacklogFullError(this.#stream.pendingBytes);
    this.#take(events, lane);
  }

  sendClosing(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (this.#closed) throw this.#closed;
    this.#take(events, lane, true);
  }

  /** Sends what the runner itself writes: it is verified, and no transformer sees it. */
  sendUntransformed(event: AGUIEvent, lane = "" as Path): void {
    this.#stream.take([event], lane);
  }

  /** From now on every `send` throws `reason`. */
  close(reason: RunInterrupted): void {
    this.#closed ??= reason;
  }

  drained(): Promise<void> {
    return this.#stream.drained(SOFT_BACKLOG);
  }

  flushed(): Promise<void> {
    return this.#stream.drained(0);
  }

  get congested(): boolean {
    return this.#stream.pendingBytes > SOFT_BACKLOG;
  }

  #take(events: readonly AGUIEvent[], lane: Path, isClosing = false): void {
    const memos = [...this.#memos];
    let current = events;
    this.#transformers.forEach((transformer, i) => {
      current = current.flatMap((event) => {
        const step = transformer.step(memos[i] ?? null, event);
        memos[i] = step.memo;
        keepsState(transformer, event, step.events);
        return step.events;
      });
    });
    // What closes, by its own order, may be what chunks have begun: it must not be ended before.
    const { spelled, chunks } =
      isClosing && !current.some(isChunk) ? this.#asIs(current) : this.#spelled(current, lane);
    this.#stream.take(spelled, lane);
    // Not before: of what was refused nothing may be remembered (O1).
    this.#chunks = chunks;
    this.#transformers.forEach(({ name }, i) => {
      const memo = memos[i] ?? null;
      if (memo !== this.#memos[i]) this.#memory.keep(name, memo);
    });
    this.#memos = memos;
  }

  /** O4. */
  #spelled(events: readonly AGUIEvent[], lane: Path): Spelled {
    if (this.#chunks.size === 0 && !events.some(isChunk)) return this.#asIs(events);
    let chunks = stillOpen(this.#chunks, lane, this.wire);
    const spelled = events.flatMap((event) => {
      const expanded = expandChunks(chunks, event, lane);
      chunks = expanded.streams;
      return expanded.events;
    });
    return { spelled, chunks };
  }

  #asIs(events: readonly AGUIEvent[]): Spelled {
    return { spelled: events, chunks: this.#chunks };
  }
}

/** What leaves in place of what was emitted, and what goes on behind it. */
interface Spelled {
  readonly spelled: readonly AGUIEvent[];
  readonly chunks: ChunkStreams;
}

/** Deltas are made from what clients hold, so the state's events leave as they are (S1 of published.ts). @throws {@link TransformerStateError} */
function keepsState({ name }: Transformer, taken: AGUIEvent, given: readonly AGUIEvent[]): void {
  const states = given.filter(isState);
  const isKept = isState(taken) ? states.length === 1 && states[0] === taken : states.length === 0;
  if (!isKept) throw new TransformerStateError(name, taken.type);
}

function isState({ type }: AGUIEvent): boolean {
  return type === "STATE_SNAPSHOT" || type === "STATE_DELTA";
}
