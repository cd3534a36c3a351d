import fc from "fast-check";
import { expect, test } from "vitest";
import { fold } from "../../src/log/fold.ts";
import { spentBy } from "../../src/log/spent.ts";
import { cases } from "../random-cases.ts";
import { agentUnder, budgetPlan } from "./budget-plays.ts";
import { behindOverruns, hurried, limitsAsked, Met, playedUnder } from "./budget-property.ts";

hurried();

const RUNS = cases(200, 500);

test("random runs: no step and no call beyond its limit, no token and no cent beyond what was reserved, and behind an overrun nothing is asked", async () => {
  const met = new Met();
  await fc.assert(
    fc.asyncProperty(budgetPlan, async (plan) => {
      const { log, books, client, openQuestions, runs, deaths } = await playedUnder(plan, agentUnder, "go");
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

      met.addAll({
        deaths: deaths.length,
        "asked again": books.asked.length - books.steps,
        questions: answers.length,
        stops: isStopped ? 1 : 0,
        "goes on": !isStopped && answers.length > 0 && runs[0]?.outcome === "success" ? 1 : 0,
      });
      for (const { manner } of books.asked) met.add(manner);
      for (const limit of limitsAsked(log)) met.add(limit);
    }),
    { numRuns: RUNS },
  );
  met.expectAtLeast(
    {
      ...{ deaths: 100, "asked again": 20, questions: 300, stops: 100, "goes on": 30, under: 20, over: 20, dies: 20 },
      ...{ steps: 30, calls: 30, perTool: 10, tokens: 50, usd: 30, overrun: 10 },
    },
    RUNS / 500,
  );
}, 600_000);
