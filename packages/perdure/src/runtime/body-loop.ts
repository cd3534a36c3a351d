/**
 * A custom loop: code of the user's as a loop of the driver's. Its place is in the running code, so a driver runs it from the top, and the log
 * answers for what it did before: recorded steps end with their recorded outcome, what was emitted is not sent again. What it then waits for is
 * what the loop wants next.
 *
 * C1. Outcomes reach the code in the order of the log, one at a time: the next one when the code has made of the last what it makes of it at once.
 * C2. A driver that lets go of the run lets go of the code: its promises stay open, and nothing of it leaves any more.
 * C3. Code that does something else than it did stops there. Nothing of it counts but what was recorded, and an operator is asked.
 * C4. After a cancel what the code waits for rejects; it may say last words for a while, and begins nothing.
 * C5. That its run is stopped at its budget the code hears at its place among the outcomes, also when it is run again; how it ends then is its own.
 */
import { publicError, RunInterrupted } from "../emit/errors.ts";
import { Leg, type LegEnd } from "../emit/leg.ts";
import type { Interrupt, StepKind } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { type Difference, stepDifference } from "../log/matching.ts";
import type { Interrupt as WireInterrupt } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { ToolDefinition } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { erase } from "../tool/erase.ts";
import type { BodyAgent, Loop, LoopCall, LoopModels, ModelAsk, Next } from "./agent-definition.ts";
import { bodyBudget, checkPrices, isLeft, type Stop, stopOf } from "./body-budget.ts";
import { type CodeSoFar, leftUndone, type Parting, partedAt, partedBefore, stepPlace } from "./body-parting.ts";
import { BodyQuestions } from "./body-questions.ts";
import { type BodyRecord, emptyRecord, endedItself, type FinishedStep, readRecord, signalOf } from "./body-record.ts";
import { inputOf, principalOf } from "./body-request.ts";
import { received } from "./body-signals.ts";
import { BodyState } from "./body-state.ts";
import { isAwaited, isLost, type Race, recordedCall, unfinishedCalls } from "./body-steps.ts";
import { BodyStream, type Terminal } from "./body-stream.ts";
import type { LoopBudget } from "./budget.ts";
import { budgetExceeded } from "./budget-question.ts";
import { StepNotAwaited, watchLoop } from "./development.ts";
import { divergedQuestion } from "./diverged.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { BudgetExceeded, Diverged, InputChanged, NeedsStore, RaceLost } from "./loop-errors.ts";
import { type LoopHost, operationsOf, type Want } from "./loop-operations.ts";
import { placeInCode } from "./place-in-code.ts";
import { Strands } from "./strands.ts";

const RACE_ALONE = "let the lanes of a race wait for steps alone: what else takes its time is not the same every time";

const NO_MODEL = "the models of a custom loop are its code's own: see ask()";

/** How long the code of a cancelled run that waited for steps may go on. Milliseconds. */
const LAST_WORDS = 1_000;

export class BodyLoop implements Loop, LoopHost {
  readonly tools: readonly DynTool[] = [];
  readonly describes = { instructions: "", tools: [], settings: {} };
  readonly models = { models: [], attempts: 1 };
  readonly budget: LoopBudget;
  readonly strands = new Strands(() => this.#session.wake());
  readonly #options: DriverOptions<BodyAgent>;
  readonly #session: DriveSession;
  readonly #strandOf = new WeakMap<object, ReturnType<LoopHost["strandOf"]> & object>();
  readonly #byName = new Map<string, DynTool>();
  readonly #byPath = new Map<Path, DynTool>();
  readonly #wants = new Map<Path, Want>();
  readonly #record: { value: BodyRecord | undefined } = { value: undefined };
  #leg: Leg<unknown> | undefined;
  #stream: BodyStream | undefined;
  #state: BodyState | undefined;
  /** How much of what this driver has taken in is in the record, too. */
  #read = 0;
  /** What was recorded and the code has not heard of. */
  #due: FinishedStep[] = [];
  /** Steps that the code has begun, or begun again. */
  readonly #asked = new Set<Path>();
  /** In development mode: where. */
  readonly #begunAt = new Map<Path, string | null>();
  readonly #races: Race[] = [];
  /** Steps of lanes that have lost. */
  readonly #lost = new Map<Path, LoopCall>();
  #outcome: LegEnd | undefined;
  #diverged: Diverged | undefined;
  #isStirred = false;
  #isCancelled = false;
  /** The code has heard of it. */
  #stopped: BudgetExceeded | undefined;
  /** A cancelled run waits no longer for its code. */
  #isGivenUp = false;
  #lastWords: ReturnType<typeof setTimeout> | undefined;

  constructor(options: DriverOptions<BodyAgent>, session: DriveSession) {
    this.#options = options;
    this.#session = session;
    this.budget = bodyBudget(options.agent, this);
  }

  // ── What the driver asks

  tool(name: string, path?: Path): DynTool | undefined {
    if (path !== undefined && this.#wants.get(path)?.kind === "client-tool") return undefined;
    return (path === undefined ? undefined : this.#byPath.get(path)) ?? this.#byName.get(name);
  }

  next(run: RunState): Extract<Next, { next: "steps" }> {
    const idle = { next: "steps", models: [], calls: [], isBusy: false, isOver: false } as const;
    if (this.#diverged !== undefined || this.#leg === undefined)
      return run.cancelled ? { ...idle, calls: unfinishedCalls(run) } : idle;
    const all = [...this.#wants.values()];
    // What the code makes of the last news, and of what is recorded, may still decide a race, and what it lost is not to be begun.
    const isHeld = this.#isStirred || this.#due.length > 0 || this.#unheardStop(run) !== undefined;
    const wants = isHeld ? all.filter(({ call }) => run.steps.has(call.path)) : all;
    const lost = [...this.#lost.values()].filter(({ path }) => run.steps.get(path)?.finished === undefined);
    const wanted = [...wants.filter(({ kind }) => kind !== "model").map(({ call }) => call), ...lost];
    const calls = run.cancelled ? [...wanted, ...unfinishedCalls(run, this.#wants)] : wanted;
    const isEnded = this.#outcome !== undefined || this.#isGivenUp;
    return {
      next: "steps",
      models: wants.filter(({ kind }) => kind === "model").map(({ call }) => call.path),
      calls,
      // Code that has ended may have begun steps that are still held back: the end of the turn brings the driver here again.
      isBusy: wants.length < all.length || (!isEnded && (this.#isRunning || run.cancelled)) || this.#hasNews(run),
      isOver: isEnded && all.length === 0,
    };
  }

  settings(): Json {
    return {};
  }

  /** What its models are told stands in the code. */
  readonly alternatives = [];

  as(): Loop {
    return this;
  }

  ask(path: Path): ModelAsk | undefined {
    const ask = this.#wants.get(path)?.model?.ask(path);
    return ask && (this.#options.agent.instrument?.model(ask) ?? ask);
  }

  get modelsOfLoop(): LoopModels {
    const { name, models } = this.#options.agent;
    if (models === undefined) throw new NeedsStore(`ctx.model() of agent "${name}", which agent() did not make,`);
    return models;
  }

  unusable(): readonly string[] {
    return [];
  }

  asks(): never {
    throw new Error(NO_MODEL);
  }

  callModel(): never {
    throw new Error(NO_MODEL);
  }

  /** Whether the code has to be run, from the top, before anything can be decided. */
  get isDue(): boolean {
    const { state } = this.#session;
    const isOver = state.finished !== null || (state.cancelled && stopOf(state) === undefined);
    if (this.#leg !== undefined || isOver) return false;
    return !endedItself(state);
  }

  /** Whether it runs by itself, or has ended and that is not written down. */
  get isBusy(): boolean {
    if (this.#leg === undefined || this.#diverged !== undefined) return false;
    return this.#outcome !== undefined ? this.#wants.size === 0 : this.#isRunning;
  }

  /** Runs the code, up to where the record ends, or to where it waits for something that is not recorded. */
  async enter(): Promise<void> {
    const { store, lease, before, replaying } = this.#options;
    const session = this.#session;
    await session.committed();
    const isNew = lease.epoch === 1 && session.state.run.forkedFrom === undefined;
    const known = isNew ? emptyRecord(session.state) : await readRecord(store.read(lease.uid, -1), before.at(-1));
    const record = replaying === undefined ? known : { ...known, isWhole: replaying.isWhole };
    const { steps } = session.state;
    this.#read = isNew ? 0 : session.taken.length;
    this.#due = record.finished.filter(({ path }) => isAwaited(steps.get(path))).toSorted((a, b) => a.seq - b.seq);
    await session.begin(() => this.#begin(record));
    do {
      await turn();
      this.attend();
    } while (this.#isStirred || this.#hasNews(session.state));
  }

  /** Lets the code hear of what has happened, one thing at a time (C1). */
  attend(): void {
    const { state } = this.#session;
    if (this.#leg === undefined || this.#diverged !== undefined) return;
    if (state.cancelled && stopOf(state) === undefined && !this.#isCancelled) this.#cancel(state);
    if (this.#stopped !== undefined) this.#refuseLeft(state, this.#stopped);
    this.#hand(state);
    if (!this.#isStirred) this.#tell(state);
  }

  /** The code, of what comes next. */
  #tell(state: RunState): void {
    while (this.#due[0] !== undefined && this.#isLost(this.#due[0].path)) this.#due.shift();
    const [due] = this.#due;
    const first = due === undefined ? this.#firstEnded(state) : undefined;
    const unheard = this.#unheardStop(state);
    const isNext = unheard !== undefined && unheard.seq < ((due ?? first)?.seq ?? Number.POSITIVE_INFINITY);
    if (isNext) {
      this.#stop(state, unheard);
      return;
    }
    if (due !== undefined) {
      const want = this.#wants.get(due.path);
      if (want !== undefined) {
        this.#due.shift();
        this.#deliver(want, state, due.committed);
      } else if (!this.#isRunning) this.#notAsked(due.path);
      return;
    }
    if (first !== undefined) {
      const { path } = first.want.call;
      this.#deliver(first.want, state, this.#session.committedWith.get(path) ?? state.committed);
    }
  }

  #firstEnded({ steps }: RunState): { readonly want: Want; readonly seq: number } | undefined {
    return [...this.#wants.values()]
      .flatMap((want) => {
        const seq = steps.get(want.call.path)?.finished?.seq;
        return seq === undefined ? [] : [{ want, seq }];
      })
      .reduce<{ want: Want; seq: number } | undefined>((a, b) => (a === undefined || b.seq < a.seq ? b : a), undefined);
  }

  /** Steps that nobody waits for any more. */
  get lost(): Iterable<Path> {
    return this.#lost.keys();
  }

  /** Where the code does something else than it did. */
  get diverged(): Diverged | undefined {
    return this.#diverged;
  }

  /** The question to an operator, where the code does something else than it did. */
  get question(): Interrupt | undefined {
    if (this.#diverged === undefined) return undefined;
    return divergedQuestion(this.#session.state, this.#diverged);
  }

  /** Whether the code has done all that was recorded as it was. */
  get isCaughtUp(): boolean {
    return this.#leg !== undefined && this.#diverged === undefined && this.#due.length === 0;
  }

  /**
   * Ends the code's leg, which closes what it has left open.
   *
   * @returns what it said last, and what it asked; undefined when it turns out to have done something else than it did
   */
  end(): { readonly terminal: Terminal; readonly asked: readonly WireInterrupt[] } | undefined {
    const { state } = this.#session;
    const [leg, stream] = [this.#leg, this.#stream];
    if (leg === undefined || stream === undefined) return undefined;
    try {
      leg.end(this.#ending(state));
    } catch (error) {
      this.#report(error);
    }
    if (!state.cancelled) this.checkAllDone();
    const { terminal } = stream;
    if (this.#diverged !== undefined || terminal === undefined) return undefined;
    return { terminal, asked: leg.interrupts };
  }

  #ending(run: RunState): LegEnd {
    const stop = stopOf(run);
    if (stop === undefined && run.cancelled) return { type: "cancelled" };
    if (this.#outcome !== undefined || stop === undefined) return this.#outcome ?? { type: "cancelled" };
    const { code, message } = budgetExceeded(stop.question);
    return { type: "error", error: { code, message } };
  }

  /** C2. */
  leave(): void {
    clearTimeout(this.#lastWords);
    this.#leg?.drop("ended");
  }

  // ── What the code asks

  get uid(): string {
    return this.#options.lease.uid;
  }

  get now(): () => number {
    return this.#options.now;
  }

  get random(): () => number {
    return this.#options.random;
  }

  strandOf(context: object): ReturnType<LoopHost["strandOf"]> {
    return this.#strandOf.get(context);
  }

  toolOf(definition: ToolDefinition | DynTool): DynTool {
    return "callJson" in definition ? definition : erased(definition);
  }

  want(want: Want): void {
    this.#mayBegin();
    const { call, kind, tool, strand } = want;
    const { path } = call;
    if (this.#isLost(path)) throw new RaceLost(path);
    this.#asked.add(path);
    if (this.#options.development) this.#begunAt.set(path, placeInCode());
    const step = this.#session.state.steps.get(path);
    if (step === undefined && this.#stopped !== undefined) throw this.#stopped;
    checkPrices(want, this.#session.state, this.budget);
    const wanted = { path, kind, name: call.name, effect: tool?.effect ?? "read", input: call.input };
    const difference = step === undefined ? undefined : stepDifference(step, wanted);
    let known = call;
    this.#options.replaying?.begins(want);
    if (step !== undefined && difference === "input") {
      const recorded = "value" in step.started.input ? step.started.input.value : null;
      this.#report(new InputChanged(path, recorded, call.input, step.finished !== undefined));
    } else if (step !== undefined && difference !== undefined && difference !== "input") {
      const place = stepPlace(path);
      if (!this.#record.value?.accepted.has(place)) throw this.#diverge(difference, place);
      // An operator has said that what was begun goes on as it began.
      known = { ...recordedCall(this.#session.state, step), ...(call.question && { question: call.question }) };
    }
    if (tool !== undefined) {
      this.#byPath.set(path, this.#options.agent.instrument?.tool(tool) ?? tool);
      if (kind === "tool" || kind === "child") this.#byName.set(tool.name, tool);
    }
    this.#wants.set(path, { ...want, call: known });
    this.strands.wait(strand);
    this.#session.wake();
  }

  get isBehind(): boolean {
    if (this.#due.length > 0 || this.#stream?.missing !== undefined) return true;
    const { steps } = this.#session.state;
    return [...steps].some(([path, step]) => isAwaited(step) && !this.#asked.has(path) && !this.#isLost(path));
  }

  raced(path: Path, winner: number, lanes: number): void {
    this.#mayBegin();
    const step = this.#session.state.steps.get(path);
    const wanted = { path, kind: "race", name: "race", effect: "read", input: lanes } as const;
    const difference = step === undefined ? undefined : stepDifference(step, wanted);
    if (difference !== undefined && difference !== "input") throw this.#diverge(difference, stepPlace(path));
    const recorded = step?.finished?.status === "ok" ? step.finished.output : winner;
    if (recorded !== winner) {
      const what = `the winner of race ${path}`;
      const { seq } = step?.started ?? { seq: 0 };
      throw this.#diverge({ path, seq, what, recorded, wanted: winner, next: RACE_ALONE }, stepPlace(path));
    }
    if (step === undefined) this.#note(path, "race", "race", lanes, winner);
    this.#lose(path, winner);
  }

  /** The lanes of a race that have not won. */
  #lose(race: Path, winner: number): void {
    const { steps } = this.#session.state;
    this.#races.push({ race, winner });
    for (const [path, want] of this.#wants) {
      if (!this.#isLost(path)) continue;
      this.#wants.delete(path);
      this.strands.resume(want.strand);
      if (steps.has(path) && want.kind !== "model") this.#lost.set(path, { ...want.call, isLost: true });
      want.failed(new RaceLost(path));
    }
    this.#stir();
  }

  #isLost(path: Path): boolean {
    return isLost(path, this.#races);
  }

  reading<T extends string | number>(path: Path, kind: StepKind, name: string, read: () => T): T {
    this.#mayBegin();
    const step = this.#session.state.steps.get(path);
    if (step !== undefined) {
      const difference = stepDifference(step, { path, kind, name, effect: "read", input: null });
      if (difference !== undefined && difference !== "input") throw this.#diverge(difference, stepPlace(path));
      // It was recorded by this very line, or one like it.
      if (step.finished?.status === "ok") return step.finished.output as T;
    }
    const output = read();
    this.#note(path, kind, name, null, output);
    return output;
  }

  /** A step that is over when it begins. */
  #note(path: Path, step: StepKind, name: string, input: Json, output: Json): void {
    this.#session.add([
      { kind: "step.started", path, step, name, effect: "read", input: { value: input }, contract: null },
      { kind: "step.finished", path, via: "call", status: "ok", output, patch: [] },
    ]);
  }

  // ──

  get #isRunning(): boolean {
    return this.#isStirred || (this.#outcome === undefined && this.strands.isRunning);
  }

  /** Whether something has ended that the code waits for. */
  #hasNews({ steps }: RunState): boolean {
    if (this.#diverged !== undefined) return false;
    const [due] = this.#due;
    if (due !== undefined) return this.#wants.has(due.path);
    return [...this.#wants.keys()].some((path) => steps.get(path)?.finished !== undefined);
  }

  #begin(record: BodyRecord): void {
    const { agent, lease, now } = this.#options;
    const session = this.#session;
    const { base } = record;
    const diverge = (difference: Difference, place: string): Error => this.#diverge(difference, place);
    const questions = new BodyQuestions(base);
    const stream = new BodyStream(session, record, diverge);
    const state = new BodyState(session, record, diverge, () => this.strands.haveBranched);
    this.#record.value = record;
    this.#stream = stream;
    this.#state = state;
    const leg = new Leg<unknown>({
      input: inputOf(base),
      state: base.shown,
      published: state,
      principal: principalOf(base),
      resume: questions.replies,
      idPrefix: lease.uid,
      stream,
      transformers: agent.transformers ?? [],
      memory: {
        memos: base.memos,
        keep: (name, memo) => {
          if (stream.isLive) session.memory.keep(name, memo);
        },
      },
      now,
      questionId: (ask) => questions.idOf(ask),
      equip: (context, lane, strand) => {
        this.strands.open(strand);
        this.#strandOf.set(context, strand);
        Object.assign(context, operationsOf(this, context, lane, strand));
      },
    });
    this.#leg = leg;
    session.signal.addEventListener("abort", () => this.#leaseLost(leg), { once: true });
    this.#stir();
    this.#run(leg);
  }

  #run(leg: Leg<unknown>): void {
    const { agent } = this.#options;
    const body = async (): Promise<LegEnd> => {
      const code = () => agent.run(leg.context as RunContextOf<typeof agent>);
      const result = await (this.#options.development ? watchLoop(code, (error) => this.#report(error)) : code());
      this.#reportUnawaited();
      return { type: "success", result: toJson(result, `result of agent "${agent.name}"`) };
    };
    void body()
      .catch((error: unknown): LegEnd => {
        const isItsOwn = !(leg.isOver || this.#isCancelled) || !(error instanceof RunInterrupted);
        if (isItsOwn && error !== this.#stopped && this.#diverged === undefined) this.#report(error);
        return { type: "error", error: publicError(error) };
      })
      .then((outcome) => this.#ended(outcome));
    void leg.rested.then(() => this.#ended({ type: "interrupt" }));
  }

  /** The run ends when they have ended, but nobody hears of it. */
  #reportUnawaited(): void {
    if (!this.#options.development) return;
    for (const { call } of this.#wants.values()) {
      this.#report(new StepNotAwaited(call.path, call.name, this.#begunAt.get(call.path) ?? null));
    }
  }

  #ended(outcome: LegEnd): void {
    this.#outcome ??= outcome;
    this.#session.wake();
  }

  #leaseLost(leg: Leg<unknown>): void {
    try {
      leg.end({ type: "cancelled" });
    } catch (error) {
      this.#report(error);
    }
  }

  /** Something has reached the code: what it makes of that at once is over when the event loop has turned. */
  #stir(): void {
    this.#isStirred = true;
    setImmediate(() => {
      this.#isStirred = false;
      this.#session.wake();
    });
  }

  #deliver(want: Want, { steps }: RunState, committed: Json): void {
    const { path } = want.call;
    const finished = steps.get(path)?.finished;
    if (finished === undefined) return;
    this.#state?.learn(finished.seq, committed);
    this.#wants.delete(path);
    this.#byPath.delete(path);
    this.strands.resume(want.strand);
    if (this.#isCancelled && finished.status !== "ok") want.failed(this.#cancelled());
    else if (this.#stopped !== undefined && finished.status === "cancelled") want.failed(this.#stopped);
    else want.ended(finished);
    if (this.#stopped !== undefined) this.#limitLastWords();
    this.#stir();
  }

  /** Gives what was signalled to the steps that wait for it. */
  #hand(run: RunState): void {
    const taken = this.#session.taken.slice(this.#read).flatMap((entry) => signalOf(entry) ?? []);
    const ends = received(run, [...(this.#record.value?.signals ?? []), ...taken], (path) => this.#isLost(path));
    if (ends.length === 0) return;
    this.#session.add(ends);
    this.#session.wake();
  }

  /** C4. */
  #cancel({ steps }: RunState): void {
    this.#isCancelled = true;
    const isWaiting = this.#wants.size > 0;
    this.#leg?.abort("cancelled");
    for (const [path, want] of this.#wants) {
      if (steps.has(path)) continue;
      this.#wants.delete(path);
      this.strands.resume(want.strand);
      want.failed(this.#cancelled());
    }
    if (!isWaiting) this.#isGivenUp = true;
    this.#limitLastWords();
    this.#stir();
  }

  /** That the run is stopped, where the code has not come to it yet. */
  #unheardStop(run: RunState): Stop | undefined {
    return this.#stopped === undefined ? stopOf(run) : undefined;
  }

  /** C5. */
  #stop(run: RunState, { question }: Stop): void {
    this.#stopped = new BudgetExceeded(question);
    this.#refuseLeft(run, this.#stopped);
    this.#limitLastWords();
    this.#stir();
  }

  #refuseLeft(run: RunState, stopped: BudgetExceeded): void {
    for (const [path, want] of this.#wants) {
      if (!isLeft(want, run)) continue;
      this.#wants.delete(path);
      this.strands.resume(want.strand);
      want.failed(stopped);
      this.#stir();
    }
  }

  /** From now on: code that is stopped may still wait for a write that ends. */
  #limitLastWords(): void {
    clearTimeout(this.#lastWords);
    this.#lastWords = setTimeout(() => {
      if (this.#stopped !== undefined && this.#wants.size > 0) return;
      this.#isGivenUp = true;
      this.#session.wake();
    }, LAST_WORDS);
    this.#lastWords.unref();
  }

  #cancelled(): RunInterrupted {
    return new RunInterrupted(this.#leg?.input.runId ?? this.uid, "cancelled");
  }

  #mayBegin(): void {
    const closed = this.#leg?.outlet.closed;
    if (closed !== undefined) throw closed;
    if (this.#isCancelled) throw this.#cancelled();
  }

  /** C3. @returns what stops the code at its line */
  #diverge(difference: Difference, place: string, at = placeInCode()): Diverged {
    if (this.#diverged === undefined) {
      this.#diverged = new Diverged({ ...difference, seq: partedAt(this.#soFar, difference, at) }, at, place);
      this.#report(this.#diverged);
      this.#leg?.drop("ended");
      this.#session.wake();
    }
    return this.#diverged;
  }

  /** No line does something else: something is missing. */
  #divergeWithout({ difference, place }: Parting): void {
    this.#diverge(difference, place, null);
  }

  get #soFar(): CodeSoFar {
    return {
      ...{ run: this.#session.state, asked: this.#asked, waitsFor: this.#wants, isLost: (path) => this.#isLost(path) },
      ...{ accepted: this.#record.value?.accepted ?? NONE, stream: this.#stream, state: this.#state },
    };
  }

  #notAsked(path: Path): void {
    if (this.#record.value?.accepted.has(stepPlace(path))) {
      this.#due.shift();
      this.#session.wake();
    } else this.#divergeWithout(partedBefore(this.#soFar, path));
  }

  /** Holds it to all that is recorded, where it has ended or waits. */
  checkAllDone(): void {
    if (this.#stream === undefined || this.#diverged !== undefined) return;
    const undone = leftUndone(this.#soFar);
    if (undone !== undefined) this.#divergeWithout(undone);
  }

  #report(error: unknown): void {
    this.#options.report(error, this.#options.lease.uid);
  }
}

const NONE: ReadonlySet<string> = new Set();

type RunContextOf<A extends BodyAgent> = Parameters<A["run"]>[0];

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const erasedTools = new WeakMap<ToolDefinition, DynTool>();

function erased(definition: ToolDefinition): DynTool {
  const tool = erasedTools.get(definition) ?? erase(definition);
  erasedTools.set(definition, tool);
  return tool;
}
