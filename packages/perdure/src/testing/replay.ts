/**
 * Holds an agent against a recorded run: at each step, what it would do and ask now against what was done and asked then. No model is called and
 * no tool is run; of the agent's own code only approvals and business keys are asked, and the code of a `run(ctx)` runs between its steps.
 */

import type { Fact } from "../log/entries.ts";
import { parseEntry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import { Folding, fold, type RunState } from "../log/fold.ts";
import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { Agent, Loop, LoopAgent } from "../runtime/agent-definition.ts";
import { describedAs } from "../runtime/describes.ts";
import { loopOf } from "../runtime/export-run.ts";
import { callDifferences } from "./replay-call.ts";
import { codeDifferences } from "./replay-code.ts";
import { Differences } from "./replay-differences.ts";
import { ReplayReport } from "./replay-report.ts";

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
 * @throws {@link ReplayError} for what is no fixture; `ReplayStuckError` for code of a `run(ctx)` that waits for something that is no step
 */
export async function replay(fixture: unknown, { agent }: { readonly agent: Agent }): Promise<ReplayReport> {
  const { logs, asked, run } = readFixture(fixture);
  const before: RunState[] = [];
  for (const log of logs.slice(0, -1)) before.push(fold(log, before.at(-1)));
  const entries = logs.at(-1) ?? [];
  if (agent.loop === undefined) {
    return new ReplayReport(run, agent.name, await codeDifferences(agent, { asked, entries, before }));
  }
  const replaying = new Replaying(agent, asked, before, fold(entries, before.at(-1)));
  const folding = new Folding(before.at(-1));
  for (const entry of entries) {
    if (entry.kind === "step.started") await replaying.step(folding.state, entry);
    folding.add(entry);
    if (entry.kind === "run.finished") replaying.end(folding.state, entry);
  }
  return new ReplayReport(run, agent.name, replaying.differences.all);
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
  readonly differences = new Differences();

  constructor(
    private readonly agent: LoopAgent,
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
      const asksForWrites = this.agent.approve === "write";
      await callDifferences(this.differences, started, {
        ...{ state, recorded: this.recorded, asked: call.input, tool: loop.tool(started.name), asksForWrites },
      });
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
    this.differences.add(path, "decision", `then it ${did}, now it ${now}`);
  }

  #model(state: RunState, { path, input }: Fact<"step.started">, loop: Loop): void {
    if (!("history" in input)) return;
    // What a fork has from another run was asked as that one was.
    if (state.head < (this.recorded.run.forkedFrom?.history ?? -1)) return;
    const settings = loop.settings(state, path);
    this.differences.ofModel(path, {
      ...{ was: this.asked[path], recorded: input.history, settings, described: describedAs(loop) },
      is: loop.asks({ run: state, before: this.before, settings }),
    });
  }
}
