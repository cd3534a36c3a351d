/**
 * What a run has used of its budget, read off its log alone, so that it survives whatever the run survives.
 *
 * G1. What an attempt at a model reserved is used until its provider has reported less. A failed, cut or unreported one has used all of it.
 * G2. What a provider reports counts as it is, also beyond what was reserved: that is an overrun, which somebody has to look at.
 * G3. Dollars are counted in whole nano-dollars, rounded up, so sums do not drift.
 */
import type { TokenUsage } from "../protocol/events.ts";
import type { Fact } from "./entries.ts";
import type { Attempt, RunState, StepState } from "./run-state.ts";
import { NANO } from "./spending.ts";

/** USD per million tokens. */
export type Rates = NonNullable<Reserved["rates"]>;
/** The upper bound of one model call. */
export type Reserved = NonNullable<Fact<"step.attempt">["reserved"]>;

/** Tokens and nano-dollars. */
export interface Charge {
  readonly tokens: number;
  readonly usd: number;
}

export interface Spent extends Charge {
  readonly steps: number;
  readonly calls: number;
  readonly perTool: ReadonlyMap<string, number>;
  /** What the attempts that run have reserved; not part of the other numbers. */
  readonly reserved: Charge;
  /** Milliseconds. */
  readonly time: number;
  /** Whether a provider has used more than was reserved, and nobody has raised the budget since. */
  readonly isOverrun: boolean;
}

/** @param at - milliseconds since the epoch */
export function spentBy(run: RunState, at: number): Spent {
  const { active, since, raisedAt } = run.spending;
  const perTool = new Map<string, number>();
  let [steps, calls, tokens, usd, reservedTokens, reservedUsd] = [0, 0, 0, 0, 0, 0];
  let isOverrun = false;
  for (const step of run.steps.values()) {
    const { attempts, finished, started } = step;
    if (attempts.length === 0) continue;
    if (started.step === "tool" || started.step === "child") {
      calls += 1;
      perTool.set(started.name, (perTool.get(started.name) ?? 0) + 1);
    }
    if (started.step !== "model") continue;
    steps += 1;
    for (const [i, attempt] of attempts.entries()) {
      const bound = boundOf(attempt);
      const isLast = i === attempts.length - 1;
      if (isLast && finished === undefined && attempt.failed === undefined) {
        reservedTokens += bound.tokens;
        reservedUsd += bound.usd;
        continue;
      }
      const used = isLast ? usedBy(attempt, step) : bound;
      tokens += used.tokens;
      usd += used.usd;
      const isBeyond = used.tokens > bound.tokens || used.usd > bound.usd;
      isOverrun ||= isBeyond && attempt.reserved !== undefined && (finished?.seq ?? -1) > raisedAt;
    }
  }
  const time = active + (since === null ? 0 : Math.max(0, at - since));
  return {
    steps,
    calls,
    perTool,
    tokens,
    usd,
    reserved: { tokens: reservedTokens, usd: reservedUsd },
    time,
    isOverrun,
  };
}

/** What runs that share a budget have used together. Their times add up, also where they ran side by side. */
export function together(spent: readonly Spent[]): Spent {
  const perTool = new Map<string, number>();
  for (const one of spent) for (const [tool, n] of one.perTool) perTool.set(tool, (perTool.get(tool) ?? 0) + n);
  const sum = (of: (one: Spent) => number): number => spent.reduce((total, one) => total + of(one), 0);
  return {
    ...{ steps: sum((one) => one.steps), calls: sum((one) => one.calls), perTool },
    ...{ tokens: sum((one) => one.tokens), usd: sum((one) => one.usd), time: sum((one) => one.time) },
    reserved: { tokens: sum((one) => one.reserved.tokens), usd: sum((one) => one.reserved.usd) },
    isOverrun: spent.some((one) => one.isOverrun),
  };
}

/** All that an attempt may use. */
function boundOf({ reserved }: Attempt): Charge {
  return reserved === undefined ? { tokens: 0, usd: 0 } : chargeOf(reserved);
}

export function chargeOf({ input, output, rates }: Reserved): Charge {
  return { tokens: input + output, usd: rates === undefined ? 0 : boundUsd(input, output, rates) };
}

/** Nobody knows how much of a prompt a cache will take in or give out, so its dearest rate counts. */
function boundUsd(input: number, output: number, rates: Rates): number {
  return Math.ceil(input * nano(dearestInput(rates)) + output * nano(rates.output));
}

export function dearestInput({ input, cacheRead = 0, cacheWrite = 0 }: Rates): number {
  return Math.max(input, cacheRead, cacheWrite);
}

/** Nano-dollars of one token. */
function nano(usdPerMillion: number): number {
  return usdPerMillion * (NANO / 1_000_000);
}

/** What the last attempt of a step has used, as far as its provider has said so. */
function usedBy(attempt: Attempt, { finished }: StepState): Charge {
  const { reserved } = attempt;
  const { input, output, cacheRead, cacheWrite } = sumOf(finished?.usage ?? [], reserved);
  if (reserved?.rates === undefined) return { tokens: input + output, usd: 0 };
  const { rates } = reserved;
  const plain = Math.max(0, input - cacheRead - cacheWrite);
  const usd =
    plain * nano(rates.input) +
    cacheRead * nano(rates.cacheRead ?? rates.input) +
    cacheWrite * nano(rates.cacheWrite ?? rates.input) +
    output * nano(rates.output);
  return { tokens: input + output, usd: Math.ceil(usd) };
}

/** What is not reported counts as reserved. */
function sumOf(usage: readonly TokenUsage[], reserved: Reserved | undefined) {
  const total = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const unknown = { inputTokens: reserved?.input ?? 0, outputTokens: reserved?.output ?? 0 };
  for (const one of usage.length === 0 ? [{} as TokenUsage] : usage) {
    const { inputTokens = unknown.inputTokens, totalTokens } = one;
    const rest = totalTokens === undefined ? unknown.outputTokens : Math.max(0, totalTokens - inputTokens);
    total.input += inputTokens;
    total.output += one.outputTokens ?? rest;
    total.cacheRead += one.cachedInputTokens ?? 0;
    total.cacheWrite += one.cacheWriteInputTokens ?? 0;
  }
  return total;
}
