/** Calls of a model that are runs of other agents. */
import type { StepEnd } from "../log/entries.ts";
import { resolveInput } from "../log/model-output.ts";
import { editedArguments } from "../log/tool-result.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { UserMessage } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { type Agent, type AgentTool, isAgentTool, type LoopCall } from "./agent-definition.ts";
import { sideBySide, turnOf } from "./agent-turn.ts";
import { recordedError } from "./attempt-outcome.ts";
import { BudgetGate } from "./budget.ts";
import { startedEntries } from "./call-entries.ts";
import type { CallRunner } from "./call-runner.ts";
import type { Allotted, ChildRules, ChildRunner, ChildStep } from "./child-runner.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { childRefusal } from "./lineage.ts";

/** The step of a call. Of one that clients are not shown, no frame speaks. */
export function childStep({ path, name, id, isHidden }: LoopCall): ChildStep {
  return isHidden ? { path, name } : { path, name, id };
}

export class AgentCalls implements ChildRules {
  constructor(
    private readonly options: DriverOptions,
    private readonly session: DriveSession,
    private readonly calls: CallRunner,
  ) {}

  /** Begins the child of a call that may run, and follows it; one that may not is settled. */
  async begin(
    call: LoopCall,
    {
      tool,
      edited,
      children,
    }: { readonly tool: AgentTool; readonly edited: Json | undefined; readonly children: ChildRunner },
    signal: AbortSignal,
  ): Promise<void> {
    const { session } = this;
    const { run, steps } = session.state;
    const step = steps.get(call.path);
    const input = edited ?? editedArguments(step) ?? call.input;
    let asked: UserMessage["content"];
    try {
      await tool.checkJson(input);
      asked = await tool.messageFor(input);
    } catch (error) {
      const recorded = recordedError(error, run.uid, this.options.report);
      return await this.calls.settle(call, { by: "error", error: recorded, applied: "no" });
    }
    const refused = await childRefusal(this.options.store, run, tool.agent.name);
    if (refused !== undefined) return await this.calls.settle(call, { by: "error", error: refused, applied: "no" });
    if (!this.options.drives(tool.agent.name)) {
      const unlisted = this.#unlisted(tool.agent.name);
      this.options.report(unlisted, run.uid);
      const { code, message } = unlisted;
      return await this.calls.settle(call, { by: "error", error: { code, message }, applied: "no" });
    }
    if (signal.aborted) return;
    const started = step === undefined ? startedEntries(call, "child", tool) : undefined;
    const allot = (): Allotted => this.#allot(call);
    await children.spawn(childStep(call), { agent: tool.agent, asked, started, edited, allot }, signal);
  }

  #unlisted(agent: string): PerdureError {
    const caller = this.options.agent.name;
    return new PerdureError(
      "AGENT_MISSING",
      `agent "${caller}" calls agent "${agent}", which this runtime does not have; list it in the \`agents\` of "${caller}", or in those of createRuntime`,
    );
  }

  /** By the log as it is when the child begins. */
  #allot(call: LoopCall): Allotted {
    const {
      agent: { loop },
      before,
      now,
    } = this.options;
    const { state } = this.session;
    const gate = BudgetGate.of(state, loop.budget, { at: now(), live: new Set(), before });
    if (gate === null) return "unlimited";
    const turn = turnOf(state, loop, call, sideBySide(loop.next(state, before)));
    return gate.allot(call.name, turn) ?? "nothing";
  }

  agentOf({ name, path }: ChildStep): Agent | undefined {
    const tool = this.options.agent.loop.tool(name, path);
    return isAgentTool(tool) ? tool.agent : undefined;
  }

  accepted({ path, name }: ChildStep, output: Json): StepEnd {
    const step = this.session.state.steps.get(path);
    const input = editedArguments(step) ?? this.#inputOf(path);
    return this.calls.okWithoutBody(this.options.agent.loop.tool(name, path), input, output);
  }

  #inputOf(path: ChildStep["path"]): Json {
    const { state } = this.session;
    const ref = state.steps.get(path)?.started.input;
    return ref === undefined ? null : resolveInput(state, ref);
  }
}
