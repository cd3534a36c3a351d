/**
 * Holds an agent against a recorded run: at each step, what it would do and ask now against what was done and asked then. No model is called and
 * no tool is run; of the agent's own code only approvals and business keys are asked.
 */

import type { Fact } from "../log/entries.ts";
import { parseEntry } from "../log/entries.ts";
import type { AskedOfModel, RunFixture } from "../log/fixture.ts";
import { Folding, fold, type RunState } from "../log/fold.ts";
import { resolveInput } from "../log/model-output.ts";
import { editedArguments } from "../log/tool-result.ts";
import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { Agent, Loop, LoopCall } from "../runtime/agent-definition.ts";
import { describedAs } from "../runtime/describes.ts";
import { loopOf } from "../runtime/export-run.ts";
import { sha256 } from "../runtime/hash.ts";
import { attemptKey } from "../runtime/keys.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { type ReplayDifference, ReplayReport, textDiff } from "./replay-report.ts";

/** What stands in the file is no fixture of ours, or its agent cannot be held against it. */
export class ReplayError extends PerdureError {
  override readonly name = "ReplayError";
  constructor(message: string) {
    super("REPLAY", message);
  }
}

/**
 * Replays a recorded run.
 *
 * @param fixture - what `perdure export`, or a runtime's `export`, has given, as JSON
 * @param options - `agent`: as it is now; it may have another name
 * @returns what is otherwise now; `report.assert()` throws unless nothing is
 * @throws {@link ReplayError} for what is no fixture, and for agents that no loop drives
 */
export async function replay(fixture: unknown, { agent }: { readonly agent: Agent }): Promise<ReplayReport> {
  const { logs, asked, run } = readFixture(fixture);
  if (agent.loop === undefined) {
    throw new ReplayError(`agent "${agent.name}" is a run(ctx): what it asks cannot be told without running it`);
  }
  const before: RunState[] = [];
  for (const log of logs.slice(0, -1)) before.push(fold(log, before.at(-1)));
  const entries = logs.at(-1) ?? [];
  const replaying = new Replaying(agent, asked, before, fold(entries, before.at(-1)));
  const folding = new Folding(before.at(-1));
  for (const entry of entries) {
    if (entry.kind === "step.started") await replaying.step(folding.state, entry);
    folding.add(entry);
    if (entry.kind === "run.finished") replaying.end(folding.state, entry);
  }
  return new ReplayReport(run, agent.name, replaying.differences);
}

function readFixture(fixture: unknown): RunFixture {
  if (!isJsonObject(fixture) || fixture.perdure !== "run" || fixture.version !== 1) {
    throw new ReplayError(
      'this is no fixture of a run: `perdure export RUN > run.json` makes one (its "perdure" is "run")',
    );
  }
  const { logs, ...rest } = fixture as unknown as RunFixture;
  return {
    ...rest,
    logs: logs.map((log) =>
      log.map(({ seq, at, ...entry }) => parseEntry(JSON.stringify(entry), { run: rest.run, seq, at })),
    ),
  };
}

class Replaying {
  readonly differences: ReplayDifference[] = [];
  readonly #told = new Set<string>();

  constructor(
    private readonly agent: Agent,
    private readonly asked: RunFixture["asked"],
    private readonly before: readonly RunState[],
    /** The whole run. */
    private readonly recorded: RunState,
  ) {}

  async step(state: RunState, started: Fact<"step.started">): Promise<void> {
    const loop = this.#loop(state);
    const next = loop.next(state, this.before);
    const { path, step } = started;
    if (step === "model") {
      if (next.next !== "model" || next.path !== path) this.#decides(path, "asks the model", next);
      this.#model(state, started, loop);
    } else if (step === "tool" || step === "client-tool") {
      const call = next.next === "calls" ? next.calls.find((one) => one.path === path) : undefined;
      if (call === undefined) return this.#decides(path, `calls ${started.name}`, next);
      await this.#call(state, started, call, loop.tool(started.name));
    } else if (step === "custom" && (next.next !== "own" || next.step.path !== path)) {
      this.#decides(path, `begins its own step ${started.name}`, next);
    }
  }

  /** How the run ended, where that was the agent's doing. */
  end(state: RunState, { outcome, error }: Fact<"run.finished">): void {
    const next = this.#loop(state).next(state, this.before);
    if (outcome === "success" && next.next !== "finish") this.#decides("" as Path, "ends the run", next);
    const isOther = next.next !== "fail" || next.error.code !== error?.code;
    if (outcome === "failed" && isOther) this.#decides("" as Path, `fails (${error?.code ?? "without a word"})`, next);
  }

  #loop(state: RunState): Loop {
    if (this.agent.loop === undefined) throw new ReplayError(`agent "${this.agent.name}" has no loop`);
    return loopOf(this.agent.loop, state);
  }

  #decides(path: Path, did: string, next: ReturnType<Loop["next"]>): void {
    const now =
      next.next === "model"
        ? `asks the model (step ${next.path})`
        : next.next === "calls"
          ? `calls ${next.calls.map(({ name }) => name).join(", ")}`
          : next.next === "finish"
            ? "ends the run"
            : next.next === "own"
              ? `begins its own step ${next.step.name}`
              : next.next === "fail"
                ? `fails (${next.error.code})`
                : "waits";
    this.#differs(path, "decision", `then it ${did}, now it ${now}`);
  }

  #model(state: RunState, { path, input }: Fact<"step.started">, loop: Loop): void {
    const settings = loop.settings(state, path);
    const now = loop.asks({ run: state, before: this.before, settings });
    const then = this.asked[path];
    if (!("history" in input)) return;
    if (then !== undefined) {
      const [was, is] = [parts(then), parts(now)];
      for (const what of ["instructions", "messages", "tools", "settings"] as const) {
        if (!jsonEqual(was[what], is[what]))
          this.#differs(path, what, `the model is given other ${what}`, was[what], is[what]);
      }
      return;
    }
    // The export did not know any more what had been asked.
    const is = describedAs(loop);
    for (const what of ["instructions", "tools"] as const) {
      if (is[what] === input.history[what]) continue;
      this.#differs(
        path,
        what,
        `the model is given other ${what}; what they were is not in the fixture: export it with the agent as it was`,
      );
    }
    if (!jsonEqual(input.history.settings, settings)) {
      this.#differs(path, "settings", "the model is asked with other settings", input.history.settings, settings);
    }
  }

  async #call(
    state: RunState,
    started: Fact<"step.started">,
    call: LoopCall,
    tool: DynTool | undefined,
  ): Promise<void> {
    const { path, name, step, effect, contract } = started;
    const isOffered = state.request?.tools.some((one) => one.name === name) ?? false;
    if (step === "client-tool") {
      if (tool !== undefined) this.#differs(path, "tool", `the client ran ${name}, now the server does`);
      else if (!isOffered) this.#differs(path, "tool", `the client is not offered ${name}`);
      return;
    }
    if (tool === undefined) {
      if (contract !== null) this.#differs(path, "tool", `there is no tool ${name} any more`);
      return;
    }
    if (contract === null) return this.#differs(path, "tool", `there was no tool ${name} then, now there is`);
    if (tool.effect !== effect)
      return this.#differs(path, "tool", `${name} was a ${effect}, now it is a ${tool.effect}`);
    const end = this.recorded.steps.get(path);
    const given = end === undefined ? undefined : editedArguments(end);
    const input = given ?? resolveInput(state, started.input);
    const misfit = await tool.checkJson(input).then(
      () => undefined,
      (error: unknown) => error,
    );
    const refused = end?.finished?.status === "error" && end.finished.error.code === "INVALID_INPUT";
    if (refused !== (misfit !== undefined)) {
      const why = misfit instanceof Error ? `: ${misfit.message}` : "";
      return this.#differs(
        path,
        "tool",
        refused ? `${name} takes now what it refused then` : `${name} refuses what it took then${why}`,
      );
    }
    if (misfit === undefined) await this.#gates(state, path, tool, call.input, input);
    if (contract !== sha256(tool.contract)) {
      this.#differs(path, "tool", `the contract of ${name} (its schemas) is another one; what was recorded fits it`);
    }
  }

  /** Whether the same people are asked, and the same key is taken. */
  async #gates(state: RunState, path: Path, tool: DynTool, asked: Json, input: Json): Promise<void> {
    const step = this.recorded.steps.get(path);
    const wasAsked = step?.asked.some(({ interrupt }) => interrupt.kind === "approval") ?? false;
    const attempt = step?.attempts.find(({ phase }) => phase === "call");
    const isUnattended = step?.finished !== undefined || attempt !== undefined || wasAsked;
    try {
      const own = await tool.approvalFor(asked);
      const asks =
        own !== false || (this.agent.loop !== undefined && this.agent.approve === "write" && tool.effect === "write");
      if (isUnattended && asks !== wasAsked) {
        this.#differs(
          path,
          "approval",
          asks ? `${tool.name} asks for an approval now` : `${tool.name} asks for no approval any more`,
        );
      }
      const key = tool.keyFor(input);
      // The history of a fork has keys of the run that it was made from.
      const isOwn = key !== null || state.run.forkedFrom === undefined;
      if (attempt !== undefined && isOwn && attempt.key !== attemptKey(state, path, tool, "call", key)) {
        this.#differs(path, "key", `${tool.name} gives the call another idempotency key`);
      }
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.#differs(path, "tool", `what ${tool.name} says of the call before it is run fails now: ${why}`);
    }
  }

  /** Once: what differs in the same way at a later step is the same difference. */
  #differs(path: Path, what: ReplayDifference["what"], message: string, then?: Json, now?: Json): void {
    const diff = then === undefined || now === undefined ? undefined : textDiff(then, now);
    const known = `${what}\n${message}\n${diff ?? path}`;
    if (this.#told.has(known)) return;
    this.#told.add(known);
    this.differences.push({ step: path, what, message, ...(diff !== undefined && { diff }) });
  }
}

/** Instructions are the messages at the front, as providers take them. */
function parts({ prompt, tools, settings }: AskedOfModel) {
  const messages = Array.isArray(prompt) ? (prompt as readonly Json[]) : [];
  const isSystem = (message: Json): boolean => isJsonObject(message) && message.role === "system";
  return {
    instructions: messages
      .filter(isSystem)
      .map((message) => (isJsonObject(message) ? (message.content ?? null) : null)),
    messages: messages.filter((message) => !isSystem(message)),
    tools,
    settings,
  } satisfies Record<string, Json>;
}
