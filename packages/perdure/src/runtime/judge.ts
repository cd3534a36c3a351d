/** A write of which nobody knows whether it happened: its own `reconcile` is asked, and a human where that cannot tell. */
import { editedArguments } from "../log/tool-result.ts";
import { backoff } from "../protocol/backoff.ts";
import type { Json } from "../protocol/json.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { HandlerError, InvalidOutput } from "../tool/errors.ts";
import type { Judgement } from "../tool/outcome.ts";
import type { LoopCall } from "./agent-definition.ts";
import { unknownWriteQuestion } from "./call-entries.ts";
import type { CallNotes } from "./call-notes.ts";
import type { CallRunner } from "./call-runner.ts";
import { attemptAgain } from "./decide.ts";
import { AttemptDraft } from "./drafts.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { claimChange } from "./keys.ts";
import { anyOf, elapsed, timeLimit } from "./signals.ts";

export class Judge {
  constructor(
    private readonly options: DriverOptions,
    private readonly session: DriveSession,
    private readonly note: CallNotes,
    private readonly runner: CallRunner,
  ) {}

  /**
   * @param isSettled - its time is over: what nobody can tell is asked of a human
   * @param isRunning - it runs all the same, so "not applied" may not be believed
   */
  async judge(
    call: LoopCall,
    { isSettled, isRunning }: { readonly isSettled: boolean; readonly isRunning: boolean },
    signal: AbortSignal,
  ): Promise<void> {
    const { session, runner } = this;
    const tool = this.options.agent.loop.tool(call.name, call.path);
    const step = session.state.steps.get(call.path);
    const attempt = step?.attempts.at(-1);
    if (step === undefined || attempt === undefined) return;
    const input = editedArguments(step) ?? call.input;
    const asking = { n: attempt.n, key: attempt.key ?? "" };
    const judgement: Judgement<Json> =
      tool === undefined ? { applied: "unknown" } : await this.#reconcile(call, tool, input, asking, signal);
    if (signal.aborted || session.state.steps.get(call.path)?.finished) return;
    if (judgement.applied === "yes" && tool !== undefined) {
      const { output } = judgement;
      const claim = claimChange(session.state, call, tool, input, "settled", output);
      return runner.finish(call, "reconcile", runner.okWithoutBody(tool, input, output), claim);
    }
    this.note.judged(call);
    if (!isSettled) return;
    if (judgement.applied === "no" && !isRunning) {
      if (session.state.cancelled) return await runner.settle(call, { by: "cancel" });
      return await runner.attempt(attemptAgain(call, step), signal);
    }
    this.#ask(call, tool, input, isRunning);
  }

  /** Asks as often as the tool may be tried: looking something up changes nothing. */
  async #reconcile(
    call: LoopCall,
    tool: DynTool,
    input: Json,
    asking: { readonly n: number; readonly key: string },
    signal: AbortSignal,
  ): Promise<Judgement<Json>> {
    const { session, runner } = this;
    for (let failed = 1; ; failed++) {
      // What it does to the state counts for nothing: success does that by `reduce`.
      const draft = new AttemptDraft(session.state.committed, () => {});
      const timeout = timeLimit(tool.policy.timeout);
      const stop = anyOf(signal, timeout.signal);
      const ctx = runner.context(call, tool, asking, draft, stop.signal);
      try {
        return await (await session.begin(() => tool.reconcileJson(input, ctx), call.path)).begun;
      } catch (error) {
        // Whatever went wrong in asking says nothing about the write.
        if (!session.signal.aborted) this.options.report(error, session.state.run.uid);
        const isFinal = error instanceof InvalidOutput || failed >= tool.policy.attempts;
        if (isFinal || signal.aborted) return { applied: "unknown" };
        const retryAfter = error instanceof HandlerError ? error.retryAfter : undefined;
        await elapsed(backoff(failed, retryAfter, this.options.random()), signal);
      } finally {
        stop.release();
        timeout.release();
      }
    }
  }

  /** Leaves the question about a write to whoever finds it in the inbox, or needs its key. */
  leave(call: LoopCall): void {
    const tool = this.options.agent.loop.tool(call.name, call.path);
    this.#ask(call, tool, editedArguments(this.session.state.steps.get(call.path)) ?? call.input, false);
  }

  #ask(call: LoopCall, tool: DynTool | undefined, input: Json, isRunning: boolean): void {
    const { session } = this;
    const claim = tool === undefined ? undefined : claimChange(session.state, call, tool, input, "unknown");
    session.add(
      session.opening(unknownWriteQuestion(session.state, call, tool, isRunning)),
      claim === undefined ? {} : { claims: [claim] },
    );
  }
}
