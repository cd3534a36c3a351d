/**
 * The outlet is the one way out of a leg: every event is transformed, checked for its shape, verified against the stream so far and
 * handed to the sink, in this order and synchronously. It owns the verifier's state and the transcript that a reader of the leg holds.
 * It does not know lanes, handles or state; a sink does not know the protocol.
 *
 * O1. What {@link Outlet.send} is given leaves whole or not at all: all of it is verified before any of it is pushed.
 * O2. After {@link Outlet.close} nothing leaves.
 * O3. Events that close things pass even when the backlog is full, so a full backlog never costs an END or a terminal event.
 */
import type { AGUIEvent, Message } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { estimateBytes } from "../protocol/patch.ts";
import { reduceMessages } from "../protocol/reduce.ts";
import { checkShape } from "../protocol/shape.ts";
import { verify, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import { BacklogFullError, type RunInterrupted } from "./errors.ts";
import type { Transformer } from "./types.ts";

/** Where verified events go: a queue that a reader empties, or the log. */
export interface Sink {
  /** Takes an event. Never throws; `bytes` is an estimate. */
  push(event: AGUIEvent, lane: Path, bytes: number): void;
  /** What was pushed and not taken yet. */
  readonly pendingBytes: number;
  /** Resolves when at most `bytes` are pending. */
  drained(bytes: number): Promise<void>;
}

/** Above this pumps wait. Bytes. */
export const SOFT_BACKLOG = 1024 * 1024;
/** Above this emitting throws. Bytes. */
export const HARD_BACKLOG = 16 * 1024 * 1024;

export class Outlet {
  #wire: Wire;
  #memos: Json[];
  #closed: RunInterrupted | undefined;
  readonly #sink: Sink;
  readonly #transformers: readonly Transformer[];
  readonly #transcript: TranscriptKeeper;

  constructor(options: {
    readonly sink: Sink;
    readonly wire: Wire;
    readonly messages: readonly Message[];
    readonly transformers?: readonly Transformer[];
  }) {
    this.#sink = options.sink;
    this.#wire = options.wire;
    this.#transformers = options.transformers ?? [];
    this.#memos = this.#transformers.map(({ initial }) => initial);
    this.#transcript = new TranscriptKeeper(options.messages);
  }

  /** The verifier's state: what is open, which calls wait for a result. */
  get wire(): Wire {
    return this.#wire;
  }

  /** The messages that a reader holds who has read everything. */
  get messages(): readonly Message[] {
    return this.#transcript.messages;
  }

  /** Why nothing leaves any more, if so. */
  get closed(): RunInterrupted | undefined {
    return this.#closed;
  }

  /**
   * Sends events of agent code.
   *
   * @throws {@link RunInterrupted} after the leg's end, {@link BacklogFullError} over 16 MiB unread, {@link ProtocolError} when the
   * stream would stop being valid
   */
  send(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (this.#closed) throw this.#closed;
    if (this.#sink.pendingBytes > HARD_BACKLOG) throw new BacklogFullError(this.#sink.pendingBytes);
    this.#pass(lane, this.#transformers.length === 0 ? events : this.#transform(events));
  }

  /** Sends events that close something (O3). */
  sendClosing(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (this.#closed) throw this.#closed;
    this.#pass(lane, this.#transformers.length === 0 ? events : this.#transform(events));
  }

  /** Sends what the runner itself writes: it is verified, and no transformer sees it. */
  sendUntransformed(event: AGUIEvent, lane = "" as Path): void {
    this.#pass(lane, [event]);
  }

  /** From now on every `send` throws `reason`. */
  close(reason: RunInterrupted): void {
    this.#closed ??= reason;
  }

  /** Resolves when pumps may go on. */
  drained(): Promise<void> {
    return this.#sink.drained(SOFT_BACKLOG);
  }

  /** Resolves when everything was taken. */
  flushed(): Promise<void> {
    return this.#sink.drained(0);
  }

  /** Whether a pump has to wait now: cheaper to ask than to await. */
  get congested(): boolean {
    return this.#sink.pendingBytes > SOFT_BACKLOG;
  }

  #pass(lane: Path, events: readonly AGUIEvent[]): void {
    let wire = this.#wire;
    for (const event of events) wire = verify(wire, checkShape(event), lane);
    this.#wire = wire;
    for (const event of events) {
      this.#transcript.add(event);
      this.#sink.push(event, lane, bytesOf(event));
    }
  }

  #transform(events: readonly AGUIEvent[]): readonly AGUIEvent[] {
    const memos = [...this.#memos];
    let current = events;
    this.#transformers.forEach((transformer, i) => {
      current = current.flatMap((event) => {
        const step = transformer.step(memos[i] ?? null, event);
        memos[i] = step.memo;
        return step.events;
      });
    });
    this.#memos = memos;
    return current;
  }
}

/** Reduces events to messages when somebody asks; until then deltas of one block are joined, so that a long text stays one entry. */
class TranscriptKeeper {
  #messages: readonly Message[];
  #waiting: AGUIEvent[] = [];
  /** The last of `#waiting` is ours to change: we made it by joining. */
  #joined: { type: string; id: string; delta: string } | undefined;

  constructor(messages: readonly Message[]) {
    this.#messages = messages;
  }

  add(event: AGUIEvent): void {
    const delta = asDelta(event);
    if (delta === undefined) {
      this.#settle();
      if (!touchesNoMessage.has(event.type)) this.#waiting.push(event);
      return;
    }
    if (this.#joined?.type === delta.type && this.#joined.id === delta.id && event.metadata === undefined) {
      this.#joined.delta += delta.delta;
      return;
    }
    this.#settle();
    if (event.metadata === undefined) this.#joined = delta;
    else this.#waiting.push(event);
  }

  get messages(): readonly Message[] {
    this.#settle();
    for (const event of this.#waiting) this.#messages = reduceMessages(this.#messages, event);
    this.#waiting = [];
    return this.#messages;
  }

  #settle(): void {
    if (this.#joined === undefined) return;
    const { type, id, delta } = this.#joined;
    this.#waiting.push(
      type === "TOOL_CALL_ARGS"
        ? { type, toolCallId: id, delta }
        : { type: type as "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT", messageId: id, delta },
    );
    this.#joined = undefined;
  }
}

const touchesNoMessage: ReadonlySet<string> = new Set([
  "STATE_SNAPSHOT",
  "STATE_DELTA",
  "CUSTOM",
  "RAW",
  "STEP_STARTED",
  "STEP_FINISHED",
]);

function asDelta(event: AGUIEvent): { type: string; id: string; delta: string } | undefined {
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return { type: event.type, id: event.messageId, delta: event.delta };
    case "TOOL_CALL_ARGS":
      return { type: event.type, id: event.toolCallId, delta: event.delta };
    default:
      return undefined;
  }
}

/** What the envelope of a small event takes, roughly. Bytes. */
const ENVELOPE = 96;

function bytesOf(event: AGUIEvent): number {
  const delta = asDelta(event);
  return delta === undefined ? estimateBytes(event as unknown as Json) : delta.delta.length + ENVELOPE;
}
