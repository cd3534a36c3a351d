/** A stream that is kept nowhere but in its reader: what was sent is verified, and pushed to a sink. */
import type { AGUIEvent, AGUIEventOf, Message, RunAgentInput } from "../protocol/events.ts";
import { HeldMessages } from "../protocol/held-messages.ts";
import type { Json } from "../protocol/json.ts";
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
  #held: HeldMessages;
  #wire: Wire;

  constructor(sink: Sink, wire: Wire, messages: readonly Message[]) {
    this.#sink = sink;
    this.#wire = wire;
    this.#held = HeldMessages.of(messages);
  }

  get wire(): Wire {
    return this.#wire;
  }

  get messages(): readonly Message[] {
    return this.#held.messages;
  }

  take(events: readonly AGUIEvent[], lane: Path): void {
    let wire = this.#wire;
    for (const event of events) wire = verify(wire, checkShape(event), lane);
    this.#wire = wire;
    for (const event of events) {
      this.#held = this.#held.after(event);
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

type Delta = AGUIEventOf<"TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS">;

/** Whether an event appends text to an open block. */
export function isDelta(event: AGUIEvent): event is Delta {
  const { type } = event;
  return type === "TEXT_MESSAGE_CONTENT" || type === "REASONING_MESSAGE_CONTENT" || type === "TOOL_CALL_ARGS";
}

/** What the envelope of a small event takes, roughly. Bytes. */
const ENVELOPE = 96;

/** What an event takes up, roughly. Bytes. */
export function bytesOf(event: AGUIEvent): number {
  return isDelta(event) ? event.delta.length + ENVELOPE : estimateBytes(event as unknown as Json);
}
