/** One budget for a run and all below it, agents of the built-in loop and with code of their own. */

import fc from "fast-check";
import { describe, expect, it, test } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import { spentBy } from "../../src/log/spent.ts";
import type { Agent, BodyAgent, LoopModels } from "../../src/runtime/agent-definition.ts";
import { cases } from "../random-cases.ts";
import { behindOverruns, hurried, limitsAsked, Met, playedUnder } from "./budget-property.ts";
import { type SharedPlan, sharedPlan, treeUnder } from "./shared-budget-plays.ts";
import type { World } from "./world.ts";

hurried();

const SAYS = "TASK[]";

/** What holds of every tree, whoever dies. @returns what it has met */
async function playedTree(plan: SharedPlan, met: Met): Promise<Awaited<ReturnType<typeof playedUnder>>> {
  const played = await playedUnder(plan, treeUnder, SAYS);
  const { log, books, openQuestions, runs, children, deaths } = played;
  expect(books.violations).toEqual([]);
  expect(openQuestions).toBe(0);
  expect(runs[0]?.outcome).toMatch(/^(success|failed)$/);
  for (const one of [log, ...children.map((child) => child.log)]) {
    expect(behindStop(one)).toEqual([]);
    expect(behindOverruns(one)).toEqual([]);
  }
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
  met.addAll({
    deaths: deaths.length,
    children: children.length,
    "two deep": children.filter(({ run }) => run.parent?.uid !== runs[0]?.uid).length,
    questions: answers.length,
    stops: answers.filter((raise) => raise === "stop").length,
  });
  for (const { manner, step } of books.asked) {
    met.add(manner);
    if (step.startsWith("summary")) met.add("summaries");
  }
  for (const { log } of children) {
    for (const limit of limitsAsked(log)) met.add(limit);
    met.add("questions of children", log.filter(isBudgetQuestion).length);
  }
  return played;
}

const isBudgetQuestion = (entry: Entry): boolean =>
  entry.kind === "interrupt.opened" && entry.interrupt.kind === "budget";

const stopOf = (log: readonly Entry[]): number => {
  const stop = fold(log).spending.stop;
  return log.findIndex((entry) => entry.kind === "interrupt.answered" && entry.id === stop?.id);
};

/** What has begun behind a human's word to stop. */
function behindStop(log: readonly Entry[]): readonly string[] {
  const at = stopOf(log);
  return at < 0 ? [] : log.slice(at).flatMap((entry) => (entry.kind === "step.attempt" ? [entry.path] : []));
}

const RUNS = cases(80, 200);

test("random trees: their steps, calls, tokens and dollars together stay within the root's budget, whoever dies", async () => {
  const met = new Met();
  await fc.assert(
    fc.asyncProperty(sharedPlan("model"), async (plan) => {
      const { log } = await playedTree(plan, met);
      const allotted = log.filter(
        (entry) => entry.kind === "step.attempt" && entry.path.endsWith(".1") && entry.allotted,
      );
      met.add("side by side", allotted.length);
    }),
    { numRuns: RUNS },
  );
  met.expectAtLeast(
    {
      ...{ deaths: 40, children: 100, "two deep": 20, "side by side": 20, questions: 80, "questions of children": 30 },
      ...{ stops: 20, summaries: 50, over: 10, dies: 10, steps: 5, calls: 5, tokens: 5, usd: 5 },
    },
    RUNS / 200,
  );
}, 600_000);

describe("a custom loop", () => {
  it("stays within its budget in random runs, with all that its lanes do side by side and its sub-agents, and ends as its code wants when it is stopped", async () => {
    const met = new Met();
    await fc.assert(
      fc.asyncProperty(sharedPlan("code", "lanes"), async (plan) => {
        const { log, runs, books, children } = await playedTree(plan, met);
        for (const limit of limitsAsked(log)) met.add(`asks for ${limit}`);
        met.add("lanes", plan.root === "lanes" ? 1 : 0);
        met.add(
          "children with code",
          children.filter(({ run }) => plan[run.agent as "mid" | "leaf"] === "code").length,
        );
        if (stopOf(log) < 0) return;
        const [finished] = log.filter((entry) => entry.kind === "run.finished");
        // A model that has failed for good has ended the code before.
        const hasFailed = /^(MODEL_|SUBAGENT_)/.test(finished?.error?.code ?? "");
        met.add("stops of the root");
        if (hasFailed) return;
        expect(runs[0]?.outcome).toBe(plan.catches ? "success" : "failed");
        if (plan.catches) expect(finished?.output).toBe("stopped");
        else expect(finished?.error).toMatchObject({ code: "BUDGET_EXCEEDED", data: { limits: expect.anything() } });
        met.add(plan.catches ? "ends well" : "fails");
        expect(books.answered.size).toBeGreaterThan(0);
      }),
      { numRuns: RUNS },
    );
    met.expectAtLeast(
      {
        ...{ deaths: 40, children: 100, "children with code": 50, "two deep": 10, lanes: 50, questions: 80 },
        ...{ "questions of children": 20, stops: 20, "stops of the root": 10, "ends well": 5, fails: 5 },
        ...{ over: 10, under: 10, dies: 10 },
        ...{ "asks for tokens": 5, "asks for usd": 5, "asks for steps": 5, "asks for calls": 5 },
      },
      RUNS / 200,
    );
  }, 600_000);

  it("that reserves nothing for what its models are asked is found out", async () => {
    const careless = (plan: SharedPlan, world: World): Agent => {
      const root = treeUnder(plan, world) as BodyAgent;
      const models = root.models as LoopModels;
      const prepare: LoopModels["prepare"] = (options) => {
        const prepared = models.prepare(options);
        return {
          ...prepared,
          ask(path) {
            const ask = prepared.ask(path);
            return { ...ask, reserve: (step, left) => ({ ...ask.reserve?.(step, left), input: 0, output: 1_000 }) };
          },
        };
      };
      return { ...root, models: { ...models, prepare } };
    };
    const property = fc.asyncProperty(sharedPlan("lanes"), async (plan) => {
      const { books } = await playedUnder(plan, careless, SAYS);
      expect(books.violations).toEqual([]);
    });
    const { failed, errorInstance } = await fc.check(property, { numRuns: 200, endOnFailure: true });
    expect(failed).toBe(true);
    expect(String(errorInstance)).toMatch(/ (tokens|usd) of /);
  }, 600_000);
});
