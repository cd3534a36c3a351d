/**
 * The fold: what a log comes to. One pure function for driver, HTTP, CLI and browser; whoever wants to know something of a run asks it.
 * It owns what entries mean. It decides nothing, and it trusts nothing: an entry that cannot follow what was before is an error.
 *
 * F1. Incremental: `fold(b, fold(a))` is `fold([...a, ...b])`. A state that was handed out never changes.
 * F2. An entry costs the same however long the log is: maps are copied once between two looks at them, and only those that change;
 *     messages are reduced when they are asked for ({@link HeldMessages}).
 * F3. Committed state is what the first leg's request brought (`{}` if nothing), then the patches of `state`, `interrupt.opened` and
 *     `step.finished` (ok), each as it stands: nothing is rebased here. Where the runtime chose another start (the agent's initial, the
 *     thread's last), a `state` fact right behind `leg.started` says so.
 * F4. Shown state is what the STATE frames say, beginning with the first leg's request like the committed one. A reference STATE_SNAPSHOT
 *     shows the committed state at its place; published drafts travel as events.
 * F5. Messages are the reduction of the frames, nothing else: what a request brought is in its RUN_STARTED. Two exceptions: a client's
 *     result that came in while the leg was open has no frame, so it is taken from its `step.finished`; and `transcript` stands for frames
 *     that were pruned, whether or not some of them were read before they were.
 * F6. What a frame is derived from stands before it ({@link render}), and every frame is verified again. The verifier refuses what a driver adds before it is appended, and what a file holds before it is sent.
 * F7. A run goes on with its thread: folded onto the thread's earlier run, it begins with that one's messages and wire.
 * F8. A `step.attempt` runs until `step.failed`, `step.finished`, or the `interrupt.opened` of its suspension. What a frame shows belongs
 *     to the innermost attempt that runs at the frame's lane.
 */
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { HeldMessages } from "../protocol/held-messages.ts";
import type { Json } from "../protocol/json.ts";
import { apply, type Patch } from "../protocol/patch.ts";
import {
  isAnswered,
  rested,
  verify,
  type Wire,
  withClientTools,
  withHistory,
  withServerCall,
} from "../protocol/verify.ts";
import type { Path, Uid } from "../protocol/words.ts";
import { afterChild } from "./child-frames.ts";
import type { Entry, Fact, Frame, Interrupt } from "./entries.ts";
import { blank, Folded, type Scalars, scalarsOf } from "./folded.ts";
import { clientCall } from "./interrupts.ts";
import { LogError } from "./log-error.ts";
import { broughtBy, type RenderSource, render, threadIdOf } from "./render.ts";
import type { Announced, Attempt, Noted, Running, RunState, ShownChild, StepState } from "./run-state.ts";
import { afterShowing, newRunning } from "./running.ts";
import { SharedMap } from "./shared-map.ts";
import { afterEntry, afterRaise, amountsOf, readRaise } from "./spending.ts";
import { clientMessage, resultContent, resultId } from "./tool-result.ts";
import { restoreMessages } from "./transcript.ts";

export type { Noted, Running, RunState, StepState } from "./run-state.ts";

/** What a thread held before the run, where its earlier runs are not at hand. */
export interface History {
  readonly messages: readonly Message[];
}

/**
 * The run after `entries`.
 *
 * @param entries - from the first one, or those behind `from`
 * @param from - the run so far; at the first entry of a run, the thread before it
 * @throws {@link LogError}, `ProtocolError` or `PatchError` when an entry cannot follow what was before
 */
export function fold(entries: Iterable<Entry>, from?: RunState | History): RunState {
  const folding = new Folding(from);
  for (const entry of entries) folding.add(entry);
  return folding.state;
}

/** What a reader is sent. */
export interface Rendered {
  readonly seq: number;
  readonly event: AGUIEvent;
}

/** The events that `entries` show, in order; in the end, the run after them. */
export function* rendered(entries: Iterable<Entry>, from?: RunState | History): Generator<Rendered, RunState> {
  const folding = new Folding(from);
  for (const entry of entries) {
    const event = folding.add(entry);
    if (event !== undefined) yield { seq: entry.seq, event };
  }
  return folding.state;
}

/** A fold in progress, for those who take entries as they come. */
export class Folding {
  #now: Scalars;
  readonly #steps: SharedMap<Path, StepState>;
  readonly #running: SharedMap<Path, Running>;
  readonly #interrupts: SharedMap<string, Interrupt>;
  readonly #answers: SharedMap<string, Noted<"interrupt.answered">>;
  readonly #subagents: SharedMap<string, Announced>;
  readonly #children: SharedMap<Uid, ShownChild>;
  #state: RunState | undefined;

  constructor(from?: RunState | History) {
    const state = from !== undefined && "run" in from ? from : undefined;
    this.#state = state;
    this.#now = state === undefined ? blank(from?.messages ?? []) : scalarsOf(state);
    this.#steps = new SharedMap(state?.steps);
    this.#running = new SharedMap(state?.running);
    this.#interrupts = new SharedMap(state?.interrupts);
    this.#answers = new SharedMap(state?.answers);
    this.#subagents = new SharedMap(state?.subagents);
    this.#children = new SharedMap(state?.children);
  }

  /** The last seq; -1 while the log has no entry. */
  get head(): number {
    return this.#now.head;
  }

  get wire(): Wire {
    return this.#now.wire;
  }

  /** @throws {@link LogError} while the log has no entry */
  get state(): RunState {
    this.#state ??= new Folded(this.#now, {
      steps: this.#steps.look(),
      running: this.#running.look(),
      interrupts: this.#interrupts.look(),
      answers: this.#answers.look(),
      subagents: this.#subagents.look(),
      children: this.#children.look(),
    });
    return this.#state;
  }

  /**
   * Takes the next entry. After it has thrown, the folding is of no more use; states handed out before stay good.
   *
   * @returns the event, if the entry is a frame
   */
  add(entry: Entry): AGUIEvent | undefined {
    this.#state = undefined;
    if (entry.kind === "run.started") this.#begin(entry);
    const { run, head } = this.#now;
    if (run === undefined) throw new LogError(null, describe(entry), "a log begins with run.started");
    // Gaps are legal: frames may have been pruned.
    if (entry.seq <= head) throw new LogError(run.uid, describe(entry), `entry ${head} came before it`);
    this.#now.head = entry.seq;
    if (entry.kind === "frame") return "past" in entry ? undefined : this.#show(entry, run);
    this.#note(entry, run);
    const spending = afterEntry(
      this.#now.spending,
      entry,
      this.#running,
      (path) => this.#steps.get(path)?.started.step === "child",
    );
    if (spending !== this.#now.spending) this.#set({ spending });
    return undefined;
  }

  /** A run begins: of the thread's earlier one only what clients hold stays (F7). A fork shows all of it anew, in a thread of its own. */
  #begin(run: Noted<"run.started">): void {
    const { run: earlier, held, wire, committed, shown } = run.forkedFrom === undefined ? this.#now : blank([]);
    const threadId = threadIdOf(run);
    if (earlier !== undefined && threadIdOf(earlier) !== threadId) {
      throw new LogError(run.uid, "run.started", `it is thread "${threadId}"'s, not "${threadIdOf(earlier)}"'s`);
    }
    this.#now = { ...blank([]), run, before: held, held, wire, committed, shown };
    const maps = [this.#steps, this.#running, this.#interrupts, this.#answers, this.#subagents, this.#children];
    for (const map of maps) map.clear();
  }

  #note(entry: Exclude<Entry, { kind: "frame" }>, run: Noted<"run.started">): void {
    const now = this.#now;
    switch (entry.kind) {
      case "run.started":
        return;
      case "leg.started": {
        const { request } = entry;
        if (now.leg !== null) throw new LogError(run.uid, describe(entry), `leg ${now.leg.leg} is open`);
        const start = now.legs === 0 && { committed: request?.state ?? {}, shown: request?.state ?? {} };
        this.#set({ leg: entry, legs: now.legs + 1, parked: null, ...start });
        if (request === null) return;
        const tools = request.tools.map(({ name }) => name);
        const brought = [...now.brought, ...broughtBy(request)];
        this.#set({ request, brought, wire: withClientTools(now.wire, tools) });
        return;
      }
      case "leg.finished":
        if (now.leg?.leg !== entry.leg) throw new LogError(run.uid, describe(entry), `leg ${entry.leg} is not open`);
        this.#set({ leg: null, lastLeg: { started: now.leg, finished: entry, ...this.#resultOf(entry, run) } });
        return;
      case "step.started": {
        const isKnown = this.#steps.get(entry.path) !== undefined;
        if (isKnown) throw new LogError(run.uid, describe(entry), `step ${entry.path} has started already`);
        const call = entry.step === "client-tool" ? clientCall(entry) : undefined;
        if (call !== undefined) this.#interrupts.set(call.id, call);
        else if (entry.toolCallId !== undefined) {
          this.#set({ wire: withServerCall(now.wire, entry.toolCallId) });
        }
        this.#steps.set(entry.path, { started: entry, waits: call?.id ?? null, attempts: [], asked: [] });
        return;
      }
      case "step.attempt": {
        const step = this.#step(entry);
        this.#steps.set(entry.path, { ...step, waits: null, attempts: [...step.attempts, entry] });
        this.#running.set(entry.path, newRunning(entry));
        return;
      }
      case "step.waiting":
        this.#steps.set(entry.path, { ...this.#step(entry), waiting: entry });
        return;
      case "step.failed": {
        const step = this.#step(entry);
        if (this.#running.get(entry.path)?.attempt.n !== entry.n) {
          throw new LogError(run.uid, describe(entry), `attempt ${entry.n} is not running`);
        }
        this.#running.delete(entry.path);
        this.#steps.set(entry.path, { ...step, attempts: ended(step.attempts, { failed: entry }) });
        return;
      }
      case "step.finished":
        this.#finish(entry, run);
        return;
      case "state":
        this.#commit(entry.patch);
        return;
      case "memo":
        this.#set({ memos: { ...now.memos, [entry.transformer]: entry.value } });
        return;
      case "interrupt.opened":
        this.#open(entry);
        return;
      case "interrupt.answered":
        this.#answer(entry);
        return;
      case "inbox.taken":
        if (entry.item === "cancel") this.#set({ cancelled: true });
        if (entry.item === "abandon") this.#set({ cancelled: true, abandoned: true });
        if (entry.item === "raise")
          this.#set({ spending: afterRaise(now.spending, amountsOf(entry.payload), entry.seq) });
        return;
      case "run.parked":
        this.#set({ parked: entry.why });
        return;
      case "run.resumed":
        this.#set({ parked: null });
        return;
      case "transcript":
        this.#restore(entry, run);
        return;
      case "run.finished":
        this.#set({ finished: entry });
        return;
      default:
        entry satisfies never;
    }
  }

  #resultOf({ outcome }: Noted<"leg.finished">, run: Noted<"run.started">): { readonly result?: Json } {
    if (outcome.type !== "success") return {};
    const { result, resultOf } = outcome;
    if (resultOf === undefined) return result === undefined ? {} : { result };
    const finished = this.#steps.get(resultOf)?.finished;
    if (finished?.status !== "ok") throw new LogError(run.uid, "leg.finished", `step ${resultOf} has no output`);
    return { result: finished.output };
  }

  #finish(entry: Noted<"step.finished">, run: Noted<"run.started">): void {
    const step = { ...this.#step(entry), waits: null, finished: entry };
    const { path, step: kind, toolCallId } = step.started;
    this.#running.delete(path);
    this.#steps.set(path, step);
    if (entry.status === "ok") this.#commit(entry.patch);
    if (kind !== "client-tool" || toolCallId === undefined) return;

    this.#interrupts.delete(toolCallId);
    const { wire, held } = this.#now;
    // Else its leg's RUN_STARTED has brought it, under the client's own id (F5).
    if (entry.via !== "client" || isAnswered(wire, toolCallId)) return;
    const result: Message = clientMessage(step) ?? {
      ...{ id: resultId(run.uid, step), role: "tool", toolCallId },
      content: resultContent(step, entry),
    };
    this.#set({ held: HeldMessages.of([...held.messages, result]), wire: withHistory(wire, [result]) });
  }

  #restore(entry: Fact<"transcript">, run: Noted<"run.started">): void {
    const { before, brought, committed, lastLeg, wire } = this.#now;
    const messages = restoreMessages(entry, { run, before: before.messages, brought, steps: this.#steps });
    const hasFailed = lastLeg?.finished.outcome.type === "error";
    this.#subagents.clear();
    this.#children.clear();
    this.#set({
      held: HeldMessages.of(messages),
      shown: entry.shown ?? committed,
      wire: rested(wire, { threadId: threadIdOf(run), messages, hasFailed }),
    });
  }

  #open({ interrupt, patch = [] }: Fact<"interrupt.opened">): void {
    const { id, path, kind } = interrupt;
    this.#interrupts.set(id, interrupt);
    this.#commit(patch);
    const { spending } = this.#now;
    if (kind === "budget") this.#set({ spending: { ...spending, asked: spending.asked + 1 } });
    const step = this.#steps.get(path);
    // A budget's question, and an operator's, may belong to no step.
    if (step === undefined) return;
    const suspends = kind === "suspension" && this.#running.get(path) !== undefined;
    this.#steps.set(path, {
      ...step,
      waits: id,
      asked: [...step.asked, { interrupt, attempts: step.attempts.length, answer: null }],
      attempts: suspends ? ended(step.attempts, { suspended: id }) : step.attempts,
    });
    // What it has shown stays: its state is committed with the question.
    if (suspends) this.#running.delete(path);
  }

  #answer(entry: Noted<"interrupt.answered">): void {
    const interrupt = this.#interrupts.get(entry.id);
    if (interrupt === undefined) {
      throw new LogError(
        this.#now.run?.uid ?? null,
        `interrupt.answered for "${entry.id}"`,
        "no such question is open",
      );
    }
    this.#interrupts.delete(entry.id);
    this.#answers.set(entry.id, entry);
    if (interrupt.kind === "budget" && entry.status !== "withdrawn") this.#settleBudget(interrupt, entry);
    const step = this.#steps.get(interrupt.path);
    if (step === undefined) return;
    this.#steps.set(interrupt.path, {
      ...step,
      waits: step.waits === entry.id ? null : step.waits,
      asked: step.asked.map((asked) => (asked.interrupt.id === entry.id ? { ...asked, answer: entry } : asked)),
    });
  }

  /** More is granted, or nothing is started any more. */
  #settleBudget(interrupt: Interrupt, entry: Noted<"interrupt.answered">): void {
    const { spending } = this.#now;
    const raise = readRaise(entry);
    if (raise === undefined) this.#set({ cancelled: true, spending: { ...spending, stop: interrupt } });
    else this.#set({ spending: afterRaise(spending, raise, entry.seq) });
  }

  #show(frame: Frame, run: Noted<"run.started">): AGUIEvent {
    const now = this.#now;
    const { shown, held, wire } = now;
    const event = "event" in frame ? frame.event : render(this.#source(run), frame);
    const verified = verify(wire, event, frame.path);
    const owner = this.#owner(frame.path);
    if (owner !== undefined) {
      const after = afterShowing(owner, event, wire, held);
      if (after !== owner) this.#running.set(after.attempt.path, after);
    }
    const call = begunCall(event);
    now.wire = call !== undefined && this.#isServed(frame, owner) ? withServerCall(verified, call) : verified;
    now.held = held.after(event);
    if ("ref" in frame && frame.ref.of === "CHILD") {
      this.#children.set(frame.ref.uid, afterChild(this.#children.get(frame.ref.uid), frame.ref.to, event));
    }
    if (event.type === "STATE_SNAPSHOT") now.shown = event.snapshot;
    else if (event.type === "STATE_DELTA") now.shown = apply(shown, event.delta);
    else this.#announce(event);
    return event;
  }

  /** What a child calls, or a body, is not for the client, which they know nothing of. */
  #isServed(frame: Frame, owner: Running | undefined): boolean {
    if ("ref" in frame && frame.ref.of === "CHILD") return true;
    return owner !== undefined && this.#steps.get(owner.attempt.path)?.started.step !== "model";
  }

  #announce(event: AGUIEvent): void {
    switch (event.type) {
      case "RUN_STARTED":
        this.#subagents.clear();
        return;
      case "SUBAGENT_STARTED":
        this.#subagents.set(event.subagentRunId, { started: event, ended: null });
        return;
      case "SUBAGENT_FINISHED":
      case "SUBAGENT_ERROR": {
        const announced = this.#subagents.get(event.subagentRunId);
        if (announced !== undefined) this.#subagents.set(event.subagentRunId, { ...announced, ended: event });
        return;
      }
      default:
    }
  }

  #source(run: Noted<"run.started">): RenderSource {
    const { leg, lastLeg, committed, held } = this.#now;
    const [steps, running, subagents] = [this.#steps, this.#running, this.#subagents];
    return { run, leg, lastLeg, committed, steps, running, subagents, held };
  }

  /** The innermost attempt that runs at a lane (F8). */
  #owner(lane: Path): Running | undefined {
    for (let path: string = lane; this.#running.size > 0; path = path.slice(0, Math.max(0, path.lastIndexOf(".")))) {
      const running = this.#running.get(path as Path);
      if (running !== undefined || path === "") return running;
    }
    return undefined;
  }

  #step(entry: Fact & { readonly path: Path }): StepState {
    const step = this.#steps.get(entry.path);
    const uid = this.#now.run?.uid ?? null;
    if (step === undefined) throw new LogError(uid, `${entry.kind} of step ${entry.path}`, "there is no such step");
    if (step.finished) throw new LogError(uid, `${entry.kind} of step ${entry.path}`, "the step has finished already");
    return step;
  }

  #commit(patch: Patch): void {
    if (patch.length > 0) this.#set({ committed: apply(this.#now.committed, patch) });
  }

  #set(change: Partial<Scalars>): void {
    Object.assign(this.#now, change);
  }
}

function begunCall(event: AGUIEvent): string | undefined {
  return event.type === "TOOL_CALL_START" || event.type === "TOOL_CALL_CHUNK" ? event.toolCallId : undefined;
}

/** The attempts with what became of the last one. */
function ended(attempts: readonly Attempt[], how: Pick<Attempt, "failed" | "suspended">): readonly Attempt[] {
  return attempts.map((attempt, i) => (i === attempts.length - 1 ? { ...attempt, ...how } : attempt));
}

function describe(entry: Entry): string {
  return `entry ${entry.seq} (${entry.kind})`;
}
