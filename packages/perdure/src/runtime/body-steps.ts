/** What the log tells of the steps of a custom loop, to a driver that does not run its code, or whose code does not begin them. */
import type { RunState, StepState } from "../log/fold.ts";
import type { Difference } from "../log/matching.ts";
import { resolveInput } from "../log/model-output.ts";
import { idAt, isWithin } from "../protocol/ids.ts";
import type { Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { LoopCall } from "./agent-definition.ts";

/** Whether code waits for the end of a step: readings and races are over when they begin, and clients' calls are none of its steps. */
export function isAwaited(step: StepState | undefined): boolean {
  if (step === undefined) return false;
  const { step: kind, path } = step.started;
  return kind !== "race" && /(^|\.)\d+$/.test(path);
}

/** The lane of which something is a step, a reading or a publication. */
export function laneAround(path: Path): Path {
  return path.slice(0, Math.max(0, path.lastIndexOf("."))) as Path;
}

/** Whether one of two lanes is in the other: they do one thing after the other. */
export function isInLine(one: Path, other: Path): boolean {
  return isWithin(one, other) || isWithin(other, one);
}

/** A race that is decided. */
export interface Race {
  readonly race: Path;
  readonly winner: number;
}

export function raceOf(step: StepState | undefined): Race | undefined {
  if (step?.started.step !== "race" || step.finished?.status !== "ok") return undefined;
  return { race: step.started.path, winner: Number(step.finished.output) };
}

/** Whether a place is in a lane that has lost its race. */
export function isLost(path: Path, races: readonly Race[]): boolean {
  return races.some(
    ({ race, winner }) => isWithin(path, race) && path !== race && !isWithin(path, `${race}.${winner}` as Path),
  );
}

export function differenceOfMissing({ steps }: RunState, path: Path): Difference {
  const started = steps.get(path)?.started;
  return {
    ...{ path, seq: started?.seq ?? 0, what: `step ${path}`, recorded: `${started?.step} "${started?.name}"` },
    wanted: "nothing: the code does not begin it",
    next: "deploy the code that begins it, or let new code ask ctx.version before it differs",
  };
}

/** What code does where its record, which is whole, has nothing. */
export function differenceOfMore(
  path: Path,
  seq: number,
  { what, wanted }: { readonly what: string; readonly wanted: Json },
): Difference {
  const next = "take it out again, or record a run that does it";
  return { path, seq, what, recorded: "nothing", wanted, next };
}

/** The steps of a run whose code is not run any more. */
export function unfinishedCalls(run: RunState, but: ReadonlyMap<Path, unknown> = new Map()): readonly LoopCall[] {
  return [...run.steps.values()].flatMap((step) =>
    step.finished === undefined && isAwaited(step) && step.started.step !== "model" && !but.has(step.started.path)
      ? [recordedCall(run, step)]
      : [],
  );
}

export function recordedCall(run: RunState, { started }: StepState): LoopCall {
  const { path, name, step, toolCallId } = started;
  const isItsOwn = step === "custom" || step === "ask" || step === "sleep" || step === "signal";
  return {
    ...{ path, name, id: toolCallId ?? idAt(run.run.uid, path, "call", 0), input: resolveInput(run, started.input) },
    ...{ model: null, index: 0 },
    ...((isItsOwn || step === "client-tool") && { step }),
    ...(toolCallId === undefined && { isHidden: true }),
  };
}
