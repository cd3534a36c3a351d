import type { ChildLog } from "../log/child-log.ts";
import type { StepEnd } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { modelOutput } from "../log/model-output.ts";
import type { Json } from "../protocol/json.ts";

/**
 * What the end of a child makes of the call that began it.
 *
 * @param isCancelled - its parent is, so the call was
 * @param accepted - what an output does to the parent
 */
export function childEnd({ state }: ChildLog, isCancelled: boolean, accepted: (output: Json) => StepEnd): StepEnd {
  const { finished } = state;
  // A write of which nobody knows is no plain failure: the model must not do it again.
  const applied = (finished?.unresolved.length ?? 0) > 0 ? "unknown" : "no";
  switch (finished?.outcome) {
    case "success":
      return accepted(outputOf(state));
    case "cancelled":
    case "abandoned":
      if (isCancelled && applied === "no") return { status: "cancelled" };
      return {
        ...{ status: "error", applied },
        error: { code: "SUBAGENT_CANCELLED", message: `the run of agent "${state.run.agent}" was ${finished.outcome}` },
      };
    default: {
      const { code, message } = finished?.error ?? { code: "INTERNAL", message: "The agent failed (INTERNAL)." };
      return { status: "error", applied, error: { code, message } };
    }
  }
}

/** Its structured output, or what its model has said last. */
function outputOf({ finished, steps }: RunState): Json {
  if (finished?.output !== undefined) return finished.output;
  const step = finished?.outputOf === undefined ? undefined : steps.get(finished.outputOf);
  return step === undefined ? null : modelOutput(step).text;
}
