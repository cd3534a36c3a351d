/** How long a run and all below it may be active, together. */
import { env } from "node:process";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { agent, type LanguageModel, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { streamOf } from "./budget-ledger.ts";
import { jumpingClock, playedInTime, sleep, type Timed, type Watch } from "./timed-plays.ts";

let endOfHurry = (): void => {};
beforeEach(() => {
  endOfHurry = jumpingClock();
});
afterEach(() => endOfHurry());

/** How long the model takes for each turn, and what it calls then: reads by their milliseconds, and other agents. */
type Turns = readonly { readonly ms: number; readonly calls: readonly (number | Turns)[] }[];
interface TreeInTime extends Timed {
  readonly turns: Turns;
}

const ms = fc.nat(2_000);
const turnsWith = (call: fc.Arbitrary<number | Turns>): fc.Arbitrary<Turns> =>
  fc.array(fc.record({ ms, calls: fc.array(call, { minLength: 1, maxLength: 2 }) }), { minLength: 1, maxLength: 2 });
const below = turnsWith(ms);

const randomTree: fc.Arbitrary<TreeInTime> = fc.record({
  turns: turnsWith(fc.oneof(ms, below, turnsWith(fc.oneof(ms, below)))),
  limit: fc.integer({ min: 1, max: 14_000 }),
  raises: fc.array(fc.integer({ min: 1, max: 6_000 }), { maxLength: 4 }),
  fates: fc.array(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 1, max: 20 }) }),
    { maxLength: 2 },
  ),
});

function timed({ turns, limit }: TreeInTime, watch: Watch): LoopAgent {
  const model: LanguageModel = {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, abortSignal }) {
      const place = /TASK\[([\d.]*)\]/.exec(JSON.stringify(prompt[0]))?.[1] ?? "";
      const turn = prompt.filter((message) => (message as { role: string }).role === "assistant").length;
      const { ms = 100, calls = [] } = turnsAt(turns, place)[turn] ?? {};
      await watch.body(`model step ${place}#${turn}`, false, () => sleep(ms, abortSignal), place);
      const parts: object[] = [
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "0" },
        { type: "text-delta", id: "0", delta: "So." },
        { type: "text-end", id: "0" },
        ...calls.map((call, i) => {
          const at = place === "" ? `${turn}.${i}` : `${place}.${turn}.${i}`;
          const [toolName, input] =
            typeof call === "number"
              ? ["read", { run: place, ms: call }]
              : [place === "" ? "helper" : "aide", { task: `TASK[${at}]` }];
          return { type: "tool-call", toolCallId: at, toolName, input: JSON.stringify(input) };
        }),
        { type: "finish", finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop" }, usage: {} },
      ];
      return { stream: streamOf(parts.values()) };
    },
  };
  const read = tool({
    ...{ name: "read", description: "Takes its time.", effect: "read" },
    input: z.object({ run: z.string(), ms: z.number() }),
    async call({ run, ms }, { signal }) {
      await watch.body(`read ${run}`, false, () => sleep(ms, signal), run);
      return "done";
    },
  });
  const aide = agent({ name: "aide", description: "Helps the helper.", model, tools: [read] });
  const helper = agent({ name: "helper", description: "Helps.", model, tools: [read, agentTool(aide)] });
  return agent({ name: "timed", model, tools: [read, agentTool(helper)], budget: { time: limit } }) as LoopAgent;
}

function turnsAt(turns: Turns, place: string): Turns {
  const steps = place === "" ? [] : place.split(".").map(Number);
  let at = turns;
  for (let i = 0; i < steps.length; i += 2) at = at[steps[i] ?? -1]?.calls[steps[i + 1] ?? -1] as Turns;
  return at;
}

const played = (plan: TreeInTime) => playedInTime(plan, (watch) => timed(plan, watch));

test("agents that work side by side share the time, and none begins or goes on when all of it is used", async () => {
  const busy: Turns = [{ ms: 1_000, calls: [1_000] }];
  const { watch, questions } = await played({
    ...{ turns: [{ ms: 500, calls: [busy, busy] }], limit: 5_000, raises: [], fates: [] },
  });
  // Each of them needs 2,100 of its half of the 4,500 that the model's first answer has left; then 100 are left for the last word.
  expect({ questions, active: watch.active, violations: watch.violations }).toEqual({
    ...{ questions: 0, active: 500 + 2 * 2_100 + 100, violations: [] },
  });
});

test("100 random trees: their times together stay within the root's, whoever dies", async () => {
  const met: { [what: string]: number } = {};
  await fc.assert(
    fc.asyncProperty(randomTree, async (plan) => {
      const { watch, log, deaths, questions, isStopped } = await played(plan);
      expect(watch.violations).toEqual([]);
      const children = log.filter((entry) => entry.kind === "step.attempt" && entry.allotted !== undefined).length;
      for (const [what, n] of Object.entries({ deaths, questions, children, stops: Number(isStopped) }))
        met[what] = (met[what] ?? 0) + n;
    }),
    { numRuns: 100 },
  );
  if (env.PROPERTY_SEED !== undefined) return;
  const least = { deaths: 20, questions: 50, stops: 20, children: 50 };
  for (const [what, n] of Object.entries(least)) expect(met[what], what).toBeGreaterThanOrEqual(n);
}, 600_000);
