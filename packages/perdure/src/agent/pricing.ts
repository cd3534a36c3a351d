import type { LanguageModel } from "./model-port.ts";

/** What a model costs. USD per million tokens. */
export interface Price {
  readonly input: number;
  readonly output: number;
  /** Input that the provider's cache had. Default: as input. */
  readonly cacheRead?: number;
  /** Input that the provider's cache took in; where that has several prices, the dearest one that you use. Default: as input. */
  readonly cacheWrite?: number;
  /** The most tokens that the model can answer, for calls whose settings say nothing else: providers refuse to be asked for more. */
  readonly maxOutputTokens?: number;
  /** The rates of a whole call whose prompt is longer than so many tokens. By the upper bound of the prompt: give `countTokens` to be exact. */
  readonly longPrompt?: { readonly above: number } & Pick<Price, "input" | "output" | "cacheRead" | "cacheWrite">;
}

/** Prices by `provider/model`, as a model object names them: `"openai/gpt-5"` is also the price of provider `openai.responses`. */
export type Pricing = { readonly [providerAndModel: string]: Price };

/**
 * The price of a model: under its full names, else under the provider's first word, each with the model's id as it is, else without a date.
 *
 * @returns undefined when the table does not have it
 */
export function priceOf(
  pricing: Pricing,
  { provider, modelId }: Pick<LanguageModel, "provider" | "modelId">,
): Price | undefined {
  const undated = modelId.replace(/[-@](\d{8}|\d{4}-\d{2}-\d{2}|latest)$/, "");
  for (const model of new Set([modelId, undated])) {
    for (const name of new Set([provider, provider.split(".")[0] ?? provider])) {
      const key = `${name}/${model}`;
      if (Object.hasOwn(pricing, key)) return pricing[key];
    }
  }
  return undefined;
}

/** An Anthropic model. What its cache takes in for an hour costs twice its price, which is the dearest way to use it. */
function anthropic(input: number, output: number, maxOutputTokens: number, cacheRead = input / 10): Price {
  return { input, output, cacheRead, cacheWrite: input * 2, maxOutputTokens };
}

/** An OpenAI or Google model, whose cache costs nothing to fill. */
function cached(input: number, cacheRead: number, output: number, maxOutputTokens: number): Price {
  return { input, output, cacheRead, maxOutputTokens };
}

/**
 * List prices of the standard tier, as published in November 2026. Prices change: what you spend money by, check at your provider, and replace
 * or extend this table: `pricing: { ...defaultPricing, "acme/large": { input: 1, output: 4 } }`.
 */
export const defaultPricing: Pricing = Object.freeze({
  "anthropic/claude-opus-5-5": anthropic(4, 20, 128_000, 0.2),
  "anthropic/claude-opus-5": anthropic(5, 25, 128_000),
  "anthropic/claude-opus-4-7": anthropic(5, 25, 64_000),
  "anthropic/claude-opus-4-6": anthropic(5, 25, 64_000),
  "anthropic/claude-opus-4-5": anthropic(5, 25, 64_000),
  "anthropic/claude-sonnet-5-5": anthropic(2, 10, 128_000),
  "anthropic/claude-sonnet-5": anthropic(2, 10, 64_000),
  "anthropic/claude-sonnet-4-5": anthropic(3, 15, 64_000),
  "anthropic/claude-haiku-4-5": anthropic(1, 5, 64_000),
  "openai/gpt-6.2-sol": {
    ...{ input: 2, output: 10, cacheRead: 0.1, cacheWrite: 2.5, maxOutputTokens: 128_000 },
    longPrompt: { above: 272_000, input: 4, output: 15, cacheRead: 0.2, cacheWrite: 5 },
  },
  "openai/gpt-5.2": cached(1.75, 0.175, 14, 128_000),
  "openai/gpt-5": cached(1.25, 0.125, 10, 128_000),
  "openai/gpt-5-mini": cached(0.25, 0.025, 2, 128_000),
  "openai/gpt-5-nano": cached(0.05, 0.005, 0.4, 128_000),
  "openai/gpt-4.1": cached(2, 0.5, 8, 32_768),
  "openai/gpt-4o": cached(2.5, 1.25, 10, 16_384),
  "openai/gpt-4o-mini": cached(0.15, 0.075, 0.6, 16_384),
  "google/gemini-2.5-pro": {
    ...cached(1.25, 0.125, 10, 65_536),
    longPrompt: { above: 200_000, input: 2.5, output: 15, cacheRead: 0.25 },
  },
  "google/gemini-2.5-flash": cached(0.3, 0.03, 2.5, 65_536),
});
