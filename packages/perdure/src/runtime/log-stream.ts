/**
 * The stream of a run as its log keeps it: what leaves becomes a frame. The log's own fold verifies.
 *
 * W1. Deltas of one block are throttled: one goes at once when the block's last frame is older than the window, else they gather into the
 *     next. Any other entry flushes them first, so the order is that of emitting.
 */
import type { Stream } from "../emit/outlet.ts";
import { bytesOf, isDelta } from "../emit/verified-stream.ts";
import type { FrameRef, NewEntry } from "../log/entries.ts";
import type { AGUIEvent, AGUIEventOf, Message } from "../protocol/events.ts";
import { checkPayload } from "../protocol/payload.ts";
import { checkShape } from "../protocol/shape.ts";
import { verify, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { RunLog } from "./run-log.ts";

type Delta = AGUIEventOf<"TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS">;

interface Gathering {
  readonly event: Delta;
  readonly lane: Path;
  delta: string;
}

/** Milliseconds between two frames of one block. */
const WINDOW = 25;
/** Characters that one block may gather: far fewer than a payload may have, so that what gathers is never too large to be appended. */
const GATHERED = 256 * 1024;

export class LogStream implements Stream {
  readonly #gathering = new Map<string, Gathering>();
  readonly #lastSent = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly log: RunLog,
    private readonly now: () => number,
  ) {}

  get wire(): Wire {
    this.flush();
    return this.log.wire;
  }

  get messages(): readonly Message[] {
    this.flush();
    return this.log.state.messages;
  }

  get pendingBytes(): number {
    return this.log.pendingBytes;
  }

  async drained(bytes: number): Promise<void> {
    this.flush();
    if (this.log.pendingBytes > bytes) await this.log.committed();
  }

  take(events: readonly AGUIEvent[], lane: Path): void {
    const [only] = events;
    if (events.length === 1 && only !== undefined && isPlainDelta(only)) this.#delta(only, lane);
    else {
      for (const event of events) checkShape(event);
      this.add(
        events.map((event) => ({ kind: "frame", path: lane, event })),
        events.reduce((sum, event) => sum + bytesOf(event), 0),
      );
    }
  }

  /** Appends a frame that is derived from the log. */
  refer(ref: FrameRef, lane = "" as Path): void {
    this.add([{ kind: "frame", path: lane, ref }]);
  }

  /** Appends entries behind everything that was emitted so far. */
  add(entries: readonly NewEntry[], bytes = 0): void {
    this.flush();
    this.log.add(entries, { bytes });
  }

  /** Appends what has gathered. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#gathering.size === 0) return;
    const gathered = [...this.#gathering.values()];
    this.#gathering.clear();
    const at = this.now();
    for (const { event, lane, delta } of gathered) {
      this.#lastSent.set(blockOf(event), at);
      const whole = { ...event, delta };
      this.log.addDelta({ kind: "frame", path: lane, event: whole }, bytesOf(whole));
    }
  }

  #delta(event: Delta, lane: Path): void {
    checkShape(event);
    if (event.delta.length > GATHERED) checkPayload(event.delta, `delta of a ${event.type}`);
    // A gathered delta changes nothing that the rules about another delta look at, so it can be judged before those are folded.
    verify(this.log.wire, event, lane);
    const block = blockOf(event);
    if (event.delta.length + (this.#gathering.get(block)?.delta.length ?? 0) > GATHERED) this.flush();
    const gathering = this.#gathering.get(block);
    if (gathering) {
      gathering.delta += event.delta;
      return;
    }
    const at = this.now();
    const since = at - (this.#lastSent.get(block) ?? Number.NEGATIVE_INFINITY);
    if (since >= WINDOW && this.#gathering.size === 0) {
      this.#lastSent.set(block, at);
      this.log.addDelta({ kind: "frame", path: lane, event }, bytesOf(event));
      return;
    }
    this.#gathering.set(block, { event, lane, delta: event.delta });
    this.#timer ??= setTimeout(() => this.#flushQuietly(), Math.max(0, WINDOW - since));
  }

  #flushQuietly(): void {
    try {
      this.flush();
    } catch {
      // The lease is lost: whoever emits next is told.
    }
  }
}

/** A delta that says nothing but its text, so two of them can be one. */
function isPlainDelta(event: AGUIEvent): event is Delta {
  return (
    isDelta(event) && event.metadata === undefined && event.rawEvent === undefined && event.timestamp === undefined
  );
}

function blockOf(event: Delta): string {
  return event.type === "TOOL_CALL_ARGS" ? event.toolCallId : event.messageId;
}
