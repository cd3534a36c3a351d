/**
 * What a run has used of its budget, read off its log alone, so that it survives whatever the run survives.
 *
 * G1. What an attempt at a model reserved is used until its provider has reported less. A failed, cut or unreported one has used all of it.
 * G2. What a provider reports counts as it is, also beyond what was reserved: that is an overrun, which somebody has to look at.
 * G3. What a child was allotted is used until it has ended; then it has used what its own log says, or all of it where nobody can read that.
 * G4. Dollars are counted in whole nano-dollars, rounded up, so sums do not drift.
 */
import type { TokenUsage } from "../protocol/events.ts";
import type { Fact } from "./entries.ts";
import type { Attempt, RunState, StepState } from "./run-state.ts";
import { type Amounts, NANO, plus } from "./spending.ts";

/** USD per million tokens. */
export type Rates = NonNullable<Reserved["rates"]>;
/** The upper bound of one model call. */
export type Reserved = NonNullable<Fact<"step.attempt">["reserved"]>;

/** Tokens and nano-dollars. */
export interface Charge {
  readonly tokens: number;
  readonly usd: number;
}

/** What counts against limits, by each of them. */
export interface Used extends Charge {
  readonly steps: number;
  readonly calls: number;
  readonly perTool: ReadonlyMap<string, number>;
  /** Milliseconds. */
  readonly time: number;
}

export interface Spent extends Used {
  /** What the attempts that run have reserved, and what children that have not ended were allotted; not part of the other numbers. */
  readonly reserved: Used;
  /** What was added to the limits of children that have ended. */
  readonly raised: Amounts;
  /** Whether a provider has used more than was reserved, and nobody has raised the budget since. */
  readonly isOverrun: boolean;
}

/** @param at - milliseconds since the epoch */
export function spentBy(run: RunState, at: number): Spent {
  const { active, since, raisedAt } = run.spending;
  const used = new Tally();
  const reserved = new Tally();
  let raised: Amounts = {};
  let isOverrun = false;
  for (const step of run.steps.values()) {
    const { attempts, finished, started } = step;
    const [last] = attempts.slice(-1);
    if (last === undefined) continue;
    const isLater = (finished?.seq ?? -1) > raisedAt;
    if (started.step === "tool" || started.step === "child") used.add({ calls: 1, perTool: { [started.name]: 1 } });
    if (started.step === "child") {
      const { allotted = {} } = last;
      if (finished === undefined) reserved.add(allotted);
      else used.add(finished.spent ?? allotted);
      if (finished?.spent !== undefined) raised = plus(raised, finished.spent.raised);
      isOverrun ||= finished?.spent?.isOverrun === true && isLater;
    }
    if (started.step === "model") used.add({ steps: 1 });
    else if (attempts.every(({ reserved }) => reserved === undefined)) continue;
    for (const attempt of attempts) {
      const bound = boundOf(attempt);
      if (attempt === last && finished === undefined && attempt.failed === undefined) {
        reserved.add(bound);
        continue;
      }
      const charge = attempt === last ? usedBy(attempt, step) : bound;
      used.add(charge);
      const isBeyond = charge.tokens > bound.tokens || charge.usd > bound.usd;
      isOverrun ||= isBeyond && attempt.reserved !== undefined && isLater;
    }
  }
  used.add({ time: active + (since === null ? 0 : Math.max(0, at - since)) });
  return { ...used.sums, reserved: reserved.sums, raised, isOverrun };
}

/** What the log of a child's caller keeps of what that has used. What still ran in one that was given up counts whole. */
export function spentByChild(run: RunState, at: number): NonNullable<Fact<"step.finished">["spent"]> {
  const { reserved, raised, isOverrun, ...spent } = spentBy(run, at);
  const all = new Tally();
  for (const one of [spent, reserved]) all.add({ ...one, perTool: Object.fromEntries(one.perTool) });
  return {
    ...{ ...all.sums, perTool: Object.fromEntries(all.sums.perTool), raised: plus(raised, run.spending.raised) },
    ...(isOverrun && { isOverrun }),
  };
}

class Tally {
  readonly #perTool = new Map<string, number>();
  #steps = 0;
  #calls = 0;
  #tokens = 0;
  #usd = 0;
  #time = 0;

  add({ steps = 0, calls = 0, tokens = 0, usd = 0, time = 0, perTool = {} }: Amounts): void {
    this.#steps += steps;
    this.#calls += calls;
    this.#tokens += tokens;
    this.#usd += usd;
    this.#time += time;
    for (const [tool, n] of Object.entries(perTool)) this.#perTool.set(tool, (this.#perTool.get(tool) ?? 0) + n);
  }

  get sums(): Used {
    return {
      ...{ steps: this.#steps, calls: this.#calls, perTool: this.#perTool },
      ...{ tokens: this.#tokens, usd: this.#usd, time: this.#time },
    };
  }
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
