/**
 * What the log holds of the code of a custom loop since it began from the top: the request that it was given, what it has emitted, lane by lane,
 * what it made of the state, and which steps have ended in which order.
 *
 * The code begins from the top with the first leg, and with each leg behind one that it has ended itself (`ctx.interrupt`, or a call that it left
 * to the client). A leg that has ended because steps wait is none of its business.
 *
 * A fork's record is that of the run from which it was made, up to the entry, and then its own. What it was given in place of the state is the
 * state for the code from what it has heard of last: the end of a step, or a publication of its own.
 */
import type { Entry, Frame, NewEntry } from "../log/entries.ts";
import { Folding, type Noted, type RunState } from "../log/fold.ts";
import { INTERRUPT_EVENT } from "../log/interrupts.ts";
import { beginning, ending } from "../log/matching.ts";
import { withoutCalls } from "../protocol/closing.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import { isAwaited, isLost, type Race, raceOf } from "./body-steps.ts";

/** An event that the code has emitted. */
export interface RecordedEvent {
  readonly event: AGUIEvent;
  readonly seq: number;
  /** The end of a leg has closed it. Code that ends it without having opened it again says nothing new. */
  readonly isOptional: boolean;
}

/** A change of the state that the code has published. */
export interface RecordedChange {
  /** Which publication of which lane it was. */
  readonly path: Path;
  readonly seq: number;
  readonly before: Json;
  readonly after: Json;
  /** The state with which the code goes on from there. */
  readonly known: Json;
}

export interface FinishedStep {
  readonly path: Path;
  readonly seq: number;
  /** The state with which the code goes on from there. */
  readonly committed: Json;
}

/** The place of a message that has left the screen with the calls that it carried. */
export interface Vacancy {
  /** The message without them. */
  readonly message: Message;
  /** The ids of the messages before it. */
  readonly preceding: ReadonlySet<string>;
}

export interface BodyRecord {
  /** The run when the code began. */
  readonly base: RunState;
  readonly lanes: ReadonlyMap<Path, readonly RecordedEvent[]>;
  readonly changes: readonly RecordedChange[];
  /** In the order of their ends. */
  readonly finished: readonly FinishedStep[];
  /** What was signalled from outside, in order. */
  readonly signals: readonly Signal[];
  /** Where an operator has accepted that the code does something else. */
  readonly accepted: ReadonlySet<string>;
  /** Where the calls stood that the end of a leg has taken from the screen, by their ids. */
  readonly vacancies: ReadonlyMap<string, Vacancy>;
  /** Whether the code has heard of anything since it began. */
  readonly hasHeard: boolean;
  /** Whether it is all that the code has to do: then whatever is not in it is something else. */
  readonly isWhole: boolean;
}

export interface Signal {
  readonly name: string;
  readonly payload: Json;
}

/** The signal that an entry brings, if it does. */
export function signalOf(entry: NewEntry): Signal | undefined {
  if (entry.kind !== "inbox.taken" || entry.item !== "signal" || !isJsonObject(entry.payload)) return undefined;
  const { name, payload = null } = entry.payload;
  return typeof name === "string" ? { name, payload } : undefined;
}

/** Steps that run no code of the loop: what is emitted at their places is theirs. */
const WITH_LANES: ReadonlySet<string> = new Set(["model", "tool", "client-tool", "custom", "child"]);

/** Whether the code has ended the last leg itself, so that the next one begins from the top. */
export function endedItself({ leg, interrupts, steps }: RunState): boolean {
  if (leg !== null) return false;
  const isAsked = [...interrupts.values()].some(({ kind, path }) => kind === "question" && path === "");
  return isAsked || [...steps.values()].some(({ started: { path }, finished }) => isLeftToClient(path) && !finished);
}

const LEFT_TO_CLIENT = "client";

/** The place of a call that the code has left to the client without waiting for it: none that the code itself can begin. */
export function leftToClient(ordinal: number): Path {
  return `${LEFT_TO_CLIENT}${ordinal}` as Path;
}

function isLeftToClient(path: Path): boolean {
  return path.startsWith(LEFT_TO_CLIENT);
}

/** The record of code that begins now. */
export function emptyRecord(base: RunState): BodyRecord {
  return {
    ...{ base, lanes: new Map(), changes: [], finished: [], signals: [], accepted: new Set() },
    ...{ vacancies: new Map(), hasHeard: false, isWhole: false },
  };
}

/** @param before - the thread's run before this one */
export async function readRecord(
  entries: AsyncIterable<Entry> | Iterable<Entry>,
  before: RunState | undefined,
): Promise<BodyRecord> {
  const reading = new Reading(before);
  for await (const entry of entries) reading.add(entry);
  return reading.record();
}

class Reading {
  readonly #folding: Folding;
  #base: RunState | undefined;
  #isOpening = false;
  #isStarted = false;
  #isDue = true;
  #lanes = new Map<Path, RecordedEvent[]>();
  #changes: RecordedChange[] = [];
  readonly #finished: FinishedStep[] = [];
  readonly #races: Race[] = [];
  /** Takes another state for the one with which the code goes on from what it has heard of last. */
  #move: ((state: Json) => void) | undefined;
  readonly #signals: Signal[] = [];
  readonly #steps = new Set<string>();
  readonly #diverged = new Map<string, string>();
  readonly #accepted = new Set<string>();
  readonly #vacancies = new Map<string, Vacancy>();

  constructor(before: RunState | undefined) {
    this.#folding = new Folding(before);
  }

  add(entry: Entry): void {
    // Before RUN_STARTED stands what a run begins with: another state than the client's, and what a fork has from before its code began.
    if (this.#isOpening && this.#isStarted && !isOpening(entry)) {
      this.#isOpening = false;
      this.#base = this.#folding.state;
    }
    const committed = entry.kind === "state" ? this.#folding.state.committed : null;
    this.#vacate(entry);
    this.#folding.add(entry);
    switch (entry.kind) {
      case "leg.started":
        if (this.#isDue) this.#begin();
        break;
      case "run.parked":
        this.#isDue = endedItself(this.#folding.state);
        break;
      case "step.started":
        if (WITH_LANES.has(entry.step)) this.#steps.add(entry.path);
        break;
      case "step.finished":
        this.#finish(entry);
        break;
      case "inbox.taken": {
        const signal = signalOf(entry);
        if (signal !== undefined) this.#signals.push(signal);
        break;
      }
      case "state":
        if (!this.#isOpening) this.#change(entry, committed as Json);
        break;
      case "interrupt.opened": {
        const { kind, id, metadata } = entry.interrupt;
        const place = kind === "diverged" && isJsonObject(metadata) ? metadata.place : undefined;
        if (typeof place === "string") this.#diverged.set(id, place);
        break;
      }
      case "interrupt.answered": {
        const place = this.#diverged.get(entry.id);
        if (place !== undefined && entry.status === "resolved") this.#accepted.add(place);
        break;
      }
      case "frame":
        if (this.#isOpening) this.#isStarted = true;
        else this.#frame(entry);
        break;
      default:
    }
  }

  record(): BodyRecord {
    const base = this.#isOpening ? this.#folding.state : (this.#base ?? this.#folding.state);
    return {
      base,
      lanes: this.#lanes,
      changes: this.#changes,
      finished: this.#finished,
      signals: this.#signals,
      accepted: this.#accepted,
      vacancies: this.#vacancies,
      hasHeard: this.#move !== undefined,
      isWhole: false,
    };
  }

  #begin(): void {
    this.#isDue = false;
    this.#isOpening = true;
    this.#isStarted = false;
    this.#lanes = new Map();
    this.#changes = [];
    this.#move = undefined;
  }

  #finish({ path, seq }: Noted<"step.finished">): void {
    const { steps, committed } = this.#folding.state;
    const step = steps.get(path);
    const race = raceOf(step);
    if (race !== undefined) this.#races.push(race);
    const at = this.#finished.push({ path, seq, committed }) - 1;
    if (this.#isOpening || !isAwaited(step) || isLost(path, this.#races)) return;
    this.#move = (state) => {
      this.#finished[at] = { path, seq, committed: state };
    };
  }

  #change({ path, seq }: Noted<"state">, before: Json): void {
    const after = this.#folding.state.committed;
    if (path === "") this.#move?.(after);
    if (!isPublication(path)) return;
    const changes = this.#changes;
    const at = changes.push({ path, seq, before, after, known: after }) - 1;
    this.#move = (known) => {
      changes[at] = { path, seq, before, after, known };
    };
  }

  #frame(frame: Frame & { readonly seq: number }): void {
    const { path, seq } = frame;
    const event = emitted(frame);
    if (event === undefined || this.#isOfStep(path)) return;
    const lane = this.#lanes.get(path) ?? [];
    this.#lanes.set(path, lane);
    if (!("bridge" in frame)) lane.push({ event, seq, isOptional: false });
    else if (ending(event) !== undefined) lane.push({ event, seq, isOptional: true });
    else openAgain(lane, beginning(event));
  }

  /** Called with what takes calls from the screen while they are still on it. */
  #vacate(entry: Entry): void {
    if (entry.kind !== "frame" || !("bridge" in entry) || entry.event.type !== "MESSAGES_SNAPSHOT") return;
    const kept = new Set(entry.event.messages.map(({ id }) => id));
    const { messages } = this.#folding.state;
    for (const [i, message] of messages.entries()) {
      if (message.role !== "assistant" || kept.has(message.id)) continue;
      const calls = new Set(message.toolCalls?.map(({ id }) => id));
      const preceding = new Set(messages.slice(0, i).map(({ id }) => id));
      for (const call of calls) this.#vacancies.set(call, { message: withoutCalls(message, calls), preceding });
    }
  }

  #isOfStep(path: Path): boolean {
    const ordinals = path.split(".");
    return ordinals.some((_, i) => this.#steps.has(ordinals.slice(0, i + 1).join(".")));
  }
}

/** What was closed and is open again was never closed, as far as the code knows. */
function openAgain(lane: RecordedEvent[], key: string | undefined): void {
  const at = lane.findLastIndex(({ event, isOptional }) => isOptional && ending(event) === key);
  if (key !== undefined && at !== -1) lane.splice(at, 1);
}

/** Entries of the batch that begins a leg. */
function isOpening(entry: Entry): boolean {
  switch (entry.kind) {
    case "leg.started":
    case "interrupt.answered":
    case "inbox.taken":
      return true;
    case "step.finished":
      return entry.via === "client" || entry.via === "answer";
    case "frame":
      if ("ref" in entry) return !isOwnSnapshot(entry);
      return isInterruptEvent(entry.event) || isForks(entry);
    default:
      return false;
  }
}

/** What a fork's clients hold from the beginning. */
function isForks(frame: Extract<Frame, { event: unknown }>): boolean {
  return frame.event.type === "MESSAGES_SNAPSHOT" && frame.bridge === true && frame.past === undefined;
}

/** Whether a fact about the state is a publication of the code's, and none that a fork was given. */
function isPublication(path: Path): boolean {
  return /(^|\.)state\d+$/.test(path);
}

/** Code's own list of messages is a reference, too, and says so by withdrawing nothing. */
export const OWN_SNAPSHOT = { of: "MESSAGES_SNAPSHOT", withdrawn: [] } as const;

function isOwnSnapshot(frame: Frame): boolean {
  return "ref" in frame && frame.ref.of === "MESSAGES_SNAPSHOT" && frame.ref.withdrawn?.length === 0;
}

/** What the code itself has emitted; the state is compared as facts. */
function emitted(frame: Frame): AGUIEvent | undefined {
  if (isOwnSnapshot(frame)) return { type: "MESSAGES_SNAPSHOT", messages: [] };
  if (!("event" in frame)) return undefined;
  const { event } = frame;
  const isNot = event.type === "STATE_SNAPSHOT" || event.type === "STATE_DELTA" || isInterruptEvent(event);
  return isNot || isForks(frame) ? undefined : event;
}

function isInterruptEvent(event: AGUIEvent): boolean {
  return event.type === "CUSTOM" && event.name === INTERRUPT_EVENT;
}
