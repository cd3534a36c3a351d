/** What an agent's author may write as a budget, and what a model call reserves under it. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Budget, BudgetDefinition } from "../../src/agent/agent-budget.ts";
import { countBytes } from "../../src/agent/model-bound.ts";
import { defaultPricing, type Pricing, priceOf } from "../../src/agent/pricing.ts";
import { AgentDefinitionError, agent, tool } from "../../src/index.ts";
import { fold } from "../../src/log/fold.ts";
import { chargeOf } from "../../src/log/spent.ts";
import type { Path } from "../../src/protocol/words.ts";
import type { Left } from "../../src/runtime/budget.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { leg, logOf, request, runStarted } from "../log/entries.ts";

const model = scriptedModel([{ text: "So." }]);
const pack = tool({ name: "pack", description: "Packs.", effect: "read", input: z.object({}), call: () => "packed" });
const thrifty = (definition: BudgetDefinition, more: object = {}) =>
  agent({ name: "thrifty", model, tools: [pack], ...definition, ...more });

describe("a budget that is none is refused where it is written, and the error says what to write", () => {
  it.each<[string, BudgetDefinition, RegExp]>([
    ["a part of a step", { budget: { steps: 1.5 } }, /budget\.steps: 1\.5; it is a whole number from 0/],
    ["fewer tokens than none", { budget: { tokens: -1 } }, /budget\.tokens: -1/],
    ["no amount", { budget: { usd: Number.NaN } }, /budget\.usd: NaN; it is an amount of dollars/],
    ["a tool that is not there", { budget: { perTool: { pakc: 1 } } }, /limits tool "pakc".*no such tool/],
    ["no price", { budget: { usd: 1 } }, /no price for its model "scripted\/scripted"; add it: pricing:/],
    [
      "a price that is none",
      { budget: { usd: 1 }, pricing: { "scripted/scripted": { input: -1, output: 1 } } },
      /a price for "scripted\/scripted" that is no amount/,
    ],
  ])("%s", (_, definition, says) => {
    expect(() => thrifty(definition)).toThrow(AgentDefinitionError);
    expect(() => thrifty(definition)).toThrow(says);
  });

  it("no price of a fallback", () => {
    const pricing: Pricing = { "scripted/scripted": { input: 1, output: 1 } };
    const fallbacks = [scriptedModel([{ text: "Else." }], { modelId: "other" })];
    expect(() => thrifty({ budget: { usd: 1 }, pricing }, { fallbacks })).toThrow(/"scripted\/other"/);
    expect(() => thrifty({ budget: { tokens: 1 } }, { fallbacks })).not.toThrow();
  });

  it("a time that is no duration", () => {
    expect(() => thrifty({ budget: { time: "15 minutes" as never } })).toThrow(/budget\.time/);
  });
});

it("a price is found under the provider's first word, and without a date", () => {
  const opus = defaultPricing["anthropic/claude-opus-4-5"];
  expect(opus).toBeDefined();
  for (const modelId of ["claude-opus-4-5", "claude-opus-4-5-20251101"]) {
    expect(priceOf(defaultPricing, { provider: "anthropic.messages", modelId })).toBe(opus);
  }
  expect(priceOf(defaultPricing, { provider: "openai.responses", modelId: "gpt-5-2025-08-07" })).toBe(
    defaultPricing["openai/gpt-5"],
  );
  expect(priceOf(defaultPricing, { provider: "acme", modelId: "gpt-5" })).toBeUndefined();
  expect(priceOf(defaultPricing, { provider: "__proto__", modelId: "x" })).toBeUndefined();
});

describe("what a call reserves", () => {
  const run = fold(logOf([[runStarted], leg(1, "r1", request("r1"))]));
  const reserved = (budget: Budget, left: Left, more: BudgetDefinition & object = {}) =>
    thrifty({ budget, ...more }, more).loop.budget?.reserve({ run, before: [], path: "0" as Path, left });
  const pricing = (price: Pricing[string]): Pricing => ({ "scripted/scripted": price });
  const countTokens = () => 100;

  it("is the prompt and the output limit of the settings, whatever is left", () => {
    const more = { countTokens, settings: { maxOutputTokens: 50 } };
    expect(reserved({ tokens: 1 }, { tokens: 10, usd: null }, more)).toEqual({ input: 100, output: 50 });
  });

  it("without one, the model's own limit, or all that is left", () => {
    const price = { input: 1, output: 2, maxOutputTokens: 900 };
    const more = { countTokens, pricing: pricing(price) };
    expect(reserved({ tokens: 1 }, { tokens: 5_000, usd: null }, more)).toEqual({ input: 100, output: 900 });
    expect(reserved({ tokens: 1 }, { tokens: 800, usd: null }, more)).toEqual({
      input: 100,
      output: 700,
      isRest: true,
    });
  });

  it("is priced as dearly as the prompt may be, by the rates of a long one where it is long", () => {
    const longPrompt = { above: 99, input: 10, output: 20 };
    const price = { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 3, maxOutputTokens: 10 };
    const left = { tokens: null, usd: 1e9 };
    const short = reserved({ usd: 1 }, left, { countTokens, pricing: pricing(price) });
    expect(short && chargeOf(short)).toEqual({ tokens: 110, usd: 100 * 3_000 + 10 * 2_000 });
    const long = reserved({ usd: 1 }, left, { countTokens, pricing: pricing({ ...price, longPrompt }) });
    expect(long && chargeOf(long)).toEqual({ tokens: 110, usd: 100 * 10_000 + 10 * 20_000 });
  });

  it("never is more than what is left, where the output has no limit and there is room for an answer", () => {
    const amount = fc.double({ min: 0, max: 100, noNaN: true });
    fc.assert(
      fc.property(amount, amount, fc.nat(1e6), fc.nat(1e10), fc.nat(1e5), (input, output, tokens, usd, prompt) => {
        const more = { countTokens: () => prompt, pricing: pricing({ input, output }) };
        const bound = reserved({ usd: 1 }, { tokens, usd }, more);
        if (bound === undefined) throw new Error("nothing reserved");
        const charge = chargeOf(bound);
        if (bound.output <= 256) return;
        expect(charge.tokens).toBeLessThanOrEqual(tokens);
        expect(charge.usd).toBeLessThanOrEqual(usd);
      }),
    );
  });
});

it("a prompt counts at least as many tokens as it has characters, and a picture what a picture may cost", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      const prompt = [{ role: "user", content: [{ type: "text", text }] }] as const;
      const count = countBytes({ provider: "p", modelId: "m", prompt, tools: [] });
      expect(count).toBeGreaterThanOrEqual(Buffer.byteLength(text));
    }),
  );
  const url = { type: "url", url: "https://example.test/a.png" } as const;
  const file = { type: "file", mediaType: "image/png", data: url } as const;
  const prompt = [{ role: "user", content: [file] }] as const;
  expect(countBytes({ provider: "p", modelId: "m", prompt, tools: [] })).toBeGreaterThanOrEqual(8_192);
});
