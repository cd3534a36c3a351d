import { agent } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";

const Confirmed = z.object({ accepted: z.boolean() });

/** A plan whose steps the user picks on the page: `generate_task_steps` is the page's tool, and its result the user's answer. */
export function humanInTheLoop({ delayMs }: Pace) {
  return agent({
    name: "human_in_the_loop",
    description: "Plans that a person picks the steps of",
    model: scriptedModel(script, { delayMs }),
    instructions: "Plan with generate_task_steps, and do what the user confirms.",
  });
}

function script(request: ScriptRequest): ScriptedTurn {
  const results = resultsSince(request);
  if (results.has("generate_task_steps")) {
    const isAccepted = Confirmed.safeParse(results.get("generate_task_steps")).data?.accepted === true;
    return { text: isAccepted ? "Ok! I'm working on it." : "Ok! I leave it." };
  }
  if (!request.tools.includes("generate_task_steps")) return { text: "This page offers no way to confirm a plan." };
  const count = Math.min(Number(/\b(\d+) steps\b/.exec(request.lastUserText)?.[1] ?? 10), 20);
  const steps = Array.from({ length: count }, (_, i) => ({ description: `Step ${i + 1}`, status: "enabled" }));
  return { calls: [{ name: "generate_task_steps", input: { steps } }] };
}
