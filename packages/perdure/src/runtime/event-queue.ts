import type { Sink } from "../emit/verified-stream.ts";
import type { AGUIEvent } from "../protocol/events.ts";

interface Reader {
  resolve(result: IteratorResult<AGUIEvent, undefined>): void;
  reject(error: unknown): void;
}

/** Keeps what a leg emits until its one reader takes it. */
export class EventQueue implements Sink {
  #events: { readonly event: AGUIEvent; readonly bytes: number }[] = [];
  #taken = 0;
  #bytes = 0;
  #isClosed = false;
  #failure: { readonly error: unknown } | undefined;
  #readers: Reader[] = [];
  #waiting: { readonly bytes: number; readonly resolve: () => void }[] = [];

  get pendingBytes(): number {
    return this.#bytes;
  }

  push(event: AGUIEvent, bytes: number): void {
    if (this.#isClosed) return;
    const reader = this.#readers.shift();
    if (reader) {
      reader.resolve({ value: event, done: false });
      return;
    }
    this.#events.push({ event, bytes });
    this.#bytes += bytes;
  }

  drained(bytes: number): Promise<void> {
    if (this.#bytes <= bytes) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ bytes, resolve }));
  }

  /** Nothing more comes; what is there can still be read. */
  close(): void {
    this.#isClosed = true;
    for (const reader of this.#readers.splice(0)) reader.resolve({ value: undefined, done: true });
  }

  /** The reader's next read rejects, then it is over. */
  fail(error: unknown): void {
    const reader = this.#readers.shift();
    if (reader) reader.reject(error);
    else this.#failure = { error };
    this.close();
  }

  next(): Promise<IteratorResult<AGUIEvent, undefined>> {
    const head = this.#events[this.#taken];
    if (head !== undefined) {
      this.#take(head.bytes);
      return Promise.resolve({ value: head.event, done: false });
    }
    if (this.#failure) {
      const { error } = this.#failure;
      this.#failure = undefined;
      return Promise.reject(error);
    }
    if (this.#isClosed) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve, reject) => this.#readers.push({ resolve, reject }));
  }

  /** The reader has gone: whatever waits for it goes on. */
  abandon(): void {
    this.close();
    this.#events = [];
    this.#taken = 0;
    this.#bytes = 0;
    this.#wake();
  }

  #take(bytes: number): void {
    this.#taken++;
    this.#bytes -= bytes;
    if (this.#taken === this.#events.length) {
      this.#events = [];
      this.#taken = 0;
    } else if (this.#taken === 1024) {
      // Without it a queue that is never quite empty would keep every event it ever held.
      this.#events = this.#events.slice(this.#taken);
      this.#taken = 0;
    }
    if (this.#waiting.length > 0) this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = waiting.filter(({ bytes }) => this.#bytes > bytes);
    for (const { bytes, resolve } of waiting) if (this.#bytes <= bytes) resolve();
  }
}
