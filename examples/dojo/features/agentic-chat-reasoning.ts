import { agent } from "perdure";
import { z } from "zod";
import type { Pace } from "../dojo.ts";
import { words } from "../words.ts";

const Choice = z.object({ model: z.string() });
type Choice = z.infer<typeof Choice>;

const thoughts: Readonly<Record<string, string>> = {
  OpenAI: "They ask. I look at it from all sides.",
  Anthropic: "Let me think about what would help here.",
  Gemini: "Read it, weigh it, answer it.",
};

/** Thoughts before the answer, of the model that the page has picked in the state. */
export function agenticChatReasoning({ delayMs }: Pace) {
  return agent<Choice>({
    name: "agentic_chat_reasoning",
    description: "Chat with a model that thinks aloud",
    state: { schema: Choice, initial: () => ({ model: "OpenAI" }) },
    async run(ctx) {
      const { model } = ctx.state;
      await ctx.reasoning(async (reasoning) => {
        for await (const word of words(thoughts[model] ?? "Hm.", delayMs, ctx.signal)) reasoning.delta(word);
      });
      await ctx.message((message) => message.pipe(words(`${model} has thought about it.`, delayMs, ctx.signal)));
    },
  });
}
