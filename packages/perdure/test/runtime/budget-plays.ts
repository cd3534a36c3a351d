/** Random agents under random budgets, as `budget-ledger.ts` asks and counts. */
import fc from "fast-check";
import { agent } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { type Deed, deedsOf, pricing, providerOf, type Thrifty, thriftyUnder } from "./budget-ledger.ts";
import type { World } from "./world.ts";

export interface BudgetPlan extends Thrifty {
  /** The calls of each turn of the model. */
  readonly turns: readonly (readonly Deed[])[];
}

const count = (max: number) => fc.option(fc.nat(max), { nil: undefined });

export const budgetPlan: fc.Arbitrary<BudgetPlan> = fc
  .record({
    turns: fc.array(fc.array(fc.constantFrom<Deed>("look", "mend"), { minLength: 1, maxLength: 3 }), { maxLength: 3 }),
    thrifty: thriftyUnder(
      fc.record({
        ...{ steps: count(4), calls: count(6), mends: count(3) },
        tokens: fc.option(fc.integer({ min: 500, max: 25_000 }), { nil: undefined }),
        cents: count(6),
      }),
    ),
  })
  .map(({ turns, thrifty }) => ({ ...thrifty, turns }));

export function agentUnder(plan: BudgetPlan, world: World): LoopAgent {
  const { budget, maxOutputTokens } = plan;
  const model = providerOf(plan, world, (prompt) => {
    const turn = (prompt as unknown as { role: string }[]).filter(({ role }) => role === "assistant").length;
    const calls = (plan.turns[turn] ?? []).map((name, i) => {
      const call = `t${turn}c${i}`;
      return { id: call, name, input: { call } };
    });
    return { step: `${turn}`, text: `Turn ${turn}.`, calls };
  });
  return agent({
    ...{ name: "thrifty", model, budget, pricing, tools: deedsOf(plan, world) },
    ...(maxOutputTokens !== undefined && { settings: { maxOutputTokens } }),
  }) as LoopAgent;
}
