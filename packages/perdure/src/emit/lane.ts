import { type IdKind, idAt } from "../protocol/ids.ts";
import type { Path } from "../protocol/words.ts";
import { BlockOpenError } from "./errors.ts";

/** Whether an id is taken already, by the thread's history or by this leg. */
export type Taken = (id: string) => boolean;

/**
 * A strand of program order: at most one block open, ids that are functions of (run, path, kind, ordinal), steps that nest.
 * An id that the thread already holds is passed over, in the same order every time.
 */
export class Lane {
  #open: object | undefined;
  #openName = "";
  readonly #steps: { readonly name: string }[] = [];
  readonly #ordinals = new Map<IdKind, number>();
  #children = 0;

  constructor(
    readonly path: Path,
    private readonly prefix: string,
    private readonly taken: Taken,
  ) {}

  mint(kind: IdKind): string {
    for (;;) {
      const ordinal = this.#ordinals.get(kind) ?? 0;
      this.#ordinals.set(kind, ordinal + 1);
      const id = idAt(this.prefix, this.path, kind, ordinal);
      if (!this.taken(id)) return id;
    }
  }

  /** Takes the lane for a block. @throws {@link BlockOpenError} naming both */
  open(block: object, name: string): void {
    if (this.#open !== undefined) throw new BlockOpenError(name, this.#openName);
    this.#open = block;
    this.#openName = name;
  }

  close(block: object): void {
    if (this.#open === block) this.#open = undefined;
  }

  enterStep(step: { readonly name: string }): void {
    this.#steps.push(step);
  }

  /** @throws {@link BlockOpenError} when a later step of this lane is still open */
  leaveStep(step: { readonly name: string }): void {
    const inner = this.#steps.at(-1);
    if (inner !== undefined && inner !== step && this.#steps.includes(step)) {
      throw new BlockOpenError(`the end of step "${step.name}"`, `step "${inner.name}"`);
    }
    this.#steps.splice(this.#steps.indexOf(step), 1);
  }

  /** Steps of this lane that were entered after `step`, innermost first. */
  stepsInside<T extends { readonly name: string }>(step: T): readonly T[] {
    return this.#steps.slice(this.#steps.indexOf(step) + 1).reverse() as T[];
  }

  /** A group of branches takes one ordinal of the lane; branch b of group g is lane "g.b". */
  fork(branches: number): readonly Lane[] {
    const group = `${this.path === "" ? "" : `${this.path}.`}${this.#children++}`;
    return Array.from({ length: branches }, (_, b) => new Lane(`${group}.${b}` as Path, this.prefix, this.taken));
  }
}
