/** How long a run may be active. The clock is the test's own: it stands still until all that can happen has, and jumps to the next timer. */

import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { type Agent, agent, type LanguageModel, tool } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import { cases } from "../random-cases.ts";
import { streamOf } from "./budget-ledger.ts";
import { Met } from "./budget-property.ts";
import { converse } from "./hand-written-loop.ts";
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
/** How long the model takes for each turn, and what it calls then. */
type Turns = readonly { readonly ms: number; readonly calls: readonly CallPlan[] }[];
interface TimePlan extends Timed {
  readonly turns: Turns;
  /** Code holds these conversations side by side, and its own steps before them take so long. Default: the built-in loop holds the one. */
  readonly lanes?: readonly { readonly once: number; readonly turns: Turns }[];
}

const randomTurns: fc.Arbitrary<Turns> = fc.array(
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
);
const randomTime: fc.Arbitrary<TimePlan> = fc.record({
  turns: randomTurns,
  limit: fc.nat(9_000),
  raises: fc.array(fc.integer({ min: 1, max: 9_000 }), { maxLength: 3 }),
  fates: fc.array(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 1, max: 12 }) }),
    { maxLength: 2 },
  ),
});

const randomLanes: fc.Arbitrary<TimePlan> = fc
  .record({
    plan: randomTime,
    lanes: fc.array(fc.record({ once: fc.nat(2_000), turns: randomTurns }), { minLength: 1, maxLength: 3 }),
  })
  .map(({ plan, lanes }) => ({ ...plan, lanes }));

function timed(plan: TimePlan, watch: Watch): Agent {
  const turnsOf = (lane: number) => plan.lanes?.[lane]?.turns ?? plan.turns;
  const model: LanguageModel = {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, abortSignal }) {
      const turn = prompt.filter((message) => (message as { role: string }).role === "assistant").length;
      const lane = Number(/LANE\[(\d)\]/.exec(JSON.stringify(prompt))?.[1] ?? 0);
      const { ms = 100, calls = [] } = turnsOf(lane)[turn] ?? {};
      await watch.body(`model step ${lane}.${turn}`, false, () => sleep(ms, abortSignal));
      const parts: object[] = [
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "0" },
        { type: "text-delta", id: "0", delta: "So." },
        { type: "text-end", id: "0" },
        ...calls.map(({ effect, isApproved }, i) => ({
          ...{ type: "tool-call", toolCallId: `${turn}.${i}`, toolName: isApproved ? `${effect}_approved` : effect },
          input: JSON.stringify({ lane, turn, i }),
        })),
        { type: "finish", finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop" }, usage: {} },
      ];
      return { stream: streamOf(parts.values()) };
    },
  };
  const made = (effect: "read" | "write", isApproved: boolean) =>
    tool({
      name: isApproved ? `${effect}_approved` : effect,
      description: "Takes its time.",
      effect,
      settle: 0,
      approval: isApproved,
      input: z.object({ lane: z.number(), turn: z.number(), i: z.number() }),
      async call({ lane, turn, i }, { signal }) {
        const ms = turnsOf(lane)[turn]?.calls[i]?.ms ?? 0;
        await watch.body(`${effect} ${lane}.${turn}.${i}`, effect === "write", () => sleep(ms, signal));
        return "done";
      },
      reconcile: () => ({ applied: "no" as const }),
    });
  const tools = (["read", "write"] as const).flatMap((effect) => [made(effect, false), made(effect, true)]);
  const common = { name: "timed", budget: { time: plan.limit } };
  const { lanes } = plan;
  if (lanes === undefined) return agent({ ...common, model, tools }) as Agent;
  return agent<Json>({
    ...common,
    run: (ctx) =>
      ctx.parallel(
        lanes.map(({ once }, i) => async (lane) => {
          await lane.once("note", { effect: "read" }, ({ signal }) =>
            watch.body(`note ${i}`, false, () => sleep(once, signal)),
          );
          await lane.sleep("10s");
          return await converse(lane, { model, tools }, [{ id: `${i}`, role: "user", content: `LANE[${i}]` }]);
        }),
      ),
  });
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

test("what lanes of a custom loop do side by side counts once, and their timers not at all", async () => {
  const turns: Turns = [{ ms: 1_000, calls: calls(["read", 500]) }];
  const lanes = [
    { once: 300, turns },
    { once: 200, turns },
  ];
  const { watch, questions } = await playedInTime({ ...plain, lanes, limit: 2_001 });
  expect({ questions, active: watch.active, violations: watch.violations }).toEqual({
    // 300 of the notes; then the second lane begins 100 earlier with its model, its read and its last word.
    ...{ questions: 0, active: 300 + 100 + 1_000 + 500 + 100, violations: [] },
  });
});

test.each<[string, fc.Arbitrary<TimePlan>, number]>([
  ["random runs", randomTime, cases(250, 500)],
  ["random custom loops", randomLanes, cases(80, 150)],
])(
  "%s: nothing begins when the time is up, and what can be stopped ends in that millisecond, whoever dies",
  async (_, plans, numRuns) => {
    const met = new Met();
    await fc.assert(
      fc.asyncProperty(plans, async (plan) => {
        const { watch, deaths, questions, isStopped } = await playedInTime(plan);
        expect(watch.violations).toEqual([]);
        met.addAll({ deaths, questions, stops: Number(isStopped), writesBeyond: watch.writesBeyond });
      }),
      { numRuns },
    );
    met.expectAtLeast({
      deaths: numRuns / 5,
      questions: numRuns / 2.5,
      stops: numRuns / 10,
      writesBeyond: numRuns / 25,
    });
  },
  600_000,
);
