/**
 * Drives one run while its lease holds: fold, decide, act, append, until the run parks or ends.
 *
 * V1. Append, then act: an attempt is durable before its body runs. A result is one batch with what it shows.
 * V2. A body's outcome is appended only while the step has no other one.
 * V3. What ends the run's time here (parking, finishing) is offered to the store, which refuses it while something has come in.
 * V4. When the lease is lost every signal fires and nothing is appended any more; the next driver goes on from the log.
 */
import { CANCELLED } from "../emit/errors.ts";
import type { Fact, FrameRef, LegOutcome, NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { resolveInput } from "../log/model-output.ts";
import { retractAll } from "../log/retract.ts";
import { editedArguments } from "../log/tool-result.ts";
import { PayloadTooLargeError } from "../protocol/payload.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { ClaimChange, Inbox, KeyName } from "../store/store.ts";
import type { BodyAgent, Loop } from "./agent-definition.ts";
import { CUT, GIVEN_UP, LOST } from "./attempt-outcome.ts";
import { type BodyEnd, bodyEnd, cancelledEnd, failedEnd } from "./body-ending.ts";
import { BodyLoop } from "./body-loop.ts";
import { type Decision, decide, isChild, SHORT_WAIT, type Start } from "./decide.ts";
import { DriveSession } from "./drive-session.ts";
import { type Driven, untilDriven } from "./driven.ts";
import type { DriverOptions } from "./driver-options.ts";
import { intake, openClientCalls } from "./intake.ts";
import { ABANDONED, readDid } from "./interrupts.ts";
import { claimChange } from "./keys.ts";
import { StepRunner } from "./step-runner.ts";
import { isSuspect, poisonedQuestion } from "./suspects.ts";
import { toolsOfCalls } from "./tools-of-calls.ts";

/** How long after a write's attempt has ended something may still land, unless its tool says so. Milliseconds. */
const USUAL_SETTLE = 10_000;

/** Drives a run until it parks, ends, or is lost. Never throws. */
export function drive({ agent, ...rest }: DriverOptions): Promise<Driven> {
  const options = { ...rest, agent: { ...agent, loop: agent.loop.forDriver?.() ?? agent.loop } };
  return untilDriven(new Driver(options), options);
}

/** The same for an agent whose loop is code of the user's. */
export function driveBody(options: DriverOptions<BodyAgent>): Promise<Driven> {
  const session = new DriveSession(options);
  const loop = new BodyLoop(options, session);
  const agent = { ...options.agent, run: undefined, loop };
  return untilDriven(new Driver({ ...options, agent }, session, loop), options);
}

class Driver {
  readonly #options: DriverOptions;
  readonly #session: DriveSession;
  readonly #steps: StepRunner;
  readonly #unwatch: () => void;
  readonly #unwatchWrites: () => void;
  #isResumed = false;
  readonly #body: BodyLoop | undefined;

  constructor(options: DriverOptions, session = new DriveSession(options), body?: BodyLoop) {
    this.#options = options;
    this.#session = session;
    this.#body = body;
    this.#steps = new StepRunner(options, this.#session);
    this.#unwatch = options.store.watch({ inbox: options.lease.uid }, this.#session.mailed);
    this.#unwatchWrites = options.writes.watch(options.lease.uid, this.#session.wake);
    options.stop.addEventListener("abort", this.#session.wake);
    options.giveUp.addEventListener("abort", this.#session.wake);
  }

  async run(): Promise<Driven> {
    const { agent, now, stop } = this.#options;
    await toolsOfCalls(this.#options, this.#session);
    for (;;) {
      if (stop.aborted && !this.#mayEnd()) return await this.#release();
      const inbox = await this.#session.mail();
      // What is started now ends at once, before anybody waits for it: nobody else would notice, and the loop would not let go of its process.
      this.#session.signal.throwIfAborted();
      if (this.#body !== undefined && !(await this.#attend(this.#body, inbox))) continue;
      const decision = decide(this.#session.state, agent.loop, {
        at: now(),
        inbox,
        before: this.#options.before,
        live: this.#steps.live,
        cleared: this.#steps.cleared,
        judged: this.#steps.judged,
        agreed: this.#steps.agreed,
        disagreed: this.#steps.disagreed,
        held: this.#steps.held,
        resting: this.#steps.children.resting,
        leftBehind: this.#options.writes.of(this.#options.lease.uid),
      });
      // Code that is to end may, but it begins nothing.
      if (stop.aborted && decision.do === "start") await this.#session.awaken(Number.POSITIVE_INFINITY);
      else {
        const ended = await this.#act(decision);
        if (ended !== undefined) return ended;
      }
    }
  }

  close(): void {
    this.#options.suspects.leave(this.#options.lease.uid);
    this.#unwatch();
    this.#unwatchWrites();
    this.#steps.children.close();
    this.#options.stop.removeEventListener("abort", this.#session.wake);
    this.#options.giveUp.removeEventListener("abort", this.#session.wake);
    this.#body?.leave();
    this.#session.close();
  }

  /** The process stops, and code of a custom loop is about to come to an end, or to where it can be left. */
  #mayEnd(): boolean {
    return !this.#options.giveUp.aborted && (this.#body?.isBusy ?? false);
  }

  /** Lets the code of a custom loop go on. @returns whether it has come as far as it can */
  async #attend(body: BodyLoop, inbox: readonly Inbox[]): Promise<boolean> {
    const session = this.#session;
    if (body.isDue) {
      // What it is given has to be there when it begins.
      if (inbox.length > 0) {
        await this.#take(inbox);
        return false;
      }
      await body.enter();
    }
    body.attend();
    this.#steps.abortLost(body.lost);
    const open = [...session.state.interrupts.values()].filter(({ kind }) => kind === "diverged");
    const { question } = body;
    if (question === undefined ? !body.isCaughtUp : open.some(({ message }) => message === question.message))
      return true;
    if (open.length > 0)
      await this.#closeQuestions(
        open.map(({ id }) => id),
        "withdrawn",
      );
    if (question !== undefined) session.add(session.opening(question));
    return true;
  }

  async #endBody(body: BodyLoop): Promise<Driven | undefined> {
    const end = body.end();
    if (end === undefined) return undefined;
    const { report, lease } = this.#options;
    // Code that was run again may believe that something is closed which is not: that must not keep the run from its end.
    this.#session.closeOpen({ type: "whole" });
    try {
      return await this.#offerEnd(bodyEnd(this.#session, end.terminal, end.asked));
    } catch (error) {
      if (!(error instanceof PayloadTooLargeError)) throw error;
      // What the code returned, or asked, is more than the log takes.
      report(error, lease.uid);
      return await this.#offerEnd(failedEnd(this.#session, error));
    }
  }

  /** Its code rests, or was left: what it has asked and begun is taken back with it. @param error - of a run that was stopped */
  async #endCancelled(error?: RecordedError): Promise<Driven | undefined> {
    this.#session.closeOpen({ type: "cut", error: error ?? CANCELLED });
    return await this.#offerEnd(error === undefined ? cancelledEnd(this.#session) : failedEnd(this.#session, error));
  }

  async #offerEnd({ is, entries, wakeAt }: BodyEnd): Promise<Driven | undefined> {
    const ends = { runnable: false, wakeAt, waitsForKey: null };
    return (await this.#session.offer(entries, { ends })) ? is : undefined;
  }

  async #act(decision: Decision): Promise<Driven | undefined> {
    switch (decision.do) {
      case "recover":
        this.#recover(decision.cut);
        return undefined;
      case "take":
        await this.#take(decision.items);
        return undefined;
      case "note":
        return (await this.#note(decision.items)) ? "finished" : undefined;
      case "expire":
        await this.#closeQuestions(decision.interrupts, "expired");
        return undefined;
      case "withdraw":
        await this.#closeQuestions(decision.interrupts, "withdrawn");
        return undefined;
      case "cut":
        await this.#cut();
        return undefined;
      case "ask":
        await this.#session.offer(() => [
          ...(this.#session.state.leg === null ? intake(this.#session.state, []) : []),
          ...this.#session.opening(decision.question),
        ]);
        return undefined;
      case "poison":
        this.#poison(decision.paths);
        return undefined;
      case "start":
        await this.#start(decision.starts);
        return undefined;
      case "wait":
        return await this.#wait(decision);
      case "end-leg":
        return (await this.#endLeg(decision)) ? "parked" : undefined;
      case "finish":
        if (this.#body !== undefined) return await this.#endCancelled(decision.error);
        return (await this.#finish(decision)) ? "finished" : undefined;
      case "end-body":
        return this.#body && (await this.#endBody(this.#body));
      case "park":
        return (await this.#park([], null)) ? "parked" : undefined;
      default:
        return decision satisfies never;
    }
  }

  /** At rest there is no leg to show it in: one without a request begins. */
  async #closeQuestions(ids: readonly string[], status: "expired" | "withdrawn"): Promise<void> {
    await this.#session.offer(() => [
      ...intake(this.#session.state, []),
      ...ids.flatMap((id) => this.#session.closing(id, { status, by: "" })),
    ]);
  }

  async #start(starts: readonly Start[]): Promise<void> {
    const { suspects, lease } = this.#options;
    const { state, wake } = this.#session;
    const suspected = isSuspect(state);
    if (!suspected) suspects.leave(lease.uid);
    const isFree = !suspected || suspects.take(lease.uid, wake);
    // What only writes down is nobody's risk.
    const may = isFree
      ? starts
      : starts.filter(({ start }) => start === "settle" || start === "leave" || start === "child");
    // Answered at rest, without a request: what is begun needs a leg.
    if (this.#body !== undefined && may.length > 0 && state.leg === null) this.#session.add(intake(state, []));
    // In the log before anything else is: what others may use depends on what these reserve.
    await Promise.all(may.flatMap((start) => (start.start === "model" ? [this.#steps.start(start)] : [])));
    for (const start of may) if (start.start !== "model") await this.#steps.start(start);
    if (may.length > 0) return;
    const expiries = [...state.interrupts.values()].flatMap(({ expiresAt }) => expiresAt ?? []);
    await this.#session.awaken(Math.min(...expiries) - this.#options.now());
  }

  #poison(paths: readonly Path[]): void {
    const { state } = this.#session;
    for (const path of paths) {
      const step = state.steps.get(path);
      if (step !== undefined) this.#session.add(this.#session.opening(poisonedQuestion(state, step)));
    }
  }

  /** The run is given up: what heeds its signal ends by itself, what does not is cut and left behind. */
  async #cut(): Promise<void> {
    const session = this.#session;
    this.#steps.abort();
    // Behind whatever a body has just offered.
    await session.offer([]);
    const { state } = session;
    const cut = [...state.running.values()].filter(({ attempt: { path } }) => !isChild(state.steps.get(path)));
    const cuts = cut.map(({ attempt: { path, n } }): Fact<"step.failed"> => {
      session.drafts.drop(path);
      return {
        kind: "step.failed",
        path,
        n,
        error: GIVEN_UP,
        applied: isEffect(state, path) ? "unknown" : "no",
        retryAt: null,
      };
    });
    if (cuts.length > 0) session.add(retractAll(state, cuts));
    this.#steps.forget();
  }

  /** Attempts that died with their process are failures now, and off the screen. */
  #recover(cut: readonly { readonly path: Path; readonly n: number }[]): void {
    const { now, isOwnerDead, lease, agent, lostHere } = this.#options;
    const session = this.#session;
    const cuts = cut.flatMap(({ path, n }): Fact<"step.failed">[] => {
      const step = session.state.steps.get(path);
      const attempt = step?.attempts.at(-1);
      if (step === undefined || attempt === undefined) return [];
      const { effect, name } = step.started;
      const mayHaveActed = isEffect(session.state, path);
      // Nothing of a dead process can land any more; of one that only lost its lease, until the deadline of what it does.
      const from = isOwnerDead ? now() : Math.max(now(), attempt.deadline ?? now());
      // A tool that the code has not come to yet may have any.
      const unknown = this.#body === undefined ? 0 : USUAL_SETTLE;
      const settle = effect === "write" ? (agent.loop.tool(name, path)?.policy.settle ?? unknown) : 0;
      return [
        {
          kind: "step.failed",
          path,
          n,
          error: lostHere.has(attempt.epoch) ? LOST : CUT,
          applied: mayHaveActed ? "unknown" : "no",
          retryAt: mayHaveActed ? from + settle : now(),
        },
      ];
    });
    const resumed: NewEntry = { kind: "run.resumed", why: "recovered", epoch: lease.epoch };
    session.add([...(this.#isResumed ? [] : [resumed]), ...retractAll(session.state, cuts)]);
    this.#isResumed = true;
  }

  /** What came in becomes entries, all of it in one batch. */
  async #take(items: readonly Inbox[]): Promise<void> {
    const session = this.#session;
    if (this.#steps.live.size === 0 && this.#body === undefined) {
      // What is begun because of it is in the same batch.
      session.take(intake(session.state, items), items);
      return;
    }
    // Behind what is about to begin; and code of a custom loop reads it in the log.
    const appended = await session.offer(() => intake(session.state, items), { taken: items.map(({ row }) => row) });
    if (appended && session.state.cancelled) this.#steps.abortForCancel();
  }

  /** The one kind of entry that may follow `run.finished`: the answer to a question that the run left open. */
  async #note(items: readonly Inbox[]): Promise<boolean> {
    const { state } = this.#session;
    const { loop } = this.#options.agent;
    const answers = items.flatMap((item) =>
      item.kind === "answer" && state.interrupts.has(item.interrupt) ? [item] : [],
    );
    const claims: ClaimChange[] = [];
    for (const answer of answers) {
      const claim = lateClaim(state, loop, answer);
      // Another run may have inherited the question by now; the answer is written down all the same.
      const is = claim === undefined ? null : await this.#options.store.claimOf(claim);
      const isOwn = is?.holder.uid === state.run.uid && is.holder.path === claim?.holder.path;
      if (claim !== undefined && isOwn && is.state !== "settled" && is.state !== "released") claims.push(claim);
    }
    return await this.#session.offer(
      answers.map(({ interrupt: id, status, payload, by }) => ({
        ...{ kind: "interrupt.answered", id, status, by },
        ...(payload !== undefined && { payload }),
      })),
      {
        claims,
        taken: items.map(({ row }) => row),
        ends: { runnable: false, wakeAt: null, waitsForKey: null },
      },
    );
  }

  async #wait({ bodies, until, key, isTimeUp }: Extract<Decision, { do: "wait" }>): Promise<Driven | undefined> {
    const { now } = this.#options;
    if (isTimeUp) this.#steps.abortForBudget();
    const left = until === null ? Number.POSITIVE_INFINITY : until - now();
    // Only a run that rests is woken by a key.
    if (bodies || (key === null && left <= SHORT_WAIT)) {
      // A child may be a suspect too, and wait for its turn.
      if (this.#steps.onlyFollows) this.#options.suspects.leave(this.#options.lease.uid);
      await this.#session.awaken(left);
      return undefined;
    }
    const parked: NewEntry = { kind: "run.parked", why: key === null ? "timer" : "key" };
    return (await this.#park([parked], until, key)) ? "parked" : undefined;
  }

  async #endLeg({ outcome, until }: Extract<Decision, { do: "end-leg" }>): Promise<boolean> {
    const { state } = this.#session;
    const leg = state.leg?.leg ?? 0;
    const isInterrupt = outcome.type === "interrupt";
    const isError = outcome.type === "error";
    // In one batch with the leg's end, or what has come in meanwhile would find everything closed and the leg open.
    const bridges = this.#session.bridges({ type: "suspended", interrupts: isInterrupt ? outcome.interrupts : [] });
    // AG-UI 1.0, interrupts: both snapshots precede an interrupting end.
    const snapshots: NewEntry[] = isInterrupt
      ? [frame({ of: "STATE_SNAPSHOT" }), frame({ of: "MESSAGES_SNAPSHOT" })]
      : [];
    return await this.#park(
      [
        ...bridges,
        ...snapshots,
        { kind: "leg.finished", leg, outcome, usage: this.#session.legUsage() },
        frame({ of: isError ? "RUN_ERROR" : "RUN_FINISHED", leg }),
        { kind: "run.parked", why: isError ? "operator" : isInterrupt ? "interrupt" : "client-tool" },
      ],
      until,
    );
  }

  async #park(
    entries: readonly NewEntry[],
    wakeAt: number | null,
    waitsForKey: KeyName | null = null,
  ): Promise<boolean> {
    const expiries = [...this.#session.state.interrupts.values()].flatMap(({ expiresAt }) => expiresAt ?? []);
    const wake = [...expiries, ...(wakeAt === null ? [] : [wakeAt])];
    const children = this.#steps.children.unfinished();
    const rests = await this.#session.offer(entries, {
      ends: { runnable: false, wakeAt: wake.length === 0 ? null : Math.min(...wake), waitsForKey, children },
    });
    if (!rests) this.#steps.children.lookAgain();
    return rests;
  }

  async #finish({ outcome, outputOf, error }: Extract<Decision, { do: "finish" }>): Promise<boolean> {
    const { state } = this.#session;
    const leg = state.leg?.leg ?? 0;
    const unresolved = [...state.interrupts.values()]
      .filter(({ kind }) => kind === "unknown-write")
      .map(({ path }) => path);
    const isError = outcome === "failed" || outcome === "abandoned";
    const given = outcome === "abandoned" ? ABANDONED : error;
    const failure = given ?? { code: "INTERNAL", message: "The agent failed (INTERNAL)." };
    const ending: LegOutcome = isError
      ? { type: "error", error: failure }
      : outcome === "cancelled"
        ? { type: "cancelled" }
        : {
            type: "success",
            ...(isResult(state, outputOf) && { resultOf: outputOf }),
            pendingToolCallIds: openClientCalls(state).map(({ toolCallId }) => toolCallId),
          };
    const cut = outcome === "cancelled" ? CANCELLED : failure;
    this.#session.closeOpen(outcome === "success" ? { type: "whole" } : { type: "cut", error: cut });
    return await this.#session.offer(
      [
        { kind: "leg.finished", leg, outcome: ending, usage: this.#session.legUsage() },
        frame({ of: isError ? "RUN_ERROR" : "RUN_FINISHED", leg }),
        {
          kind: "run.finished",
          outcome,
          unresolved,
          ...(outputOf !== undefined && { outputOf }),
          ...(error !== undefined && { error }),
        },
      ],
      { ends: { runnable: false, wakeAt: null, waitsForKey: null } },
    );
  }

  /** This process stops: what runs may end, then the run is anybody's. What takes too long is cut, as by a crash. */
  async #release(): Promise<Driven> {
    const { giveUp } = this.#options;
    const gaveUp = new Promise<void>((resolve) => giveUp.addEventListener("abort", () => resolve(), { once: true }));
    await Promise.race([this.#steps.settled(), gaveUp]);
    if (giveUp.aborted) {
      this.#session.lose();
      return "lost";
    }
    await this.#session.offer([], { ends: { runnable: true, wakeAt: null, waitsForKey: null } });
    return "released";
  }
}

/** Whether the run's output is more than the text that clients have been shown. */
function isResult({ steps }: RunState, outputOf: Path | undefined): outputOf is Path {
  return outputOf !== undefined && steps.get(outputOf)?.started.step !== "model";
}

function isEffect({ steps }: RunState, path: Path): boolean {
  const started = steps.get(path)?.started;
  return (started?.step === "tool" || started?.step === "custom") && started.effect !== "read";
}

function frame(ref: FrameRef): NewEntry {
  return { kind: "frame", path: "" as Path, ref };
}

/** What a late answer says of the business key of a write of which nobody knew. */
function lateClaim(run: RunState, loop: Loop, answer: Extract<Inbox, { kind: "answer" }>): ClaimChange | undefined {
  const path = run.interrupts.get(answer.interrupt)?.path;
  const step = path === undefined ? undefined : run.steps.get(path);
  const tool = step === undefined ? undefined : loop.tool(step.started.name, path);
  const did = readDid(answer.status === "resolved" ? answer.payload : undefined);
  if (path === undefined || step === undefined || tool === undefined || did.did === "unknown") return undefined;
  const input = editedArguments(step) ?? resolveInput(run, step.started.input);
  return did.did === "yes"
    ? claimChange(run, { path }, tool, input, "settled", did.output)
    : claimChange(run, { path }, tool, input, "released");
}
