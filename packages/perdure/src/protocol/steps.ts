import type { AGUIEventOf } from "./events.ts";
import { newItem, put, refuse, whose } from "./items.ts";
import { hasSubagent, type Wire } from "./wire.ts";

export function finishStep(w: Wire, event: AGUIEventOf<"STEP_FINISHED">, lane: string | undefined): Wire {
  const { stepName, subagentRunId } = event;
  const named = w.steps.filter((step) => step.id === stepName);
  const step = named.find((candidate) => candidate.owner === subagentRunId);
  if (step === undefined) {
    const [other] = named;
    if (other === undefined) refuse("step-not-open", event, stepName, `no step "${stepName}" is open`);
    refuse("step-owner", event, stepName, `it was started by ${whose(other.owner)}, who has to finish it`);
  }
  if (lane !== undefined) {
    const innermost = w.steps.findLast((candidate) => candidate.lane === lane && candidate.owner === subagentRunId);
    if (innermost !== step) {
      const why = innermost === undefined ? "it is not open in this lane" : `finish step "${innermost.id}" first`;
      refuse("step-nesting", event, stepName, why);
    }
  }
  return { ...w, steps: w.steps.filter((candidate) => candidate !== step) };
}

export function startSubagent(w: Wire, event: AGUIEventOf<"SUBAGENT_STARTED">, lane: string | undefined): Wire {
  const { subagentRunId: id, parentSubagentRunId: parent } = event;
  if (w.subagents.has(id)) refuse("subagent-already-open", event, id, `subagent "${id}" is active; finish it first`);
  if (w.done.get(id) === w.run)
    refuse("subagent-reused", event, id, "an invocation that has ended needs a fresh id in this run");
  if (parent !== undefined && !hasSubagent(w, parent, "in this run")) {
    refuse("subagent-parent", event, id, `its parent "${parent}" was not started in this run`);
  }
  return { ...w, subagents: put(w.subagents, newItem(w, "subagent", id, undefined, lane)), opened: w.opened + 1 };
}
