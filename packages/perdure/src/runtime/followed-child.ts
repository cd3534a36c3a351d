import { ChildLog } from "../log/child-log.ts";
import type { Entry } from "../log/entries.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore } from "../store/store.ts";

/** A child's log in the hands of its parent's driver. */
export class Followed {
  readonly log: ChildLog;
  unwatch = (): void => {};
  /** What it was told to do because its parent is over. */
  told: "cancel" | "abandon" | undefined;
  isStale = true;
  #appended: (readonly Entry[])[] = [];
  #onNews: (() => void) | undefined;

  constructor(
    readonly uid: Uid,
    private readonly onMoved: () => void,
  ) {
    this.log = new ChildLog(uid);
  }

  readonly hear = (appended?: readonly Entry[]): void => {
    if (appended !== undefined) this.#appended.push(appended);
    this.wake();
    this.onMoved();
  };

  readonly wake = (): void => {
    this.isStale = true;
    this.#onNews?.();
  };

  /** Resolves when it was heard of since its entries were taken last. */
  async news(): Promise<void> {
    if (this.isStale) return;
    await new Promise<void>((resolve) => {
      this.#onNews = resolve;
    });
    this.#onNews = undefined;
  }

  /** What its log has got since. Read where this process was not told all of it. */
  async entries(store: EventStore): Promise<readonly Entry[]> {
    this.isStale = false;
    const told = this.#appended.flat();
    this.#appended = [];
    const next = this.log.head + 1;
    const behind = told.filter(({ seq }) => seq >= next);
    if (this.log.head >= 0 && told.length > 0 && behind.every(({ seq }, i) => seq === next + i)) return behind;
    const entries: Entry[] = [];
    for await (const entry of store.read(this.uid, this.log.head)) entries.push(entry);
    return entries;
  }
}
