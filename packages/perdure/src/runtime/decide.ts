/**
 * What a run needs next, as one pure function of its log, its inbox and what runs at the moment. The driver does what it says and asks again.
 *
 * The order: recover what died, take what came in, open a leg when there is something to show, start what is ready, wait for what runs, and
 * only then end the leg or the run.
 *
 * D1. A finished step is never started.
 * D2. Effects of one turn run one at a time, in call order among those that are ready. One that waits for a human lets others pass; one that
 *     is unknown, or waits for another run's key, does not, for the next might rest on it.
 * D3. "Not applied" counts only when nothing of the attempt can land any more (`retryAt` of its failure).
 * D4. After a cancel nothing is started. After an abandon nothing is waited for either.
 * D5. What an earlier driver began goes on only when this one's tools agree with it.
 * D6. What does not fit into the budget is not started (`budget.ts`); at the end of its time what can be stopped is.
 */
import type { Fact, Interrupt, LegOutcome } from "../log/entries.ts";
import type { RunState, StepState } from "../log/fold.ts";
import { isListed, isOperators, wireInterrupt } from "../log/interrupts.ts";
import type { Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Inbox, KeyName } from "../store/store.ts";
import { isAgentTool, type Loop, type LoopCall, type Next, type OwnStep } from "./agent-definition.ts";
import { type SideBySide, sideBySide, turnOf } from "./agent-turn.ts";
import { BudgetGate, type ModelBound } from "./budget.ts";
import { budgetExceeded, shortagesOf } from "./budget-question.ts";
import { contractQuestionOf } from "./contracts.ts";
import { openClientCalls } from "./intake.ts";
import { NEEDS_OPERATOR, readApproval, readDid, rejection, UNKNOWN_WRITE } from "./interrupts.ts";
import type { KeyWait } from "./keys.ts";
import { retryTime } from "./model-retry.ts";
import type { RestingChild } from "./resting-child.ts";
import type { LeftBehind } from "./running-writes.ts";
import type { Settle } from "./settle.ts";
import { isPoisoned, poisonedSteps } from "./suspects.ts";

/** How long a wait without a body is held in memory. Milliseconds. */
export const SHORT_WAIT = 1_000;

/** Something to do for one step. */
export type Start =
  | ({ readonly start: "model"; readonly path: Path } & ModelBound)
  | ({ readonly start: "own"; readonly step: OwnStep } & ModelBound)
  /** A call that was never begun: check it, and ask for approval if it needs one. */
  | { readonly start: "check"; readonly call: LoopCall }
  | { readonly start: "attempt"; readonly call: LoopCall; readonly phase: "call"; readonly edited?: Json }
  | { readonly start: "attempt"; readonly call: LoopCall; readonly phase: "resume"; readonly answer: Json }
  /** A call that is another run's by now: show what that does. */
  | { readonly start: "child"; readonly call: LoopCall }
  /** A call that another driver began: find out whether this one's tool can go on with it, else ask an operator. */
  | { readonly start: "agree"; readonly call: LoopCall }
  /** A write whose outcome nobody knows: ask its `reconcile`, then a human. */
  | { readonly start: "judge"; readonly call: LoopCall; readonly isSettled: boolean; readonly isRunning: boolean }
  /** Such a write of an abandoned run: the question is left behind, and nobody waits for its answer. */
  | { readonly start: "leave"; readonly call: LoopCall }
  | { readonly start: "settle"; readonly call: LoopCall; readonly how: Settle }
  /** A wait of a custom loop for a time or a human begins. */
  | { readonly start: "open"; readonly call: LoopCall };

export type StartAttempt = Extract<Start, { start: "attempt" }>;

export type Decision =
  | { readonly do: "recover"; readonly cut: readonly { readonly path: Path; readonly n: number }[] }
  | { readonly do: "take"; readonly items: readonly Inbox[] }
  /** The run has ended: an answer to what it left open is written down, and settles its key; nothing is shown or started. */
  | { readonly do: "note"; readonly items: readonly Inbox[] }
  | { readonly do: "expire" | "withdraw"; readonly interrupts: readonly string[] }
  /** The run is given up while bodies run. */
  | { readonly do: "cut" }
  /** What comes next does not fit into the budget. */
  | { readonly do: "ask"; readonly question: Interrupt }
  /** Steps that have taken their process down too often. */
  | { readonly do: "poison"; readonly paths: readonly Path[] }
  | { readonly do: "start"; readonly starts: readonly Start[] }
  /**
   * `bodies`: something runs here; `until`: a timer, in ms since the epoch; `key`: what has to come free; `isTimeUp`: of what runs, all that can
   * be stopped has to be.
   */
  | {
      readonly do: "wait";
      readonly bodies: boolean;
      readonly until: number | null;
      readonly key: KeyName | null;
      readonly isTimeUp?: true;
    }
  /** `until`: when the run goes on by itself, in ms since the epoch. */
  | { readonly do: "end-leg"; readonly outcome: LegOutcome; readonly until: number | null }
  | {
      readonly do: "finish";
      readonly outcome: "success" | "cancelled" | "failed" | "abandoned";
      readonly outputOf?: Path;
      readonly error?: RecordedError;
    }
  /** The code of a custom loop has ended: what it said last, and the end of the leg or of the run. */
  | { readonly do: "end-body" }
  /** At rest, with nothing to show. */
  | { readonly do: "park" };

export interface Now {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly inbox: readonly Inbox[];
  /** Steps whose bodies run in this driver. */
  readonly live: ReadonlySet<Path>;
  /** Calls that this driver has checked: they need no approval. */
  readonly cleared: ReadonlySet<Path>;
  /** Unknown writes whose `reconcile` was asked by this driver before they had settled. */
  readonly judged: ReadonlySet<Path>;
  /** Calls that this driver began, or whose tool it has found to agree with what was recorded. */
  readonly agreed: ReadonlySet<Path>;
  /** Calls that wait for an operator, as far as this driver has found out. */
  readonly disagreed: ReadonlySet<Path>;
  /** Calls whose key this driver found with somebody else. */
  readonly held: ReadonlyMap<Path, KeyWait>;
  /** The thread's runs before this one, oldest first. Default: none. */
  readonly before?: readonly RunState[];
  /** Children that this driver has found at rest, by the paths of their steps. */
  readonly resting?: ReadonlyMap<Path, RestingChild>;
  /** Writes that this process has begun and nobody has recorded an outcome of. */
  readonly leftBehind: ReadonlyMap<Path, LeftBehind>;
}

export function decide(run: RunState, loop: Loop, now: Now): Decision {
  if (run.finished !== null) return now.inbox.length === 0 ? { do: "park" } : { do: "note", items: now.inbox };
  const cut = unfinishedAttempts(run, now.live);
  if (cut.length > 0) return { do: "recover", cut };
  if (now.inbox.length > 0) return { do: "take", items: now.inbox };

  const expired = [...run.interrupts.values()].filter(({ expiresAt }) => expiresAt !== null && expiresAt <= now.at);
  if (expired.length > 0) return { do: "expire", interrupts: expired.map(({ id }) => id) };

  if (run.abandoned && now.live.size > 0) return { do: "cut" };
  const poisoned = run.cancelled ? [] : poisonedSteps(run);
  if (poisoned.length > 0) return { do: "poison", paths: poisoned };
  const forOperator = run.cancelled ? [...run.interrupts.values()].filter(({ kind }) => kind === "poisoned") : [];
  if (forOperator.length > 0) return { do: "withdraw", interrupts: forOperator.map(({ id }) => id) };

  const next = loop.next(run, now.before ?? []);
  const gate = run.cancelled ? null : BudgetGate.of(run, loop.budget, now);
  const all = sideBySide(next);
  const { models, calls } = all;
  const asking = models.flatMap((path) => startModel(run, path, now, gate));
  const plans = calls.map((call): Plan => {
    const found = standing(call.isLost ? { ...run, cancelled: true } : run, call, now);
    return withinBudget(gate, run, loop, { call, ...found }, all);
  });
  const own = next.next === "own" ? ownStanding(run, next.step, now, gate) : undefined;
  const starts = [...asking, ...startsOf(own, plans, loop)];
  const isOver =
    next.next === "finish" || next.next === "fail" || (starts.length === 0 && wantsNothing(next, now, gate));
  const settled = [...run.interrupts.values()].filter(
    (question) => question.kind === "budget" && (gate === null || isOver || !isStillShort(gate, question)),
  );
  if (settled.length > 0) return { do: "withdraw", interrupts: settled.map(({ id }) => id) };
  const question = gate?.question ?? null;
  if (question !== null) return { do: "ask", question };
  if (starts.length > 0) return { do: "start", starts };

  const bodies = now.live.size > 0 || (next.next === "steps" && next.isBusy);
  const backOff = run.cancelled ? [] : models.flatMap((path) => modelBackOff(run, path, now));
  const timers = [
    ...[...plans, ...(own === undefined ? [] : [own])].flatMap((p) => (p.is === "timer" ? [p.at] : [])),
    ...backOff,
  ];
  const keys = plans.flatMap((p) => (p.is === "timer" && p.key !== undefined ? [p.key] : []));
  if (bodies || timers.length > 0) {
    const expiries = [...run.interrupts.values()].flatMap(({ expiresAt }) => expiresAt ?? []);
    // A run lies down until one key moves; with others, and while something runs here, it has to look.
    const looks = bodies || keys.length > 1 ? keys.map(({ lookAt }) => lookAt) : [];
    const endsAt = (bodies ? gate?.endsAt : null) ?? Number.POSITIVE_INFINITY;
    const isTimeUp = now.at >= endsAt;
    const until = Math.min(...timers, ...expiries, ...looks, ...(isTimeUp ? [] : [endsAt]));
    // A write that still runs keeps the run here: what it brings counts at once.
    const isAwaited = bodies || [...now.leftBehind.values()].some(({ is }) => is === "running");
    const ended = isAwaited || backOff.length > 0 ? undefined : endBesideWaits(run, plans, now);
    if (ended !== undefined) return ended;
    return {
      ...{ do: "wait", bodies: isAwaited, until: Number.isFinite(until) ? until : null, key: keys[0]?.name ?? null },
      ...(isTimeUp && { isTimeUp }),
    };
  }

  if (next.next === "steps" && next.isOver) return { do: "end-body" };
  const { stop } = run.spending;
  if (stop !== null && !run.abandoned) return { do: "finish", outcome: "failed", error: budgetExceeded(stop) };
  if (run.cancelled) return { do: "finish", outcome: run.abandoned ? "abandoned" : "cancelled" };
  switch (next.next) {
    case "finish":
      return { do: "finish", outcome: "success", outputOf: next.outputOf };
    case "fail":
      return { do: "finish", outcome: "failed", error: next.error };
    default:
      return run.leg === null
        ? { do: "park" }
        : { do: "end-leg", outcome: waitingOutcome(run, [...(now.resting?.values() ?? [])]), until: null };
  }
}

/**
 * Where code waits for a time or a signal, and beside it for something that only the client or its user can give, the leg ends: front ends take
 * no answer before that.
 */
function endBesideWaits(run: RunState, plans: readonly Plan[], { at, resting }: Now): Decision | undefined {
  const timers = plans.flatMap((plan) => (plan.is === "timer" ? [plan] : []));
  const until = Math.min(...timers.map((timer) => timer.at));
  const isWorking = timers.some(({ call: { step } }) => step !== "sleep" && step !== "signal");
  if (run.leg === null || timers.length === 0 || isWorking || until - at <= SHORT_WAIT) return undefined;
  const outcome = waitingOutcome(run, [...(resting?.values() ?? [])]);
  const asksClient =
    outcome.type === "interrupt" || (outcome.type === "success" && outcome.pendingToolCallIds.length > 0);
  return asksClient ? { do: "end-leg", outcome, until: Number.isFinite(until) ? until : null } : undefined;
}

/** Attempts without an outcome whose body is not here: it died with its process. */
function unfinishedAttempts(run: RunState, live: ReadonlySet<Path>): { path: Path; n: number }[] {
  return [...run.running].flatMap(([path, { attempt }]) =>
    live.has(path) || isChild(run.steps.get(path)) ? [] : [{ path, n: attempt.n }],
  );
}

function startModel(run: RunState, path: Path, now: Now, gate: BudgetGate | null): Start[] {
  const isHeld = now.live.has(path) || run.cancelled || isPoisoned(run.steps.get(path));
  if (isHeld || modelBackOff(run, path, now).length > 0) return [];
  const { may, ...bound } = gate?.model(path) ?? { may: "begin" };
  return may === "begin" ? [{ start: "model", path, ...bound }] : [];
}

/** When a model that has failed may be asked again, where that is not yet. */
function modelBackOff(run: RunState, path: Path, { at }: Now): number[] {
  const retryAt = retryTime(run.steps.get(path));
  return retryAt !== null && retryAt > at ? [retryAt] : [];
}

/** A call that the budget has no room for waits, and others pass (D2). */
function withinBudget(gate: BudgetGate | null, run: RunState, loop: Loop, found: Plan, all: SideBySide): Plan {
  if (gate === null || found.is !== "ready") return found;
  const { start, call } = found;
  const { path, name } = call;
  const isAttempt = start.start === "attempt";
  // Behind what is found out now the next attempt may follow at once.
  if (!isAttempt && !(start.start === "judge" && start.isSettled)) return found;
  const isOther = isAttempt && isAgentTool(loop.tool(name, path));
  const pass = isOther
    ? gate.child(path, name, turnOf(run, loop, call, all))
    : isAttempt && call.step !== "custom"
      ? gate.call(path, name)
      : gate.timed();
  return pass.may === "begin" ? found : { call, is: "waiting" };
}

/** Whether code of a custom loop waits for nothing that could cost anything: what has waited for the budget may have lost a race. */
function wantsNothing(next: Next, { live }: Now, gate: BudgetGate | null): boolean {
  return next.next === "steps" && !next.isBusy && live.size === 0 && gate?.holds === false;
}

function isStillShort(gate: BudgetGate, question: Interrupt): boolean {
  return shortagesOf(question).some((shortage) => gate.isStill(shortage));
}

function ownStanding(run: RunState, step: OwnStep, { live, at }: Now, gate: BudgetGate | null): Standing {
  const known = run.steps.get(step.path);
  if (live.has(step.path)) return { is: "running" };
  if (run.cancelled || isPoisoned(known)) return { is: "waiting" };
  const retryAt = known?.attempts.at(-1)?.failed?.retryAt ?? 0;
  if (at < retryAt) return { is: "timer", at: retryAt, blocks: true };
  const { may, ...bound } = gate?.own(step.reserve) ?? { may: "begin" };
  return may === "begin" ? ready({ start: "own", step, ...bound }) : { is: "waiting" };
}

function startsOf(own: Standing | undefined, plans: readonly Plan[], loop: Loop): Start[] {
  if (own === undefined) return oneEffectAtATime(plans, loop);
  return own.is === "ready" ? [own.start] : [];
}

/** Where one call stands. */
type Plan = { readonly call: LoopCall } & Standing;
type Standing =
  | { readonly is: "done" | "running" | "waiting" }
  /** `blocks`: nothing that might rest on it may pass. */
  | { readonly is: "timer"; readonly at: number; readonly blocks: boolean; readonly key?: KeyWait }
  | { readonly is: "ready"; readonly start: Start };

/** The time of a timer that rings when a body ends which nobody waits for any more. */
const WHEN_IT_ENDS = Number.POSITIVE_INFINITY;

function standing(run: RunState, call: LoopCall, now: Now): Standing {
  const found = afterLeftBehind(call, standingBySteps(run, call, now), now);
  if (found.is !== "ready" && found.is !== "waiting") return found;
  const start = found.is === "ready" ? found.start : undefined;
  const step = run.steps.get(call.path);
  const asksOperator = contractQuestionOf(step) !== undefined;
  const goesOn = start?.start === "attempt" || start?.start === "judge";
  if (asksOperator || (goesOn && step !== undefined && !now.agreed.has(call.path))) {
    const isSettled = now.disagreed.has(call.path) && !run.cancelled;
    return isSettled ? { is: "waiting" } : ready({ start: "agree", call });
  }
  const held = start?.start === "attempt" ? now.held.get(call.path) : undefined;
  if (held === undefined || now.at >= Math.min(held.lookAt, held.until)) return found;
  return { is: "timer", at: held.until, blocks: held.isElsewhere, key: held };
}

/** What an attempt that was left behind still does decides before anybody's word about it (D3). */
function afterLeftBehind(call: LoopCall, found: Standing, { leftBehind, live, at }: Now): Standing {
  const left = leftBehind.get(call.path);
  if (left === undefined || found.is === "done" || live.has(call.path)) return found;
  if (left.is === "landed") return ready(settle(call, { ...left, by: "late" }));
  if (found.is !== "ready" || (left.is === "ended" && at >= left.clearAt)) return found;
  const { start } = found;
  if (start.start === "judge" && left.is === "running") return ready({ ...start, isRunning: true });
  if (start.start !== "attempt" && (start.start !== "judge" || !start.isSettled)) return found;
  return { is: "timer", at: left.is === "running" ? WHEN_IT_ENDS : left.clearAt, blocks: true };
}

function standingBySteps(run: RunState, call: LoopCall, now: Now): Standing {
  const { live } = now;
  const step = run.steps.get(call.path);
  if (step?.finished) return { is: "done" };
  if (call.step === "ask" || call.step === "sleep" || call.step === "signal")
    return standingOfWait(run, call, step, now);
  if (live.has(call.path)) return { is: "running" };
  if (step === undefined) return ready(run.cancelled ? settle(call, { by: "cancel" }) : firstStart(call, now));
  if (step.started.step === "client-tool")
    return run.cancelled ? ready(settle(call, { by: "cancel" })) : { is: "waiting" };

  if (isPoisoned(step)) return { is: "waiting" };
  // An operator's word changes nothing about where the step stands.
  const question = step.asked.findLast(({ interrupt }) => !isOperators(interrupt));
  const attempt = step.attempts.at(-1);
  if (attempt !== undefined && isChild(step)) return childStanding(run, call, now);
  if (question !== undefined && question.attempts === step.attempts.length) {
    if (question.answer === null) {
      if (!run.cancelled) return { is: "waiting" };
      // A cancelled run waits for nobody. The question about a write stays, and the model is told that nobody knows.
      const isUnknown = question.interrupt.kind === "unknown-write";
      return ready(
        settle(call, isUnknown ? { by: "error", error: UNKNOWN_WRITE, applied: "unknown" } : { by: "cancel" }),
      );
    }
    return ready(afterAnswer(run, call, step, question.interrupt, question.answer));
  }
  if (attempt === undefined) return ready(run.cancelled ? settle(call, { by: "cancel" }) : firstStart(call, now));
  const { failed } = attempt;
  if (failed === undefined) return { is: "running" };
  return afterFailure(run, call, step, failed, now);
}

/** A child does not die with its parent's process: it goes on by itself, and whoever drives its parent follows it. */
export function isChild(step: StepState | undefined): boolean {
  return step?.started.step === "child";
}

function childStanding(run: RunState, call: LoopCall, { resting }: Now): Standing {
  const child = resting?.get(call.path);
  if (child === undefined || run.cancelled) return ready({ start: "child", call });
  return child.goesOn ? { is: "timer", at: WHEN_IT_ENDS, blocks: false } : { is: "waiting" };
}

/** Waits of a custom loop: no body runs for them. */
function standingOfWait(run: RunState, call: LoopCall, step: StepState | undefined, { at }: Now): Standing {
  if (step === undefined) return run.cancelled ? { is: "waiting" } : ready({ start: "open", call });
  if (call.step === "ask") {
    const asked = step.asked.findLast(({ interrupt }) => !isOperators(interrupt));
    const answer = asked?.answer ?? null;
    if (answer !== null && !run.cancelled) {
      const { status, payload = null } = answer;
      return ready(settle(call, status === "resolved" ? { by: "answer", output: payload } : unanswered(status)));
    }
  } else if (call.step === "signal" && !run.cancelled) {
    // It may come at any time, and its leg is there for it.
    return { is: "timer", at: Number.POSITIVE_INFINITY, blocks: false };
  } else if (!run.cancelled) {
    const until = step.started.at + Number(call.input);
    return at >= until
      ? ready(settle(call, { by: "answer", output: null }))
      : { is: "timer", at: until, blocks: false };
  }
  return run.cancelled ? ready(settle(call, { by: "cancel" })) : { is: "waiting" };
}

function unanswered(status: Exclude<Fact<"interrupt.answered">["status"], "resolved">): Settle {
  if (status === "withdrawn") return { by: "cancel" };
  const message = status === "expired" ? "nobody answered in time" : "whoever was asked does not answer";
  return {
    by: "error",
    error: { code: status === "expired" ? "ASK_EXPIRED" : "ASK_CANCELLED", message },
    applied: "no",
  };
}

/** Checked first, whatever runs: a human who has to approve is asked at once. */
function firstStart(call: LoopCall, { cleared }: Now): Start {
  return cleared.has(call.path) ? { start: "attempt", call, phase: "call" } : { start: "check", call };
}

function afterFailure(run: RunState, call: LoopCall, step: StepState, failed: Fact<"step.failed">, now: Now): Standing {
  const { at } = now;
  const { effect } = step.started;
  if (effect === "write" && failed.applied === "unknown") {
    if (run.abandoned) return ready({ start: "leave", call });
    // "Applied" counts at once, so `reconcile` is asked at once; "not applied" only later, so it is asked again then.
    const isSettled = failed.retryAt === null || at >= failed.retryAt;
    if (isSettled) return ready({ start: "judge", call, isSettled: true, isRunning: false });
    if (!now.judged.has(call.path)) return ready({ start: "judge", call, isSettled: false, isRunning: false });
    return { is: "timer", at: failed.retryAt, blocks: true };
  }
  if (run.cancelled) return ready(settle(call, { by: "cancel" }));
  if (failed.retryAt === null)
    return ready(settle(call, { by: "error", error: failed.error, applied: failed.applied }));
  return at >= failed.retryAt ? ready(attemptAgain(call, step)) : { is: "timer", at: failed.retryAt, blocks: false };
}

function afterAnswer(
  run: RunState,
  call: LoopCall,
  step: StepState,
  opened: Interrupt,
  answered: Fact<"interrupt.answered">,
): Start {
  const payload = answered.payload ?? null;
  const said = answered.status === "resolved" ? payload : undefined;
  if (answered.status === "withdrawn") return settle(call, { by: "cancel" });
  switch (opened.kind) {
    case "approval": {
      if (run.cancelled) return settle(call, { by: "cancel" });
      const approval = readApproval(said);
      if (!approval.approved)
        return settle(call, { by: "error", error: rejection(answered.status, approval.reason), applied: "no" });
      return {
        start: "attempt",
        call,
        phase: "call",
        ...(approval.editedArgs !== undefined && { edited: approval.editedArgs }),
      };
    }
    case "unknown-write": {
      const did = readDid(said);
      if (did.did === "yes") return settle(call, { by: "answer", output: did.output });
      if (did.did === "no") return run.cancelled ? settle(call, { by: "cancel" }) : attemptAgain(call, step);
      return settle(call, { by: "error", error: UNKNOWN_WRITE, applied: "unknown" });
    }
    default:
      if (run.cancelled) return settle(call, { by: "cancel" });
      // Who has left a memo behind wants to hear that nobody answers, too.
      return said === undefined && opened.memo === undefined
        ? settle(call, {
            by: "error",
            error: { code: "CANCELLED_BY_USER", message: "cancelled by user" },
            applied: "no",
          })
        : { start: "attempt", call, phase: "resume", answer: payload };
  }
}

/** The last attempt once more: with the same arguments, and with the same answer if it went on from one. */
export function attemptAgain(call: LoopCall, step: StepState): StartAttempt {
  const last = step.attempts.at(-1);
  if (last?.phase === "resume") {
    const suspension = step.asked.findLast(({ interrupt }) => interrupt.kind === "suspension");
    return { start: "attempt", call, phase: "resume", answer: suspension?.answer?.payload ?? null };
  }
  return { start: "attempt", call, phase: "call", ...(last?.edited !== undefined && { edited: last.edited }) };
}

function ready(start: Start): Standing {
  return { is: "ready", start };
}

function settle(call: LoopCall, how: Settle): Start {
  return { start: "settle", call, how };
}

/** Which of the ready starts may start now (D2). */
function oneEffectAtATime(plans: readonly Plan[], loop: Loop): Start[] {
  const starts: Start[] = [];
  let isTaken = plans.some((p) => p.is === "running" && !isParallel(loop, p.call));
  for (const p of plans) {
    if (p.is === "timer" && p.blocks) isTaken = true;
    if (p.is !== "ready") continue;
    const isEffect = (p.start.start === "attempt" || p.start.start === "judge") && !isParallel(loop, p.call);
    if (isEffect && isTaken) continue;
    isTaken ||= isEffect;
    starts.push(p.start);
  }
  return starts;
}

function isParallel(loop: Loop, call: LoopCall): boolean {
  const tool = loop.tool(call.name, call.path);
  return tool === undefined || tool.policy.parallel;
}

function waitingOutcome(run: RunState, children: readonly RestingChild[]): LegOutcome {
  const own = [...run.interrupts.values()].filter(isListed).map(wireInterrupt);
  const interrupts = [...own, ...children.flatMap(({ interrupts: asked }) => asked)];
  if (interrupts.length > 0) return { type: "interrupt", interrupts };
  const pendingToolCallIds = openClientCalls(run).map(({ toolCallId }) => toolCallId);
  const operators = [...run.interrupts.values()].filter(isOperators);
  const needsOperator = operators.length > 0 || children.some((child) => child.needsOperator);
  if (pendingToolCallIds.length === 0 && needsOperator) return { type: "error", error: NEEDS_OPERATOR };
  return { type: "success", pendingToolCallIds };
}
