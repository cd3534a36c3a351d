/**
 * One tool call from its beginning to its recorded end.
 *
 * P1. A body's attempt is durable before its first line.
 * P2. Its outcome, what it does to the state and what clients see of it are one batch.
 * P3. A body whose step has got another outcome meanwhile is too late: what it returns is dropped, and reported.
 * P4. A write that ends in anything but an output or "not applied" is unknown; it is never guessed.
 */
import { create, isDraftable } from "mutative";
import { CANCELLED } from "../emit/errors.ts";
import { Lane } from "../emit/lane.ts";
import type { Leaving } from "../emit/leftovers.ts";
import type { Exit } from "../emit/outlet.ts";
import type { Fact, NewEntry, StepEnd } from "../log/entries.ts";
import { retract } from "../log/retract.ts";
import type { StepState } from "../log/run-state.ts";
import { editedArguments } from "../log/tool-result.ts";
import { backoff } from "../protocol/backoff.ts";
import type { Json } from "../protocol/json.ts";
import { apply, diff, ownJson, type Patch, type Rebased } from "../protocol/patch.ts";
import { hasCall, isAnswered, mayAnswer, withServerCall } from "../protocol/verify.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Claim, ClaimChange } from "../store/store.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { HandlerError, InvalidInput, InvalidOutput } from "../tool/errors.ts";
import type { Reply } from "../tool/outcome.ts";
import type { LoopCall } from "./agent-definition.ts";
import { AttemptContext } from "./attempt-context.ts";
import { AttemptExit } from "./attempt-exit.ts";
import {
  Cancelled,
  failures,
  LateOutcome,
  orAborted,
  recordedError,
  TimedOut,
  TimeIsUp,
  ToolLog,
} from "./attempt-outcome.ts";
import { startedEntries, suspensionQuestion } from "./call-entries.ts";
import { unknownTool } from "./call-gate.ts";
import type { CallNotes } from "./call-notes.ts";
import type { StartAttempt } from "./decide.ts";
import type { AttemptDraft } from "./drafts.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { intake } from "./intake.ts";
import { attemptKey, claimAfter, claimChange, claiming, inheritance, keyHeld, keyNotFree } from "./keys.ts";
import type { Settle } from "./settle.ts";
import { anyOf, timeLimit } from "./signals.ts";

/** How often a driver that has something else to do looks whether a key has come free. Milliseconds. */
const LOOK_AGAIN = 1_000;

export class CallRunner {
  readonly #options: DriverOptions;
  readonly #session: DriveSession;
  readonly #note: CallNotes;

  constructor(options: DriverOptions, session: DriveSession, note: CallNotes) {
    this.#options = options;
    this.#session = session;
    this.#note = note;
  }

  async attempt(start: StartAttempt, signal: AbortSignal): Promise<void> {
    const { call, phase } = start;
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name, call.path);
    if (tool === undefined) return await this.settle(call, unknownTool(call));
    const step = session.state.steps.get(call.path);
    const n = (step?.attempts.length ?? 0) + 1;
    const edited = ("edited" in start ? start.edited : undefined) ?? editedArguments(step);
    const input = edited ?? call.input;

    let business: string | null;
    try {
      business = phase === "call" ? tool.keyFor(input) : null;
    } catch (error) {
      return await this.settle(call, { by: "error", error: this.#recorded(error), applied: "no" });
    }
    if (signal.aborted) return;
    const key = attemptKey(session.state, call.path, tool, phase, business);
    const deadline = this.#options.now() + tool.policy.timeout;
    const attempt: Fact<"step.attempt"> = {
      kind: "step.attempt",
      path: call.path,
      n,
      epoch: session.epoch,
      phase,
      key,
      deadline,
      ...(edited !== undefined && { edited }),
    };
    const entries: NewEntry[] = [
      ...(step === undefined ? startedEntries(call, call.step ?? "tool", tool) : []),
      attempt,
    ];
    this.#note.agreed(call);
    if (business === null) {
      session.add(entries);
      await session.committed();
    } else {
      const claim = claiming(session.state, call.path, tool, business, input);
      const held = await session.offerKey(entries, claim);
      if (held !== null) return await this.#keyHeld(start, tool, attempt, claim, held, signal);
    }
    await this.#body(
      { call, tool, input, n, key, deadline, phase, answer: "answer" in start ? start.answer : null },
      signal,
    );
  }

  async #body(
    attempt: {
      readonly call: LoopCall;
      readonly tool: DynTool;
      readonly input: Json;
      readonly n: number;
      readonly key: string;
      readonly deadline: number;
      readonly phase: "call" | "resume";
      readonly answer: Json;
    },
    signal: AbortSignal,
  ): Promise<void> {
    const { call, tool, input, n, key, deadline, phase, answer } = attempt;
    const session = this.#session;
    const { path } = call;
    const draft = session.drafts.fork(path, session.state.committed, () => session.showState(path));
    const timeout = timeLimit(Math.max(1, deadline - this.#options.now()));
    const stop = anyOf(signal, timeout.signal);
    const exit = new AttemptExit(session.outlet);
    let hasBegun = false;
    const ctx = this.context(call, tool, { n, key }, draft, stop.signal, exit);
    try {
      const { begun } = await session.begin(() => {
        if (!session.isRunning(path, n)) return undefined;
        // While its attempt became durable it was cancelled, or its time has run out.
        signal.throwIfAborted();
        hasBegun = true;
        this.#note.begun(call);
        if (phase === "call") return tool.callJson(input, ctx);
        const reply = replyTo(session.state.steps.get(path));
        if (reply !== undefined && tool.goOnJson !== undefined) return tool.goOnJson(reply, input, ctx);
        return tool.resumeJson(answer, input, ctx).then((output) => ({ type: "output" as const, output }));
      }, path);
      if (begun === undefined) return;
      if (tool.effect === "write") this.#options.writes.begin(session.state.run.uid, path, begun, tool.policy.settle);
      // A body that ignores its signal is left behind; a write's late result still counts while nothing else has (P3).
      const outcome = await orAborted(begun, tool.effect === "write" ? timeout.signal : stop.signal);
      if (!this.#session.isRunning(path, n)) return this.#late(call);
      if (outcome.type === "suspend") this.#suspend(call, tool, outcome, draft);
      else this.#succeed(call, tool, input, outcome.output, draft, phase);
    } catch (error) {
      if (session.signal.aborted) return;
      if (!this.#session.isRunning(path, n)) return this.#late(call);
      this.#fail(call, tool, { input, n, applied: hasBegun ? appliedBy(tool, error) : "no" }, error);
      if (!(error instanceof TimedOut)) this.#options.writes.recorded(session.state.run.uid, path);
    } finally {
      exit.close();
      stop.release();
      timeout.release();
      session.drafts.drop(path);
    }
  }

  /** What the tool's own code is given, in a body and in `reconcile`. */
  context(
    call: LoopCall,
    tool: DynTool,
    { n, key }: { readonly n: number; readonly key: string },
    state: AttemptDraft,
    signal: AbortSignal,
    outlet: Exit = this.#session.outlet,
  ): AttemptContext {
    const { epoch } = this.#session;
    const { uid } = this.#session.state.run;
    return new AttemptContext(
      { outlet, state, lane: new Lane(call.path, uid, () => false) },
      {
        ...{ run: uid, path: call.path, epoch, attempt: n, toolName: tool.name, toolCallId: call.id },
        ...{ idempotencyKey: key, signal },
        log: (message, data) => this.#options.report(new ToolLog(tool.name, message, data), uid),
      },
    );
  }

  #succeed(
    call: LoopCall,
    tool: DynTool,
    input: Json,
    output: Json,
    draft: AttemptDraft,
    via: "call" | "resume",
  ): void {
    const session = this.#session;
    const { state, patch, dropped } = this.#changesOf(draft);
    const reduced = this.#reduce(tool, state, output, input);
    session.drafts.drop(call.path);
    this.#leave(call.path, { type: "whole" });
    this.finish(
      call,
      via,
      {
        ...{ status: "ok", output },
        patch: this.#change(reduced === state ? patch : diff(session.state.committed, reduced), reduced),
        ...(dropped.length > 0 && { dropped }),
      },
      claimChange(this.#session.state, call, tool, input, "settled", output),
    );
  }

  /** A change of the state as it is recorded. One that makes it too large is left out: never an error after an effect. */
  #change(patch: Patch, next: Json): Patch {
    const tooLarge = this.#session.stateSize.refuses(patch, next);
    if (tooLarge === undefined) return patch;
    this.#options.report(tooLarge, this.#session.state.run.uid);
    return [];
  }

  /** What success does to the state. A `reduce` that fails costs its change, never the recorded effect. */
  #reduce(tool: DynTool, state: Json, output: Json, input: Json): Json {
    // A state that is a string or a number has no inside to change.
    if (!isDraftable(state)) return state;
    try {
      const [draft, finish] = create(state as object);
      tool.reduceJson(draft as Json, output, input);
      return ownJson(state, finish(), "state");
    } catch (error) {
      this.#options.report(error, this.#session.state.run.uid);
      return state;
    }
  }

  /** What a body has done to the state. What of it JSON cannot hold costs that change, never the recorded effect. */
  #changesOf(draft: AttemptDraft): Rebased {
    const { committed, run } = this.#session.state;
    try {
      return draft.onto(committed);
    } catch (error) {
      this.#options.report(error, run.uid);
      return draft.publishedOnto(committed);
    }
  }

  #suspend(call: LoopCall, tool: DynTool, asked: Parameters<typeof suspensionQuestion>[3], draft: AttemptDraft): void {
    const session = this.#session;
    const interrupt = suspensionQuestion(session.state, call, tool, asked, this.#options.now());
    const { state, patch, dropped } = this.#changesOf(draft);
    session.drafts.drop(call.path);
    session.closeOpen({ type: "suspended", interrupts: [] }, call.path);
    session.add(session.opening(interrupt, { patch: this.#change(patch, state), dropped }));
    this.#options.writes.recorded(session.state.run.uid, call.path);
    session.showState(call.path);
  }

  #fail(
    call: LoopCall,
    tool: DynTool,
    { input, n, applied }: { readonly input: Json; readonly n: number; readonly applied: "no" | "unknown" },
    error: unknown,
  ): void {
    const session = this.#session;
    const { state } = session;
    session.drafts.drop(call.path);
    if (error instanceof InvalidOutput && error.applied === "yes") {
      const end: StepEnd = { status: "error", error: this.#recorded(error), applied: "yes", output: error.kept };
      this.#leave(call.path, { type: "cut", error: end.error });
      this.finish(call, "call", end, claimChange(state, call, tool, input, "settled", error.kept));
      return;
    }
    // Only what certainly did not happen gives the key back.
    const claim = claimChange(state, call, tool, input, applied === "no" ? "released" : "unknown");
    if (state.cancelled && tool.effect !== "write") {
      this.#leave(call.path, { type: "cut", error: CANCELLED });
      this.finish(call, "call", { status: "cancelled" }, claim);
      return;
    }
    const retryAt = error instanceof TimeIsUp ? this.#options.now() : this.#retryAt(call, tool, error, applied);
    if (retryAt !== null) {
      const failed = {
        kind: "step.failed",
        path: call.path,
        n,
        error: this.#recorded(error),
        applied,
        retryAt,
      } as const;
      session.add(retract(state, failed, session.stateToShow()));
      return;
    }
    const told = this.#recorded(error);
    this.#leave(call.path, { type: "cut", error: told });
    this.finish(call, "call", { status: "error", error: told, applied }, claim);
  }

  /** Closes what a body has left open, and takes back the calls that it has shown without a result: nobody else will answer them. */
  #leave(path: Path, leaving: Leaving): void {
    const session = this.#session;
    session.closeOpen(leaving, path);
    const { wire, running } = session.state;
    const shown = [...(running.get(path)?.calls ?? [])];
    const withdrawn = shown.filter((id) => hasCall(wire, id) && !isAnswered(wire, id));
    if (withdrawn.length > 0) session.add([{ kind: "frame", path, ref: { of: "MESSAGES_SNAPSHOT", withdrawn } }]);
  }

  /** When a failed attempt is followed by another one, or an unknown write may be judged; null when it was the last. */
  #retryAt(call: LoopCall, tool: DynTool, error: unknown, applied: "no" | "unknown"): number | null {
    const now = this.#options.now();
    if (tool.effect === "write" && applied === "unknown") return now + tool.policy.settle;
    const failure = error instanceof HandlerError ? error : undefined;
    const isRetryable = failure?.retryable ?? (error instanceof Cancelled || error instanceof TimedOut);
    const step = this.#session.state.steps.get(call.path);
    const failed = 1 + (step === undefined ? 0 : failures(step));
    if (!isRetryable || failed >= tool.policy.attempts) return null;
    return now + backoff(failed, failure?.retryAfter, this.#options.random());
  }

  /** Ends a step that no body ends. */
  async settle(call: LoopCall, how: Settle): Promise<void> {
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name, call.path);
    const step = session.state.steps.get(call.path);
    if (step?.finished) return;
    const input = editedArguments(step) ?? call.input;
    const after = tool === undefined ? undefined : claimAfter(step, how);
    const claim =
      tool === undefined || after === undefined
        ? undefined
        : claimChange(session.state, call, tool, input, after, "output" in how ? how.output : undefined);
    const entries = (): readonly NewEntry[] => {
      const end = this.#settledEnd(how, tool, input);
      const { wire } = session.state;
      const isServers = step === undefined && call.step !== "client-tool";
      return [
        ...(how.by === "late" && session.state.leg === null ? intake(session.state, []) : []),
        ...(step === undefined ? startedEntries(call, call.step ?? "tool", tool) : []),
        // The end of its step is all that closes a call of the client's.
        ...((how.by === "cancel" || how.by === "late") && step?.waits && step.started.step !== "client-tool"
          ? session.closing(step.waits, { status: "withdrawn", by: "" })
          : []),
        { kind: "step.finished", path: call.path, via: how.by === "answer" ? "answer" : "call", ...end },
        ...(mayAnswer(isServers ? withServerCall(wire, call.id) : wire, call.id) ||
        (step === undefined && isShownByItself(call))
          ? [{ kind: "frame", path: call.path, ref: { of: "TOOL_CALL_RESULT", path: call.path } } as const]
          : []),
        // In the same batch: whoever dies behind it leaves a screen that says what the log says.
        ...(end.status === "ok" ? session.showing(call.path, apply(session.state.committed, end.patch)) : []),
      ];
    };
    // Refused when somebody has answered meanwhile: then the answer is taken first, and the driver decides again.
    const isOver = await session.offer(entries, claim === undefined ? {} : { claims: [claim] });
    if (isOver) this.#options.writes.recorded(session.state.run.uid, call.path);
  }

  #settledEnd(how: Settle, tool: DynTool | undefined, input: Json): StepEnd {
    switch (how.by) {
      case "answer":
        return this.okWithoutBody(tool, input, how.output);
      case "late":
        return how.invalid === undefined
          ? this.okWithoutBody(tool, input, how.output)
          : { status: "error", error: this.#recorded(how.invalid), applied: "yes", output: how.output };
      case "error":
        return { status: "error", error: how.error, applied: how.applied };
      case "cancel":
        return { status: "cancelled" };
      default:
        return how satisfies never;
    }
  }

  /** Success that no body of this run has brought: it was looked up, answered, or is another run's. */
  okWithoutBody(tool: DynTool | undefined, input: Json, output: Json): StepEnd {
    const { committed } = this.#session.state;
    const reduced = tool === undefined ? committed : this.#reduce(tool, committed, output, input);
    return { status: "ok", output, patch: this.#change(diff(committed, reduced), reduced) };
  }

  /** The outcome of a call, and what clients see of it, in one batch. */
  finish(call: LoopCall, via: Fact<"step.finished">["via"], end: StepEnd, claim?: ClaimChange): void {
    const session = this.#session;
    session.add(
      [
        { kind: "step.finished", path: call.path, via, ...end },
        ...(call.isHidden
          ? []
          : [{ kind: "frame", path: call.path, ref: { of: "TOOL_CALL_RESULT", path: call.path } } as const]),
      ],
      claim === undefined ? {} : { claims: [claim] },
    );
    session.showState(call.path);
    this.#options.writes.recorded(session.state.run.uid, call.path);
  }

  /** The key that the call needs is not free (K2 in `keys.ts`). */
  async #keyHeld(
    start: StartAttempt,
    tool: DynTool,
    attempt: Fact<"step.attempt">,
    wanted: ClaimChange,
    held: Claim,
    signal: AbortSignal,
  ): Promise<void> {
    const { call } = start;
    const session = this.#session;
    const { store, now } = this.#options;
    const found = await keyNotFree(store, session.state, wanted, held, call.name);
    const step = session.state.steps.get(call.path);
    const begun = step === undefined ? startedEntries(call, call.step ?? "tool", tool) : [];
    switch (found.is) {
      case "settled": {
        session.add(begun);
        const input = attempt.edited ?? call.input;
        return this.finish(call, "dedup", this.okWithoutBody(tool, input, found.output));
      }
      case "refused":
        return await this.settle(call, { by: "error", error: found.error, applied: "no" });
      case "orphan": {
        // Its attempt has ended where it is known to be unknown; else it may go on until its time is over.
        const left =
          tool.effect === "write" ? tool.policy.settle + (held.state === "unknown" ? 0 : tool.policy.timeout) : 0;
        const entries = [...begun, ...inheritance({ ...attempt, deadline: null }, held, now() + left)];
        const faster = await session.offerKey(entries, { ...wanted, to: "unknown" });
        return faster === null ? undefined : await this.attempt(start, signal);
      }
      case "wait": {
        const until = step?.waiting?.until ?? now() + tool.policy.keyWait;
        if (now() >= until) {
          return await this.settle(call, { by: "error", error: keyHeld(call.name, held), applied: "no" });
        }
        if (step?.waiting === undefined) {
          session.add([...begun, { kind: "step.waiting", path: call.path, holder: held.holder, until }]);
        }
        const isElsewhere = held.holder.uid !== session.state.run.uid;
        const { tenant, tool: owner, key } = held;
        const name = { tenant, tool: owner, key };
        return this.#note.held(call, { name, isElsewhere, until, lookAt: now() + LOOK_AGAIN });
      }
      default:
        found satisfies never;
    }
  }

  #late(call: LoopCall): void {
    const { run } = this.#session.state;
    this.#options.report(new LateOutcome(call.name, call.path), run.uid);
    this.#options.writes.recorded(run.uid, call.path);
  }

  #recorded(error: unknown): RecordedError {
    return recordedError(error, this.#session.state.run.uid, this.#options.report);
  }
}

/** What became of the question that the call waited for, where its tool has left a memo. */
function replyTo(step: StepState | undefined): Reply | undefined {
  const asked = step?.asked.findLast(({ interrupt }) => interrupt.kind === "suspension");
  if (asked?.answer == null || asked.interrupt.memo === undefined || asked.answer.status === "withdrawn")
    return undefined;
  const { status, payload = null } = asked.answer;
  return { memo: asked.interrupt.memo, status, payload };
}

/** Nobody but its own beginning has shown it. */
function isShownByItself({ model, isHidden }: LoopCall): boolean {
  return model === null && !isHidden;
}

function appliedBy(tool: DynTool, error: unknown): "no" | "unknown" {
  if (tool.effect === "read" || error instanceof InvalidInput) return "no";
  return error instanceof HandlerError ? error.applied : "unknown";
}
