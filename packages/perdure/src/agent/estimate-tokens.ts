import { isJsonObject, type Json } from "../protocol/json.ts";
import { estimateBytes } from "../protocol/size.ts";
import type { Prompt } from "./model-port.ts";

/** Of text: models differ, and most take less. */
const CHARACTERS_PER_TOKEN = 4;
const TOKENS_PER_FILE = 1_500;

/** About how many tokens a prompt has, or anything else that is sent as text. */
export function estimateTokens(sent: Prompt | Json): number {
  let files = 0;
  const texts = Array.isArray(sent)
    ? sent.map((message: Json): Json => {
        if (!isJsonObject(message) || !Array.isArray(message.content)) return message;
        const content = message.content.filter((part: Json) => !(isJsonObject(part) && part.type === "file"));
        files += message.content.length - content.length;
        return { ...message, content };
      })
    : (sent as Json);
  return Math.ceil(estimateBytes(texts) / CHARACTERS_PER_TOKEN) + files * TOKENS_PER_FILE;
}
