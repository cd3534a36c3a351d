import type { Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";
import { PruneRefusedError, prune } from "./prune.ts";
import type { Threads } from "./threads.ts";

export interface PrunerOptions {
  readonly store: EventStore;
  readonly threads: Threads;
  /** How long ago a run has to have ended. Milliseconds. */
  readonly after: number;
  readonly now: () => number;
  /** Gets what keeps a run from being pruned, once. */
  readonly report: (error: unknown, run: Run) => void;
}

/** How often it is looked for runs, at least. Milliseconds. */
const LOOK_AGAIN = 60 * 60 * 1_000;

/** Prunes what ended long ago, at the beginning and every now and then, one run after the other. */
export class Pruner {
  readonly #options: PrunerOptions;
  /** Runs that cannot be pruned: they are not tried again here. */
  readonly #kept = new Set<Uid>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #looking: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(options: PrunerOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#isStopped) return;
    this.#looking = this.#look()
      // The store has a fault that whoever drives meets, too, and reports.
      .catch(() => {})
      .finally(() => {
        if (this.#isStopped) return;
        this.#timer = setTimeout(() => this.start(), Math.max(1_000, Math.min(this.#options.after, LOOK_AGAIN)));
        this.#timer.unref?.();
      });
  }

  /** Resolves when nothing is being pruned any more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    const { store, after, now } = this.#options;
    for (let next: string | null | undefined; next !== null; ) {
      const page = await store.runs({ tenant: null, prunable: true, ...(next !== undefined && { after: next }) });
      for (const run of page.items) {
        if (this.#isStopped) return;
        if (run.updatedAt + after <= now() && !this.#kept.has(run.uid)) await this.#prune(run);
      }
      next = page.next;
    }
  }

  async #prune(run: Run): Promise<void> {
    const { store, threads, report } = this.#options;
    try {
      await prune(store, threads, run.uid);
    } catch (error) {
      // Its driver is done in a moment.
      if (error instanceof PruneRefusedError && error.code === "RUN_DRIVEN") return;
      this.#kept.add(run.uid);
      report(error, run);
    }
  }
}
