/** How long a run and all below it may be active, together. */

import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { type Agent, agent, type LanguageModel, tool } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import { cases } from "../random-cases.ts";
import { streamOf } from "./budget-ledger.ts";
import { Met } from "./budget-property.ts";
import { converse } from "./hand-written-loop.ts";
import { jumpingClock, playedInTime, sleep, type Timed, type Watch } from "./timed-plays.ts";

let endOfHurry = (): void => {};
beforeEach(() => {
  endOfHurry = jumpingClock();
});
afterEach(() => endOfHurry());

/** How long the model takes for each turn, and what it calls then: reads by their milliseconds, and other agents. */
type Turns = readonly { readonly ms: number; readonly calls: readonly (number | Turns)[] }[];
const NAMES = ["timed", "helper", "aide"] as const;
interface TreeInTime extends Timed {
  readonly turns: Turns;
  /** Which of the agents have code of their own. */
  readonly coded: readonly (typeof NAMES)[number][];
}

const ms = fc.nat(2_000);
const turnsWith = (call: fc.Arbitrary<number | Turns>): fc.Arbitrary<Turns> =>
  fc.array(fc.record({ ms, calls: fc.array(call, { minLength: 1, maxLength: 2 }) }), { minLength: 1, maxLength: 2 });
const below = turnsWith(ms);

/** @param coded - how many agents have code of their own, at least */
const randomTree = (coded: number, most: number): fc.Arbitrary<TreeInTime> =>
  fc.record({
    coded: fc.subarray([...NAMES], { minLength: coded, maxLength: most }),
    turns: turnsWith(fc.oneof(ms, below, turnsWith(fc.oneof(ms, below)))),
    limit: fc.integer({ min: 1, max: 14_000 }),
    raises: fc.array(fc.integer({ min: 1, max: 6_000 }), { maxLength: 4 }),
    fates: fc.array(
      fc.record({
        when: fc.constantFrom("after" as const, "before" as const),
        commits: fc.integer({ min: 1, max: 20 }),
      }),
      { maxLength: 2 },
    ),
  });

function timed({ turns, limit, coded }: TreeInTime, watch: Watch): Agent {
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
  const made = (name: (typeof NAMES)[number], called: readonly Agent[], budget = {}): Agent => {
    const tools = [read, ...called.map((one) => agentTool(one))];
    const common = { name, description: "Helps.", budget };
    return coded.includes(name)
      ? agent<Json>({ ...common, agents: called, run: (ctx) => converse(ctx, { model, tools }, ctx.messages) })
      : (agent({ ...common, model, tools }) as Agent);
  };
  return made("timed", [made("helper", [made("aide", [])])], { time: limit });
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
    ...{ turns: [{ ms: 500, calls: [busy, busy] }], limit: 5_000, raises: [], fates: [], coded: [] },
  });
  // Each of them needs 2,100 of its half of the 4,500 that the model's first answer has left; then 100 are left for the last word.
  expect({ questions, active: watch.active, violations: watch.violations }).toEqual({
    ...{ questions: 0, active: 500 + 2 * 2_100 + 100, violations: [] },
  });
});

test.each<[string, fc.Arbitrary<TreeInTime>, number]>([
  ["random trees", randomTree(0, 0), cases(50, 100)],
  ["random trees with code of their own", randomTree(1, NAMES.length), cases(30, 60)],
])(
  "%s: their times together stay within the root's, whoever dies",
  async (_, trees, numRuns) => {
    const met = new Met();
    await fc.assert(
      fc.asyncProperty(trees, async (plan) => {
        const { watch, log, deaths, questions, isStopped } = await played(plan);
        expect(watch.violations).toEqual([]);
        const children = log.filter((entry) => entry.kind === "step.attempt" && entry.allotted !== undefined).length;
        met.addAll({ deaths, questions, children, stops: Number(isStopped) });
      }),
      { numRuns },
    );
    met.expectAtLeast({ deaths: numRuns / 5, questions: numRuns / 2, stops: numRuns / 5, children: numRuns / 2 });
  },
  600_000,
);
