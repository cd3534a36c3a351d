import { type TokenUsage, tokenUsageFromAiSdkUsage } from "@ag-ui/core";
import { isJsonObject } from "../protocol/json.ts";

/**
 * What a call used, as the protocol counts it: cached and cache-writing tokens are part of the input, reasoning is part of the output, the
 * total is both. V2 reports flat numbers, V3 and V4 nested ones.
 *
 * @returns nothing where the provider reported no count: not reported is not zero
 */
export function toTokenUsage(raw: unknown, of: { readonly provider: string; readonly model: string }): TokenUsage[] {
  if (!isJsonObject(raw)) return [];
  const { inputTokens: input, outputTokens: output } = raw;
  const counts = {
    inputTokens: count(isJsonObject(input) ? input.total : input),
    outputTokens: count(isJsonObject(output) ? output.total : output),
    reasoningTokens: count(isJsonObject(output) ? output.reasoning : raw.reasoningTokens),
    cachedInputTokens: count(isJsonObject(input) ? input.cacheRead : raw.cachedInputTokens),
    inputTokenDetails: { cacheWriteTokens: count(isJsonObject(input) ? input.cacheWrite : undefined) },
  };
  const { inputTokens, outputTokens } = counts;
  // Not the provider's own total: some leave the reasoning out of the output and count it in the total, and then the sums contradict.
  const total = inputTokens !== undefined && outputTokens !== undefined ? inputTokens + outputTokens : undefined;
  const usage = tokenUsageFromAiSdkUsage({ ...counts, totalTokens: total ?? count(raw.totalTokens) }, of);
  return usage === undefined ? [] : [usage];
}

/** Providers that do not know report NaN or negative differences; the wire takes whole numbers from 0. */
function count(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
