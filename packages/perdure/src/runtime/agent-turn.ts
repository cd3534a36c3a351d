import type { RunState } from "../log/fold.ts";
import type { Path } from "../protocol/words.ts";
import { isAgentTool, type Loop, type LoopCall, type Next } from "./agent-definition.ts";
import type { Turn } from "./allotment.ts";

/** What a run begins or waits for at the same time: what one turn of a model has called, or what lanes of code do side by side. */
export interface SideBySide {
  readonly models: readonly Path[];
  readonly calls: readonly LoopCall[];
}

export function sideBySide(next: Next): SideBySide {
  switch (next.next) {
    case "model":
      return { models: [next.path], calls: [] };
    case "calls":
      return { models: [], calls: next.calls };
    case "steps":
      return next;
    default:
      return { models: [], calls: [] };
  }
}

/** What is asked for beside one of the calls, as the log has it now. */
export function turnOf({ steps }: RunState, loop: Pick<Loop, "tool">, call: LoopCall, all: SideBySide): Turn {
  // A step that code waits for, and no body runs for, takes nothing.
  const calls = all.calls.filter(({ step }) => step === undefined || step === "tool" || step === "custom");
  const isOfChild = ({ name, path }: LoopCall) => isAgentTool(loop.tool(name, path));
  const open = calls.filter(({ path }) => steps.get(path)?.finished === undefined);
  const waiting = open.filter(({ path }) => (steps.get(path)?.attempts.length ?? 0) === 0);
  return {
    // One that a human has to approve first may take its time.
    children: Math.max(
      1,
      waiting.filter((one) => isOfChild(one) && (steps.get(one.path)?.waits ?? null) === null).length,
    ),
    others: waiting.flatMap(({ path, name, step }) => (path === call.path || step === "custom" ? [] : [name])),
    hasTools: all.models.length > 0 || open.some((one) => !isOfChild(one)),
  };
}
