/** What the code of a custom loop would do otherwise than in a recorded run. Where the two part the comparison ends: nothing behind it counts. */
import type { Entry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import { fold, type RunState } from "../log/fold.ts";
import type { Interrupt } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import { type BodyAgent, isAgentTool } from "../runtime/agent-definition.ts";
import type { BegunStep, ReplayedCode } from "../runtime/replay-code.ts";
import { replayCode } from "../runtime/replay-code.ts";
import { callDifferences } from "./replay-call.ts";
import { Differences } from "./replay-differences.ts";
import type { ReplayDifference } from "./replay-report.ts";

const ROOT = "" as Path;

interface Recorded {
  readonly asked: RunFixture["asked"];
  readonly entries: readonly Entry[];
  readonly before: readonly RunState[];
}

/** @throws `ReplayStuckError` */
export async function codeDifferences(
  agent: BodyAgent,
  { asked, entries, before }: Recorded,
): Promise<readonly ReplayDifference[]> {
  const replayed = await replayCode(agent, entries, before);
  const recorded = fold(entries, before.at(-1));
  const differences = new Differences();
  for (const begun of replayed.begun) await stepDifferences(differences, begun, { replayed, recorded, asked });
  partDifference(differences, replayed);
  endDifference(differences, replayed, recorded);
  return differences.all;
}

async function stepDifferences(
  differences: Differences,
  { want, at, input: changed }: BegunStep,
  { replayed: { run }, recorded, asked }: { replayed: ReplayedCode; recorded: RunState; asked: RunFixture["asked"] },
): Promise<void> {
  const { path, name, input } = want.call;
  const started = run.steps.get(path)?.started;
  if (started === undefined || started.step !== want.kind || started.name !== name) return;
  if (changed !== undefined) {
    const sides = { was: changed.recorded, is: changed.wanted, at };
    differences.add(path, "input", `${want.kind} ${name} is given another input`, sides);
  }
  if (want.model !== undefined) {
    const now = want.model.ask(path).started(run);
    if (!("history" in started.input) || now.kind !== "step.started" || !("history" in now.input)) return;
    const { history } = now.input;
    const sides = { described: history, settings: history.settings, recorded: started.input.history };
    return differences.ofModel(path, { ...sides, was: asked[path], is: want.model.asks(), at });
  }
  // What an agent that is called is asked is its input, and a step in place has no more than its effect.
  if (want.kind === "custom" || isAgentTool(want.tool)) {
    if (want.tool !== undefined && want.tool.effect !== started.effect) {
      const message = `${name} was a ${started.effect}, now it is a ${want.tool.effect}`;
      differences.add(path, "tool", message, { at });
    }
    return;
  }
  if (want.kind !== "tool") return;
  await callDifferences(differences, started, {
    ...{ state: run, recorded, asked: input, tool: want.tool, asksForWrites: false, at },
  });
}

/** Where the code does something else. */
function partDifference(differences: Differences, { diverged }: ReplayedCode): void {
  if (diverged === undefined) return;
  const { difference, at, place } = diverged;
  const what = place.startsWith("step ") ? "decision" : place === "state" ? "state" : "emitted";
  const { path, recorded: was, wanted: is } = difference;
  const isPlain = typeof was === "string" && typeof is === "string";
  const message = isPlain
    ? `${difference.what} was ${was}, and now is ${is}`
    : `${difference.what} is something else now`;
  differences.add(path, what, message, { at, ...(!isPlain && { was, is }) });
}

function endDifference(
  differences: Differences,
  { end, isEnded, run, diverged, failure }: ReplayedCode,
  { finished, lastLeg }: RunState,
): void {
  if (diverged !== undefined) return;
  if (end === undefined) {
    if (isEnded) differences.add(ROOT, "decision", "then the code ended, now it waits");
    return;
  }
  const failed = end.type === "RUN_ERROR" ? (end.code ?? "INTERNAL") : undefined;
  const told = failure instanceof Error ? `: ${failure.message}` : "";
  const now = failed === undefined ? "ends" : `fails (${failed}${told})`;
  if (!isEnded || finished === null) {
    const asked = end.type === "RUN_FINISHED" && end.outcome?.type === "interrupt" ? end.outcome.interrupts : undefined;
    const outcome = run.leg === null ? lastLeg?.finished.outcome : undefined;
    if (outcome?.type === "interrupt" && asked !== undefined) {
      const [was, is] = [outcome.interrupts.map(questionText), asked.map(questionText)];
      if (!jsonEqual(was, is)) differences.add(ROOT, "decision", "the code asks something else", { was, is });
    } else if (outcome?.type === "interrupt") {
      differences.add(ROOT, "decision", `then the code waited, now it ${now}`);
    }
    return;
  }
  const then = finished.outcome === "failed" ? (finished.error?.code ?? "INTERNAL") : undefined;
  if (then !== failed) {
    const did = then === undefined ? "ended" : `failed (${then})`;
    differences.add(ROOT, "decision", `then the code ${did}, now it ${now}`);
    return;
  }
  const was = finished.output ?? lastLeg?.result ?? null;
  const is = (end.type === "RUN_FINISHED" ? (end.result ?? null) : null) as Json;
  if (failed === undefined && !jsonEqual(was, is)) {
    differences.add(ROOT, "result", "the code returns something else", { was, is });
  }
}

/** What is asked; ids and times are other ones each time. */
function questionText({ message = "", responseSchema = {} }: Interrupt): Json {
  return { message, schema: responseSchema as Json };
}
