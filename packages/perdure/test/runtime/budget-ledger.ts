/**
 * What plays under random budgets share: a provider that reports less than it uses, more, or nothing, and dies, and a ledger that stands outside of all
 * logs. It notes each request as the provider gets it, and each call as its body begins, and holds them against what was allowed by then.
 */
import fc from "fast-check";
import { z } from "zod";
import type { Budget } from "../../src/agent/agent-budget.ts";
import { type LanguageModel, tool } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Fate } from "../../src/testing/life.ts";
import type { ScriptQuestion, ScriptReply } from "../../src/testing/script.ts";
import type { World } from "./world.ts";

export type Manner = "honest" | "under" | "silent" | "half" | "over" | "dies" | "refuses";
export type Deed = "look" | "mend";
type Raise = Required<Pick<Budget, "steps" | "calls" | "tokens" | "usd">>;

export interface Thrifty {
  /** How the provider answers its nth request; afterwards it is honest. */
  readonly manners: readonly Manner[];
  readonly budget: Budget;
  readonly maxOutputTokens: number | undefined;
  /** What the human adds to all limits, question by question, whoever asks; then he stops whoever asks. */
  readonly raises: readonly Raise[];
  readonly fates: readonly Fate[];
}

export interface Limits {
  readonly steps: number | undefined;
  readonly calls: number | undefined;
  readonly tokens: number | undefined;
  readonly cents: number | undefined;
  readonly mends: number | undefined;
}

function budgetOf({ steps, calls, tokens, cents, mends }: Limits): Budget {
  return {
    ...(steps !== undefined && { steps }),
    ...(calls !== undefined && { calls }),
    ...(tokens !== undefined && { tokens }),
    ...(cents !== undefined && { usd: cents / 200 }),
    ...(mends !== undefined && { perTool: { mend: mends } }),
  };
}

/** @param limits - of the budget */
export function thriftyUnder(limits: fc.Arbitrary<Limits>): fc.Arbitrary<Thrifty> {
  return fc.record({
    manners: fc.array(
      fc.constantFrom<Manner>("honest", "honest", "honest", "under", "silent", "half", "over", "dies", "refuses"),
      { maxLength: 6 },
    ),
    budget: limits.map(budgetOf),
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
}

/** USD per million tokens. */
const PRICE = { input: 1, output: 4, cacheRead: 0.1, cacheWrite: 1.25 };

export const pricing = { "fake/model": PRICE };

interface Charge {
  readonly input: number;
  readonly output: number;
}

export interface Asked {
  /** Which model step asks; what is no step begins with `summary`. */
  readonly step: string;
  readonly manner: Manner;
  /** The most that the provider could use for it: the bytes that it got, and what it was allowed to answer. */
  readonly bound: Charge;
  readonly reported: Charge | null;
  /** Whether it has said all. */
  isOver: boolean;
}

const known = new WeakMap<World, Books>();

/** The ledger. */
export class Books {
  readonly asked: Asked[] = [];
  readonly begun = new Map<string, string>();
  readonly answered = new Map<string, Raise | "stop">();
  readonly violations: string[] = [];

  static of(world: World): Books {
    const one = known.get(world) ?? new Books();
    known.set(world, one);
    return one;
  }

  get steps(): number {
    return new Set(this.asked.flatMap(({ step }) => (step.startsWith("summary") ? [] : [step]))).size;
  }

  request(plan: Thrifty, one: Asked): void {
    const all = [...this.asked.map(usedBy), one.bound];
    this.asked.push(one);
    const tokens = all.reduce((sum, { input, output }) => sum + input + output, 0);
    const usd = all.reduce((sum, { input, output }) => sum + (input * PRICE.input + output * PRICE.output) / 1e6, 0);
    this.#hold(plan, "tokens", tokens);
    // What is added to dollars may be off by what floating point cannot hold.
    this.#hold(plan, "usd", usd - 1e-9);
    this.#hold(plan, "steps", this.steps);
  }

  begins(plan: Thrifty, call: string, name: string): void {
    this.begun.set(call, name);
    this.#hold(plan, "calls", this.begun.size);
    this.#hold(plan, "mend", [...this.begun.values()].filter((one) => one === "mend").length);
  }

  /** A limit with all that was added to it anywhere. */
  allowed({ budget }: Thrifty, limit: keyof Raise | "mend"): number {
    const own = limit === "mend" ? budget.perTool?.mend : budget[limit];
    if (own === undefined) return Number.POSITIVE_INFINITY;
    const raises = [...this.answered.values()].flatMap((raise) => (raise === "stop" ? [] : [raise]));
    return raises.reduce((sum, raise) => sum + raise[limit === "mend" ? "calls" : limit], own);
  }

  #hold(plan: Thrifty, limit: keyof Raise | "mend", used: number): void {
    const allowed = this.allowed(plan, limit);
    if (used > allowed) this.violations.push(`${used} ${limit} of ${allowed}`);
  }
}

/** More than its bound it was not allowed to use, whatever it says; and all of that until it has said less. */
function usedBy({ bound, reported, isOver }: Asked): Charge {
  return !isOver || reported === null || reported.input + reported.output > bound.input + bound.output
    ? bound
    : reported;
}

export function budgetAnswer(plan: Thrifty, { kind, interrupt }: ScriptQuestion, world: World): ScriptReply {
  if (kind !== "budget") throw new Error(`nobody asks that here: ${kind}`);
  const { answered } = Books.of(world);
  const raise = answered.get(interrupt.id) ?? plan.raises[answered.size] ?? "stop";
  answered.set(interrupt.id, raise);
  if (raise === "stop") return { status: "resolved", payload: { stop: true } };
  return { status: "resolved", payload: { raise: { ...raise, perTool: { mend: raise.calls } } } };
}

/** A read and a write, which say in the ledger that they begin. */
export function deedsOf(plan: Thrifty, world: World) {
  const made = (name: Deed) =>
    tool({
      name,
      description: `A ${name}.`,
      effect: name === "look" ? "read" : "write",
      settle: 0,
      input: z.object({ call: z.string() }),
      async call({ call }) {
        Books.of(world).begins(plan, call, name);
        if (name === "mend") await world.act(call);
        else await world.at(`${call}: looks`);
        return call;
      },
      reconcile: ({ call }) =>
        world.count(call) > 0 ? { applied: "yes" as const, output: call } : { applied: "no" as const },
    });
  return [made("look"), made("mend")] as const;
}

/** What the provider says to one request. */
export interface Answer {
  readonly step: string;
  readonly text: string;
  readonly calls: readonly { readonly id: string; readonly name: string; readonly input: Json }[];
}

/** @param answer - what it says; called before the ledger has the request */
export function providerOf(plan: Thrifty, world: World, answer: (prompt: Json) => Answer): LanguageModel {
  const books = Books.of(world);
  return {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, tools, maxOutputTokens = 0 }) {
      const said = answer(prompt as unknown as Json);
      const manner = plan.manners[books.asked.length] ?? "honest";
      const bound = { input: Buffer.byteLength(JSON.stringify([prompt, tools])), output: maxOutputTokens };
      const reported = manner === "refuses" ? null : reportOf(manner, bound);
      const one: Asked = { step: said.step, manner, bound, reported, isOver: false };
      books.request(plan, one);
      if (manner === "refuses") throw Object.assign(new Error("no"), { statusCode: 503 });
      return { stream: streamOf(partsOf(one, said)) };
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

function reportOf(manner: Manner, { input, output }: Charge): Charge | null {
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

function* partsOf(one: Asked, { text, calls }: Answer): Generator<object> {
  const { manner, bound, reported } = one;
  yield { type: "stream-start", warnings: [] };
  yield { type: "text-start", id: "0" };
  yield { type: "text-delta", id: "0", delta: text };
  if (manner === "dies") throw new Error("connection reset");
  yield { type: "text-end", id: "0" };
  for (const { id, name, input } of calls) {
    yield { type: "tool-call", toolCallId: id, toolName: name, input: JSON.stringify(input) };
  }
  const usage: Partial<Charge> = reported ?? (manner === "half" ? { input: bound.input } : {});
  yield {
    type: "finish",
    finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
    usage: { inputTokens: { total: usage.input }, outputTokens: { total: usage.output } },
  };
  one.isOver = true;
}
