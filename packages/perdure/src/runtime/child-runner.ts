/**
 * Children of a run: each begins in the batch of its attempt, goes on by itself, and is shown by its parent as it goes.
 *
 * C1. A child exists from the moment at which its parent's log says that its step was tried, and only once: its uid follows from the step's.
 * C2. What it shows is referred to in the order of its log. After a crash the parent goes on behind the last thing that it has referred to.
 * C3. While it moves its parent is here and shows it; when it rests its parent may rest, and is woken with it.
 * C4. It is never run again: whatever becomes of it becomes of the call.
 * C5. A cancelled parent cancels it, and ends behind it. An abandoned one gives it up, and waits for nothing.
 */
import { aggregateTokenUsage } from "@ag-ui/core";
import { CANCELLED } from "../emit/errors.ts";
import type { Leaving } from "../emit/leftovers.ts";
import { type ChildRef, childLane, isShownOfChild, joined } from "../log/child-frames.ts";
import { ChildLog } from "../log/child-log.ts";
import type { Entry, Frame, NewEntry, StepEnd } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { brokenLog } from "../log/log-error.ts";
import { render } from "../log/render.ts";
import { editedArguments } from "../log/tool-result.ts";
import type { AGUIEvent, UserMessage } from "../protocol/events.ts";
import { event } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { hasCall, hasSubagent, isAnswered } from "../protocol/verify.ts";
import type { Path, RecordedError, Uid } from "../protocol/words.ts";
import type { Agent, AgentTool, LoopCall } from "./agent-definition.ts";
import { recordedError } from "./attempt-outcome.ts";
import { startedEntry } from "./call-entries.ts";
import type { CallRunner } from "./call-runner.ts";
import { childEnd } from "./child-end.ts";
import { childUid, firstEntriesOfChild } from "./child-start.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { intake } from "./intake.ts";
import { childRefusal } from "./lineage.ts";
import { type RestingChild, restingChild, rests } from "./resting-child.ts";

type ChildFrame = Extract<Frame, { ref: unknown }> & { readonly ref: ChildRef; readonly shown: AGUIEvent };

/** As much as one frame may gather of a child's deltas. UTF-16 units. */
const GATHERED = 256 * 1024;

export class ChildRunner {
  /** By the paths of their steps. */
  readonly resting = new Map<Path, RestingChild>();
  readonly #followed = new Map<Path, Followed>();
  readonly #options: DriverOptions;
  readonly #session: DriveSession;
  readonly #calls: CallRunner;

  constructor(options: DriverOptions, session: DriveSession, calls: CallRunner) {
    this.#options = options;
    this.#session = session;
    this.#calls = calls;
  }

  /** Begins the child of a call that may run, and follows it. */
  async begin(call: LoopCall, tool: AgentTool, edited: Json | undefined, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    const step = session.state.steps.get(call.path);
    const input = edited ?? editedArguments(step) ?? call.input;
    let asked: UserMessage["content"];
    try {
      await tool.checkJson(input);
      asked = await tool.messageFor(input);
    } catch (error) {
      const recorded = recordedError(error, session.state.run.uid, this.#options.report);
      return await this.#calls.settle(call, { by: "error", error: recorded, applied: "no" });
    }
    const refused = await childRefusal(this.#options.store, session.state.run, tool.agent.name);
    if (refused !== undefined) return await this.#calls.settle(call, { by: "error", error: refused, applied: "no" });
    if (signal.aborted) return;
    await session.offer(
      () => [
        ...(step === undefined ? [startedEntry(call, "child", tool)] : []),
        {
          ...{
            kind: "step.attempt",
            path: call.path,
            n: 1,
            epoch: session.epoch,
            phase: "call",
            key: null,
            deadline: null,
          },
          ...(edited !== undefined && { edited }),
        },
        announced(session.state, call, tool.agent),
      ],
      { starts: [firstEntriesOfChild(session.state, call.path, { agent: tool.agent, asked })] },
    );
    await this.follow(call, signal);
  }

  /** Shows what a child does until it rests or has ended. */
  async follow(call: LoopCall, signal: AbortSignal): Promise<void> {
    const { store, stop } = this.#options;
    const { state } = this.#session;
    const uid = childUid(state.run.uid, call.path);
    this.resting.delete(call.path);
    const child = this.#followed.get(call.path) ?? new Followed(uid, () => this.#moved(call.path));
    if (!this.#followed.has(call.path)) {
      this.#followed.set(call.path, child);
      child.unwatch = store.watch({ run: uid }, child.hear);
    }
    const wake = child.wake;
    signal.addEventListener("abort", wake);
    stop.addEventListener("abort", wake);
    try {
      while (!signal.aborted && !stop.aborted && !(await this.#look(call, child, signal))) await child.news();
    } finally {
      signal.removeEventListener("abort", wake);
      stop.removeEventListener("abort", wake);
    }
  }

  /** @returns whether there is nothing more to follow for now */
  async #look(call: LoopCall, child: Followed, signal: AbortSignal): Promise<boolean> {
    const { store } = this.#options;
    const session = this.#session;
    const { uid, log } = child;
    if (session.state.cancelled) {
      const kind = session.state.abandoned ? "abandon" : "cancel";
      if (child.told !== kind) await store.put(uid, session.state.run.uid, { kind });
      child.told = kind;
      if (signal.aborted) return true;
      if (kind === "abandon") {
        this.#finish(call, child, { status: "cancelled" });
        return true;
      }
    }
    const row = await store.run(uid);
    try {
      const entries = await child.entries(store);
      if (signal.aborted) return true;
      this.#show(call, child, entries);
    } catch (error) {
      const broken = brokenLog(uid, error);
      this.#options.report(broken, session.state.run.uid);
      if (signal.aborted) return true;
      this.#finish(call, child, failed(unreadable(uid)));
      return true;
    }
    if (log.head >= 0 && log.state.finished !== null) {
      this.#finish(
        call,
        child,
        childEnd(log, session.state.cancelled, (o) => this.#accepted(call, o)),
      );
      return true;
    }
    // Nobody drives it any more: its row cannot be trusted, or it was never there.
    if (row === null || row.aside !== null) {
      this.#finish(call, child, failed(unreadable(uid)));
      return true;
    }
    if (session.state.cancelled || !rests(row, this.#options.now()) || row.head !== log.head || child.isStale)
      return false;
    this.resting.set(call.path, restingChild(row, log.state));
    return true;
  }

  /** Refers to what it has shown, all of it in one batch. */
  #show(call: LoopCall, child: Followed, entries: readonly Entry[]): void {
    const { uid, log } = child;
    const upTo = this.#session.state.children.get(uid)?.upTo ?? -1;
    let gathered: ChildFrame | undefined;
    const flush = (): void => {
      const frame = gathered;
      gathered = undefined;
      if (frame !== undefined) this.#add(call, frame);
    };
    for (const entry of entries) {
      const shown = log.take(entry);
      if (shown === undefined || entry.kind !== "frame" || entry.seq <= upTo || !isShownOfChild(shown)) continue;
      const path = childLane(call.path, entry.path);
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

  #add(call: LoopCall, frame: ChildFrame): void {
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
    this.#open(call);
    session.add([frame]);
  }

  /** What is shown needs a leg, and a subagent whose work it is. */
  #open(call: LoopCall): void {
    const session = this.#session;
    if (session.state.leg === null) session.add(intake(session.state, []));
    const { state } = session;
    if (hasSubagent(state.wire, childUid(state.run.uid, call.path), "in this run")) return;
    session.add([announced(state, call, this.#tool(call)?.agent)]);
  }

  /** The outcome of the call, and what clients see of it, in one batch. */
  #finish(call: LoopCall, child: Followed, end: StepEnd): void {
    const session = this.#session;
    const { path } = call;
    this.#open(call);
    session.closeOpen(leavingOf(end), path);
    const { wire, running } = session.state;
    // What it has called and got no answer to, nobody will answer here.
    const withdrawn = [...(running.get(path)?.calls ?? [])].filter((id) => hasCall(wire, id) && !isAnswered(wire, id));
    const usage = aggregateTokenUsage([...child.log.usage]);
    const entries: NewEntry[] = [
      ...(withdrawn.length > 0 ? [{ kind: "frame", path, ref: { of: "MESSAGES_SNAPSHOT", withdrawn } } as const] : []),
      { kind: "step.finished", path, via: "call", ...end, ...(usage.length > 0 && { usage }) },
      { kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } },
    ];
    session.add(entries);
    session.showState(path);
    child.unwatch();
    this.#followed.delete(path);
  }

  #accepted(call: LoopCall, output: Json): StepEnd {
    const input = editedArguments(this.#session.state.steps.get(call.path)) ?? call.input;
    return this.#calls.okWithoutBody(this.#tool(call), input, output);
  }

  #tool(call: LoopCall): AgentTool | undefined {
    const tool = this.#options.agent.loop.tool(call.name);
    return tool !== undefined && "agent" in tool ? (tool as AgentTool) : undefined;
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

  close(): void {
    for (const child of this.#followed.values()) child.unwatch();
  }

  /** One that was at rest has been heard of. */
  #moved(path: Path): void {
    if (this.resting.delete(path)) this.#session.wake();
  }
}

/** A child's log in the hands of its parent's driver. */
class Followed {
  readonly log: ChildLog;
  unwatch = (): void => {};
  /** What it was told to do because its parent is over. */
  told: "cancel" | "abandon" | undefined;
  isStale = true;
  #appended: (readonly Entry[])[] = [];
  #onNews: (() => void) | undefined;

  constructor(
    readonly uid: Uid,
    private readonly onMoved: () => void,
  ) {
    this.log = new ChildLog(uid);
  }

  readonly hear = (appended?: readonly Entry[]): void => {
    if (appended !== undefined) this.#appended.push(appended);
    this.wake();
    this.onMoved();
  };

  readonly wake = (): void => {
    this.isStale = true;
    this.#onNews?.();
  };

  /** Resolves when it was heard of since its entries were taken last. */
  async news(): Promise<void> {
    if (this.isStale) return;
    await new Promise<void>((resolve) => {
      this.#onNews = resolve;
    });
    this.#onNews = undefined;
  }

  /** What its log has got since. Read where this process was not told all of it. */
  async entries(store: DriverOptions["store"]): Promise<readonly Entry[]> {
    this.isStale = false;
    const told = this.#appended.flat();
    this.#appended = [];
    const next = this.log.head + 1;
    const behind = told.filter(({ seq }) => seq >= next);
    if (this.log.head >= 0 && told.length > 0 && behind.every(({ seq }, i) => seq === next + i)) return behind;
    const entries: Entry[] = [];
    for await (const entry of store.read(this.uid, this.log.head)) entries.push(entry);
    return entries;
  }
}

/** SUBAGENT_STARTED, in each leg in which it is heard of. */
function announced({ run, messages }: RunState, call: LoopCall, agent: Agent | undefined): NewEntry {
  const carrier = messages.findLast(
    (message) => message.role === "assistant" && message.toolCalls?.some(({ id }) => id === call.id),
  );
  return {
    ...{ kind: "frame", path: call.path },
    event: event("SUBAGENT_STARTED", {
      subagentRunId: childUid(run.uid, call.path),
      name: agent?.name ?? call.name,
      description: agent?.description,
      parentToolCallId: call.id,
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

function unreadable(uid: Uid): RecordedError {
  return { code: "SUBAGENT_UNREADABLE", message: `the log of run ${uid}, which was to do it, cannot be read` };
}
