/**
 * Random trees of agents under one random budget, of which the root alone knows: children in parallel and two deep, conversations that a model sums
 * up, and the provider of `budget-plays.ts`. The ledger stands outside of all logs, and holds what the whole tree does against what was allowed to it.
 */
import fc from "fast-check";
import { z } from "zod";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { agent, type LanguageModel, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { ScriptQuestion, ScriptReply } from "../../src/testing/script.ts";
import { type BudgetPlan, budgetPlan, type Manner, PRICE, reportOf, streamOf } from "./budget-plays.ts";
import type { World } from "./world.ts";

/** What an agent's model calls, turn by turn. */
export type TreePlan = readonly (readonly (Deed | ChildPlan)[])[];
type Deed = "look" | "mend";
interface ChildPlan {
  readonly agent: "mid" | "leaf";
  readonly turns: TreePlan;
}

export interface SharedPlan extends Omit<BudgetPlan, "turns"> {
  readonly turns: TreePlan;
  readonly isSummarised: boolean;
}

const deed = fc.constantFrom<Deed>("look", "mend");
const leaf = fc.record({
  agent: fc.constant("leaf" as const),
  turns: fc.array(fc.array(deed, { minLength: 1, maxLength: 2 }), { maxLength: 2 }),
});
const mid = fc.record({
  agent: fc.constant("mid" as const),
  turns: fc.array(fc.array(fc.oneof(deed, leaf), { minLength: 1, maxLength: 2 }), { maxLength: 2 }),
});
const turns: fc.Arbitrary<TreePlan> = fc.array(fc.array(fc.oneof(deed, leaf, mid), { minLength: 1, maxLength: 3 }), {
  minLength: 1,
  maxLength: 2,
});

const more = (most: number) => fc.option(fc.integer({ min: 1, max: most }), { nil: undefined });

export const sharedPlan: fc.Arbitrary<SharedPlan> = fc
  .record({
    base: budgetPlan,
    ...{ turns, isSummarised: fc.boolean() },
    limits: fc.record({ steps: more(12), calls: more(10), tokens: more(120_000), cents: more(20), mends: more(4) }),
  })
  .map(({ base, limits: { steps, calls, tokens, cents, mends }, ...plan }) => ({
    ...base,
    ...plan,
    budget: {
      ...(steps !== undefined && { steps }),
      ...(calls !== undefined && { calls }),
      ...(tokens !== undefined && { tokens }),
      ...(cents !== undefined && { usd: cents / 200 }),
      ...(mends !== undefined && { perTool: { mend: mends } }),
    },
  }));

type Limit = "steps" | "calls" | "tokens" | "usd" | "mend";
interface Charge {
  readonly input: number;
  readonly output: number;
}
interface Asked {
  readonly step: string;
  readonly manner: Manner;
  readonly bound: Charge;
  readonly reported: Charge | null;
  /** Whether it has said all. */
  isOver: boolean;
}

const known = new WeakMap<World, TreeBooks>();

export class TreeBooks {
  readonly asked: Asked[] = [];
  readonly begun = new Map<string, string>();
  readonly answered = new Map<string, BudgetPlan["raises"][number] | "stop">();
  readonly violations: string[] = [];

  static of(world: World): TreeBooks {
    const one = known.get(world) ?? new TreeBooks();
    known.set(world, one);
    return one;
  }

  get steps(): number {
    return new Set(this.asked.flatMap(({ step }) => (step.startsWith("summary") ? [] : [step]))).size;
  }

  request(plan: SharedPlan, one: Asked): void {
    const all = [...this.asked.map(usedBy), one.bound];
    this.asked.push(one);
    this.#hold(
      plan,
      "tokens",
      all.reduce((sum, { input, output }) => sum + input + output, 0),
    );
    const usd = all.reduce((sum, { input, output }) => sum + (input * PRICE.input + output * PRICE.output) / 1e6, 0);
    // What is added to dollars may be off by what floating point cannot hold.
    this.#hold(plan, "usd", usd - 1e-9);
    this.#hold(plan, "steps", this.steps);
  }

  begins(plan: SharedPlan, call: string, name: string): void {
    this.begun.set(call, name);
    this.#hold(plan, "calls", this.begun.size);
    this.#hold(plan, "mend", [...this.begun.values()].filter((one) => one === "mend").length);
  }

  /** The limit of the root, with all that was added anywhere. */
  allowed({ budget }: SharedPlan, limit: Limit): number {
    const own = limit === "mend" ? budget.perTool?.mend : budget[limit];
    if (own === undefined) return Number.POSITIVE_INFINITY;
    const raises = [...this.answered.values()].flatMap((raise) => (raise === "stop" ? [] : [raise]));
    return raises.reduce((sum, raise) => sum + raise[limit === "mend" ? "calls" : limit], own);
  }

  #hold(plan: SharedPlan, limit: Limit, used: number): void {
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

/** @param raises - question by question, whoever of the tree asks; then whoever asks is stopped */
export function treeAnswer(plan: SharedPlan, { kind, interrupt }: ScriptQuestion, world: World): ScriptReply {
  if (kind !== "budget") throw new Error(`nobody asks that here: ${kind}`);
  const { answered } = TreeBooks.of(world);
  const raise = answered.get(interrupt.id) ?? plan.raises[answered.size] ?? "stop";
  answered.set(interrupt.id, raise);
  if (raise === "stop") return { status: "resolved", payload: { stop: true } };
  return { status: "resolved", payload: { raise: { ...raise, perTool: { mend: raise.calls } } } };
}

const SUM_UP = "Sum it up.";

export function treeUnder(plan: SharedPlan, world: World): LoopAgent {
  const books = TreeBooks.of(world);
  const { budget, maxOutputTokens } = plan;
  const deeds = (["look", "mend"] as const).map((name) =>
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
    }),
  );
  const model = provider(plan, books);
  const common = {
    ...{ model, pricing: { "fake/model": PRICE }, description: "Does it." },
    ...(maxOutputTokens !== undefined && { settings: { maxOutputTokens } }),
    ...(plan.isSummarised && { compaction: { after: 60, keep: 1, by: model, instructions: SUM_UP } }),
  };
  const leaf = agent({ ...common, name: "leaf", tools: deeds });
  const mid = agent({ ...common, name: "mid", tools: [...deeds, agentTool(leaf)] });
  return agent({ ...common, name: "root", tools: [...deeds, agentTool(leaf), agentTool(mid)], budget }) as LoopAgent;
}

/** Finds out who asks by what he was asked himself, which a summary keeps. */
function provider(plan: SharedPlan, books: TreeBooks): LanguageModel {
  return {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, tools, maxOutputTokens = 0 }) {
      const text = JSON.stringify(prompt);
      const place = /TASK\[([\d.]*)\]/.exec(text)?.[1] ?? "";
      const said = [...text.matchAll(/Turn ([\d.]*)#(\d+)\./g)].filter(([, of]) => of === place);
      const turn = 1 + Math.max(-1, ...said.map(([, , n]) => Number(n)));
      const isSummary = text.includes(SUM_UP);
      const manner = plan.manners[books.asked.length] ?? "honest";
      const bound = { input: Buffer.byteLength(JSON.stringify([prompt, tools])), output: maxOutputTokens };
      const reported = manner === "refuses" ? null : reportOf(manner, bound);
      const step = `${isSummary ? "summary" : "step"} ${place}#${turn}`;
      const one: Asked = { step, manner, bound, reported, isOver: false };
      books.request(plan, one);
      if (place !== "" && !isSummary) books.begins(plan, `child ${place}`, "child");
      if (manner === "refuses") throw Object.assign(new Error("no"), { statusCode: 503 });
      const calls = isSummary ? [] : (turnsAt(plan.turns, place)[turn] ?? []);
      const last = isSummary ? turn - 1 : turn;
      return { stream: streamOf(partsOf({ one, place, turn, last, calls })) };
    },
  };
}

function turnsAt(turns: TreePlan, place: string): TreePlan {
  if (place === "") return turns;
  let at = turns;
  const steps = place.split(".").map(Number);
  for (let i = 0; i < steps.length; i += 2) {
    const next = at[steps[i] ?? -1]?.[steps[i + 1] ?? -1];
    if (next === undefined || typeof next === "string") throw new Error(`no child stands at ${place}`);
    at = next.turns;
  }
  return at;
}

interface Answering {
  readonly one: Asked;
  readonly place: string;
  readonly turn: number;
  /** The turn up to which it knows the conversation. */
  readonly last: number;
  readonly calls: TreePlan[number];
}

function* partsOf({ one, place, turn, last, calls }: Answering): Generator<object> {
  const { manner, bound, reported } = one;
  yield { type: "stream-start", warnings: [] };
  yield { type: "text-start", id: "0" };
  yield { type: "text-delta", id: "0", delta: `TASK[${place}] Turn ${place}#${last}.` };
  if (manner === "dies") throw new Error("connection reset");
  yield { type: "text-end", id: "0" };
  for (const [i, call] of calls.entries()) {
    const at = place === "" ? `${turn}.${i}` : `${place}.${turn}.${i}`;
    const isDeed = typeof call === "string";
    yield {
      ...{ type: "tool-call", toolCallId: at, toolName: isDeed ? call : call.agent },
      input: JSON.stringify(isDeed ? { call: at } : { task: `TASK[${at}]` }),
    };
  }
  const { input, output }: { input?: number; output?: number } =
    reported ?? (manner === "half" ? { input: bound.input } : {});
  yield {
    type: "finish",
    finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
    usage: { inputTokens: { total: input }, outputTokens: { total: output } },
  };
  one.isOver = true;
}
