/**
 * The code of a custom loop, run against a recorded run: it gets what was recorded, and begins nothing. What it would do otherwise is what a driver
 * would stop it for, and what it would do beyond a run that is over or rests.
 *
 * The code itself runs, once: what it does between its steps it does here, too.
 */
import type { Entry } from "../log/entries.ts";
import { fold, type RunState } from "../log/fold.ts";
import { INTERRUPT_EVENT } from "../log/interrupts.ts";
import { ending } from "../log/matching.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Path } from "../protocol/words.ts";
import type { Appended, EventStore, Lease } from "../store/store.ts";
import type { BodyAgent } from "./agent-definition.ts";
import { BodyLoop } from "./body-loop.ts";
import { differenceOfMore } from "./body-steps.ts";
import type { Terminal } from "./body-stream.ts";
import { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { Diverged, InputChanged } from "./loop-errors.ts";
import type { Want } from "./loop-operations.ts";
import { placeInCode } from "./place-in-code.ts";
import { RunningWrites } from "./running-writes.ts";
import { SuspectTurn } from "./suspects.ts";

/** Code that comes to no end and waits for no step. */
export class ReplayStuckError extends PerdureError {
  override readonly name = "ReplayStuckError";
  constructor(agent: string, run: string) {
    super(
      "REPLAY_STUCK",
      `the code of agent "${agent}" has waited ${PATIENCE / 1_000} s for something that is no step of run ${run}: let a step of its own do it`,
    );
  }
}

/** How long code may do something that is no step. Milliseconds. */
const PATIENCE = 20_000;

/** A step that the code has begun. */
export interface BegunStep {
  readonly want: Want;
  /** The line where; null where the stack does not tell. */
  readonly at: string | null;
  /** Where it gives it another input than it did. */
  readonly input?: InputChanged;
}

/** What came of it. */
export interface ReplayedCode {
  /** The recorded run, as far as it is compared. */
  readonly run: RunState;
  /** The steps that the code began, in its order. */
  readonly begun: readonly BegunStep[];
  /** Where it does something else than it did: there it has stopped. */
  readonly diverged: Diverged | undefined;
  /** How it has ended, where it has. */
  readonly end: Terminal | undefined;
  /** Whether the recorded run was ended by its code. */
  readonly isEnded: boolean;
  /** What it failed with. */
  readonly failure: unknown;
}

/**
 * @param entries - of the run
 * @param before - the thread's runs before it, oldest first
 * @throws {@link ReplayStuckError}, and what reading the log throws
 */
export async function replayCode(
  agent: BodyAgent,
  entries: readonly Entry[],
  before: readonly RunState[],
): Promise<ReplayedCode> {
  const { compared, isWhole, isEnded } = comparable(entries, before.at(-1));
  const run = fold(compared, before.at(-1));
  const begun: BegunStep[] = [];
  let failure: unknown;
  const options: DriverOptions<BodyAgent> = {
    ...{ agent, run, before, ...leased(run, compared) },
    ...{ isOwnerDead: true, lostHere: new Set(), suspects: new SuspectTurn() },
    ...{
      writes: new RunningWrites(
        () => 0,
        () => {},
      ),
      stop: never(),
      giveUp: never(),
      random: () => 0,
      drives: () => true,
    },
    replaying: { isWhole, begins: (want) => void begun.push({ want, at: placeInCode() }) },
    report(error) {
      const last = begun.length - 1;
      if (!(error instanceof InputChanged)) failure = error;
      else begun[last] = { ...(begun[last] as BegunStep), input: error };
    },
  };
  const session = new DriveSession(options);
  const loop = new BodyLoop(options, session);
  try {
    await toItsEnd(loop, session, agent.name);
    const { isOver } = loop.next(session.state);
    const end = loop.diverged === undefined && isOver ? loop.end()?.terminal : undefined;
    const more = isWhole && !isOver ? beyond(loop, run, begun) : undefined;
    if (end === undefined && more === undefined) loop.checkAllDone();
    return { run, begun, diverged: loop.diverged ?? more, end, isEnded, failure };
  } finally {
    loop.leave();
    session.close();
  }
}

/** Lets the code hear of all that is recorded, until it has ended or waits for what is not. */
async function toItsEnd(loop: BodyLoop, session: DriveSession, agent: string): Promise<void> {
  let isStuck = false;
  const stuck = (): void => {
    isStuck = true;
    session.wake();
  };
  let timer = setTimeout(stuck, PATIENCE);
  try {
    await loop.enter();
    for (;;) {
      loop.attend();
      const { isOver, isBusy } = loop.next(session.state);
      if (loop.diverged !== undefined || isOver || !isBusy) return;
      if (isStuck) throw new ReplayStuckError(agent, session.state.run.uid);
      await session.awaken(Number.POSITIVE_INFINITY);
      clearTimeout(timer);
      if (!isStuck) timer = setTimeout(stuck, PATIENCE);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** A step that code waits for in the end, and that is not recorded. One of a lane that has lost its race it does not wait for any more. */
function beyond(loop: BodyLoop, run: RunState, begun: readonly BegunStep[]): Diverged | undefined {
  const { models, calls } = loop.next(run);
  const waited = new Set([...models, ...calls.map(({ path }) => path)]);
  const first = begun.find(({ want: { call } }) => waited.has(call.path) && !run.steps.has(call.path));
  if (first === undefined) return undefined;
  const { call, kind } = first.want;
  const [what, wanted] = [`step ${call.path}`, `${kind} "${call.name}"`];
  return new Diverged(differenceOfMore(call.path, run.head + 1, { what, wanted }), first.at, what);
}

interface Comparable {
  readonly compared: readonly Entry[];
  /** Whether the code does no more than that. */
  readonly isWhole: boolean;
  readonly isEnded: boolean;
}

/** As much of a log as its code alone has decided, without its end. */
function comparable(entries: readonly Entry[], before: RunState | undefined): Comparable {
  const cancelled = entries.findIndex(
    (entry) => entry.kind === "inbox.taken" && (entry.item === "cancel" || entry.item === "abandon"),
  );
  if (cancelled !== -1) return { compared: entries.slice(0, cancelled), isWhole: false, isEnded: false };
  const { finished, spending, answers, leg, interrupts } = fold(entries, before);
  const stopped = spending.stop === null ? undefined : answers.get(spending.stop.id);
  if (stopped !== undefined) {
    return { compared: entries.filter(({ seq }) => seq < stopped.seq), isWhole: false, isEnded: false };
  }
  if (finished === null) {
    // What else rests is not for its code alone to say: a budget, or a write of which nobody knows, holds other steps back.
    const isItsOwn = [...interrupts.values()].every(({ kind }) => WAITED_FOR.has(kind));
    return { compared: entries, isWhole: leg === null && isItsOwn, isEnded: false };
  }
  const last = entries.findLastIndex(({ kind }) => kind === "leg.finished");
  return { compared: withOwnEnds(entries.slice(0, last)), isWhole: true, isEnded: true };
}

const WAITED_FOR: ReadonlySet<string> = new Set(["approval", "question", "suspension", "client-tool"]);

/** What was closed last in each lane may have been closed because the code ended: it need not close it itself. */
function withOwnEnds(entries: readonly Entry[]): readonly Entry[] {
  const going = new Set<Path>();
  return entries
    .toReversed()
    .map((entry): Entry => {
      if (entry.kind !== "frame" || !("event" in entry) || going.has(entry.path)) return entry;
      const { event } = entry;
      if (ending(event) !== undefined || event.type === "MESSAGES_SNAPSHOT") return { ...entry, bridge: true };
      // What is said of questions is none of the code's.
      if (event.type !== "CUSTOM" || event.name !== INTERRUPT_EVENT) going.add(entry.path);
      return entry;
    })
    .toReversed();
}

/** Nobody else has the run, and what is appended to it is nobody's. */
function leased(
  { run, head }: RunState,
  entries: readonly Entry[],
): Pick<DriverOptions, "store" | "lease" | "leasedAt" | "now"> {
  const lease: Lease = { uid: run.uid, epoch: 2, owner: "replay", until: SPAN, span: SPAN };
  let appended = head;
  const store: Pick<EventStore, "read" | "append" | "renew"> = {
    async *read() {
      yield* entries;
    },
    async append(_, { entries: more }): Promise<Appended> {
      appended += more.length;
      return { is: "appended", head: appended, at: 0 };
    },
    renew: async (current) => current,
  };
  // Without a driver nobody asks for more of it.
  return { store: store as EventStore, lease, leasedAt: 0, now: () => 0 };
}

const SPAN = 1e9;

function never(): AbortSignal {
  return new AbortController().signal;
}
