import type { Exit } from "../emit/outlet.ts";
import type { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import type { Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";

/**
 * The way out of one attempt. A body that goes on after its attempt has ended shows nothing any more: the next attempt says it anew, under the
 * same lane. It is not told either, because what it brings may still count, and an error in the middle would lose that.
 */
export class AttemptExit implements Exit {
  #isOver = false;

  constructor(private readonly outer: Exit) {}

  /** The attempt has ended. */
  close(): void {
    this.#isOver = true;
  }

  get closed(): PerdureError | undefined {
    return this.outer.closed;
  }

  get wire(): Wire {
    return this.outer.wire;
  }

  get messages(): readonly Message[] {
    return this.outer.messages;
  }

  send(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (!this.#isOver) this.outer.send(lane, ...events);
  }

  sendClosing(lane: Path, ...events: readonly AGUIEvent[]): void {
    if (!this.#isOver) this.outer.sendClosing(lane, ...events);
  }

  drained(): Promise<void> {
    return this.outer.drained();
  }

  flushed(): Promise<void> {
    return this.outer.flushed();
  }

  get congested(): boolean {
    return this.outer.congested;
  }
}
