/**
 * Children of a run: each begins in the batch of its attempt, goes on by itself, and is shown by its parent as it goes.
 *
 * C1. A child exists from the moment at which its parent's log says that its step was tried, and only once: its uid follows from the step's.
 * C2. What it shows is referred to in the order of its log. After a crash the parent goes on behind the last thing that it has referred to.
 * C3. While it moves its parent is here and shows it; when it rests its parent may rest, and is woken with it.
 * C4. It is never run again: whatever becomes of it becomes of the call.
 * C5. A cancelled parent cancels it, and so does a lane that has lost its race, and ends behind it. An abandoned one gives it up, and waits for
 *     nothing.
 */
import { aggregateTokenUsage } from "@ag-ui/core";
import { CANCELLED } from "../emit/errors.ts";
import type { Leaving } from "../emit/leftovers.ts";
import { type ChildRef, childLane, isShownOfChild, joined } from "../log/child-frames.ts";
import { type Entry, EntryError, type Frame, type NewEntry, type StepEnd } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { brokenLog, LogError } from "../log/log-error.ts";
import { render } from "../log/render.ts";
import { spentByChild } from "../log/spent.ts";
import type { AGUIEvent, UserMessage } from "../protocol/events.ts";
import { event } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { hasCall, hasSubagent, isAnswered } from "../protocol/verify.ts";
import type { Path, RecordedError, Uid } from "../protocol/words.ts";
import { EntryMissingError, StoreDamagedError } from "../store/errors.ts";
import type { Agent } from "./agent-definition.ts";
import type { Allotment } from "./allotment.ts";
import { childEnd } from "./child-end.ts";
import { childUid, firstEntriesOfChild } from "./child-start.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { Followed } from "./followed-child.ts";
import { intake } from "./intake.ts";
import { type RestingChild, restingChild, rests } from "./resting-child.ts";

type ChildFrame = Extract<Frame, { ref: unknown }> & { readonly ref: ChildRef; readonly shown: AGUIEvent };

/** A step that is another run. */
export interface ChildStep {
  readonly path: Path;
  readonly name: string;
  /** Of the call that it is, as on the wire; undefined where it is no call that clients are shown. */
  readonly id?: string | undefined;
}

/** How a child begins. */
export interface Spawning {
  readonly agent: Agent;
  readonly asked: UserMessage["content"];
  readonly started?: readonly NewEntry[] | undefined;
  readonly edited?: Json | undefined;
  /** What it may use, at the moment at which it begins. */
  readonly allot: () => Allotted;
}

/** `nothing`: its caller's budget leaves it nothing to begin with. */
export type Allotted = Allotment | "unlimited" | "nothing";

/** What depends on who begins children: a loop's calls, or a body's own `spawn`. */
export interface ChildRules {
  /** The agent of a step, for its name and description. Default: the step's name is all that is said. */
  agentOf?(step: ChildStep): Agent | undefined;
  /** What an output does to the run. Default: it is the step's output. */
  accepted?(step: ChildStep, output: Json): StepEnd;
}

/** As much as one frame may gather of a child's deltas. UTF-16 units. */
const GATHERED = 256 * 1024;

export class ChildRunner {
  /** By the paths of their steps. */
  readonly resting = new Map<Path, RestingChild>();
  readonly #followed = new Map<Path, Followed>();
  readonly #lost = new Set<Path>();
  readonly #options: Pick<DriverOptions, "store" | "stop" | "now" | "report">;
  readonly #session: DriveSession;
  readonly #rules: ChildRules;

  constructor(
    options: Pick<DriverOptions, "store" | "stop" | "now" | "report">,
    session: DriveSession,
    rules: ChildRules = {},
  ) {
    this.#options = options;
    this.#session = session;
    this.#rules = rules;
  }

  /**
   * Begins the child of a step, and follows it until it rests or has ended. Where nothing is left for it, it does not begin.
   *
   * @param asked - its first user message
   * @param started - the entries that begin the step, where the log has none yet
   * @param edited - arguments of a human's, in place of the model's
   */
  async spawn(step: ChildStep, { agent, asked, started, edited, allot }: Spawning, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    const { path } = step;
    let isBegun = false;
    await session.offerBatch(() => {
      const allotted = allot();
      if (allotted === "nothing") return { entries: [] };
      isBegun = true;
      const allotment = allotted === "unlimited" ? undefined : allotted;
      return {
        entries: [
          ...(session.state.leg === null ? intake(session.state, []) : []),
          ...(started ?? []),
          {
            ...{ kind: "step.attempt", path, n: 1, epoch: session.epoch, phase: "call", key: null, deadline: null },
            ...(edited !== undefined && { edited }),
            ...(allotment !== undefined && { allotted: allotment.limits }),
          },
          announced(session.state, step, agent),
        ],
        starts: [firstEntriesOfChild(session.state, path, { agent, asked, allotted: allotment })],
      };
    });
    if (isBegun) await this.follow(step, signal);
  }

  /** Shows what a child does until it rests or has ended. */
  async follow(step: ChildStep, signal: AbortSignal): Promise<void> {
    const { store, stop } = this.#options;
    const { state } = this.#session;
    const uid = childUid(state.run.uid, step.path);
    this.resting.delete(step.path);
    const child = this.#followed.get(step.path) ?? new Followed(uid, () => this.#moved(step.path));
    if (!this.#followed.has(step.path)) {
      this.#followed.set(step.path, child);
      child.unwatch = store.watch({ run: uid }, child.hear);
    }
    const wake = child.wake;
    signal.addEventListener("abort", wake);
    stop.addEventListener("abort", wake);
    try {
      while (!signal.aborted && !stop.aborted && !(await this.#look(step, child, signal))) await child.news();
    } finally {
      signal.removeEventListener("abort", wake);
      stop.removeEventListener("abort", wake);
    }
  }

  /** @returns whether there is nothing more to follow for now */
  async #look(step: ChildStep, child: Followed, signal: AbortSignal): Promise<boolean> {
    const { store } = this.#options;
    const session = this.#session;
    const { uid, log } = child;
    const isOver = session.state.cancelled || this.#lost.has(step.path);
    if (isOver) {
      const kind = session.state.abandoned ? "abandon" : "cancel";
      if (child.told !== kind) await store.put(uid, session.state.run.uid, { kind });
      child.told = kind;
      if (signal.aborted) return true;
      if (kind === "abandon") {
        this.#finish(step, child, { status: "cancelled" });
        return true;
      }
    }
    const row = await store.run(uid);
    try {
      const entries = await child.entries(store);
      if (signal.aborted) return true;
      this.#show(step, child, entries);
    } catch (error) {
      const broken = brokenLog(uid, error);
      // A store that fails is no fault of the log's: whoever claims the run next reads again.
      if (!isDamage(broken)) throw error;
      this.#options.report(broken, session.state.run.uid);
      if (signal.aborted) return true;
      this.#finish(step, child, failed(unreadable(uid)));
      return true;
    }
    if (log.head >= 0 && log.state.finished !== null) {
      this.#finish(
        step,
        child,
        childEnd(log, isOver, (o) => this.#accepted(step, o)),
      );
      return true;
    }
    // Nobody drives it any more: its row cannot be trusted, or it was never there.
    if (row === null || row.aside !== null) {
      this.#finish(step, child, failed(unreadable(uid)));
      return true;
    }
    if (isOver || !rests(row, this.#options.now()) || row.head !== log.head || child.isStale) return false;
    this.resting.set(step.path, restingChild(row, log.state));
    return true;
  }

  /** Refers to what it has shown, all of it in one batch. */
  #show(step: ChildStep, child: Followed, entries: readonly Entry[]): void {
    const { uid, log } = child;
    const upTo = this.#session.state.children.get(uid)?.upTo ?? -1;
    let gathered: ChildFrame | undefined;
    const flush = (): void => {
      const frame = gathered;
      gathered = undefined;
      if (frame !== undefined) this.#add(step, frame);
    };
    for (const entry of entries) {
      const shown = log.take(entry);
      if (shown === undefined || entry.kind !== "frame" || entry.seq <= upTo || !isShownOfChild(shown)) continue;
      const path = childLane(step.path, entry.path);
      const isNext = gathered?.path === path && gathered.ref.to === entry.seq - 1;
      const whole = gathered !== undefined && isNext ? joined(gathered.shown, shown) : undefined;
      if (gathered !== undefined && whole !== undefined && whole.delta.length <= GATHERED) {
        gathered = { ...gathered, ref: { ...gathered.ref, to: entry.seq }, shown: whole };
        continue;
      }
      flush();
      gathered = { kind: "frame", path, ref: { of: "CHILD", uid, from: entry.seq, to: entry.seq }, shown };
    }
    flush();
  }

  #add(step: ChildStep, frame: ChildFrame): void {
    const session = this.#session;
    if (frame.shown.type === "MESSAGES_SNAPSHOT") {
      const shown = render(session.state, frame);
      const { messages } = session.state;
      // Of what is not its own it says nothing: where its own is as it was, there is nothing to show.
      if (
        shown.type === "MESSAGES_SNAPSHOT" &&
        jsonEqual(shown.messages as unknown as Json, messages as unknown as Json)
      )
        return;
    }
    this.#open(step);
    session.add([frame]);
  }

  /** What is shown needs a leg, and a subagent whose work it is. */
  #open(step: ChildStep): void {
    const session = this.#session;
    if (session.state.leg === null) session.add(intake(session.state, []));
    const { state } = session;
    if (hasSubagent(state.wire, childUid(state.run.uid, step.path), "in this run")) return;
    session.add([announced(state, step, this.#rules.agentOf?.(step))]);
  }

  /** The outcome of the call, and what clients see of it, in one batch. */
  #finish(step: ChildStep, child: Followed, end: StepEnd): void {
    const session = this.#session;
    const { path } = step;
    this.#open(step);
    session.closeOpen(leavingOf(end), path);
    const { wire, running } = session.state;
    // What it has called and got no answer to, nobody will answer here.
    const withdrawn = [...(running.get(path)?.calls ?? [])].filter((id) => hasCall(wire, id) && !isAnswered(wire, id));
    const usage = aggregateTokenUsage([...child.log.usage]);
    const spent = this.#spentBy(path, child);
    const entries: NewEntry[] = [
      ...(withdrawn.length > 0 ? [{ kind: "frame", path, ref: { of: "MESSAGES_SNAPSHOT", withdrawn } } as const] : []),
      { kind: "step.finished", path, via: "call", ...end, ...(usage.length > 0 && { usage }), ...(spent && { spent }) },
      ...(step.id === undefined ? [] : [{ kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } } as const]),
    ];
    session.add(entries);
    session.showState(path);
    child.unwatch();
    this.#followed.delete(path);
  }

  /** What of its allotment it has used; undefined where its log does not say it to the end: then all of it. */
  #spentBy(path: Path, { log }: Followed): ReturnType<typeof spentByChild> | undefined {
    if (this.#session.state.steps.get(path)?.attempts.at(-1)?.allotted === undefined) return undefined;
    if (log.head < 0 || log.state.finished === null) return undefined;
    return spentByChild(log.state, log.state.finished.at);
  }

  #accepted(step: ChildStep, output: Json): StepEnd {
    return this.#rules.accepted?.(step, output) ?? { status: "ok", output, patch: [] };
  }

  /** The children that have not ended, as far as they were read: what the store has to know of a run that is to rest. */
  unfinished(): readonly { readonly uid: Uid; readonly head: number }[] {
    const { state } = this.#session;
    return [...state.steps.values()].flatMap(({ started: { path, step }, attempts, finished }) => {
      if (step !== "child" || attempts.length === 0 || finished !== undefined) return [];
      const { uid, head } = this.resting.get(path) ?? { uid: childUid(state.run.uid, path), head: -1 };
      return [{ uid, head }];
    });
  }

  /** One of them has moved, or it was told so: each is to be looked at again. */
  lookAgain(): void {
    this.resting.clear();
    for (const child of this.#followed.values()) child.wake();
  }

  /** Nobody waits for what some of these steps bring any more. */
  lose(paths: Iterable<Path>): void {
    for (const path of paths) {
      if (this.#lost.has(path)) continue;
      this.#lost.add(path);
      this.#followed.get(path)?.wake();
    }
  }

  close(): void {
    for (const child of this.#followed.values()) child.unwatch();
  }

  /** One that was at rest has been heard of. */
  #moved(path: Path): void {
    if (this.resting.delete(path)) this.#session.wake();
  }
}

/** SUBAGENT_STARTED, in each leg in which it is heard of. */
function announced({ run, messages }: RunState, step: ChildStep, agent: Agent | undefined): NewEntry {
  const carrier = messages.findLast(
    (message) => message.role === "assistant" && message.toolCalls?.some(({ id }) => id === step.id),
  );
  return {
    ...{ kind: "frame", path: step.path },
    event: event("SUBAGENT_STARTED", {
      subagentRunId: childUid(run.uid, step.path),
      name: agent?.name ?? step.name,
      description: agent?.description,
      parentToolCallId: step.id,
      parentMessageId: carrier?.id,
    }),
  };
}

function leavingOf(end: StepEnd): Leaving {
  if (end.status === "ok") return { type: "whole" };
  return { type: "cut", error: end.status === "error" ? end.error : CANCELLED };
}

function failed(error: RecordedError): StepEnd {
  return { status: "error", error, applied: "unknown" };
}

function isDamage(error: unknown): boolean {
  return [LogError, EntryError, EntryMissingError, StoreDamagedError].some((damage) => error instanceof damage);
}

function unreadable(uid: Uid): RecordedError {
  return { code: "SUBAGENT_UNREADABLE", message: `the log of run ${uid}, which was to do it, cannot be read` };
}
