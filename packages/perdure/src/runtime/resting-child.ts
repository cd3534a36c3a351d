import type { RunState } from "../log/fold.ts";
import type { Interrupt as WireInterrupt } from "../protocol/events.ts";
import type { Uid } from "../protocol/words.ts";
import type { Run } from "../store/store.ts";

/** A child at rest, as far as its parent has read it. */
export interface RestingChild {
  readonly uid: Uid;
  readonly head: number;
  /** It goes on by itself, when a timer rings or a key comes free. */
  readonly goesOn: boolean;
  /** What it, and its own children, ask. */
  readonly interrupts: readonly WireInterrupt[];
  readonly needsOperator: boolean;
}

/** Whether nobody drives a run, and nothing is there for anybody to drive it for. */
export function rests({ owner, readyAt }: Run, now: number): boolean {
  return owner === null && (readyAt === null || readyAt > now);
}

/** @param run - which rests */
export function restingChild({ uid, head }: Run, { leg, lastLeg }: RunState): RestingChild {
  const outcome = leg === null ? lastLeg?.finished.outcome : undefined;
  const interrupts = outcome?.type === "interrupt" ? outcome.interrupts : [];
  return {
    ...{ uid, head, goesOn: leg !== null, needsOperator: outcome?.type === "error" },
    interrupts: interrupts.map((asked) =>
      asked.subagentRunId === undefined ? { ...asked, subagentRunId: uid } : asked,
    ),
  };
}
