import type { RunState } from "../log/fold.ts";
import { isAgentTool, type Loop, type LoopCall } from "./agent-definition.ts";
import type { Turn } from "./allotment.ts";

/** What one turn of a model asks for beside one of its calls, as the log has it now. */
export function turnOf(
  { steps }: RunState,
  loop: Pick<Loop, "tool">,
  { call, calls }: { readonly call: LoopCall; readonly calls: readonly LoopCall[] },
): Turn {
  const isOfChild = ({ name, path }: LoopCall) => isAgentTool(loop.tool(name, path));
  const open = calls.filter(({ path }) => steps.get(path)?.finished === undefined);
  const waiting = open.filter(({ path }) => (steps.get(path)?.attempts.length ?? 0) === 0);
  return {
    // One that a human has to approve first may take its time.
    children: Math.max(
      1,
      waiting.filter((one) => isOfChild(one) && (steps.get(one.path)?.waits ?? null) === null).length,
    ),
    others: waiting.flatMap(({ path, name }) => (path === call.path ? [] : [name])),
    hasTools: open.some((one) => !isOfChild(one)),
  };
}
