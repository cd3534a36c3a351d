import type { Uid } from "../protocol/words.ts";
import type { RunChange, RunRow } from "./rows.ts";

/** How many are kept. */
const KEPT = 1_000;

/** Rows of the runs that were looked at last, for whoever alone may change them: most steps look at one run several times. */
export class KeptRuns {
  readonly #byId = new Map<number, Mutable<RunRow>>();
  readonly #ids = new Map<Uid, number>();

  get(id: number): RunRow | undefined {
    return this.#byId.get(id);
  }

  named(uid: Uid): RunRow | undefined {
    const id = this.#ids.get(uid);
    return id === undefined ? undefined : this.#byId.get(id);
  }

  /** A row as it is now. @returns it */
  keep(run: RunRow): RunRow {
    this.#byId.set(run.id, run);
    this.#ids.set(run.uid, run.id);
    if (this.#byId.size > KEPT) {
      const [oldest] = this.#byId.keys();
      if (oldest !== undefined) this.drop(oldest);
    }
    return run;
  }

  change(id: number, change: RunChange): void {
    const run = this.#byId.get(id);
    if (run !== undefined) this.#byId.set(id, { ...run, ...change });
  }

  /** Its log has grown. In place: this is done for every frame, and a row has two dozen members. */
  grow(id: number, head: number, updatedAt: number): void {
    const run = this.#byId.get(id);
    if (run !== undefined) [run.head, run.updatedAt] = [head, updatedAt];
  }

  drop(id: number): void {
    const run = this.#byId.get(id);
    if (run === undefined) return;
    this.#byId.delete(id);
    this.#ids.delete(run.uid);
  }

  clear(): void {
    this.#byId.clear();
    this.#ids.clear();
  }
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
