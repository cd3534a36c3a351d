/**
 * The way of a custom loop's code into the log, also of code that is run again: what it has emitted before is held against the record and not
 * sent again; where the record of a lane ends, the lane goes live, also in the middle of a message.
 *
 * Y1. What leaves is verified by the log. What the code believes to be open is kept beside it: while it is run again the log is ahead of it.
 * Y2. What the end of a leg has closed is opened again, under its id, when the code goes on with it.
 */
import type { Stream } from "../emit/outlet.ts";
import { isDelta } from "../emit/verified-stream.ts";
import type { FrameRef } from "../log/entries.ts";
import { beginning, type Difference, ending, idsBetween, normalForm, sameEvent, withIds } from "../log/matching.ts";
import type { AGUIEvent, AGUIEventOf, Message } from "../protocol/events.ts";
import { isWithin } from "../protocol/ids.ts";
import { hasMessage, openItems, verify, type Wire } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import { type BodyRecord, OWN_SNAPSHOT, type RecordedEvent, type Vacancy } from "./body-record.ts";
import { differenceOfMore, isInLine, laneAround } from "./body-steps.ts";
import type { DriveSession } from "./drive-session.ts";
import { intake } from "./intake.ts";

type Delta = AGUIEventOf<"TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS">;

export type Terminal = AGUIEventOf<"RUN_FINISHED" | "RUN_ERROR">;

/** What the code has begun and not ended. */
interface Begun {
  readonly lane: Path;
  /** As it was sent, under the ids of the log. */
  readonly start: AGUIEvent;
  args: string;
}

const NOT_DETERMINISTIC =
  "what is not the same every time (clocks, chance, what a service says) belongs into a step: ctx.model, ctx.call or ctx.once emit it, or return it";

export class BodyStream implements Stream {
  /** Its terminal event is not appended but kept: what it says is one batch with what becomes of the run: only the driver knows it. */
  terminal: Terminal | undefined;
  readonly #session: DriveSession;
  readonly #diverge: (difference: Difference, place: string) => Error;
  readonly #lanes: Map<Path, Lane>;
  readonly #accepted: ReadonlySet<string>;
  readonly #vacancies: ReadonlyMap<string, Vacancy>;
  readonly #ids = new Map<string, string>();
  readonly #open = new Map<string, Begun>();
  /** Undefined where the log itself is what the code believes. */
  #believed: Wire | undefined;
  #isLive = true;
  readonly #isWhole: boolean;

  /** @param diverge - makes the error for code that does something else than it did */
  constructor(session: DriveSession, record: BodyRecord, diverge: (difference: Difference, place: string) => Error) {
    this.#session = session;
    this.#diverge = diverge;
    this.#lanes = new Map([...record.lanes].map(([path, events]) => [path, new Lane(events)]));
    this.#accepted = record.accepted;
    this.#vacancies = record.vacancies;
    this.#isWhole = record.isWhole;
    const isAhead = record.isWhole || record.base.head !== session.state.head;
    this.#believed = isAhead ? record.base.wire : undefined;
  }

  get wire(): Wire {
    return this.#believed ?? this.#session.stream.wire;
  }
  get messages(): readonly Message[] {
    return this.#session.stream.messages;
  }
  get pendingBytes(): number {
    return this.#session.stream.pendingBytes;
  }
  drained(bytes: number): Promise<void> {
    return this.#session.stream.drained(bytes);
  }

  /** Whether what was taken last was new. */
  get isLive(): boolean {
    return this.#isLive;
  }

  take(events: readonly AGUIEvent[], lane: Path): void {
    // A driver that has lost its run says nothing more; its next one does.
    if (this.#session.signal.aborted) {
      for (const event of events) this.#note(event);
      return;
    }
    const last = events.at(-1);
    if (events.length === 1 && last !== undefined && this.#note(last)) return;
    if (this.#believed === undefined) this.#send(events, lane);
    else this.#takeAgain(events, lane);
  }

  /** Of code that is run again. */
  #takeAgain(events: readonly AGUIEvent[], lane: Path): void {
    const live: AGUIEvent[] = [];
    for (const event of events) {
      this.#believe(event, lane);
      const fresh = isState(event) ? event : this.#unmatched(event, lane);
      if (fresh === undefined) this.#follow(event, lane);
      // How it leaves what it has open is told by how it ends.
      else if (this.#isWhole && !isState(event) && ending(event) === undefined)
        throw this.#diverge(this.#differenceOfMore(lane, fresh), placeOf(lane));
      else {
        this.#reopen(fresh, lane, live);
        live.push(withIds(fresh, this.#ids));
      }
      if (fresh !== undefined) this.#follow(event, lane);
    }
    this.#isLive = live.length > 0;
    if (this.#isLive) this.#send(live, lane);
  }

  /** What the code has emitted and does not emit any more; undefined when it has emitted all of it. */
  get missing(): Difference | undefined {
    for (const [path, lane] of this.#lanes) {
      const recorded = lane.next();
      if (recorded !== undefined && !this.#accepted.has(placeOf(path))) return this.#difference(path, recorded, null);
    }
    return undefined;
  }

  /** The lane that a difference is in: it names a lane, or a step or reading of one. */
  laneOf(path: Path): Path {
    return this.#lanes.has(path) ? path : laneAround(path);
  }

  /** Where what stands first that the code has not emitted again, of each lane in line with this one. */
  unsaid(at: Path): readonly number[] {
    return [...this.#lanes].flatMap(([path, lane]) => (isInLine(path, at) ? (lane.next()?.seq ?? []) : []));
  }

  /** In the lane of what it opens: a step has to end where it began. */
  #bridge(events: readonly AGUIEvent[], lane: Path): void {
    this.#needLeg();
    this.#session.add(events.map((event) => ({ kind: "frame", path: lane, event, bridge: true })));
  }

  /** Answered at rest, without a request: what it has to say needs a leg. */
  #needLeg(): void {
    const { state } = this.#session;
    if (state.leg === null) this.#session.add(intake(state, []));
  }

  #send(events: readonly AGUIEvent[], lane: Path): void {
    const { stream } = this.#session;
    this.#needLeg();
    const [only] = events;
    const ref = events.length === 1 && only !== undefined ? this.#reference(only) : undefined;
    if (ref === undefined) stream.take(events, lane);
    else stream.refer(ref, lane);
  }

  /** A snapshot is a reference, if that says all that it says: not whose it is, for example. */
  #reference(event: AGUIEvent): FrameRef | undefined {
    if (Object.keys(event).length > 2) return undefined;
    if (event.type === "STATE_SNAPSHOT") {
      // What steps that run have published is not committed.
      const isCommitted = this.#session.stateToShow() === this.#session.state.committed;
      return isCommitted ? { of: "STATE_SNAPSHOT" } : undefined;
    }
    const isWhole = event.type === "MESSAGES_SNAPSHOT" && isAllOf(event.messages, this.messages);
    return isWhole ? OWN_SNAPSHOT : undefined;
  }

  #note(event: AGUIEvent): boolean {
    if (event.type !== "RUN_FINISHED" && event.type !== "RUN_ERROR") return false;
    this.terminal = event;
    return true;
  }

  /** Y1. What refers to the work of steps is for the log to judge. */
  #believe(event: AGUIEvent, lane: Path): void {
    if (this.#believed === undefined) return;
    try {
      this.#believed = verify(this.#believed, event, lane);
    } catch {
      // The log says so, too, where it is sent.
    }
  }

  /** What of an event was not recorded; undefined: all of it was. */
  #unmatched(event: AGUIEvent, path: Path): AGUIEvent | undefined {
    const lane = this.#lanes.get(path);
    if (lane === undefined) return event;
    const isAccepted = this.#accepted.has(placeOf(path));
    if (isDelta(event)) return this.#restOfText(event, lane, path, isAccepted);
    const recorded = lane.meet((known) => sameEvent(known, event));
    if (recorded === undefined) return event;
    if (!sameEvent(recorded.event, event) && !isAccepted) this.#refuse(path, recorded, event);
    for (const [id, as] of idsBetween(event, recorded.event)) this.#ids.set(id, as);
    lane.took();
    return undefined;
  }

  #restOfText(event: Delta, lane: Lane, path: Path, isAccepted: boolean): AGUIEvent | undefined {
    let { delta } = event;
    for (;;) {
      const recorded = lane.meet((known) => known.type === event.type);
      if (recorded === undefined) return delta === "" ? undefined : { ...event, delta };
      const { event: said } = recorded;
      if (said.type !== event.type || !isDelta(said)) {
        // Of an accepted lane what was recorded stands, whatever the code says in its place.
        if (isAccepted) return undefined;
        if (delta === "") return undefined;
        return this.#refuse(path, recorded, { ...event, delta });
      }
      const left = lane.textLeft(said.delta);
      const common = Math.min(left.length, delta.length);
      if (left.slice(0, common) !== delta.slice(0, common) && !isAccepted) this.#refuse(path, recorded, event);
      lane.tookText(common, said.delta);
      delta = delta.slice(common);
      if (delta === "") return undefined;
    }
  }

  #refuse(path: Path, recorded: RecordedEvent, event: AGUIEvent): never {
    throw this.#diverge(this.#difference(path, recorded, event), placeOf(path));
  }

  #difference(path: Path, recorded: RecordedEvent, event: AGUIEvent | null): Difference {
    return {
      path,
      seq: recorded.seq,
      what: `what the code emits in ${laneText(path)}`,
      recorded: normalForm(recorded.event),
      wanted: event === null ? "nothing: the code has ended" : normalForm(event),
      next: NOT_DETERMINISTIC,
    };
  }

  #differenceOfMore(path: Path, event: AGUIEvent): Difference {
    const [what, wanted] = [`what the code emits in ${laneText(path)}`, normalForm(event)];
    return differenceOfMore(path, this.#session.state.head + 1, { what, wanted });
  }

  /** Keeps in mind what the code has open. */
  #follow(event: AGUIEvent, lane: Path): void {
    const sent = withIds(event, this.#ids);
    const begun = beginning(sent);
    if (begun !== undefined) this.#open.set(begun, { lane, start: sent, args: "" });
    const ended = ending(sent);
    if (ended !== undefined) this.#open.delete(ended);
    if (sent.type === "TOOL_CALL_ARGS") {
      const call = this.#open.get(`tool-call ${sent.toolCallId}`);
      if (call !== undefined) call.args += sent.delta;
    }
  }

  /** Y2. */
  #reopen(event: AGUIEvent, lane: Path, before: readonly AGUIEvent[]): void {
    if (this.#open.size === 0) return;
    const shown = new Set(openItems(this.#session.stream.wire).map(({ kind, id }) => `${kind} ${id}`));
    // What is on its way with it is not to be seen yet.
    for (const begun of before.map(beginning)) if (begun !== undefined) shown.add(begun);
    const owner = blockOf(withIds(event, this.#ids));
    for (const [key, { lane: at, start, args }] of this.#open) {
      const isAround = (key.startsWith("step ") || key.startsWith("subagent ")) && isWithin(lane, at);
      if (shown.has(key) || (!isAround && !owner.includes(key))) continue;
      // What has closed it before is none of the code's doing then.
      this.#lanes.get(at)?.passOptional();
      this.#bridge(start.type === "TOOL_CALL_START" ? this.#callAgain(start, args) : [start], at);
    }
  }

  /** A call that begins again does so at its old place: what has come behind it stays behind it. */
  #callAgain(start: AGUIEventOf<"TOOL_CALL_START">, args: string): readonly AGUIEvent[] {
    const { toolCallId } = start;
    const sofar: readonly AGUIEvent[] = args === "" ? [] : [{ type: "TOOL_CALL_ARGS", toolCallId, delta: args }];
    const vacancy = this.#vacancies.get(toolCallId);
    // In a fork the message that was to carry it alone keeps its place.
    const isHeld = start.parentMessageId === undefined && hasMessage(this.#session.stream.wire, toolCallId);
    if (vacancy === undefined) return [isHeld ? { ...start, parentMessageId: toolCallId } : start, ...sofar];
    const { messages } = this;
    const { message, preceding } = vacancy;
    const again = { ...start, parentMessageId: message.id };
    const at = messages.findLastIndex(({ id }) => preceding.has(id)) + 1;
    if (at === messages.length || messages.some(({ id }) => id === message.id)) return [again, ...sofar];
    // Clients keep the order of what they hold: so what comes behind it leaves, and comes back.
    return [
      { type: "MESSAGES_SNAPSHOT", messages: messages.slice(0, at) },
      { type: "MESSAGES_SNAPSHOT", messages: messages.toSpliced(at, 0, message) },
      ...[again, ...sofar],
    ];
  }
}

/** The record of one lane, and how far the code has come in it. */
class Lane {
  readonly #events: readonly RecordedEvent[];
  #at = 0;
  /** How much of the text at {@link #at} was said again. */
  #said = 0;

  constructor(events: readonly RecordedEvent[]) {
    this.#events = events;
  }

  /** What comes next that the code itself must have emitted. */
  next(): RecordedEvent | undefined {
    if (this.#said > 0) return this.#events[this.#at];
    return this.#events.slice(this.#at).find(({ isOptional }) => !isOptional);
  }

  /** What was recorded where the code is now. What the end of a leg has closed is passed over unless it is what the code does. */
  meet(isIt: (event: AGUIEvent) => boolean): RecordedEvent | undefined {
    for (; this.#at < this.#events.length; this.#at++) {
      const recorded = this.#events[this.#at] as RecordedEvent;
      if (!recorded.isOptional || isIt(recorded.event)) return recorded;
    }
    return undefined;
  }

  /** When only what the end of a leg has closed is left. */
  passOptional(): void {
    if (this.next() === undefined) this.#at = this.#events.length;
  }

  took(): void {
    this.#at++;
    this.#said = 0;
  }

  textLeft(recorded: string): string {
    return recorded.slice(this.#said);
  }

  tookText(length: number, recorded: string): void {
    this.#said += length;
    if (this.#said >= recorded.length) this.took();
  }
}

/** The keys of the block that an event belongs to. */
function blockOf(event: AGUIEvent): readonly string[] {
  const of = event as { readonly messageId?: string; readonly toolCallId?: string; readonly stepName?: string };
  const subagent = (event as { readonly subagentRunId?: string }).subagentRunId;
  return [
    ...(of.messageId === undefined
      ? []
      : [`text ${of.messageId}`, `reasoning ${of.messageId}`, `reasoning-message ${of.messageId}`]),
    ...(of.toolCallId === undefined ? [] : [`tool-call ${of.toolCallId}`]),
    ...(of.stepName === undefined ? [] : [`step ${of.stepName}`]),
    ...(subagent === undefined ? [] : [`subagent ${subagent}`]),
  ];
}

/** How an operator's word names a lane. */
export function placeOf(path: Path): string {
  return `lane ${path}`;
}

function laneText(path: Path): string {
  return path === "" ? "its main lane" : `lane ${path}`;
}

function isState({ type }: AGUIEvent): boolean {
  return type === "STATE_SNAPSHOT" || type === "STATE_DELTA";
}

function isAllOf(messages: readonly Message[], all: readonly Message[]): boolean {
  return messages.length === all.length && messages.every((message, i) => message === all[i]);
}
