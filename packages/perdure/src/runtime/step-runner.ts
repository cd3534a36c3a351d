/**
 * Starts steps and records how they end. Each body runs beside the driver, which is woken when it has ended.
 *
 * P1. A body's attempt is durable before its first line.
 * P2. Its outcome, what it does to the state and what clients see of it are one batch.
 * P3. A body whose step has got another outcome meanwhile is too late: what it returns is dropped, and reported.
 * P4. A write that ends in anything but an output or "not applied" is unknown; it is never guessed.
 */
import { create } from "mutative";
import { publicError } from "../emit/errors.ts";
import { Lane } from "../emit/lane.ts";
import type { Fact, Interrupt, NewEntry, StepEnd } from "../log/entries.ts";
import { closeIncomplete } from "../log/retract.ts";
import { canonicalJson } from "../protocol/canonical.ts";
import { parseDuration } from "../protocol/duration.ts";
import { PerdureError } from "../protocol/errors.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { diff, type Patch } from "../protocol/patch.ts";
import { hasCall } from "../protocol/verify.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Claim, ClaimChange } from "../store/store.ts";
import type { Approval, ApprovalRequest } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { HandlerError, InvalidInput, InvalidOutput } from "../tool/errors.ts";
import type { Judgement } from "../tool/outcome.ts";
import type { LoopCall } from "./agent-definition.ts";
import { AttemptContext } from "./attempt-context.ts";
import { backoff } from "./backoff.ts";
import type { Settle, Start } from "./decide.ts";
import { type AttemptDraft, rebased } from "./drafts.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { sha256 } from "./hash.ts";
import { approvalSchema, UNKNOWN_WRITE, unknownWriteSchema } from "./interrupts.ts";
import { ModelStepEmitter } from "./model-step.ts";
import { LeaseLostError } from "./run-log.ts";

interface Live {
  readonly abort: AbortController;
  /** Whether a cancel ends it at once: what it does cannot be half done. */
  readonly isHarmless: boolean;
  done: Promise<void>;
}

export class StepRunner {
  /** Unknown writes whose `reconcile` was asked before they had settled. */
  readonly judged = new Set<Path>();
  readonly #live = new Map<Path, Live>();
  readonly #options: DriverOptions;
  readonly #session: DriveSession;

  constructor(options: DriverOptions, session: DriveSession) {
    this.#options = options;
    this.#session = session;
  }

  get live(): ReadonlySet<Path> {
    return new Set(this.#live.keys());
  }

  async start(start: Start): Promise<void> {
    switch (start.start) {
      case "model":
        return this.#model(start.path);
      case "call":
        return this.#run(start.call.path, isReadOnly(this.#tool(start.call)), (signal) =>
          this.#begin(start.call, signal),
        );
      case "attempt":
        return this.#run(start.call.path, isReadOnly(this.#tool(start.call)), (signal) => this.#attempt(start, signal));
      case "judge":
        return this.#run(start.call.path, false, (signal) => this.#judge(start.call, start.isSettled, signal));
      case "settle":
        return await this.#settle(start.call, start.how);
      default:
        return start satisfies never;
    }
  }

  /** Model calls, reads and idempotent calls stop now; a write goes on. */
  abortForCancel(): void {
    for (const { abort, isHarmless } of this.#live.values()) if (isHarmless) abort.abort(new Cancelled());
  }

  async settled(): Promise<void> {
    await Promise.all([...this.#live.values()].map(({ done }) => done));
  }

  #run(path: Path, isHarmless: boolean, body: (signal: AbortSignal) => Promise<void>): void {
    const abort = new AbortController();
    const live: Live = { abort, isHarmless, done: Promise.resolve() };
    this.#live.set(path, live);
    live.done = body(AbortSignal.any([abort.signal, this.#session.signal]))
      .catch((error: unknown) => {
        if (error instanceof LeaseLostError) return;
        this.#options.report(error, this.#session.state.run.uid);
        // What the driver itself could not do is not the run's fault: whoever claims it next tries again.
        this.#session.lose(error);
      })
      .finally(() => {
        this.#live.delete(path);
        this.#session.wake();
      });
  }

  // ── Model steps

  #model(path: Path): void {
    const { loop } = this.#options.agent;
    const { state } = this.#session;
    const known = state.steps.get(path);
    const n = (known?.attempts.length ?? 0) + 1;
    const { instructions, tools, settings } = loop.describes;
    const started: NewEntry = {
      kind: "step.started",
      path,
      step: "model",
      name: "model",
      effect: "read",
      input: {
        history: {
          upTo: state.head,
          instructions: sha256(instructions),
          tools: sha256(JSON.stringify(tools)),
          settings,
        },
      },
      contract: null,
    };
    this.#run(path, true, async (signal) => {
      const session = this.#session;
      session.add([...(known === undefined ? [started] : []), this.#attemptEntry(path, n, "call", null, null)]);
      await session.committed();
      const emit = new ModelStepEmitter(session.outlet, state.run.uid, path);
      try {
        const { output: said, usage } = await loop.callModel({
          run: session.state,
          before: this.#options.before,
          path,
          signal,
          emit,
        });
        if (!this.#isRunning(path, n)) return;
        const output: Json = isJsonObject(said) ? { ...said, messageId: emit.isShown ? emit.messageId : null } : said;
        const ends = emit.heldBack.map(({ event, lane }): NewEntry => ({ kind: "frame", path: lane, event }));
        const withdrawn = invalidCalls(output);
        const taken: NewEntry[] =
          withdrawn.length === 0 ? [] : [{ kind: "frame", path, ref: { of: "MESSAGES_SNAPSHOT", withdrawn } }];
        session.add([
          ...taken,
          ...ends,
          { kind: "step.finished", path, via: "call", status: "ok", output, patch: [], usage },
        ]);
      } catch (error) {
        if (!this.#isRunning(path, n)) return;
        // What was said stays on the screen, marked as not whole; half a call is taken back.
        const closed = closeIncomplete(session.state, path);
        const end: StepEnd = session.state.cancelled
          ? { status: "cancelled" }
          : { status: "error", error: this.#publicError(error), applied: "no" };
        session.add([...closed, { kind: "step.finished", path, via: "call", ...end }]);
      }
    });
  }

  // ── Calls

  /** A call that was never begun. */
  async #begin(call: LoopCall, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    if (call.invalid !== undefined) {
      return await this.#settle(call, refused("INVALID_ARGUMENTS", `the call cannot be run: ${call.invalid}`));
    }
    const tool = this.#options.agent.loop.tool(call.name);
    if (tool === undefined) {
      const isOffered = session.state.request?.tools.some(({ name }) => name === call.name) ?? false;
      if (isOffered) return session.add([this.#startedEntry(call, "client-tool", undefined)]);
      return await this.#settle(call, refused("UNKNOWN_TOOL", `there is no tool named "${call.name}"`));
    }
    let approval: Approval;
    try {
      approval = await tool.approvalFor(call.input);
    } catch (error) {
      return await this.#settle(call, { by: "error", error: this.#publicError(error), applied: "no" });
    }
    if (approval === false) return await this.#attempt({ start: "attempt", call, phase: "call" }, signal);
    session.add([this.#startedEntry(call, "tool", tool), ...session.opening(this.#approval(call, tool, approval))]);
  }

  async #attempt(start: Extract<Start, { start: "attempt" }>, signal: AbortSignal): Promise<void> {
    const { call, phase } = start;
    const session = this.#session;
    const tool = this.#tool(call);
    if (tool === undefined)
      return await this.#settle(call, refused("UNKNOWN_TOOL", `there is no tool named "${call.name}"`));
    const step = session.state.steps.get(call.path);
    const n = (step?.attempts.length ?? 0) + 1;
    const edited = "edited" in start ? start.edited : undefined;
    const input = edited ?? call.input;

    let business: string | null;
    try {
      business = phase === "call" ? tool.keyFor(input) : null;
    } catch (error) {
      return await this.#settle(call, { by: "error", error: this.#publicError(error), applied: "no" });
    }
    const { uid, owner } = session.state.run;
    const key = sha256(
      business === null ? `${uid}\n${call.path}\n${phase}` : `${owner.tenant}\n${tool.name}\n${business}`,
    );
    const deadline = this.#options.now() + tool.policy.timeout;
    const entries: NewEntry[] = [
      ...(step === undefined ? [this.#startedEntry(call, "tool", tool)] : []),
      this.#attemptEntry(call.path, n, phase, key, deadline, edited),
    ];
    if (business === null) {
      session.add(entries);
      await session.committed();
    } else {
      const claim = this.#claimed(call, tool, input, "running");
      const held = claim === undefined ? null : await session.offerKey(entries, claim);
      if (held !== null) return await this.#keyHeld(call, tool, held);
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
    const { run, committed } = session.state;
    const draft = session.drafts.fork(path, committed, () => session.showState(path));
    const timeout = AbortSignal.timeout(Math.max(1, deadline - this.#options.now()));
    const stop = AbortSignal.any([signal, timeout]);
    const lane = new Lane(path, run.uid, () => false);
    const ctx = new AttemptContext(
      { outlet: session.outlet, state: draft, lane },
      {
        ...{ run: run.uid, path, epoch: session.epoch, attempt: n, toolName: tool.name, toolCallId: call.id },
        ...{ idempotencyKey: key, signal: stop },
        log: (message, data) => this.#options.report(new ToolLog(tool.name, message, data), run.uid),
      },
    );
    try {
      const body =
        phase === "call"
          ? tool.callJson(input, ctx)
          : tool.resumeJson(answer, input, ctx).then((output) => ({ type: "output" as const, output }));
      // A body that ignores its signal is left behind; a write's late result still counts while nothing else has (P3).
      const outcome = await orAborted(body, tool.effect === "write" ? timeout : stop);
      if (!this.#isRunning(path, n)) return this.#late(call);
      if (outcome.type === "suspend") this.#suspend(call, tool, outcome, draft);
      else this.#succeed(call, tool, input, outcome.output, draft, phase);
    } catch (error) {
      if (session.signal.aborted) return;
      if (!this.#isRunning(path, n)) return this.#late(call);
      this.#fail(call, tool, input, n, error);
    } finally {
      session.drafts.drop(path);
    }
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
    const patch: Patch = reduced === state ? applied : diff(session.state.committed, reduced);
    session.drafts.drop(call.path);
    this.#finish(
      call,
      via,
      { status: "ok", output, patch, ...(dropped.length > 0 && { dropped }) },
      this.#claimed(call, tool, input, "settled", output),
    );
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

  #suspend(
    call: LoopCall,
    tool: DynTool,
    { message, reason, expiresIn }: { readonly message: string; readonly reason?: string; readonly expiresIn?: number },
    draft: AttemptDraft,
  ): void {
    const session = this.#session;
    const schema = tool.answerSchema ?? true;
    const isBoolean = isJsonObject(schema) && schema.type === "boolean";
    const interrupt = this.#question(call, {
      kind: "suspension",
      reason: reason ?? (isBoolean ? "confirmation" : "input_required"),
      message,
      schema,
      audience: null,
      expiresIn,
    });
    const { applied } = rebased(session.state.committed, draft.changes());
    session.drafts.drop(call.path);
    session.add(session.opening(interrupt, applied));
    session.showState(call.path);
  }

  #fail(call: LoopCall, tool: DynTool, input: Json, n: number, error: unknown): void {
    const session = this.#session;
    const { state } = session;
    session.drafts.drop(call.path);
    if (error instanceof InvalidOutput && error.applied === "yes") {
      const end: StepEnd = { status: "error", error: this.#publicError(error), applied: "yes", output: error.kept };
      return this.#finish(call, "call", end, this.#claimed(call, tool, input, "settled", error.kept));
    }
    const isWrite = tool.effect === "write";
    const failure = error instanceof HandlerError ? error : undefined;
    const isCut = error instanceof Cancelled || error instanceof TimedOut;
    if (state.cancelled && !isWrite) return this.#finish(call, "call", { status: "cancelled" });
    const applied =
      tool.effect === "read" || error instanceof InvalidInput || failure?.applied === "no" ? "no" : "unknown";
    const isUnknownWrite = isWrite && applied === "unknown";
    const isAgain = (failure?.retryable ?? isCut) && n < tool.policy.attempts && !isUnknownWrite;
    const now = this.#options.now();
    if (isUnknownWrite || isAgain) {
      const retryAt = isUnknownWrite
        ? now + tool.policy.settle
        : now + backoff(n, failure?.retryAfter, this.#options.random());
      session.add([{ kind: "step.failed", path: call.path, n, error: this.#publicError(error), applied, retryAt }]);
      return session.showState(call.path);
    }
    this.#finish(
      call,
      "call",
      { status: "error", error: this.#publicError(error), applied },
      this.#claimed(call, tool, input, "released"),
    );
  }

  /** Asks whether an unknown write was applied, and a human where nobody can tell. */
  async #judge(call: LoopCall, isSettled: boolean, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    const tool = this.#tool(call);
    const step = session.state.steps.get(call.path);
    const attempt = step?.attempts.at(-1);
    if (step === undefined || attempt === undefined) return;
    const input = attempt.edited ?? call.input;
    let judgement: Judgement<Json> = { applied: "unknown" };
    if (tool !== undefined) {
      const { run, committed } = session.state;
      const ctx = new AttemptContext(
        {
          outlet: session.outlet,
          state: session.drafts.fork(call.path, committed, () => {}),
          lane: new Lane(call.path, run.uid, () => false),
        },
        {
          ...{
            run: run.uid,
            path: call.path,
            epoch: session.epoch,
            attempt: attempt.n,
            toolName: tool.name,
            toolCallId: call.id,
          },
          ...{
            idempotencyKey: attempt.key ?? "",
            signal: AbortSignal.any([signal, AbortSignal.timeout(tool.policy.timeout)]),
          },
          log: (message, data) => this.#options.report(new ToolLog(tool.name, message, data), run.uid),
        },
      );
      try {
        judgement = await tool.reconcileJson(input, ctx);
      } catch (error) {
        if (session.signal.aborted) return;
        // Whatever went wrong in asking says nothing about the write.
        this.#options.report(error, run.uid);
      } finally {
        session.drafts.drop(call.path);
      }
    }
    if (session.state.steps.get(call.path)?.finished) return;
    if (judgement.applied === "yes" && tool !== undefined) {
      const { output } = judgement;
      const reduced = this.#reduce(tool, session.state.committed, output, input);
      const patch = diff(session.state.committed, reduced);
      return this.#finish(
        call,
        "reconcile",
        { status: "ok", output, patch },
        this.#claimed(call, tool, input, "settled", output),
      );
    }
    this.judged.add(call.path);
    if (!isSettled) return;
    if (judgement.applied === "no") {
      if (session.state.cancelled) return await this.#settle(call, { by: "cancel" });
      return await this.#attempt(
        { start: "attempt", call, phase: "call", ...(attempt.edited !== undefined && { edited: attempt.edited }) },
        signal,
      );
    }
    const interrupt = this.#question(call, {
      kind: "unknown-write",
      reason: "perdure:unknown_write",
      message: `tool \`${call.name}\` may have been applied; answer interrupt ${this.#questionId(call.path)}: did yes, no or unknown`,
      schema: unknownWriteSchema(tool?.outputSchema ?? null),
      audience: null,
      expiresIn: undefined,
    });
    session.add(session.opening(interrupt));
    // A cancelled run does not wait: its question stays in the inbox.
    if (session.state.cancelled)
      this.#finish(call, "call", { status: "error", error: UNKNOWN_WRITE, applied: "unknown" });
  }

  /** Ends a step that no body ends. */
  async #settle(call: LoopCall, how: Settle): Promise<void> {
    const session = this.#session;
    const tool = this.#options.agent.loop.tool(call.name);
    const step = session.state.steps.get(call.path);
    if (step?.finished) return;
    const entries: NewEntry[] = step === undefined ? [this.#startedEntry(call, "tool", tool)] : [];
    if (how.by === "cancel" && step?.waits)
      entries.push(...session.closing(step.waits, { status: "withdrawn", by: "" }));
    const input = step?.attempts.at(-1)?.edited ?? call.input;
    const end = this.#settledEnd(how, tool, input);
    const claim =
      how.by === "answer" && tool !== undefined ? this.#claimed(call, tool, input, "settled", how.output) : undefined;
    entries.push({ kind: "step.finished", path: call.path, via: how.by === "answer" ? "answer" : "call", ...end });
    if (hasCall(session.state.wire, call.id))
      entries.push({ kind: "frame", path: call.path, ref: { of: "TOOL_CALL_RESULT", path: call.path } });
    // Refused when somebody has answered meanwhile: then the answer is taken first, and the driver decides again.
    if (await session.offer(entries, claim === undefined ? {} : { claims: [claim] })) session.showState(call.path);
  }

  #settledEnd(how: Settle, tool: DynTool | undefined, input: Json): StepEnd {
    switch (how.by) {
      case "answer": {
        const { committed } = this.#session.state;
        const reduced = tool === undefined ? committed : this.#reduce(tool, committed, how.output, input);
        return { status: "ok", output: how.output, patch: diff(committed, reduced) };
      }
      case "error":
        return { status: "error", error: how.error, applied: how.applied };
      case "cancel":
        return { status: "cancelled" };
      default:
        return how satisfies never;
    }
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
  async #keyHeld(call: LoopCall, tool: DynTool, held: Claim): Promise<void> {
    if (held.state === "settled") {
      const output = held.output ?? null;
      const { committed } = this.#session.state;
      const reduced = this.#reduce(tool, committed, output, call.input);
      const entries: NewEntry[] = this.#session.state.steps.has(call.path)
        ? []
        : [this.#startedEntry(call, "tool", tool)];
      this.#session.add(entries);
      return this.#finish(call, "dedup", { status: "ok", output, patch: diff(committed, reduced) });
    }
    const { holder } = held;
    return await this.#settle(
      call,
      refused(
        "KEY_HELD",
        `the same ${call.name} is ${held.state} in run ${holder.uid}, step ${holder.path}; look there before calling it again`,
      ),
    );
  }

  /** What happens to the call's business key, if it has one. */
  #claimed(call: LoopCall, tool: DynTool, input: Json, to: ClaimChange["to"], output?: Json): ClaimChange | undefined {
    const { uid, owner } = this.#session.state.run;
    const key = tool.keyFor(input);
    if (key === null) return undefined;
    return {
      ...{ tenant: owner.tenant, tool: tool.name, key, holder: { uid, path: call.path }, to },
      argsHash: sha256(canonicalJson(input)),
      ...(output !== undefined && { output }),
    };
  }

  // ── Entries

  #startedEntry(call: LoopCall, step: "tool" | "client-tool", tool: DynTool | undefined): NewEntry {
    return {
      kind: "step.started",
      path: call.path,
      step,
      name: call.name,
      effect: tool?.effect ?? "read",
      input: { call: { model: call.model, index: call.index } },
      contract: tool === undefined ? null : sha256(tool.contract),
      toolCallId: call.id,
    };
  }

  #attemptEntry(
    path: Path,
    n: number,
    phase: "call" | "resume",
    key: string | null,
    deadline: number | null,
    edited?: Json,
  ): NewEntry {
    return {
      kind: "step.attempt",
      path,
      n,
      epoch: this.#session.epoch,
      phase,
      key,
      deadline,
      ...(edited !== undefined && { edited }),
    };
  }

  #approval(call: LoopCall, tool: DynTool, approval: true | ApprovalRequest): Interrupt {
    const asked = approval === true ? { message: `Run ${tool.name}?` } : approval;
    const { risk } = asked;
    return {
      ...this.#question(call, {
        kind: "approval",
        reason: "tool_call",
        message: asked.message,
        schema: approvalSchema,
        audience: asked.audience ?? null,
        expiresIn: asked.expiresIn === undefined ? undefined : parseDuration(asked.expiresIn),
      }),
      ...(risk !== undefined && { metadata: { risk } }),
    };
  }

  #question(
    call: LoopCall,
    {
      expiresIn,
      ...rest
    }: Pick<Interrupt, "kind" | "reason" | "message" | "schema" | "audience"> & {
      readonly expiresIn: number | undefined;
    },
  ): Interrupt {
    return {
      ...rest,
      id: this.#questionId(call.path),
      path: call.path,
      toolCallId: call.id,
      argsHash: sha256(canonicalJson(call.input)),
      expiresAt: expiresIn === undefined ? null : this.#options.now() + expiresIn,
    };
  }

  /** The same in every attempt to ask it. */
  #questionId(path: Path): string {
    const { run, steps } = this.#session.state;
    return idAt(run.uid, path, "interrupt", steps.get(path)?.asked.length ?? 0);
  }

  #tool(call: LoopCall): DynTool | undefined {
    return this.#options.agent.loop.tool(call.name);
  }

  /** Whether the attempt still has no outcome, and is ours to record. */
  #isRunning(path: Path, n: number): boolean {
    return !this.#session.signal.aborted && this.#session.state.running.get(path)?.attempt.n === n;
  }

  #late(call: LoopCall): void {
    const { run } = this.#session.state;
    this.#options.report(new LateOutcome(call.name, call.path), run.uid);
  }

  /** What log, model and client may know of a failure; the cause goes to whoever runs the server. */
  #publicError(error: unknown): RecordedError {
    const { run } = this.#session.state;
    if (error instanceof HandlerError || error instanceof InvalidInput || error instanceof InvalidOutput) {
      if (error.cause !== undefined) this.#options.report(error, run.uid);
      return { code: error.code, message: error.message };
    }
    if (error instanceof Cancelled || error instanceof TimedOut) return { code: error.code, message: error.message };
    this.#options.report(error, run.uid);
    return publicError(error);
  }
}

/** A step was stopped because its run was cancelled. */
class Cancelled extends PerdureError {
  override readonly name = "Cancelled";
  constructor() {
    super("CANCELLED", "the run was cancelled");
  }
}

/** An attempt took longer than its tool allows. */
class TimedOut extends PerdureError {
  override readonly name = "TimedOut";
  constructor() {
    super("TIMEOUT", "it took too long");
  }
}

/** A body ended after its step had got another outcome. Its result is not recorded. */
class LateOutcome extends PerdureError {
  override readonly name = "LateOutcome";
  constructor(tool: string, path: string) {
    super("LATE_OUTCOME", `tool \`${tool}\` (step ${path}) ended after its step had: what it returned is not recorded`);
  }
}

/** A line that a tool wrote to the server's log. */
class ToolLog extends PerdureError {
  override readonly name = "ToolLog";
  constructor(
    tool: string,
    message: string,
    readonly data: unknown,
  ) {
    super("TOOL_LOG", `tool \`${tool}\`: ${message}`);
  }
}

function refused(code: string, message: string): Settle {
  return { by: "error", error: { code, message }, applied: "no" };
}

function isReadOnly(tool: DynTool | undefined): boolean {
  return tool?.effect !== "write";
}

/** Calls of a recorded answer whose arguments are not whole: on the screen they were cut, so they are taken back there. */
function invalidCalls(output: Json): string[] {
  const calls = isJsonObject(output) && Array.isArray(output.calls) ? output.calls : [];
  return calls.flatMap((call: Json) =>
    isJsonObject(call) && call.invalid !== undefined && typeof call.id === "string" ? [call.id] : [],
  );
}

/** Rejects when the signal fires first; the body is left behind then. */
async function orAborted<T>(body: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    const stop = (): void =>
      reject(
        signal.reason instanceof Cancelled
          ? signal.reason
          : signal.reason instanceof Error && signal.reason.name === "TimeoutError"
            ? new TimedOut()
            : signal.reason,
      );
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
  return await Promise.race([body, aborted]);
}
