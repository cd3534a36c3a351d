/** Starts steps. Each body runs beside the driver, which is woken when it has ended. */
import type { Path } from "../protocol/words.ts";
import { AgentCalls, childStep } from "./agent-calls.ts";
import { isAgentTool, type LoopCall } from "./agent-definition.ts";
import { Cancelled, TimeIsUp } from "./attempt-outcome.ts";
import { waitEntries } from "./call-entries.ts";
import { CallGate } from "./call-gate.ts";
import type { CallNotes } from "./call-notes.ts";
import { CallRunner } from "./call-runner.ts";
import { ChildRunner } from "./child-runner.ts";
import type { Start } from "./decide.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { Judge } from "./judge.ts";
import type { KeyWait } from "./keys.ts";
import { modelAttempt } from "./model-attempt.ts";
import { ownAttempt } from "./own-step.ts";
import { LeaseLostError } from "./run-log.ts";
import { firedBy } from "./signals.ts";

interface Live {
  readonly abort: AbortController;
  /** Whether a cancel ends it at once: what it does cannot be half done. */
  readonly isHarmless: boolean;
  /** Whether something of the user's may be at work. */
  hasBegun: boolean;
  /** Another run does it. */
  readonly isFollowing: boolean;
  done: Promise<void>;
}

export class StepRunner {
  /** Unknown writes whose `reconcile` was asked before they had settled. */
  readonly judged = new Set<Path>();
  /** Calls that were checked and need no approval. */
  readonly cleared = new Set<Path>();
  readonly agreed = new Set<Path>();
  readonly disagreed = new Set<Path>();
  /** Calls whose key somebody else had when this driver looked last. */
  readonly held = new Map<Path, KeyWait>();
  readonly children: ChildRunner;
  readonly #agents: AgentCalls;
  readonly #live = new Map<Path, Live>();
  readonly #options: DriverOptions;
  readonly #session: DriveSession;
  readonly #calls: CallRunner;
  readonly #gate: CallGate;
  readonly #judge: Judge;

  constructor(options: DriverOptions, session: DriveSession) {
    this.#options = options;
    this.#session = session;
    const notes: CallNotes = {
      begun: ({ path }) => {
        const live = this.#live.get(path);
        if (live !== undefined) live.hasBegun = true;
      },
      cleared: ({ path }) => void this.cleared.add(path),
      judged: ({ path }) => void this.judged.add(path),
      agreed: ({ path }) => void this.agreed.add(path),
      disagreed: ({ path }) => void this.disagreed.add(path),
      held: ({ path }, wait) => void this.held.set(path, wait),
    };
    this.#calls = new CallRunner(options, session, notes);
    this.#gate = new CallGate(options, session, notes, (call, how) => this.#calls.settle(call, how));
    this.#judge = new Judge(options, session, notes, this.#calls);
    this.#agents = new AgentCalls(options, session, this.#calls);
    this.children = new ChildRunner(options, session, this.#agents);
  }

  get live(): ReadonlySet<Path> {
    return new Set(this.#live.keys());
  }

  async start(start: Start): Promise<void> {
    switch (start.start) {
      case "model":
        return this.#run(start.path, true, modelAttempt(this.#options, this.#session, start));
      case "own":
        return this.#run(start.step.path, true, ownAttempt(this.#options, this.#session, start));
      case "check":
        return this.#runCall(start.call, (signal) => this.#gate.check(start.call, signal));
      case "attempt": {
        const { call } = start;
        const tool = this.#options.agent.loop.tool(call.name, call.path);
        if (!isAgentTool(tool)) {
          this.#runCall(call, (signal) => this.#calls.attempt(start, signal));
          const live = this.#live.get(call.path);
          if (live !== undefined) live.hasBegun = false;
          return;
        }
        const how = { tool, edited: "edited" in start ? start.edited : undefined, children: this.children };
        return this.#run(call.path, false, (signal) => this.#agents.begin(call, how, signal), true);
      }
      case "child":
        return this.#run(start.call.path, false, (signal) => this.children.follow(childStep(start.call), signal), true);
      case "agree":
        return this.#runCall(start.call, () => this.#gate.agree(start.call));
      case "judge":
        return this.#run(start.call.path, false, (signal) => this.#judge.judge(start.call, start, signal));
      case "leave":
        return this.#judge.leave(start.call);
      case "settle":
        await this.#calls.settle(start.call, start.how);
        return this.#lookForKeys(start.call.path);
      case "open": {
        const [started, question] = waitEntries(this.#session.state, start.call, this.#options.now());
        return this.#session.add([started, ...(question === undefined ? [] : this.#session.opening(question))]);
      }
      default:
        return start satisfies never;
    }
  }

  /** Whether all that runs here are other runs, which are followed. */
  get onlyFollows(): boolean {
    return this.#live.size > 0 && [...this.#live.values()].every(({ isFollowing }) => isFollowing);
  }

  /** Model calls, reads and idempotent calls stop now; a write goes on; children are told. */
  abortForCancel(): void {
    this.children.lookAgain();
    for (const { abort, isHarmless } of this.#live.values()) if (isHarmless) abort.abort(new Cancelled());
  }

  /** The same, when the time of the run's budget is up. A write that has not begun does not. */
  abortForBudget(): void {
    for (const { abort, isHarmless, hasBegun } of this.#live.values()) {
      if (isHarmless || !hasBegun) abort.abort(new TimeIsUp());
    }
  }

  /** Of these steps, those that a cancel would end; children are told. */
  abortLost(paths: Iterable<Path>): void {
    this.children.lose(paths);
    for (const path of paths) {
      const live = this.#live.get(path);
      if (live?.isHarmless) live.abort.abort(new Cancelled());
    }
  }

  /** Everything stops now. What does not heed its signal is left behind with {@link forget}. */
  abort(): void {
    for (const { abort } of this.#live.values()) abort.abort(new Cancelled());
  }

  /** Nobody waits for what still runs. */
  forget(): void {
    this.#live.clear();
  }

  async settled(): Promise<void> {
    await Promise.all([...this.#live.values()].map(({ done }) => done));
  }

  /** A step that has ended may have been what others of the run waited for. */
  #lookForKeys(path: Path): void {
    if (this.held.size === 0 || this.#session.signal.aborted) return;
    if (this.#session.state.steps.get(path)?.finished) this.held.clear();
  }

  #runCall(call: LoopCall, body: (signal: AbortSignal) => Promise<void>): void {
    this.#run(call.path, this.#options.agent.loop.tool(call.name, call.path)?.effect !== "write", body);
  }

  #run(path: Path, isHarmless: boolean, body: (signal: AbortSignal) => Promise<void>, isFollowing = false): void {
    const abort = new AbortController();
    const live: Live = { abort, isHarmless, isFollowing, hasBegun: true, done: Promise.resolve() };
    this.#live.set(path, live);
    const stop = firedBy(abort, this.#session.signal);
    live.done = body(stop.signal)
      .catch((error: unknown) => {
        if (error instanceof LeaseLostError) return;
        this.#options.report(error, this.#session.state.run.uid);
        // What the driver itself could not do is not the run's fault: whoever claims it next tries again.
        this.#session.lose(error);
      })
      .finally(() => {
        stop.release();
        this.#live.delete(path);
        this.#lookForKeys(path);
        this.#session.wake();
      });
  }
}
