/**
 * Random agents under random budgets, asked by a provider that reports less than it uses, more, or nothing, and dies. The ledger stands outside
 * of the log: it notes each request as the provider gets it, and each call as its body begins, and holds them against what was allowed by then.
 */
import fc from "fast-check";
import { z } from "zod";
import type { Budget } from "../../src/agent/agent-budget.ts";
import { agent, type LanguageModel, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { Fate } from "../../src/testing/life.ts";
import type { ScriptQuestion, ScriptReply } from "../../src/testing/script.ts";
import type { World } from "./world.ts";

export type Manner = "honest" | "under" | "silent" | "half" | "over" | "dies" | "refuses";

export interface BudgetPlan {
  /** The calls of each turn of the model. */
  readonly turns: readonly (readonly ("look" | "mend")[])[];
  /** How the provider answers its nth request; afterwards it is honest. */
  readonly manners: readonly Manner[];
  readonly budget: Budget;
  readonly maxOutputTokens: number | undefined;
  /** What the human adds to all limits, question by question; then he stops the run. */
  readonly raises: readonly Required<Pick<Budget, "steps" | "calls" | "tokens" | "usd">>[];
  readonly fates: readonly Fate[];
}

const count = (max: number) => fc.option(fc.nat(max), { nil: undefined });

export const budgetPlan: fc.Arbitrary<BudgetPlan> = fc.record({
  turns: fc.array(fc.array(fc.constantFrom("look" as const, "mend" as const), { minLength: 1, maxLength: 3 }), {
    maxLength: 3,
  }),
  manners: fc.array(
    fc.constantFrom<Manner>("honest", "honest", "honest", "under", "silent", "half", "over", "dies", "refuses"),
    { maxLength: 6 },
  ),
  budget: fc
    .record({
      steps: count(4),
      calls: count(6),
      mends: count(3),
      tokens: fc.option(fc.integer({ min: 500, max: 25_000 }), { nil: undefined }),
      cents: fc.option(fc.integer({ min: 0, max: 6 }), { nil: undefined }),
    })
    .map(({ steps, calls, mends, tokens, cents }) => ({
      ...(steps !== undefined && { steps }),
      ...(calls !== undefined && { calls }),
      ...(mends !== undefined && { perTool: { mend: mends } }),
      ...(tokens !== undefined && { tokens }),
      ...(cents !== undefined && { usd: cents / 200 }),
    })),
  maxOutputTokens: fc.option(fc.integer({ min: 10, max: 2_000 }), { nil: undefined }),
  raises: fc.array(
    fc.record({
      steps: fc.nat(2),
      calls: fc.nat(3),
      tokens: fc.integer({ min: 1, max: 12_000 }),
      usd: fc.nat(20).map((tenths) => tenths / 1_000),
    }),
    { maxLength: 3 },
  ),
  fates: fc.array(
    fc.record({
      when: fc.constantFrom("after" as const, "before" as const),
      commits: fc.integer({ min: 1, max: 14 }),
    }),
    { maxLength: 3 },
  ),
});

/** USD per million tokens. */
export const PRICE = { input: 1, output: 4, cacheRead: 0.1, cacheWrite: 1.25 };

interface Asked {
  readonly turn: number;
  /** The most that the provider could use for it: the bytes that it got, and what it was allowed to answer. */
  readonly bound: { readonly input: number; readonly output: number };
  readonly manner: Manner;
  reported: { readonly input: number; readonly output: number } | null;
}

const known = new WeakMap<World, Books>();

/** The ledger. */
export class Books {
  readonly asked: Asked[] = [];
  readonly begun = new Map<string, "look" | "mend">();
  readonly answered = new Map<string, BudgetPlan["raises"][number] | "stop">();
  readonly violations: string[] = [];

  static of(world: World): Books {
    const one = known.get(world) ?? new Books();
    known.set(world, one);
    return one;
  }

  /** A limit with all that was added to it. */
  allowed({ budget }: BudgetPlan, limit: "steps" | "calls" | "tokens" | "usd" | "mend"): number {
    const own = limit === "mend" ? budget.perTool?.mend : budget[limit];
    if (own === undefined) return Number.POSITIVE_INFINITY;
    const raises = [...this.answered.values()].flatMap((raise) => (raise === "stop" ? [] : [raise]));
    return raises.reduce((sum, raise) => sum + raise[limit === "mend" ? "calls" : limit], own);
  }

  request(plan: BudgetPlan, one: Asked): void {
    // What it had reported may not have been heard by anybody who lived; more than its bound it may not have been believed.
    const usedBy = ({ bound, reported }: Asked) =>
      reported === null || reported.input + reported.output > bound.input + bound.output ? bound : reported;
    const all = [...this.asked.map(usedBy), one.bound];
    this.asked.push(one);
    const tokens = all.reduce((sum, { input, output }) => sum + input + output, 0);
    const usd = all.reduce((sum, { input, output }) => sum + (input * PRICE.input + output * PRICE.output) / 1e6, 0);
    this.#hold(plan, "tokens", tokens);
    // What is added to dollars may be off by what floating point cannot hold.
    this.#hold(plan, "usd", usd - 1e-9);
    this.#hold(plan, "steps", new Set(this.asked.map(({ turn }) => turn)).size);
  }

  begins(plan: BudgetPlan, call: string, name: "look" | "mend"): void {
    this.begun.set(call, name);
    this.#hold(plan, "calls", this.begun.size);
    this.#hold(plan, "mend", [...this.begun.values()].filter((one) => one === "mend").length);
  }

  #hold(plan: BudgetPlan, limit: Parameters<Books["allowed"]>[1], used: number): void {
    const allowed = this.allowed(plan, limit);
    if (used > allowed) this.violations.push(`${used} ${limit} of ${allowed}`);
  }
}

export function budgetAnswer(plan: BudgetPlan, { kind, interrupt }: ScriptQuestion, world: World): ScriptReply {
  if (kind !== "budget") throw new Error(`nobody asks that here: ${kind}`);
  const raise = plan.raises[Number(/:b(\d+)$/.exec(interrupt.id)?.[1])];
  Books.of(world).answered.set(interrupt.id, raise ?? "stop");
  if (raise === undefined) return { status: "resolved", payload: { stop: true } };
  return { status: "resolved", payload: { raise: { ...raise, perTool: { mend: raise.calls } } } };
}

export function agentUnder(plan: BudgetPlan, world: World): LoopAgent {
  const books = Books.of(world);
  const { budget, maxOutputTokens } = plan;
  const made = (name: "look" | "mend") =>
    tool({
      name,
      description: `A ${name}.`,
      effect: name === "look" ? "read" : "write",
      settle: 0,
      input: z.object({ call: z.string() }),
      async call({ call }) {
        books.begins(plan, call, name);
        if (name === "mend") await world.act(call);
        else await world.at(`${call}: looks`);
        return call;
      },
      reconcile: ({ call }) =>
        world.count(call) > 0 ? { applied: "yes" as const, output: call } : { applied: "no" as const },
    });
  return agent({
    name: "thrifty",
    model: provider(plan, books),
    budget,
    pricing: { "fake/model": PRICE },
    tools: [made("look"), made("mend")],
    ...(maxOutputTokens !== undefined && { settings: { maxOutputTokens } }),
  }) as LoopAgent;
}

function provider(plan: BudgetPlan, books: Books): LanguageModel {
  return {
    specificationVersion: "v3",
    provider: "fake",
    modelId: "model",
    async doStream({ prompt, tools, maxOutputTokens = 0 }) {
      const turn = prompt.filter((message) => (message as { role: string }).role === "assistant").length;
      const manner = plan.manners[books.asked.length] ?? "honest";
      const input = Buffer.byteLength(JSON.stringify([prompt, tools]));
      const one: Asked = { turn, manner, bound: { input, output: maxOutputTokens }, reported: null };
      books.request(plan, one);
      if (manner === "refuses") throw Object.assign(new Error("no"), { statusCode: 503 });
      one.reported = reportOf(manner, one.bound);
      return { stream: streamOf(partsOf(plan, turn, one, manner)) };
    },
  };
}

export function streamOf(parts: Iterator<object>): ReadableStream<object> {
  return new ReadableStream({
    pull(controller) {
      const { done, value } = parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
}

export function reportOf(manner: Manner, { input, output }: Asked["bound"]): Asked["reported"] {
  switch (manner) {
    case "honest":
      return { input: Math.floor(input / 3), output: Math.floor(output / 2) };
    case "under":
      return { input: 1, output: 0 };
    case "over":
      return { input: input * 3 + 20_000, output };
    default:
      return null;
  }
}

function* partsOf(plan: BudgetPlan, turn: number, { reported, bound }: Asked, manner: Manner): Generator<object> {
  yield { type: "stream-start", warnings: [] };
  yield { type: "text-start", id: "0" };
  yield { type: "text-delta", id: "0", delta: `Turn ${turn}.` };
  if (manner === "dies") throw new Error("connection reset");
  yield { type: "text-end", id: "0" };
  const calls = plan.turns[turn] ?? [];
  for (const [i, toolName] of calls.entries()) {
    yield {
      type: "tool-call",
      toolCallId: `t${turn}c${i}`,
      toolName,
      input: JSON.stringify({ call: `t${turn}c${i}` }),
    };
  }
  const usage = reported ?? (manner === "half" ? { input: bound.input } : {});
  const { input: total, output } = usage as { input?: number; output?: number };
  yield {
    type: "finish",
    finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
    usage: { inputTokens: { total }, outputTokens: { total: output } },
  };
}
