/** How a body's leg goes into the log while it runs. */
import type { Stream } from "../emit/outlet.ts";
import { Published, type Send, stateUpdates } from "../emit/published.ts";
import type { FrameRef } from "../log/entries.ts";
import type { AGUIEvent, AGUIEventOf, Message } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { diff } from "../protocol/patch.ts";
import type { Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { DriveSession } from "./drive-session.ts";

export type Terminal = AGUIEventOf<"RUN_FINISHED" | "RUN_ERROR">;

/** The leg's stream into the log. Its terminal event is not appended but kept: what it says is one batch with what becomes of the run: only the driver knows it. */
export class BodyStream implements Stream {
  terminal: Terminal | undefined;

  constructor(private readonly session: DriveSession) {}

  get wire(): Wire {
    return this.session.stream.wire;
  }
  get messages(): readonly Message[] {
    return this.session.stream.messages;
  }
  get pendingBytes(): number {
    return this.session.stream.pendingBytes;
  }
  drained(bytes: number): Promise<void> {
    return this.session.stream.drained(bytes);
  }

  take(events: readonly AGUIEvent[], lane: Path): void {
    // A driver that has lost its run says nothing more; its next one does.
    if (this.session.signal.aborted) {
      for (const event of events) this.#note(event);
      return;
    }
    const last = events.at(-1);
    if (events.length === 1 && last !== undefined && this.#note(last)) return;
    const ref = events.length === 1 && last !== undefined ? this.#reference(last) : undefined;
    if (ref === undefined) this.session.stream.take(events, lane);
    else this.session.stream.refer(ref, lane);
  }

  /** A snapshot is a reference, if that says all that it says: not whose it is, for example. */
  #reference(event: AGUIEvent): FrameRef | undefined {
    if (Object.keys(event).length > 2) return undefined;
    if (event.type === "STATE_SNAPSHOT") return { of: "STATE_SNAPSHOT" };
    const isWhole = event.type === "MESSAGES_SNAPSHOT" && isAllOf(event.messages, this.messages);
    return isWhole ? { of: "MESSAGES_SNAPSHOT" } : undefined;
  }

  #note(event: AGUIEvent): boolean {
    if (event.type !== "RUN_FINISHED" && event.type !== "RUN_ERROR") return false;
    this.terminal = event;
    return true;
  }
}

function isAllOf(messages: readonly Message[], all: readonly Message[]): boolean {
  return messages.length === all.length && messages.every((message, i) => message === all[i]);
}

/** The run's state: what is published is a fact first, and then shown. A state over 4 MiB is refused where it is published. */
export class LoggedState extends Published {
  constructor(private readonly session: DriveSession) {
    super("state", session.state.committed, stateUpdates);
  }

  protected override pass(event: AGUIEvent, next: Json, send: Send): void {
    const patch = diff(this.session.state.committed, next);
    const tooLarge = this.session.stateSize.refuses(patch, next);
    if (tooLarge !== undefined) throw tooLarge;
    if (patch.length > 0) this.session.add([{ kind: "state", path: "" as Path, patch }]);
    send(event);
  }
}
