/**
 * A JSON value that code changes through a draft and that the client holds a copy of: the run's state, an activity's content.
 * Publishing sends the difference.
 *
 * S1. What the client holds is `shown`: the fold of the events that left.
 * S2. `shown` shares nothing with objects of agent code, so a change behind our back cannot make it lie.
 * S3. Comparing costs nothing for what was not touched: drafts copy what changes, and the comparison is by reference. So what was not touched
 *     stays the same objects, also where what was touched has to be copied (S2).
 */
import { create, isDraftable } from "mutative";
import type { AGUIEvent, JsonPatchOperation } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import { apply, diff, ownJson, type Patch, rebase } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";

/** The two ways to bring a client up to date. The shorter one goes out. */
export interface Updates {
  snapshot(value: Json): AGUIEvent;
  delta(patch: JsonPatchOperation[]): AGUIEvent;
}

export const stateUpdates: Updates = {
  snapshot: (snapshot) => ({ type: "STATE_SNAPSHOT", snapshot }),
  delta: (delta) => ({ type: "STATE_DELTA", delta }),
};

export type Send = (event: AGUIEvent) => void;

/** A patch is never longer than replacing the whole, so one that does replace the whole is a snapshot in disguise. */
export function updateOf(patch: Patch, next: Json, updates: Updates): AGUIEvent {
  const isWhole = patch.length === 1 && patch[0]?.op === "replace" && patch[0].path === "";
  return isWhole ? updates.snapshot(next) : updates.delta([...patch]);
}

export class Published {
  #shown: Json;
  /** What the draft is made from: `shown`, or changes that were not published. */
  #base: unknown;
  #draft: { readonly value: unknown; readonly finish: () => unknown } | undefined;

  constructor(
    /** How errors name it. */
    private readonly label: string,
    shown: Json,
    private readonly updates: Updates,
  ) {
    this.#shown = shown;
    this.#base = shown;
  }

  get shown(): Json {
    return this.#shown;
  }

  get draft(): unknown {
    if (this.#draft !== undefined) return this.#draft.value;
    // A value that is a string or a number has no inside to change; `set` replaces it.
    if (!isDraftable(this.#base)) return this.#base;
    const [value, finish] = create(this.#base as object);
    this.#draft = { value, finish };
    return value;
  }

  set(next: unknown): void {
    // A copy, because the caller may go on changing what he gave; what JSON cannot hold is told at once.
    this.#base = toJson(next, this.label);
    this.#draft = undefined;
  }

  /**
   * Sends what changed; nothing when nothing changed.
   *
   * @throws {@link NotJsonError}; the changes stay in the draft
   */
  publish(send: Send, _lane?: Path): void {
    const { next, patch } = this.#changed();
    if (patch.length > 0) this.#show(next, updateOf(patch, next, this.updates), send);
  }

  /** Sends the whole value, unpublished changes included. */
  snapshot(send: Send): void {
    const next = this.current();
    this.#show(next, this.updates.snapshot(next), send);
  }

  /**
   * Passes on a STATE event that agent code made itself, and keeps unpublished changes on top of it, as far as what they change is still there.
   * References into the draft are void then.
   *
   * @throws {@link PatchError} when the delta does not apply; nothing is sent then
   */
  follow(event: AGUIEvent & { type: "STATE_SNAPSHOT" | "STATE_DELTA" }, send: Send, _lane?: Path): void {
    const { next } = this.#changed();
    const before = this.#shown;
    const shown =
      event.type === "STATE_SNAPSHOT" ? toJson(event.snapshot, this.label) : apply(this.#shown, event.delta);
    this.#show(shown, event, send);
    this.#base = rebase(before, next, shown).state;
  }

  /** Others have made `next` of the value. Goes on from there, as {@link follow} does, and sends nothing. */
  move(next: Json): void {
    const { next: mine } = this.#changed();
    this.#base = rebase(this.#shown, mine, next).state;
    this.#shown = next;
  }

  /** The whole value with what was not published yet. @throws {@link NotJsonError} */
  current(): Json {
    return this.#changed().next;
  }

  /** What publishing comes to: here the event is sent. */
  protected pass(event: AGUIEvent, _next: Json, send: Send): void {
    send(event);
  }

  #show(next: Json, event: AGUIEvent, send: Send): void {
    this.pass(event, next, send);
    this.#shown = next;
    this.#base = next;
  }

  /** What the value has become, as nobody else's JSON (S2), and what leads there. What was not touched stays the same objects. */
  #changed(): { readonly next: Json; readonly patch: Patch } {
    if (this.#draft !== undefined) {
      this.#base = this.#draft.finish();
      this.#draft = undefined;
    }
    if (this.#base === this.#shown) return { next: this.#shown, patch: [] };
    const patch = this.#difference();
    if (patch.length === 0) return { next: this.#shown, patch };
    if (onlyPrimitives(patch)) return { next: this.#base as Json, patch };
    const next = ownJson(this.#shown, this.#base, this.label);
    return { next, patch: diff(this.#shown, next) };
  }

  #difference(): Patch {
    try {
      return diff(this.#shown, this.#base as Json);
    } catch (error) {
      // Of a value that contains itself the comparison only knows that its stack is full; this says where.
      toJson(this.#base, this.label);
      throw error;
    }
  }
}

/** Then the draft's result holds no object of anybody else's and no value that became another one: it need not be made again. */
function onlyPrimitives(patch: Patch): boolean {
  return patch.every((operation) => !("value" in operation) || isPrimitive(operation.value));
}

function isPrimitive(value: unknown): boolean {
  return value === null || typeof value === "string" || typeof value === "boolean" || Number.isFinite(value);
}
