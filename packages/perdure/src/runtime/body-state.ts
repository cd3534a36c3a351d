/**
 * The run's state in the hands of a custom loop's code: what it publishes is a fact first, and then shown.
 *
 * The code sees what was committed when it last heard of something: the end of a step that it waited for, or a change of its own. That is a place
 * in the log, so code that is run again sees the same.
 */
import { Published, type Send, stateUpdates } from "../emit/published.ts";
import type { Difference } from "../log/matching.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { rebase } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";
import type { BodyRecord, RecordedChange } from "./body-record.ts";
import type { DriveSession } from "./drive-session.ts";

const ROOT = "" as Path;
const STATE = "state";

/** A state over 4 MiB is refused where it is published. */
export class BodyState extends Published {
  readonly #session: DriveSession;
  readonly #diverge: (difference: Difference, place: string) => Error;
  readonly #changes: RecordedChange[];
  readonly #isAccepted: boolean;
  /** The place in the log up to which the code knows. */
  #seq: number;
  #after: Json | undefined;

  constructor(session: DriveSession, record: BodyRecord, diverge: (difference: Difference, place: string) => Error) {
    super("state", record.base.committed, stateUpdates);
    this.#session = session;
    this.#diverge = diverge;
    this.#changes = [...record.changes];
    this.#isAccepted = record.accepted.has(STATE);
    this.#seq = record.base.head;
  }

  /** A step has ended at `seq`, with which the state was `committed`. */
  learn(seq: number, committed: Json): void {
    if (seq <= this.#seq) return;
    this.#seq = seq;
    if (committed !== this.shown) this.move(committed);
  }

  /** What the code has published and does not publish any more. */
  get missing(): Difference | undefined {
    const [change] = this.#changes;
    return change === undefined || this.#isAccepted ? undefined : differenceOf(change.after, null);
  }

  override publish(send: Send): void {
    super.publish(send);
    this.#settle();
  }

  override snapshot(send: Send): void {
    super.snapshot(send);
    this.#settle();
  }

  override follow(event: AGUIEvent & { type: "STATE_SNAPSHOT" | "STATE_DELTA" }, send: Send): void {
    super.follow(event, send);
    this.#settle();
  }

  protected override pass(event: AGUIEvent, next: Json, send: Send): void {
    // One that changes nothing was no fact.
    if (this.#changes.length > 0 && !jsonEqual(next, this.shown)) this.#again(next);
    else this.#publish(event, next, send);
  }

  #publish(event: AGUIEvent, next: Json, send: Send): void {
    const { committed, shown, running } = this.#session.state;
    const { state, patch } = rebase(this.shown, next, committed);
    const tooLarge = this.#session.stateSize.refuses(patch, state);
    if (tooLarge !== undefined) throw tooLarge;
    const isAlone = committed === this.shown && (running.size === 0 || jsonEqual(shown, committed));
    if (patch.length > 0) this.#session.add([{ kind: "state", path: ROOT, patch }]);
    this.#after = this.#session.state.committed;
    this.#seq = this.#session.state.head;
    const update = isAlone ? event : this.#updateFor(event, shown);
    if (update !== undefined) send(update);
  }

  /** Steps that run have shown more than is committed. */
  #updateFor({ type }: AGUIEvent, shown: Json): AGUIEvent | undefined {
    const { committed } = this.#session.state;
    if (type === "STATE_SNAPSHOT") return { type, snapshot: this.#session.stateToShow() };
    return this.#session.drafts.show(shown, committed);
  }

  /** What was published before is a fact already. */
  #again(next: Json): void {
    const { seq, before, after } = this.#changes[0] as RecordedChange;
    const { state } = rebase(this.shown, next, before);
    if (!this.#isAccepted && !jsonEqual(state, after)) throw this.#diverge(differenceOf(after, state), STATE);
    this.#changes.shift();
    this.#after = after;
    this.#seq = seq;
  }

  #settle(): void {
    const after = this.#after;
    this.#after = undefined;
    if (after !== undefined) this.move(after);
  }
}

function differenceOf(recorded: Json, wanted: Json): Difference {
  return {
    ...{ path: ROOT, what: "the state that the code publishes", recorded, wanted },
    next: "what is not the same every time belongs into a step, whose result is recorded",
  };
}
