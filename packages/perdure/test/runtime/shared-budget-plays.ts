/**
 * Random trees of agents under one random budget, of which the root alone knows: children in parallel and two deep, conversations that a model sums
 * up, agents of the built-in loop and with code of their own, which may hold several conversations side by side. `budget-ledger.ts` asks and counts.
 */
import fc from "fast-check";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { type Agent, agent, BudgetExceeded, type LoopContext } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import {
  type Answer,
  Books,
  type Deed,
  deedsOf,
  pricing,
  providerOf,
  type Thrifty,
  thriftyUnder,
} from "./budget-ledger.ts";
import { converse } from "./hand-written-loop.ts";
import type { World } from "./world.ts";

/** What an agent's model calls, turn by turn. */
export type TreePlan = readonly (readonly (Deed | ChildPlan)[])[];
interface ChildPlan {
  readonly agent: "mid" | "leaf";
  readonly turns: TreePlan;
}

export interface SharedPlan extends Thrifty {
  readonly turns: TreePlan;
  readonly isSummarised: boolean;
  /** `lanes`: its code holds the conversations of its children itself, side by side. */
  readonly root: "model" | "code" | "lanes";
  readonly mid: "model" | "code";
  readonly leaf: "model" | "code";
  /** Whether the root's code catches that it is stopped. */
  readonly catches: boolean;
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
const oneConversation: fc.Arbitrary<TreePlan> = fc.array(
  fc.array(fc.oneof(deed, leaf, mid), { minLength: 1, maxLength: 3 }),
  { minLength: 1, maxLength: 2 },
);
const sideBySide: fc.Arbitrary<TreePlan> = fc
  .array(fc.oneof(leaf, mid), { minLength: 2, maxLength: 3 })
  .map((lanes) => [lanes]);

const more = (most: number) => fc.option(fc.integer({ min: 1, max: most }), { nil: undefined });
const kind = fc.constantFrom("model" as const, "code" as const);

/** @param roots - what the root is */
export function sharedPlan(...roots: readonly SharedPlan["root"][]): fc.Arbitrary<SharedPlan> {
  return fc.constantFrom(...roots).chain((root) =>
    fc
      .record({
        turns: root === "lanes" ? sideBySide : oneConversation,
        ...{ isSummarised: fc.boolean(), mid: kind, leaf: kind, catches: fc.boolean() },
        thrifty: thriftyUnder(
          fc.record({ steps: more(12), calls: more(10), tokens: more(120_000), cents: more(20), mends: more(4) }),
        ),
      })
      .map(({ thrifty, ...plan }) => ({ ...thrifty, ...plan, root })),
  );
}

const SUM_UP = "Sum it up.";

export function treeUnder(plan: SharedPlan, world: World): Agent {
  const { budget, maxOutputTokens } = plan;
  const model = providerOf(plan, world, (prompt) => answerTo(plan, Books.of(world), JSON.stringify(prompt)));
  const settings = maxOutputTokens === undefined ? {} : { maxOutputTokens };
  const deeds = deedsOf(plan, world);
  type Tools = NonNullable<Parameters<typeof converse>[1]["tools"]>;
  const made = (name: string, of: SharedPlan["root"], tools: Tools, limits = {}): Agent =>
    of === "model"
      ? (agent({
          ...{ name, description: "Does it.", model, pricing, settings, tools, budget: limits },
          ...(plan.isSummarised && { compaction: { after: 60, keep: 1, by: model, instructions: SUM_UP } }),
        }) as Agent)
      : agent<Json>({
          ...{ name, description: "Does it.", pricing, budget: limits },
          agents: tools.flatMap((one) => ("agent" in one ? [one.agent as Agent] : [])),
          run: (ctx) => (name === "root" ? ofRoot(ctx, tools) : talk(ctx, tools, ctx.messages)),
        });
  const talk = (lane: LoopContext<Json>, tools: Tools, said: Parameters<typeof converse>[2]) =>
    converse(lane, { model, settings, tools }, said);
  const work = async (ctx: LoopContext<Json>, tools: Tools): Promise<unknown> => {
    if (plan.root === "code") {
      const said = await talk(ctx, tools, ctx.messages);
      await ctx.sleep("2s");
      return [said, await ctx.call(deeds[0], { call: "own" })];
    }
    const lanes = (plan.turns[0] ?? []).map((_, i) => async (lane: LoopContext<Json>) => {
      await lane.once("note", { effect: "read" }, () => world.at(`lane ${i} notes`));
      return await talk(lane, tools, [{ id: `${i}`, role: "user", content: `TASK[0.${i}]` }]);
    });
    return await ctx.parallel(lanes);
  };
  const ofRoot = async (ctx: LoopContext<Json>, tools: Tools): Promise<unknown> => {
    try {
      return await work(ctx, tools);
    } catch (error) {
      if (!plan.catches || !(error instanceof BudgetExceeded)) throw error;
      ctx.say("Stopped.");
      return "stopped";
    }
  };
  const leaf = made("leaf", plan.leaf, deeds);
  const mid = made("mid", plan.mid, [...deeds, agentTool(leaf)]);
  return made("root", plan.root, [...deeds, agentTool(leaf), agentTool(mid)], budget);
}

/** Finds out who asks by what he was asked himself, which a summary keeps. */
function answerTo(plan: SharedPlan, books: Books, text: string): Answer {
  const place = /TASK\[([\d.]*)\]/.exec(text)?.[1] ?? "";
  const said = [...text.matchAll(/Turn ([\d.]*)#(\d+)\./g)].filter(([, of]) => of === place);
  const turn = 1 + Math.max(-1, ...said.map(([, , n]) => Number(n)));
  const isSummary = text.includes(SUM_UP);
  const isLane = plan.root === "lanes" && place.split(".").length === 2;
  if (place !== "" && !isSummary && !isLane) books.begins(plan, `child ${place}`, "child");
  const calls = isSummary ? [] : (turnsAt(plan.turns, place)[turn] ?? []);
  return {
    step: `${isSummary ? "summary" : "step"} ${place}#${turn}`,
    // Of a summary, the turn up to which it knows the conversation.
    text: `TASK[${place}] Turn ${place}#${isSummary ? turn - 1 : turn}.`,
    calls: calls.map((call, i) => {
      const at = place === "" ? `${turn}.${i}` : `${place}.${turn}.${i}`;
      const isDeed = typeof call === "string";
      return {
        id: at,
        name: isDeed ? call : call.agent,
        input: isDeed ? { call: at } : { task: `TASK[${at}]` },
      };
    }),
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
