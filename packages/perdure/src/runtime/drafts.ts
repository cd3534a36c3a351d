/**
 * The state of a run while attempts change it. The log has the *committed* state; each attempt works on a draft of its own; clients are
 * *shown* the committed state with what running attempts have published on top.
 *
 * T1. A failed or cut attempt leaves no state: its draft is dropped, and the frame that leads back is appended with its failure.
 * T2. After each publish, finish, failure and cut, shown = committed + the published drafts, in path order. Nothing is sent when equal.
 */
import { Published, stateUpdates, updateOf } from "../emit/published.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { apply, diff, type Patch, PatchError } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";

export class Drafts {
  readonly #published = new Map<Path, Patch>();

  /**
   * A draft for an attempt.
   *
   * @param show - appends the frame that leads to what is to be shown now
   */
  fork(path: Path, committed: Json, show: () => void): AttemptDraft {
    return new AttemptDraft(committed, (changes) => {
      this.#published.set(path, changes);
      show();
    });
  }

  /** The attempt has ended: what it published counts no more by itself. */
  drop(path: Path): void {
    this.#published.delete(path);
  }

  /** What clients should hold: the committed state with the published drafts on it, in path order. */
  target(committed: Json): Json {
    const paths = [...this.#published.keys()].sort();
    return paths.reduce((state, path) => rebased(state, this.#published.get(path) ?? []).state, committed);
  }

  /** The event that leads from what is shown to what should be; none when they are equal. */
  show(shown: Json, committed: Json): AGUIEvent | undefined {
    const next = this.target(committed);
    const patch = diff(shown, next);
    return patch.length === 0 ? undefined : updateOf(patch, next, stateUpdates);
  }
}

/** A change on top of a state that has moved on: an operation whose target is gone is dropped, never an error after an effect. */
export function rebased(
  onto: Json,
  changes: Patch,
): { readonly state: Json; readonly applied: Patch; readonly dropped: Patch } {
  let state = onto;
  const applied: Patch[number][] = [];
  const dropped: Patch[number][] = [];
  for (const operation of changes) {
    try {
      state = apply(state, [operation]);
      applied.push(operation);
    } catch (error) {
      if (!(error instanceof PatchError)) throw error;
      dropped.push(operation);
    }
  }
  return { state, applied, dropped };
}

/** The draft of one attempt. Publishing sends no event of its own: what is shown depends on the others too. */
export class AttemptDraft extends Published {
  constructor(
    private readonly forked: Json,
    private readonly published: (changes: Patch) => void,
  ) {
    super("state", forked, stateUpdates);
  }

  /** The whole change, published or not, relative to the state that it was forked from. */
  changes(): Patch {
    return diff(this.forked, this.current());
  }

  protected override pass(_event: AGUIEvent, next: Json): void {
    this.published(diff(this.forked, next));
  }
}
