/**
 * The bodies of writes that run in this process, whoever drives their runs by now. One that has outrun its time, or whose driver has lost the
 * run, cannot be stopped: while it runs, and for its tool's `settle` after it, what it does may still land.
 */
import type { Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";

/** What is known of a body whose outcome was not recorded. */
export type LeftBehind =
  | { readonly is: "running" }
  /** It was applied after all. */
  | { readonly is: "landed"; readonly output: Json }
  /** Nothing of it can land any more from then on. Milliseconds since the epoch. */
  | { readonly is: "ended"; readonly clearAt: number };

export class RunningWrites {
  readonly #left = new Map<Uid, Map<Path, LeftBehind>>();
  readonly #wakes = new Map<Uid, () => void>();

  constructor(private readonly now: () => number) {}

  /** @param settle - milliseconds */
  begin(
    run: Uid,
    path: Path,
    body: Promise<{ readonly type: "output"; readonly output: Json } | { readonly type: "suspend" }>,
    settle: number,
  ): void {
    const running: LeftBehind = { is: "running" };
    this.#set(run, path, running);
    const end = (left: LeftBehind): void => {
      if (this.of(run).get(path) !== running) return;
      this.#set(run, path, left);
      this.#wakes.get(run)?.();
    };
    const ended = (): void => end({ is: "ended", clearAt: this.now() + settle });
    body.then(
      (outcome) => (outcome.type === "output" ? end({ is: "landed", output: outcome.output }) : ended()),
      ended,
    );
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
      if (this.#wakes.get(run) === wake) this.#wakes.delete(run);
    };
  }

  #set(run: Uid, path: Path, left: LeftBehind): void {
    const known = this.#left.get(run) ?? new Map<Path, LeftBehind>();
    this.#left.set(run, known.set(path, left));
  }
}

const NONE: ReadonlyMap<Path, LeftBehind> = new Map();
