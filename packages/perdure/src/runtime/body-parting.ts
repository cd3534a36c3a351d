/** Where the code of a custom loop and its record part, and what of the record it has not come to. */
import type { Difference } from "../log/matching.ts";
import type { RunState } from "../log/run-state.ts";
import type { Path } from "../protocol/words.ts";
import type { BodyState } from "./body-state.ts";
import { differenceOfMissing, isAwaited, isInLine, laneAround } from "./body-steps.ts";
import { type BodyStream, placeOf } from "./body-stream.ts";

/** How far the code has come. */
export interface CodeSoFar {
  readonly run: RunState;
  /** Steps that it has begun, or begun again; and those that it waits for. */
  readonly asked: ReadonlySet<Path>;
  readonly waitsFor: { has(path: Path): boolean };
  isLost(path: Path): boolean;
  /** Where an operator has accepted that it does something else. */
  readonly accepted: ReadonlySet<string>;
  readonly stream: BodyStream | undefined;
  readonly state: BodyState | undefined;
}

/** A difference, and the place that an operator accepts it for. */
export interface Parting {
  readonly difference: Difference;
  readonly place: string;
}

/**
 * The entry in which they part. A lane does one thing after the other: what is recorded of it before the difference, and was passed by, the code does
 * not come to either. So it is of the lanes around it, which wait for it. When no line does something else (`at` is null), but all lanes wait or have
 * ended, that goes for each.
 */
export function partedAt(code: CodeSoFar, { path, seq }: Difference, at: string | null): number {
  const { run, asked, stream, state } = code;
  const lane = at === null ? ("" as Path) : (stream?.laneOf(path) ?? path);
  const passed = [...run.steps.values()].flatMap((step) => {
    const { started } = step;
    const isPassed = isAwaited(step) && isInLine(laneAround(started.path), lane) && !asked.has(started.path);
    return isPassed && !code.isLost(started.path) ? [started.seq] : [];
  });
  return Math.min(seq, ...passed, ...(stream?.unsaid(lane) ?? []), ...(state?.unpublished(lane) ?? []));
}

/** Code that waits, or has ended, and has not begun a step whose end is recorded. */
export function partedBefore({ run, stream }: CodeSoFar, path: Path): Parting {
  const [step, said] = [differenceOfMissing(run, path), stream?.missing];
  // What it had to say before it would have begun the step is what it does otherwise first.
  return said === undefined || said.seq > step.seq
    ? { difference: step, place: stepPlace(path) }
    : { difference: said, place: placeOf(said.path) };
}

/** What code that has ended has not done of all that was recorded. */
export function leftUndone(code: CodeSoFar): Parting | undefined {
  const said = code.stream?.missing;
  if (said !== undefined) return { difference: said, place: placeOf(said.path) };
  const state = code.state?.missing;
  if (state !== undefined) return { difference: state, place: "state" };
  for (const [path, step] of code.run.steps) {
    const isMissing = step.finished === undefined && isAwaited(step) && !code.waitsFor.has(path) && !code.isLost(path);
    if (isMissing && !code.accepted.has(stepPlace(path)))
      return { difference: differenceOfMissing(code.run, path), place: stepPlace(path) };
  }
  return undefined;
}

/** How an operator's word names a step. */
export function stepPlace(path: Path): string {
  return `step ${path}`;
}
