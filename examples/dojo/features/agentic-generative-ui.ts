import { setTimeout as delay } from "node:timers/promises";
import { agent, tool } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

const Task = z.object({
  steps: z.array(z.object({ description: z.string(), status: z.enum(["pending", "completed"]) })),
});
type Task = z.infer<typeof Task>;

/** A task of some length, whose steps the page draws from the state as they are done. */
export function agenticGenerativeUi({ delayMs }: Pace) {
  const runTask = tool({
    name: "run_task",
    description: "Does a task step by step.",
    effect: "read",
    state: Task,
    input: z.object({ steps: z.array(z.string()).min(1) }),
    async call({ steps }, ctx) {
      ctx.updateState((task) => {
        task.steps = steps.map((description) => ({ description, status: "pending" }));
      });
      for (const i of steps.keys()) {
        await delay(delayMs * 5, undefined, { signal: ctx.signal });
        ctx.updateState(({ steps: shown }) => {
          const step = shown[i];
          if (step) step.status = "completed";
        });
      }
      return { completed: steps.length };
    },
  });
  return agent<Task>({
    name: "agentic_generative_ui",
    description: "Long tasks, drawn as they go",
    model: scriptedModel(script, { delayMs }),
    tools: [runTask],
    state: { schema: Task, initial: () => ({ steps: [] }) },
  });
}

function script(request: ScriptRequest): ScriptedTurn {
  if (resultsSince(request).has("run_task")) return { text: "All steps are done." };
  const count = Math.min(Number(/\b(\d+) steps\b/.exec(request.lastUserText)?.[1] ?? 10), 20);
  const steps = Array.from({ length: count }, (_, i) => `Step ${i + 1}`);
  return { calls: [{ name: "run_task", input: { steps } }] };
}
