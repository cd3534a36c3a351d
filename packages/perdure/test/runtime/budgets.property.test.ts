import { env } from "node:process";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import { chargeOf, spentBy } from "../../src/log/spent.ts";
import { play } from "../../src/testing/play.ts";
import { quietClient } from "../protocol/published-client.ts";
import { agentUnder, Books, type BudgetPlan, budgetAnswer, budgetPlan } from "./budget-plays.ts";
import { hurryTime } from "./hurried-time.ts";
import { type Story, staged } from "./world.ts";

quietClient();
beforeEach(() => {
  vi.spyOn(console, "error").mockImplementation(() => {});
});

let endOfHurry = (): void => {};
beforeAll(() => {
  endOfHurry = hurryTime();
});
afterAll(() => endOfHurry());

async function playedUnder(plan: BudgetPlan) {
  const story: Story = {
    ...{ name: "a thrifty agent", fails: true, says: "go" },
    agent: (world) => agentUnder(plan, world),
    answers: (question, { world }) => budgetAnswer(plan, question, world),
  };
  // The published client takes a run that has failed for a request to be sent again.
  const { client: _, ...stage } = staged(story);
  const ended = await play(stage, plan.fates);
  vi.clearAllTimers();
  return { ...ended, log: ended.logs.flat(), books: Books.of(ended.world) };
}

test("500 random runs: no step and no call beyond its limit, no token and no cent beyond what was reserved, and behind an overrun nothing is asked", async () => {
  const met: { [what: string]: number } = {};
  const add = (what: string, n: number) => {
    met[what] = (met[what] ?? 0) + n;
  };
  await fc.assert(
    fc.asyncProperty(budgetPlan, async (plan) => {
      const { log, books, client, openQuestions, runs, deaths } = await playedUnder(plan);
      expect(books.violations).toEqual([]);
      expect(openQuestions).toBe(0);
      expect(behindOverruns(log)).toEqual([]);
      const answers = [...books.answered.values()];
      const isStopped = answers.includes("stop");
      const [finished] = log.filter((entry) => entry.kind === "run.finished");
      expect(finished?.error?.code === "BUDGET_EXCEEDED" && finished.error.data !== undefined).toBe(isStopped);
      expect(runs[0]?.outcome).toBe(
        isStopped || books.asked.at(-1)?.manner === "dies" || books.asked.at(-1)?.manner === "refuses"
          ? "failed"
          : "success",
      );
      // Each call that was shown has its result.
      const calls = client.messages.flatMap((m) => (m.role === "assistant" ? (m.toolCalls ?? []) : []));
      const results = client.messages.flatMap((m) => (m.role === "tool" ? [m.toolCallId] : []));
      expect(results.toSorted()).toEqual(calls.map(({ id }) => id).toSorted());
      expect(new Set(books.begun.keys()).size).toBe(spentBy(fold(log), 0).calls);

      add("deaths", deaths.length);
      add("asked again", books.asked.length - new Set(books.asked.map(({ turn }) => turn)).size);
      add("questions", answers.length);
      add("stops", isStopped ? 1 : 0);
      add("goes on", !isStopped && answers.length > 0 && runs[0]?.outcome === "success" ? 1 : 0);
      for (const { manner } of books.asked) add(manner, 1);
      for (const entry of log) {
        if (entry.kind !== "interrupt.opened" || entry.interrupt.kind !== "budget") continue;
        const { limits } = entry.interrupt.metadata as unknown as { limits: { limit: string }[] };
        for (const { limit } of limits) add(limit, 1);
      }
    }),
    { numRuns: 500 },
  );
  // Else the property has tested nothing of what it is about.
  if (env.PROPERTY_SEED !== undefined) return;
  const least = {
    deaths: 100,
    "asked again": 20,
    questions: 300,
    stops: 100,
    "goes on": 30,
    under: 20,
    over: 20,
    dies: 20,
  };
  const limits = { steps: 30, calls: 30, perTool: 10, tokens: 50, usd: 30, overrun: 10 };
  for (const [what, n] of Object.entries({ ...least, ...limits })) expect(met[what], what).toBeGreaterThanOrEqual(n);
}, 600_000);

const isBudgets = (id: string): boolean => /:b\d+$/.test(id);

/** Model attempts that began between an overrun and a human's word to go on. */
function behindOverruns(log: readonly Entry[]): number[] {
  const reserved = new Map<string, { tokens: number }>();
  let isOverrun = false;
  return log.flatMap((entry) => {
    if (entry.kind === "step.attempt" && entry.reserved !== undefined) {
      reserved.set(entry.path, chargeOf(entry.reserved));
      return isOverrun ? [entry.seq] : [];
    }
    if (entry.kind === "step.finished") {
      const [{ inputTokens = 0, outputTokens = 0 } = {}] = entry.usage ?? [];
      const bound = reserved.get(entry.path);
      if (bound !== undefined && inputTokens + outputTokens > bound.tokens) isOverrun = true;
    }
    if (entry.kind === "interrupt.answered" && isBudgets(entry.id)) isOverrun = false;
    return [];
  });
}
