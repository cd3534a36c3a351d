/**
 * The upper bound of one model call. What a provider makes of a request before it counts its tokens is its own affair, so the bound is wide:
 *
 * 1. Text: no tokeniser in use makes more than one token of a byte of UTF-8, so the bytes of the request as JSON count as tokens.
 * 2. What the provider adds itself (markers between messages, its own words about tools) is allowed for by a constant.
 * 3. A picture or document costs by its size or its pages, which we do not know: its bytes count, and at least {@link FILE_TOKENS}.
 *
 * A provider that reports more all the same has overrun its bound, and stops the run before the next call.
 */
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { ModelTool, Prompt } from "./model-port.ts";

/** What a model is asked, as far as it costs tokens. */
export interface ModelInput {
  readonly provider: string;
  readonly modelId: string;
  /** The messages, as an AI SDK model gets them, in plain JSON. */
  readonly prompt: Prompt;
  readonly tools: readonly ModelTool[];
}

/** The most tokens that a request may be counted as. Has to be pure: the same request, the same number. */
export type CountTokens = (input: ModelInput) => number;

const PER_MESSAGE = 16;
/** Providers put up to a few hundred tokens of their own in front of tools. */
const FOR_TOOLS = 1_024;
const FILE_TOKENS = 8_192;

/** {@link CountTokens} that needs to know nothing of the model. */
export function countBytes({ prompt, tools }: ModelInput): number {
  const text = JSON.stringify({ prompt, tools });
  let files = 0;
  for (const { content } of prompt) {
    if (typeof content !== "string") files += content.reduce((sum, part) => sum + missingOfFile(part), 0);
  }
  const around = PER_MESSAGE * (prompt.length + 1) + (tools.length > 0 ? FOR_TOOLS : 0);
  return new TextEncoder().encode(text).length + files + around;
}

/** What a file's own bytes leave to the least that a file counts. */
function missingOfFile(part: { readonly type: string }): number {
  if (part.type !== "file") return 0;
  const { data } = part as unknown as { readonly data: Json };
  const inline = isJsonObject(data) && typeof data.data === "string" ? data.data.length : 0;
  return Math.max(0, FILE_TOKENS - inline);
}
