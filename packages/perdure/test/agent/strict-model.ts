import type { LanguageModel, Prompt } from "../../src/agent/model-port.ts";
import { offence } from "./strict-prompt.ts";

/** The model behind the strictest provider: a conversation with orphans, gaps or doubles is refused, as 400. */
export function strict<M extends LanguageModel>(model: M): M {
  return {
    ...model,
    doStream: async (options) => {
      const found = offence(options.prompt as Prompt);
      if (found !== null) throw Object.assign(new Error(`the prompt is refused: ${found}`), { statusCode: 400 });
      return await model.doStream(options);
    },
  };
}
