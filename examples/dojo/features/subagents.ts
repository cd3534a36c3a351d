import { agent, tool } from "perdure";
import { type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { resultsSince } from "../since.ts";
import { delegate } from "../subagent.ts";
import { words } from "../words.ts";

/** A supervisor that delegates: its tools are subagents, who speak for themselves. */
export function subagents({ delayMs }: Pace) {
  return agent({
    name: "subagents",
    description: "A supervisor and a team",
    model: scriptedModel(script, { delayMs }),
    instructions: "Have the topic researched, an article written, and the article criticised.",
    tools: team.map((member) => delegation(member, delayMs)),
  });
}

const team = [
  {
    tool: "research_topic",
    name: "researcher",
    does: "Finds facts",
    says: (input: string) => `Three facts about ${input}.`,
  },
  { tool: "write_prose", name: "writer", does: "Writes prose", says: (input: string) => `An article, from: ${input}` },
  { tool: "critique_draft", name: "critic", does: "Criticises drafts", says: () => "Well done, but too short." },
];

function delegation({ tool: name, name: subagent, does, says }: (typeof team)[number], delayMs: number) {
  return tool({
    name,
    description: `${does}. Delegates to the ${subagent}.`,
    effect: "read",
    input: z.object({ input: z.string() }),
    output: z.string(),
    call: ({ input }, ctx) =>
      delegate(
        ctx,
        { id: `${ctx.run}:${ctx.path}`, name: subagent, description: does },
        words(says(input), delayMs, ctx.signal),
      ),
  });
}

/** One after the other, each with what the one before has said. */
function script(request: ScriptRequest): ScriptedTurn {
  const results = resultsSince(request);
  const next = team.find(({ tool: name }) => !results.has(name));
  if (next === undefined) return { text: "The article is done." };
  const before = team[team.indexOf(next) - 1];
  const input = before === undefined ? request.lastUserText : String(results.get(before.tool));
  return { calls: [{ name: next.tool, input: { input } }] };
}
