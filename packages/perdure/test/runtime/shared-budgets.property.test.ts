/** One budget for a run and all below it. */
import { env } from "node:process";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { fold } from "../../src/log/fold.ts";
import { spentBy } from "../../src/log/spent.ts";
import { play } from "../../src/testing/play.ts";
import { quietClient } from "../protocol/published-client.ts";
import { hurryTime } from "./hurried-time.ts";
import { type SharedPlan, sharedPlan, TreeBooks, treeAnswer, treeUnder } from "./shared-budget-plays.ts";
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

async function playedUnder(plan: SharedPlan) {
  const story: Story = {
    ...{ name: "a thrifty tree", fails: true, says: "TASK[]" },
    agent: (world) => treeUnder(plan, world),
    answers: (question, { world }) => treeAnswer(plan, question, world),
  };
  // The published client takes a run that has failed for a request to be sent again.
  const { client: _, ...stage } = staged(story);
  const ended = await play(stage, plan.fates);
  vi.clearAllTimers();
  return { ...ended, log: ended.logs.flat(), books: TreeBooks.of(ended.world) };
}

test("200 random trees: their steps, calls, tokens and dollars together stay within the root's budget, whoever dies", async () => {
  const met: { [what: string]: number } = {};
  const add = (what: string, n: number) => {
    met[what] = (met[what] ?? 0) + n;
  };
  await fc.assert(
    fc.asyncProperty(sharedPlan, async (plan) => {
      const { log, books, openQuestions, runs, children, deaths } = await playedUnder(plan);
      expect(books.violations).toEqual([]);
      expect(openQuestions).toBe(0);
      expect(runs[0]?.outcome).toMatch(/^(success|failed)$/);
      // The root's log says of the whole tree what the ledger has seen: what has begun and was cut before it was asked counts too.
      const spent = spentBy(fold(log), 0);
      expect(spent.reserved).toMatchObject({ steps: 0, calls: 0, tokens: 0, usd: 0 });
      if (Object.keys(plan.budget).length > 0) {
        expect(spent.steps).toBeGreaterThanOrEqual(books.steps);
        expect(spent.calls).toBeGreaterThanOrEqual(books.begun.size);
        expect(spent.steps).toBeLessThanOrEqual(books.allowed(plan, "steps"));
        expect(spent.calls).toBeLessThanOrEqual(books.allowed(plan, "calls"));
      }

      const answers = [...books.answered.values()];
      add("deaths", deaths.length);
      add("children", children.length);
      add("two deep", children.filter(({ run }) => run.parent?.uid !== runs[0]?.uid).length);
      add(
        "side by side",
        log.filter((entry) => entry.kind === "step.attempt" && entry.path.endsWith(".1") && entry.allotted).length,
      );
      add("questions", answers.length);
      add("stops", answers.filter((raise) => raise === "stop").length);
      for (const { manner, step } of books.asked) {
        add(manner, 1);
        if (step.startsWith("summary")) add("summaries", 1);
      }
      for (const entry of children.flatMap((child) => child.log)) {
        if (entry.kind !== "interrupt.opened" || entry.interrupt.kind !== "budget") continue;
        add("questions of children", 1);
        const { limits } = entry.interrupt.metadata as unknown as { limits: { limit: string }[] };
        for (const { limit } of limits) add(limit, 1);
      }
    }),
    { numRuns: 200 },
  );
  if (env.PROPERTY_SEED !== undefined) return;
  const least = {
    ...{ deaths: 40, children: 100, "two deep": 20, "side by side": 20, questions: 80, "questions of children": 30 },
    ...{ stops: 20, summaries: 50, over: 10, dies: 10, steps: 5, calls: 5, tokens: 5, usd: 5 },
  };
  for (const [what, n] of Object.entries(least)) expect(met[what], what).toBeGreaterThanOrEqual(n);
}, 600_000);
