import type { Entry } from "../log/entries.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore } from "../store/store.ts";

/**
 * A run's entries behind `after` (-1: all).
 *
 * @param follow - stays for what is appended, until the run has ended or is set aside, or this fires; left out: up to what is there now
 */
export async function* logEntries(
  store: EventStore,
  uid: Uid,
  after: number,
  follow?: AbortSignal,
): AsyncGenerator<Entry, void> {
  let last = after;
  let hinted = (): void => {};
  let hint = Promise.resolve();
  const unwatch = follow === undefined ? () => {} : store.watch({ run: uid }, () => hinted());
  const over = (): void => hinted();
  follow?.addEventListener("abort", over);
  try {
    for (;;) {
      // Before it is read, so that nothing can be appended unseen.
      hint = new Promise<void>((resolve) => {
        hinted = resolve;
      });
      const run = await store.run(uid);
      for await (const entry of store.read(uid, last)) {
        yield entry;
        last = entry.seq;
      }
      const hasEnded = run === null || run.outcome !== null || run.aside !== null;
      if (follow === undefined || follow.aborted || hasEnded) return;
      await hint;
    }
  } finally {
    unwatch();
    follow?.removeEventListener("abort", over);
  }
}
