import { isJsonObject } from "../protocol/json.ts";

/** How providers say that a prompt is too long: in a code, or in words. None has a status of its own for it. */
const SAYS_SO = [
  /context_length_exceeded/i, // openai
  /maximum context length/i, // openai, mistral, vllm
  /context (window|length|size)/i, // openai responses, ollama, llama.cpp
  /prompt is too long/i, // anthropic
  /input (length|is too long|token count)/i, // anthropic, bedrock, google
  /too many (input )?tokens/i,
  /exceeds the maximum number of tokens/i, // google
  /reduce the length of the (messages|input)/i, // groq, deepseek
];

/** Whether a provider's error says that the prompt was too long for its model. */
export function isContextOverflow(cause: unknown): boolean {
  return wordsOf(cause).some((text) => SAYS_SO.some((pattern) => pattern.test(text)));
}

function wordsOf(cause: unknown, depth = 0): readonly string[] {
  if (typeof cause === "string") return [cause];
  if (!isJsonObject(cause) || depth > 3) return [];
  const { message, code, type, responseBody, error, data } = cause as { readonly [member: string]: unknown };
  const own = [message, code, type, responseBody].filter((one) => typeof one === "string");
  return [...own, ...wordsOf(error, depth + 1), ...wordsOf(data, depth + 1)];
}
