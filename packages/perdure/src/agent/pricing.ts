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

/** An Anthropic model: its cache reads at a tenth, and takes in for an hour at twice its price. */
function anthropic(input: number, output: number, maxOutputTokens: number): Price {
  return { input, output, cacheRead: input / 10, cacheWrite: input * 2, maxOutputTokens };
}

/**
 * List prices of November 2026, of the standard tier, without long-context surcharges, which are yours to add. Replace or extend it:
 * `pricing: { ...defaultPricing, "acme/large": { input: 1, output: 4 } }`.
 */
export const defaultPricing: Pricing = Object.freeze({
  "openai/gpt-5": { input: 1.25, output: 10, cacheRead: 0.125, maxOutputTokens: 128_000 },
});
void anthropic;
