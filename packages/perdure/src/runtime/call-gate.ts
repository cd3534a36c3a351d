/**
 * What a call has to pass before its body: that there is such a tool, that a human approves, and, for one that an earlier deployment began,
 * that the tool is still the one that was meant.
 */
import type { Approval } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { isAgentTool, type LoopCall } from "./agent-definition.ts";
import { recordedError } from "./attempt-outcome.ts";
import { approvalQuestion, contractQuestion, startedEntries } from "./call-entries.ts";
import type { CallNotes } from "./call-notes.ts";
import { contractChange, contractQuestionOf } from "./contracts.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { intake } from "./intake.ts";
import type { Settle } from "./settle.ts";

export class CallGate {
  constructor(
    private readonly options: DriverOptions,
    private readonly session: DriveSession,
    private readonly note: CallNotes,
    private readonly settle: (call: LoopCall, how: Settle) => Promise<void>,
  ) {}

  /** A call that has not run: it is refused, is the client's, waits for a human, or may run. */
  async check(call: LoopCall, signal: AbortSignal): Promise<void> {
    const { session } = this;
    const step = session.state.steps.get(call.path);
    if (call.invalid !== undefined) {
      return await this.settle(call, refusal("INVALID_ARGUMENTS", `the call cannot be run: ${call.invalid}`));
    }
    const tool = this.options.agent.loop.tool(call.name, call.path);
    if (tool === undefined) {
      // Code of a custom loop knows what was offered when it began.
      const isClients =
        call.step === "client-tool" || session.state.request?.tools.some(({ name }) => name === call.name);
      if (isClients && step === undefined) return session.add(startedEntries(call, "client-tool", undefined));
      return await this.settle(call, unknownTool(call));
    }
    let approval: Approval;
    try {
      approval = await this.#approvalFor(tool, call);
    } catch (error) {
      const recorded = recordedError(error, session.state.run.uid, this.options.report);
      return await this.settle(call, { by: "error", error: recorded, applied: "no" });
    }
    // Stopped meanwhile: the driver decides again.
    if (signal.aborted) return;
    if (approval === false) return this.note.cleared(call);
    if (step === undefined) this.note.agreed(call);
    session.add([
      ...(step === undefined ? startedEntries(call, isAgentTool(tool) ? "child" : (call.step ?? "tool"), tool) : []),
      ...session.opening(approvalQuestion(session.state, call, tool, approval, this.options.now())),
    ]);
  }

  /** The most restrictive of what the tool and the agent ask for. */
  async #approvalFor(tool: DynTool, call: LoopCall): Promise<Approval> {
    const own = await tool.approvalFor(call.input);
    return own === false && this.options.agent.approve === "write" && tool.effect === "write" ? true : own;
  }

  /** A call that an earlier driver began goes on, or waits for an operator. */
  async agree(call: LoopCall): Promise<void> {
    const { session } = this;
    const step = session.state.steps.get(call.path);
    if (step === undefined) return this.note.agreed(call);
    const open = contractQuestionOf(step)?.interrupt;
    // After a cancel nothing goes on with it, and what may be half done is asked of a human.
    const change = session.state.cancelled
      ? undefined
      : await contractChange(session.state, call, step, this.options.agent.loop.tool(call.name, call.path));
    if (change === undefined) {
      if (open === undefined || (await this.#withdraw(open.id, true))) this.note.agreed(call);
      return;
    }
    const question = contractQuestion(session.state, call, change);
    if (open?.message !== question.message) {
      if (open !== undefined && !(await this.#withdraw(open.id, false))) return;
      session.add(session.opening(question));
    }
    this.note.disagreed(call);
  }

  /** @param goesOn - then there will be something to show, and a leg is needed */
  #withdraw(id: string, goesOn: boolean): Promise<boolean> {
    return this.session.offer(() => [
      ...(goesOn ? legToShowIn(this.session) : []),
      ...this.session.closing(id, { status: "withdrawn", by: "" }),
    ]);
  }
}

function legToShowIn({ state }: DriveSession): ReturnType<typeof intake> {
  return state.leg === null ? intake(state, []) : [];
}

export function unknownTool({ name }: LoopCall): Settle {
  return refusal("UNKNOWN_TOOL", `there is no tool named "${name}"`);
}

function refusal(code: string, message: string): Settle {
  return { by: "error", error: { code, message }, applied: "no" };
}
