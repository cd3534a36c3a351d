/**
 * One tool call from its beginning to its recorded end.
 *
 * P1. A body's attempt is durable before its first line.
 * P2. Its outcome, what it does to the state and what clients see of it are one batch.
 * P3. A body whose step has got another outcome meanwhile is too late: what it returns is dropped, and reported.
 * P4. A write that ends in anything but an output or "not applied" is unknown; it is never guessed.
 */
import { create } from "mutative";
import { Lane } from "../emit/lane.ts";
import type { Fact, NewEntry, StepEnd } from "../log/entries.ts";
import { retract } from "../log/retract.ts";
import { editedArguments } from "../log/tool-result.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { diff, type Patch } from "../protocol/patch.ts";
import { mayAnswer } from "../protocol/verify.ts";
import type { RecordedError } from "../protocol/words.ts";
import type { Claim, ClaimChange } from "../store/store.ts";
import type { Approval } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { HandlerError, InvalidInput, InvalidOutput } from "../tool/errors.ts";
import type { Judgement } from "../tool/outcome.ts";
import type { LoopCall } from "./agent-definition.ts";
import { AttemptContext } from "./attempt-context.ts";
import { Cancelled, failures, LateOutcome, orAborted, recordedError, TimedOut, ToolLog } from "./attempt-outcome.ts";
import { backoff } from "./backoff.ts";
import {
  approvalQuestion,
  claimChange,
  startedEntry,
  suspensionQuestion,
  unknownWriteQuestion,
} from "./call-entries.ts";
import { attemptAgain, type Settle, type StartAttempt } from "./decide.ts";
import { type AttemptDraft, rebased } from "./drafts.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { sha256 } from "./hash.ts";
import { anyOf, timeLimit } from "./signals.ts";

/** What a driver has found out about calls, and does not ask again. */
interface Notes {
  /** It may run: nobody has to approve it. */
  cleared(call: LoopCall): void;
  /** `reconcile` was asked, and did not say that it was applied. */
  judged(call: LoopCall): void;
}

export class CallRunner {
  readonly #options: DriverOptions;
  readonly #session: DriveSession;
  readonly #note: Notes;

  constructor(options: DriverOptions, session: DriveSession, note: Notes) {
    this.#options = options;
    this.#session = session;
    this.#note = note;
  }

  /** A call that was never begun: it is refused, is the client's, waits for a human, or may run. */
  async check(call: LoopCall): Promise<void> {
    const session = this.#session;
    if (call.invalid !== undefined) {
      return await this.settle(call, refused("INVALID_ARGUMENTS", `the call cannot be run: ${call.invalid}`));
    }
    const tool = this.#options.agent.loop.tool(call.name);
    if (tool === undefined) {
      const isOffered = session.state.request?.tools.some(({ name }) => name === call.name) ?? false;
      if (isOffered) return session.add([startedEntry(call, "client-tool", undefined)]);
      return await this.settle(call, refused("UNKNOWN_TOOL", `there is no tool named "${call.name}"`));
    }
    let approval: Approval;
    try {
      approval = await tool.approvalFor(call.input);
    } catch (error) {
      return await this.settle(call, { by: "error", error: this.#recorded(error), applied: "no" });
    }
    if (approval === false) return this.#note.cleared(call);
    session.add([
      startedEntry(call, "tool", tool),
      ...session.opening(approvalQuestion(session.state, call, tool, approval, this.#options.now())),
    ]);
  }

  async attempt(start: StartAttempt, signal: AbortSignal): Promise<void> {
    const { call, phase } = start;
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name);
    if (tool === undefined)
      return await this.settle(call, refused("UNKNOWN_TOOL", `there is no tool named "${call.name}"`));
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
    const { uid, owner } = session.state.run;
    const key = sha256(
      business === null ? `${uid}\n${call.path}\n${phase}` : `${owner.tenant}\n${tool.name}\n${business}`,
    );
    const deadline = this.#options.now() + tool.policy.timeout;
    const entries: NewEntry[] = [
      ...(step === undefined ? [startedEntry(call, "tool", tool)] : []),
      {
        kind: "step.attempt",
        path: call.path,
        n,
        epoch: session.epoch,
        phase,
        key,
        deadline,
        ...(edited !== undefined && { edited }),
      },
    ];
    if (business === null) {
      session.add(entries);
      await session.committed();
    } else {
      const claim = claimChange(this.#session.state, call, tool, input, "running");
      const held = claim === undefined ? null : await session.offerKey(entries, claim);
      if (held !== null) return await this.#keyHeld(call, tool, input, held);
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
    const ctx = this.#context(call, tool, { n, key }, draft, stop.signal);
    try {
      const body =
        phase === "call"
          ? tool.callJson(input, ctx)
          : tool.resumeJson(answer, input, ctx).then((output) => ({ type: "output" as const, output }));
      // A body that ignores its signal is left behind; a write's late result still counts while nothing else has (P3).
      const outcome = await orAborted(body, tool.effect === "write" ? timeout.signal : stop.signal);
      if (!this.#session.isRunning(path, n)) return this.#late(call);
      if (outcome.type === "suspend") this.#suspend(call, tool, outcome, draft);
      else this.#succeed(call, tool, input, outcome.output, draft, phase);
    } catch (error) {
      if (session.signal.aborted) return;
      if (!this.#session.isRunning(path, n)) return this.#late(call);
      this.#fail(call, tool, input, n, error);
    } finally {
      stop.release();
      timeout.release();
      session.drafts.drop(path);
    }
  }

  /** What the tool's own code is given, in a body and in `reconcile`. */
  #context(
    call: LoopCall,
    tool: DynTool,
    { n, key }: { readonly n: number; readonly key: string },
    state: AttemptDraft,
    signal: AbortSignal,
  ): AttemptContext {
    const { outlet, epoch } = this.#session;
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
    const { state, applied, dropped } = rebased(session.state.committed, draft.changes());
    const reduced = this.#reduce(tool, state, output, input);
    const patch = this.#change(reduced === state ? applied : diff(session.state.committed, reduced), reduced);
    session.drafts.drop(call.path);
    this.#finish(
      call,
      via,
      { status: "ok", output, patch, ...(dropped.length > 0 && { dropped }) },
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
    if (!isJsonObject(state) && !Array.isArray(state)) return state;
    try {
      return toJson(
        create(state as object, (draft) => tool.reduceJson(draft as Json, output, input)),
        "state",
      );
    } catch (error) {
      this.#options.report(error, this.#session.state.run.uid);
      return state;
    }
  }

  #suspend(call: LoopCall, tool: DynTool, asked: Parameters<typeof suspensionQuestion>[3], draft: AttemptDraft): void {
    const session = this.#session;
    const interrupt = suspensionQuestion(session.state, call, tool, asked, this.#options.now());
    const { state, applied } = rebased(session.state.committed, draft.changes());
    session.drafts.drop(call.path);
    session.add(session.opening(interrupt, this.#change(applied, state)));
    session.showState(call.path);
  }

  #fail(call: LoopCall, tool: DynTool, input: Json, n: number, error: unknown): void {
    const session = this.#session;
    const { state } = session;
    session.drafts.drop(call.path);
    if (error instanceof InvalidOutput && error.applied === "yes") {
      const end: StepEnd = { status: "error", error: this.#recorded(error), applied: "yes", output: error.kept };
      this.#finish(call, "call", end, claimChange(state, call, tool, input, "settled", error.kept));
      return;
    }
    if (state.cancelled && tool.effect !== "write") {
      this.#finish(call, "call", { status: "cancelled" });
      return;
    }
    const applied = appliedBy(tool, error);
    const retryAt = this.#retryAt(call, tool, error, applied);
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
    // Only what certainly did not happen gives the key back.
    const claim = claimChange(state, call, tool, input, applied === "no" ? "released" : "unknown");
    this.#finish(call, "call", { status: "error", error: this.#recorded(error), applied }, claim);
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

  /** Asks whether an unknown write was applied, and a human where nobody can tell. */
  async judge(call: LoopCall, isSettled: boolean, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name);
    const step = session.state.steps.get(call.path);
    const attempt = step?.attempts.at(-1);
    if (step === undefined || attempt === undefined) return;
    const input = editedArguments(step) ?? call.input;
    let judgement: Judgement<Json> = { applied: "unknown" };
    if (tool !== undefined) {
      const draft = session.drafts.fork(call.path, session.state.committed, () => {});
      const timeout = timeLimit(tool.policy.timeout);
      const stop = anyOf(signal, timeout.signal);
      const ctx = this.#context(call, tool, { n: attempt.n, key: attempt.key ?? "" }, draft, stop.signal);
      try {
        judgement = await tool.reconcileJson(input, ctx);
      } catch (error) {
        if (session.signal.aborted) return;
        // Whatever went wrong in asking says nothing about the write.
        this.#options.report(error, session.state.run.uid);
      } finally {
        stop.release();
        timeout.release();
        session.drafts.drop(call.path);
      }
    }
    if (session.state.steps.get(call.path)?.finished) return;
    if (judgement.applied === "yes" && tool !== undefined) {
      const { output } = judgement;
      const claim = claimChange(session.state, call, tool, input, "settled", output);
      return this.#finish(call, "reconcile", this.#okWithoutBody(tool, input, output), claim);
    }
    this.#note.judged(call);
    if (!isSettled) return;
    if (judgement.applied === "no") {
      if (session.state.cancelled) return await this.settle(call, { by: "cancel" });
      return await this.attempt(attemptAgain(call, step), signal);
    }
    session.add(session.opening(unknownWriteQuestion(session.state, call, tool)));
  }

  /** Ends a step that no body ends. */
  async settle(call: LoopCall, how: Settle): Promise<void> {
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name);
    const step = session.state.steps.get(call.path);
    if (step?.finished) return;
    const input = editedArguments(step) ?? call.input;
    const claim =
      how.by === "answer" && tool !== undefined
        ? claimChange(session.state, call, tool, input, "settled", how.output)
        : undefined;
    const entries = (): readonly NewEntry[] => [
      ...(step === undefined ? [startedEntry(call, "tool", tool)] : []),
      // The end of its step is all that closes a call of the client's.
      ...(how.by === "cancel" && step?.waits && step.started.step !== "client-tool"
        ? session.closing(step.waits, { status: "withdrawn", by: "" })
        : []),
      {
        kind: "step.finished",
        path: call.path,
        via: how.by === "answer" ? "answer" : "call",
        ...this.#settledEnd(how, tool, input),
      },
      ...(mayAnswer(session.state.wire, call.id)
        ? [{ kind: "frame", path: call.path, ref: { of: "TOOL_CALL_RESULT", path: call.path } } as const]
        : []),
    ];
    // Refused when somebody has answered meanwhile: then the answer is taken first, and the driver decides again.
    if (await session.offer(entries, claim === undefined ? {} : { claims: [claim] })) session.showState(call.path);
  }

  #settledEnd(how: Settle, tool: DynTool | undefined, input: Json): StepEnd {
    switch (how.by) {
      case "answer":
        return this.#okWithoutBody(tool, input, how.output);
      case "error":
        return { status: "error", error: how.error, applied: how.applied };
      case "cancel":
        return { status: "cancelled" };
      default:
        return how satisfies never;
    }
  }

  /** Success that no body of this run has brought: it was looked up, answered, or is another run's. */
  #okWithoutBody(tool: DynTool | undefined, input: Json, output: Json): StepEnd {
    const { committed } = this.#session.state;
    const reduced = tool === undefined ? committed : this.#reduce(tool, committed, output, input);
    return { status: "ok", output, patch: this.#change(diff(committed, reduced), reduced) };
  }

  /** The outcome of a call, and what clients see of it, in one batch. */
  #finish(call: LoopCall, via: Fact<"step.finished">["via"], end: StepEnd, claim?: ClaimChange): void {
    const session = this.#session;
    session.add(
      [
        { kind: "step.finished", path: call.path, via, ...end },
        { kind: "frame", path: call.path, ref: { of: "TOOL_CALL_RESULT", path: call.path } },
      ],
      claim === undefined ? {} : { claims: [claim] },
    );
    session.showState(call.path);
  }

  /** The key that the call needs is not free. */
  async #keyHeld(call: LoopCall, tool: DynTool, input: Json, held: Claim): Promise<void> {
    if (held.state === "settled") {
      if (!this.#session.state.steps.has(call.path)) this.#session.add([startedEntry(call, "tool", tool)]);
      return this.#finish(call, "dedup", this.#okWithoutBody(tool, input, held.output ?? null));
    }
    const { holder } = held;
    return await this.settle(
      call,
      refused(
        "KEY_HELD",
        `the same ${call.name} is ${held.state} in run ${holder.uid}, step ${holder.path}; look there before calling it again`,
      ),
    );
  }

  #late(call: LoopCall): void {
    const { run } = this.#session.state;
    this.#options.report(new LateOutcome(call.name, call.path), run.uid);
  }

  #recorded(error: unknown): RecordedError {
    return recordedError(error, this.#session.state.run.uid, this.#options.report);
  }
}

function refused(code: string, message: string): Settle {
  return { by: "error", error: { code, message }, applied: "no" };
}

function appliedBy(tool: DynTool, error: unknown): "no" | "unknown" {
  if (tool.effect === "read" || error instanceof InvalidInput) return "no";
  return error instanceof HandlerError ? error.applied : "unknown";
}
