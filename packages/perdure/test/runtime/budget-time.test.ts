/** How long a run may be active. The clock is the test's own: it stands still until all that can happen has, and jumps to the next timer. */
import { env } from "node:process";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { agent, type LanguageModel, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { jumpingClock, playedInTime as play, sleep, type Timed, type Watch } from "./timed-plays.ts";

let endOfHurry = (): void => {};
beforeEach(() => {
  endOfHurry = jumpingClock();
});
afterEach(() => endOfHurry());

interface CallPlan {
  readonly effect: "read" | "write";
  readonly ms: number;
  readonly isApproved: boolean;
}
interface TimePlan extends Timed {
  /** How long the model takes for each turn, and what it calls then. */
  readonly turns: readonly { readonly ms: number; readonly calls: readonly CallPlan[] }[];
}

const randomTime: fc.Arbitrary<TimePlan> = fc.record({
  turns: fc.array(
    fc.record({
      ms: fc.nat(3_000),
      calls: fc.array(
        fc.record({
          effect: fc.constantFrom("read" as const, "write" as const),
          ms: fc.nat(3_000),
          isApproved: fc.boolean(),
        }),
        { minLength: 1, maxLength: 3 },
      ),
    }),
    { maxLength: 3 },
  ),
  limit: fc.nat(9_000),
  raises: fc.array(fc.integer({ min: 1, max: 9_000 }), { maxLength: 3 }),
  fates: fc.array(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 1, max: 12 }) }),
    { maxLength: 2 },
  ),
});

function timed(plan: TimePlan, watch: Watch): LoopAgent {
  const model: LanguageModel = {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, abortSignal }) {
      const turn = prompt.filter((message) => (message as { role: string }).role === "assistant").length;
      const { ms = 100, calls = [] } = plan.turns[turn] ?? {};
      await watch.body(`model step ${turn}`, false, () => sleep(ms, abortSignal));
      const parts: object[] = [
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "0" },
        { type: "text-delta", id: "0", delta: "So." },
        { type: "text-end", id: "0" },
        ...calls.map(({ effect, isApproved }, i) => ({
          ...{ type: "tool-call", toolCallId: `${turn}.${i}`, toolName: isApproved ? `${effect}_approved` : effect },
          input: JSON.stringify({ turn, i }),
        })),
        { type: "finish", finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop" }, usage: {} },
      ];
      return {
        stream: new ReadableStream({
          start(controller) {
            for (const part of parts) controller.enqueue(part);
            controller.close();
          },
        }),
      };
    },
  };
  const made = (effect: "read" | "write", isApproved: boolean) =>
    tool({
      name: isApproved ? `${effect}_approved` : effect,
      description: "Takes its time.",
      effect,
      settle: 0,
      approval: isApproved,
      input: z.object({ turn: z.number(), i: z.number() }),
      async call({ turn, i }, { signal }) {
        const ms = plan.turns[turn]?.calls[i]?.ms ?? 0;
        await watch.body(`${effect} ${turn}.${i}`, effect === "write", () => sleep(ms, signal));
        return "done";
      },
      reconcile: () => ({ applied: "no" as const }),
    });
  const tools = (["read", "write"] as const).flatMap((effect) => [made(effect, false), made(effect, true)]);
  return agent({ name: "timed", model, tools, budget: { time: plan.limit } }) as LoopAgent;
}

const playedInTime = (plan: TimePlan) => play(plan, (watch) => timed(plan, watch));

const plain = { turns: [{ ms: 1_000, calls: [] }], limit: 5_000, raises: [], fates: [] } as const;
const calls = (...made: (readonly [CallPlan["effect"], number, boolean?])[]): CallPlan[] =>
  made.map(([effect, ms, isApproved = false]) => ({ effect, ms, isApproved }));

test("a model call is cut in the very millisecond in which the time is up, and asked again when there is more", async () => {
  const plan = { ...plain, turns: [{ ms: 9_000, calls: [] }], raises: [8_999, 9_001] };
  const { watch, log, questions } = await playedInTime(plan);
  expect(watch.violations).toEqual([]);
  expect(questions).toBe(2);
  const cuts = log.flatMap((entry, i) => {
    if (entry.kind !== "step.failed") return [];
    const begun = log.slice(0, i).findLast(({ kind }) => kind === "step.attempt");
    return [{ code: entry.error.code, ms: entry.at - (begun?.at ?? 0) }];
  });
  expect(cuts).toEqual([
    { code: "BUDGET_TIME", ms: 5_000 },
    { code: "BUDGET_TIME", ms: 8_999 },
  ]);
});

test("the time that a human takes does not count, and calls that run side by side count once", async () => {
  const { watch, questions } = await playedInTime({
    ...plain,
    turns: [{ ms: 1_000, calls: calls(["read", 2_000, true], ["read", 2_000, true], ["read", 1_500]) }],
    limit: 4_601,
  });
  // 1,000 of the model; 1,500 of the call that waits for nobody; 2,000 of those that are approved; 100 of the last word.
  expect(watch.active).toBe(4_600);
  expect({ questions, violations: watch.violations }).toEqual({ questions: 0, violations: [] });
});

test("a write that runs is left to end, and nothing follows", async () => {
  const { watch, log, isStopped } = await playedInTime({
    ...plain,
    turns: [{ ms: 1_000, calls: calls(["write", 7_000], ["write", 10], ["read", 6_000]) }],
  });
  expect({ beyond: watch.writesBeyond, violations: watch.violations, isStopped }).toEqual({
    ...{ beyond: 1, violations: [], isStopped: true },
  });
  const ends = log.flatMap((entry) =>
    entry.kind === "step.finished" && entry.path.startsWith("1.") ? [`${entry.path} ${entry.status}`] : [],
  );
  expect(ends.toSorted()).toEqual(["1.0 ok", "1.1 cancelled", "1.2 cancelled"]);
});

test("500 random runs: nothing begins when the time is up, and what can be stopped ends in that millisecond, whoever dies", async () => {
  const met: { [what: string]: number } = {};
  await fc.assert(
    fc.asyncProperty(randomTime, async (plan) => {
      const { watch, deaths, questions, isStopped } = await playedInTime(plan);
      expect(watch.violations).toEqual([]);
      const found = { deaths, questions, stops: Number(isStopped), writesBeyond: watch.writesBeyond };
      for (const [what, n] of Object.entries(found)) met[what] = (met[what] ?? 0) + n;
    }),
    { numRuns: 500 },
  );
  if (env.PROPERTY_SEED !== undefined) return;
  const least = { deaths: 100, questions: 200, stops: 50, writesBeyond: 20 };
  for (const [what, n] of Object.entries(least)) expect(met[what], what).toBeGreaterThanOrEqual(n);
}, 600_000);
