/** A stream that is kept nowhere but in its reader: what was sent is verified, and pushed to a sink. */
import type { AGUIEvent, Message, RunAgentInput } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { reduceMessages } from "../protocol/reduce.ts";
import { checkShape } from "../protocol/shape.ts";
import { estimateBytes } from "../protocol/size.ts";
import { newWire, verify, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { Stream } from "./outlet.ts";

/** Where verified events go. */
export interface Sink {
  /** Takes an event. Never throws; `bytes` is an estimate. */
  push(event: AGUIEvent, bytes: number): void;
  readonly pendingBytes: number;
  drained(bytes: number): Promise<void>;
}

/** The stream of a request's leg, in the mode that asks of ourselves more than the protocol does. */
export function streamOf(sink: Sink, { messages, threadId, tools }: RunAgentInput): VerifiedStream {
  const clientTools = tools.map(({ name }) => name);
  return new VerifiedStream(sink, newWire({ messages, threadId, clientTools, strict: true }), messages);
}

export class VerifiedStream implements Stream {
  readonly #sink: Sink;
  readonly #transcript: TranscriptKeeper;
  #wire: Wire;

  constructor(sink: Sink, wire: Wire, messages: readonly Message[]) {
    this.#sink = sink;
    this.#wire = wire;
    this.#transcript = new TranscriptKeeper(messages);
  }

  get wire(): Wire {
    return this.#wire;
  }

  get messages(): readonly Message[] {
    return this.#transcript.messages;
  }

  take(events: readonly AGUIEvent[], lane: Path): void {
    let wire = this.#wire;
    for (const event of events) wire = verify(wire, checkShape(event), lane);
    this.#wire = wire;
    for (const event of events) {
      this.#transcript.add(event);
      this.#sink.push(event, bytesOf(event));
    }
  }

  get pendingBytes(): number {
    return this.#sink.pendingBytes;
  }

  drained(bytes: number): Promise<void> {
    return this.#sink.drained(bytes);
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

const ENVELOPE = 96;

/** What an event takes up, roughly. Bytes. */
export function bytesOf(event: AGUIEvent): number {
  const delta = asDelta(event);
  return delta === undefined ? estimateBytes(event as unknown as Json) : delta.delta.length + ENVELOPE;
}
