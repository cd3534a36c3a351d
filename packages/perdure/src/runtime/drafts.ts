/**
 * The state of a run while attempts change it. The log has the *committed* state; each attempt works on a draft of its own; clients are
 * *shown* the committed state with what running attempts have published on top.
 *
 * T1. A failed or cut attempt leaves no state: its draft is dropped, and the frame that leads back is appended with its failure.
 * T2. After each publish, finish, failure and cut, shown = committed + the published drafts, in path order. Nothing is sent when equal.
 * T3. What a draft has changed is put onto what others have committed meanwhile ({@link rebase}). That needs the objects that all of them
 *     have in common, and those live as long as the attempt: after a restart there is nothing to rebase.
 * T4. A body that goes on after its attempt has ended changes nothing any more.
 */
import { Published, stateUpdates, updateOf } from "../emit/published.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { diff, type Rebased, rebase } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";

export class Drafts {
  readonly #running = new Map<Path, AttemptDraft>();

  /**
   * A draft for an attempt.
   *
   * @param show - appends the frame that leads to what is to be shown now
   */
  fork(path: Path, committed: Json, show: () => void): AttemptDraft {
    const draft = new AttemptDraft(committed, () => {
      if (this.#running.get(path) === draft) show();
    });
    this.#running.set(path, draft);
    return draft;
  }

  /** The attempt has ended: what it published counts no more by itself. */
  drop(path: Path): void {
    this.#running.delete(path);
  }

  /** What clients should hold: the committed state with the published drafts on it, in path order. */
  target(committed: Json): Json {
    const paths = [...this.#running.keys()].sort(comparePaths);
    return paths.reduce((state, path) => this.#running.get(path)?.publishedOnto(state).state ?? state, committed);
  }

  /** The event that leads from what is shown to what should be; none when they are equal. */
  show(shown: Json, committed: Json): AGUIEvent | undefined {
    const next = this.target(committed);
    const patch = diff(shown, next);
    return patch.length === 0 ? undefined : updateOf(patch, next, stateUpdates);
  }
}

/** The draft of one attempt. Publishing sends no event of its own: what is shown depends on the others too. */
export class AttemptDraft extends Published {
  readonly #forked: Json;
  readonly #show: () => void;
  #published: Json;

  /** @param show - called after each publish */
  constructor(forked: Json, show: () => void) {
    super("state", forked, stateUpdates);
    this.#forked = forked;
    this.#published = forked;
    this.#show = show;
  }

  /** What the attempt has made of the state, published or not, on top of what is committed now. @throws {@link NotJsonError} */
  onto(committed: Json): Rebased {
    return rebase(this.#forked, this.current(), committed);
  }

  /** What the attempt has published, on top of a state. */
  publishedOnto(state: Json): Rebased {
    return rebase(this.#forked, this.#published, state);
  }

  protected override pass(_event: AGUIEvent, next: Json): void {
    this.#published = next;
    this.#show();
  }
}

/** By their ordinals, so that the tenth call of a turn comes behind the second. */
function comparePaths(a: Path, b: Path): number {
  const [as, bs] = [a.split("."), b.split(".")];
  for (const [i, ordinal] of as.entries()) {
    const difference = Number(ordinal) - Number(bs[i] ?? -1);
    if (difference !== 0) return difference;
  }
  return as.length - bs.length;
}
