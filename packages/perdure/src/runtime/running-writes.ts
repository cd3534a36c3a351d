/**
 * The bodies of writes that run in this process, whoever drives their runs by now. One that has outrun its time, or whose driver has lost the
 * run, cannot be stopped: while it runs, and for its tool's `settle` after it, what it does may still land.
 */
import type { Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import { InvalidOutput } from "../tool/errors.ts";
import type { LateOutput } from "./settle.ts";

/** What is known of a body whose outcome was not recorded. */
export type LeftBehind =
  | { readonly is: "running" }
  /** It was applied after all. */
  | ({ readonly is: "landed" } & LateOutput)
  /** Nothing of it can land any more from then on. Milliseconds since the epoch. */
  | { readonly is: "ended"; readonly clearAt: number };

/** A body, whatever has become of its step. */
interface WriteBody {
  readonly run: Uid;
  readonly path: Path;
  /** Nothing of it can land any more from then on. Milliseconds since the epoch. */
  clearAt: number;
}

export class RunningWrites {
  readonly #bodies = new Set<WriteBody>();
  /** How many there may be before those are looked for that are over: each look then costs each of them little. */
  #mostBodies = 64;
  readonly #left = new Map<Uid, Map<Path, LeftBehind>>();
  readonly #wakes = new Map<Uid, () => void>();

  /** @param landed - called when a body has brought its output and nobody drives its run */
  constructor(
    private readonly now: () => number,
    private readonly landed: (run: Uid) => void,
  ) {}

  /** @param settle - milliseconds */
  begin(
    run: Uid,
    path: Path,
    body: Promise<{ readonly type: "output"; readonly output: Json } | { readonly type: "suspend" }>,
    settle: number,
  ): void {
    const running: LeftBehind = { is: "running" };
    this.#set(run, path, running);
    this.#sweep();
    const known: WriteBody = { run, path, clearAt: Number.POSITIVE_INFINITY };
    this.#bodies.add(known);
    const end = (left: LeftBehind): void => {
      known.clearAt = this.now() + settle;
      if (this.of(run).get(path) !== running) return;
      this.#set(run, path, left);
      const wake = this.#wakes.get(run);
      if (wake !== undefined) wake();
      else if (left.is === "landed") this.landed(run);
    };
    const ended = (): void => end({ is: "ended", clearAt: this.now() + settle });
    body.then(
      (outcome) => (outcome.type === "output" ? end({ is: "landed", output: outcome.output }) : ended()),
      (error: unknown) =>
        error instanceof InvalidOutput ? end({ is: "landed", output: error.kept, invalid: error }) : ended(),
    );
  }

  #sweep(): void {
    if (this.#bodies.size < this.#mostBodies) return;
    const now = this.now();
    for (const old of this.#bodies) if (old.clearAt <= now) this.#bodies.delete(old);
    this.#mostBodies = 64 + 2 * this.#bodies.size;
  }

  /** Its outcome is recorded. */
  recorded(run: Uid, path: Path): void {
    const left = this.#left.get(run);
    left?.delete(path);
    if (left?.size === 0) this.#left.delete(run);
  }

  /** Of the steps of one run. */
  of(run: Uid): ReadonlyMap<Path, LeftBehind> {
    return this.#left.get(run) ?? NONE;
  }

  /** @param wake - called whenever a body of the run has ended @returns ends it */
  watch(run: Uid, wake: () => void): () => void {
    this.#wakes.set(run, wake);
    return () => {
      if (this.#wakes.get(run) !== wake) return;
      this.#wakes.delete(run);
      // It may have come behind the last look.
      if ([...this.of(run).values()].some(({ is }) => is === "landed")) this.landed(run);
    };
  }

  /** Whether what a body of a step does may still come to light: then nobody can say that it did nothing. */
  mayLand(run: Uid, path: Path): boolean {
    if (this.of(run).get(path)?.is === "landed") return true;
    return [...this.#bodies].some((body) => body.run === run && body.path === path && this.now() < body.clearAt);
  }

  #set(run: Uid, path: Path, left: LeftBehind): void {
    const known = this.#left.get(run) ?? new Map<Path, LeftBehind>();
    this.#left.set(run, known.set(path, left));
  }
}

const NONE: ReadonlyMap<Path, LeftBehind> = new Map();
