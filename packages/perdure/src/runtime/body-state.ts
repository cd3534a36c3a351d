/**
 * The run's state in the hands of a custom loop's code: what it publishes is a fact first, and then shown.
 *
 * B1. The code sees what was committed when it last heard of something: the end of a step that it waited for, or a change of its own. That is a
 *     place in the log, so code that is run again sees the same.
 * B2. All lanes share one draft, and a publication publishes all that is in it. A fact stands at the place of its publication: the lane, and how
 *     many the lane has made before. There it is found again, whenever the lane comes there.
 * B3. Lanes that wait for something else than steps may come there in another order than the first time. So what one of them publishes of another's
 *     changes is not the same every time: where there have been lanes, facts stand as they are, what they hold is not published again, and what
 *     they do not hold stays in the draft. Where there have been none, another change is another behaviour.
 */
import { Published, type Send, stateUpdates } from "../emit/published.ts";
import type { Difference } from "../log/matching.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { rebase } from "../protocol/patch.ts";
import type { Path } from "../protocol/words.ts";
import type { BodyRecord, RecordedChange } from "./body-record.ts";
import { differenceOfMore, isInLine, laneAround } from "./body-steps.ts";
import type { DriveSession } from "./drive-session.ts";
import { KnownChanges } from "./state-changes.ts";

const ROOT = "" as Path;
const STATE = "state";
const WHAT = "the state that the code publishes";

/** A state over 4 MiB is refused where it is published. */
export class BodyState extends Published {
  readonly #session: DriveSession;
  readonly #diverge: (difference: Difference, place: string) => Error;
  /** What was published and the code has not come to again. */
  readonly #changes: Map<Path, RecordedChange>;
  readonly #isAccepted: boolean;
  readonly #isWhole: boolean;
  readonly #hasLanes: () => boolean;
  readonly #published = new Map<Path, number>();
  /** Where the code publishes right now. */
  #place = ROOT;
  /** The place in the log up to which the code knows. */
  #seq: number;
  #after: Json | undefined;
  /** What the draft holds beside. */
  #rest: Json | undefined;

  /** @param hasLanes - whether the code has ever had more lanes than one */
  constructor(
    session: DriveSession,
    record: BodyRecord,
    diverge: (difference: Difference, place: string) => Error,
    hasLanes: () => boolean,
  ) {
    super("state", record.base.committed, stateUpdates);
    this.#session = session;
    this.#diverge = diverge;
    this.#changes = new Map(record.changes.map((change) => [change.path, change]));
    this.#isAccepted = record.accepted.has(STATE);
    this.#isWhole = record.isWhole;
    this.#hasLanes = hasLanes;
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
    const [change] = this.#changes.values();
    return change === undefined || this.#isAccepted ? undefined : differenceOf(change, null);
  }

  /** Where that stands, of the lanes in line with this one. */
  unpublished(at: Path): readonly number[] {
    return [...this.#changes.values()].flatMap(({ path, seq }) => (isInLine(laneAround(path), at) ? [seq] : []));
  }

  override publish(send: Send, lane = ROOT): void {
    this.#at(lane, () => super.publish(send));
  }

  override snapshot(send: Send): void {
    this.#at(ROOT, () => super.snapshot(send));
  }

  override follow(event: AGUIEvent & { type: "STATE_SNAPSHOT" | "STATE_DELTA" }, send: Send, lane = ROOT): void {
    this.#at(lane, () => super.follow(event, send));
  }

  #at(lane: Path, publish: () => void): void {
    const ordinal = this.#published.get(lane) ?? 0;
    this.#place = (lane === ROOT ? `state${ordinal}` : `${lane}.state${ordinal}`) as Path;
    publish();
    // What could not be published is tried again, and counts once.
    this.#published.set(lane, ordinal + 1);
    const known = this.#changes.get(this.#place);
    if (known !== undefined) {
      if (!this.#isLenient) throw this.#diverge(differenceOf(known, this.shown), STATE);
      this.#changes.delete(this.#place);
      this.learn(known.seq, known.known);
    }
    this.#settle();
  }

  protected override pass(event: AGUIEvent, next: Json, send: Send): void {
    const known = this.#changes.get(this.#place);
    // One that changes nothing was no fact.
    if (this.#changes.size === 0 || jsonEqual(next, this.shown)) this.#publish(event, next, send);
    else if (known !== undefined) this.#again(next, known);
    else this.#between(event, next, send);
  }

  get #isLenient(): boolean {
    return this.#isAccepted || this.#hasLanes();
  }

  /** @param isWhole - whether the event says all of it, and nothing else */
  #publish(event: AGUIEvent, next: Json, send: Send, isWhole = true): void {
    const { committed, shown, running } = this.#session.state;
    const { state, patch } = rebase(this.shown, next, committed);
    const tooLarge = this.#session.stateSize.refuses(patch, state);
    if (tooLarge !== undefined) throw tooLarge;
    const isAlone = isWhole && committed === this.shown && (running.size === 0 || jsonEqual(shown, committed));
    if (patch.length > 0 && this.#isWhole) {
      const more = { what: WHAT, wanted: state };
      throw this.#diverge(differenceOfMore(ROOT, this.#session.state.head + 1, more), STATE);
    }
    if (patch.length > 0) this.#session.add([{ kind: "state", path: this.#place, patch }]);
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
  #again(next: Json, fact: RecordedChange): void {
    const { path, seq, before, after, known: goesOn } = fact;
    const { state } = rebase(this.shown, next, before);
    const isSame = jsonEqual(state, after);
    if (!isSame && !this.#isLenient) throw this.#diverge(differenceOf(fact, state), STATE);
    this.#changes.delete(path);
    const known = seq > this.#seq ? goesOn : this.shown;
    this.#seq = Math.max(seq, this.#seq);
    this.#after = known;
    if (!isSame) this.#keep(this.#without(next, [fact]), known);
  }

  /** New, or published before by another lane, which has not come there yet (B3). */
  #between(event: AGUIEvent, next: Json, send: Send): void {
    const facts = [...this.#changes.values()];
    const [first] = facts;
    if (first !== undefined && !this.#isLenient) throw this.#diverge(differenceOf(first, next), STATE);
    const rest = this.#without(next, facts);
    if (!jsonEqual(rest, this.shown)) this.#publish(event, rest, send, jsonEqual(rest, next));
    else {
      this.#after = this.#session.state.committed;
      this.#seq = this.#session.state.head;
    }
  }

  /** What the code has made of the state, but for what the facts hold. */
  #without(next: Json, facts: readonly RecordedChange[]): Json {
    const known = new KnownChanges();
    for (const { before, after } of facts) known.add(before, after);
    return known.without(this.shown, next);
  }

  #keep(rest: Json, known: Json): void {
    const { state } = rebase(this.shown, rest, known);
    if (!jsonEqual(state, known)) this.#rest = state;
  }

  #settle(): void {
    const [after, rest] = [this.#after, this.#rest];
    this.#after = undefined;
    this.#rest = undefined;
    if (after !== undefined) this.move(after);
    if (rest !== undefined) this.set(rest);
  }
}

function differenceOf({ seq, after: recorded }: RecordedChange, wanted: Json): Difference {
  return {
    ...{ path: ROOT, seq, what: WHAT, recorded, wanted },
    next: "what is not the same every time belongs into a step, whose result is recorded",
  };
}
