/** A budget as an agent's author writes it, and what the runtime is given of it. */

import { NANO } from "../log/spending.ts";
import { dearestInput, type Rates, type Reserved } from "../log/spent.ts";
import { parseDuration } from "../protocol/duration.ts";
import type { Duration } from "../protocol/words.ts";
import { type Agent, budgetOf, isAgentTool } from "../runtime/agent-definition.ts";
import type { Left, RunBudget } from "../runtime/budget.ts";
import { type CountTokens, countBytes, type ModelInput } from "./model-bound.ts";
import type { LanguageModel } from "./model-port.ts";
import { defaultPricing, type Price, type Pricing, priceOf } from "./pricing.ts";

/** What one run may use. A limit that is left out is none. */
export interface Budget {
  /** Model steps. One that is tried again, after a failure or a crash, is still one. */
  readonly steps?: number;
  /** Calls of the agent's tools that begin; the client's own tools do not count. */
  readonly calls?: number;
  /** Calls that begin, by the tool's name. */
  readonly perTool?: { readonly [tool: string]: number };
  /** Input and output of all model calls. Each one reserves the most that it may use before it is asked. */
  readonly tokens?: number;
  /** The same in dollars, by `pricing`. */
  readonly usd?: number;
  /** How long model calls and tools may run; waiting does not count. */
  readonly time?: Duration;
  /** The scope that whoever raises the budget needs beside `answer`. Default: none. */
  readonly audience?: string;
}

export interface BudgetDefinition {
  readonly budget?: Budget;
  /** Prices for `budget.usd`, in place of {@link defaultPricing}. */
  readonly pricing?: Pricing;
  /** The most tokens that a request may be counted as, in place of its bytes. Has to be pure. */
  readonly countTokens?: CountTokens;
}

/** What a budget has to know of the agent. */
export interface Budgeted {
  readonly budget: Budget | undefined;
  readonly pricing: Pricing | undefined;
  readonly countTokens: CountTokens | undefined;
  /** The agents that it calls. */
  readonly called: readonly Agent[];
  /** Whether tools may come that are not known yet. */
  readonly mayHaveOtherTools: boolean;
  /** An error about the budget, of the rest of a sentence that begins with the agent's name. */
  readonly fault: (what: string) => Error;
  /** All that it may ask, as far as they are known when it is defined. */
  readonly models: readonly LanguageModel[];
  /** The name that a tool has now, by any that it has had; undefined where there is none. */
  readonly toolName: (name: string) => string | undefined;
}

export interface ModelAsked extends Pick<ModelInput, "prompt" | "tools"> {
  readonly model: LanguageModel;
  readonly maxOutputTokens: number | undefined;
}

/** What a budget knows of the models of its agent. */
export interface AgentBudget extends RunBudget {
  /** @throws `fault` of a model without a price */
  readonly checkPrices: (models: readonly LanguageModel[]) => void;
  /** The upper bound of one call. Pure. @param most - the longest answer that makes sense, where nothing is said about it. Tokens */
  readonly boundOf: (asked: ModelAsked, left: Left, most?: number) => Reserved;
}

/** @throws `fault` of what is wrong with the budget */
export function agentBudget(agent: Budgeted): AgentBudget {
  const { budget = {}, pricing = defaultPricing, countTokens = countBytes, fault } = agent;
  const { steps, calls, tokens, usd, time, perTool, audience = null } = budget;
  for (const [limit, value] of Object.entries({ steps, calls, tokens })) checkCount(limit, value);
  for (const [tool, value] of Object.entries(perTool ?? {})) {
    checkCount(`perTool.${tool}`, value);
    if (
      agent.toolName(tool) === undefined &&
      !agent.mayHaveOtherTools &&
      !agent.called.some((one) => hasTool(one, tool))
    )
      throw fault(`limits tool "${tool}" in budget.perTool, and has no such tool; check its name`);
  }
  if (usd !== undefined && !(Number.isFinite(usd) && usd >= 0)) {
    throw fault(`has budget.usd: ${String(usd)}; it is an amount of dollars, for example 0.5`);
  }
  const unpriced = [
    ...agent.models.flatMap((model) => (priceOf(pricing, model) === undefined ? [nameOf(model)] : [])),
    ...agent.called.flatMap((one) => budgetOf(one)?.unpriced ?? []),
  ];
  if (usd !== undefined) checkPrices(agent.models);
  if (usd !== undefined && unpriced.length > 0) {
    throw fault(
      `has a budget in usd, which its sub-agents share, and there is no price for "${unpriced.join('", "')}"; add it to the pricing of the sub-agent that asks it`,
    );
  }

  function checkCount(limit: string, value: number | undefined): void {
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) {
      throw fault(`has budget.${limit}: ${String(value)}; it is a whole number from 0`);
    }
  }
  function checkPrices(models: readonly LanguageModel[]): void {
    for (const model of models) checkPrice(model);
  }
  function checkPrice(model: LanguageModel): void {
    const name = nameOf(model);
    const price = priceOf(pricing, model);
    if (price === undefined) {
      throw fault(
        `has a budget in usd, and there is no price for its model "${name}"; add it: pricing: { ...defaultPricing, "${name}": { input: …, output: … } }, in USD per million tokens`,
      );
    }
    const { input, output, cacheRead = 0, cacheWrite = 0 } = price;
    if ([input, output, cacheRead, cacheWrite].some((rate) => !(Number.isFinite(rate) && rate >= 0))) {
      throw fault(
        `has a price for "${name}" that is no amount: ${JSON.stringify(price)}; rates are USD per million tokens`,
      );
    }
  }

  const toolName = (name: string): string => agent.toolName(name) ?? name;
  const byName = (limits: { readonly [tool: string]: number }): { readonly [tool: string]: number } =>
    Object.fromEntries(Object.entries(limits).map(([tool, limit]) => [toolName(tool), limit]));
  const boundOf: AgentBudget["boundOf"] = ({ model, prompt, tools, maxOutputTokens }, left, most) => {
    const { provider, modelId } = model;
    const input = Math.max(0, Math.ceil(countTokens({ provider, modelId, prompt, tools })));
    return reservation(input, maxOutputTokens, left, priceOf(pricing, model), most);
  };
  return {
    audience,
    unpriced: [...new Set(unpriced)],
    limits: {
      ...(steps !== undefined && { steps }),
      ...(calls !== undefined && { calls }),
      ...(tokens !== undefined && { tokens }),
      ...(usd !== undefined && { usd: Math.round(usd * NANO) }),
      ...(time !== undefined && { time: parseDuration(time, "budget.time") }),
      ...(perTool !== undefined && { perTool: byName(perTool) }),
    },
    toolName,
    ...{ boundOf, checkPrices },
  };
}

function nameOf({ provider, modelId }: LanguageModel): string {
  return `${provider}/${modelId}`;
}

/** Whether an agent, or one that it calls, has a tool, or may: what code of its own calls is known when it does. */
function hasTool({ loop }: Agent, name: string): boolean {
  if (loop === undefined) return true;
  return loop.tool(name) !== undefined || loop.tools.some((tool) => isAgentTool(tool) && hasTool(tool.agent, name));
}

/** Tokens. An answer that may be no longer than this is not worth its prompt. */
const LEAST_OUTPUT = 256;

function reservation(
  input: number,
  maxOutputTokens: number | undefined,
  left: Left,
  price: Price | undefined,
  longest = Number.POSITIVE_INFINITY,
): Reserved {
  const rates = left.usd !== null && price !== undefined ? ratesOf(price, input) : undefined;
  const common = { input, ...(rates && { rates }) };
  if (maxOutputTokens !== undefined) return { ...common, output: maxOutputTokens };
  const inTokens = left.tokens === null ? Number.POSITIVE_INFINITY : left.tokens - input;
  const rest = Math.min(inTokens, rates === undefined ? inTokens : affordable(input, left.usd, rates));
  const most = Math.min(longest, price?.maxOutputTokens ?? Number.POSITIVE_INFINITY);
  if (most <= rest) return { ...common, output: most };
  // Where there is less room than that, the call is refused rather than cut.
  return {
    ...common,
    output: Math.max(LEAST_OUTPUT, Math.floor(Math.min(rest, Number.MAX_SAFE_INTEGER))),
    isRest: true,
  };
}

/** Output tokens that the money buys which the prompt leaves. */
function affordable(input: number, usd: number | null, rates: Rates): number {
  if (usd === null || rates.output === 0) return Number.POSITIVE_INFINITY;
  const perToken = NANO / 1_000_000;
  // One less than it may be, for the rounding of the whole.
  return (usd - 1 - input * dearestInput(rates) * perToken) / (rates.output * perToken);
}

function ratesOf(price: Price, prompt: number): Rates {
  const { longPrompt } = price;
  const { input, output, cacheRead, cacheWrite } = longPrompt && prompt > longPrompt.above ? longPrompt : price;
  return {
    ...{ input, output },
    ...(cacheRead !== undefined && { cacheRead }),
    ...(cacheWrite !== undefined && { cacheWrite }),
  };
}
