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

  /** @param idPath - the place that ids name: where the prefix is a subagent's, the one within it. Default: `path` */
  constructor(
    readonly path: Path,
    readonly prefix: string,
    private readonly taken: Taken,
    private readonly idPath = path,
  ) {}

  mint(kind: IdKind, taken = this.taken): string {
    for (;;) {
      const ordinal = this.#ordinals.get(kind) ?? 0;
      this.#ordinals.set(kind, ordinal + 1);
      const id = idAt(this.prefix, this.idPath, kind, ordinal);
      if (!taken(id)) return id;
    }
  }

  /** Takes the lane for a block. @throws {@link BlockOpenError} naming both */
  open(block: object, name: string): void {
    if (this.#open !== undefined) throw new BlockOpenError(name, this.#openName);
    this.#open = block;
    this.#openName = name;
  }

  /** @throws {@link BlockOpenError} while a block is open: what may wait for days must not leave half a message behind */
  checkFree(wanted: string): void {
    if (this.#open !== undefined) throw new BlockOpenError(wanted, this.#openName);
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

  /** Where the next step or group of branches of this lane will stand. */
  get next(): Path {
    return inside(this.path, `${this.#children}`);
  }

  /** The place of the next step of this lane, taken. */
  begin(): Path {
    const { next } = this;
    this.#children++;
    return next;
  }

  /** A group of branches takes one ordinal of the lane; branch b of group g is lane "g.b". */
  fork(branches: number): readonly Lane[] {
    const group = this.#children++;
    return Array.from(
      { length: branches },
      (_, b) =>
        new Lane(inside(this.path, `${group}.${b}`), this.prefix, this.taken, inside(this.idPath, `${group}.${b}`)),
    );
  }

  /** The lane of a subagent takes one ordinal too. Its ids begin with `prefix`, the invocation's own: another one makes others. */
  delegate(prefix: string): Lane {
    return new Lane(inside(this.path, `${this.#children++}`), prefix, this.taken, "" as Path);
  }
}

function inside(path: Path, rest: string): Path {
  return (path === "" ? rest : `${path}.${rest}`) as Path;
}

/** Ids are capped at 1,024 characters, and what a client or an agent has named may use them all. */
export function shortPrefix(name: string): string {
  if (name.length <= 256) return name;
  // Half of a surrogate pair at the cut would make every id a bad one.
  return name.slice(0, 256).replace(/[\ud800-\udbff]$/, "");
}
