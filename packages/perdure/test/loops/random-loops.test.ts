import { env } from "node:process";
import fc from "fast-check";
import { expect, test } from "vitest";
import { essence } from "../../src/log/essence.ts";
import { fold } from "../../src/log/fold.ts";
import type { RunState } from "../../src/log/run-state.ts";
import { differencesOf } from "../../src/testing/compare.ts";
import type { Fate } from "../../src/testing/life.ts";
import { memoryDisk } from "../../src/testing/outside.ts";
import { type Ended, play, type Story } from "../../src/testing/play.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import { cases } from "../random-cases.ts";
import { client, isConcurrent, Ledger, loopOf, type Op, program } from "./random-loops.ts";
import { screen } from "./screens.ts";

/** With `LOOP_RUNS=1000` more, or others with `PROPERTY_SEED`; then the first failure is told as it is. */
const RUNS = Number(env.LOOP_RUNS ?? cases(300, 1_000));
/** Programs that are played at once: half of a play's time it waits for an attempt that is to be made again. */
const AT_ONCE = 4;

type PlannedFate = { readonly commits: number; readonly when: "after" | "before" } | { readonly visit: number };

const fates: fc.Arbitrary<PlannedFate[]> = fc.array(
  fc.oneof(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 0, max: 40 }) }),
    fc.record({ visit: fc.nat(500) }),
  ),
  { minLength: 1, maxLength: 3 },
);

function storyOf(ops: readonly Op[]): Story<Ledger> {
  return {
    ...{ disk: memoryDisk, patience: 20_000, hopeless: new Set() },
    script: { ...client, answers: (question, { world }) => answerTo(question, world) },
    stage() {
      const ledger = new Ledger();
      return { world: ledger, agent: () => loopOf(ops, ledger), effects: () => ledger.rows, dispose: () => {} };
    },
  };
}

function answerTo({ kind, message }: ScriptQuestion, ledger: Ledger) {
  if (kind !== "unknown-write") return { status: "resolved", payload: `so: ${message}` } as const;
  const name = /`([^`]+)`/.exec(message)?.[1] ?? "";
  const isDone = ledger.rows.includes(`done ${name}`);
  return { status: "resolved", payload: isDone ? { did: "yes", output: name } : { did: "no" } } as const;
}

test(`${RUNS} random custom loops, killed anywhere up to three times, end as they do when nobody dies: each effect once, log and screen the same`, async () => {
  let deaths = 0;
  const loops = fc.asyncProperty(program, fates, async (ops, planned) => {
    const plain = await play(storyOf(ops));
    const places = plain.visits;
    const ended = await play(
      storyOf(ops),
      planned.flatMap((fate): Fate[] => {
        if ("when" in fate) return [fate];
        const visit = places[fate.visit % Math.max(1, places.length)];
        return visit === undefined ? [] : [{ at: visit.place.key, nth: 1 + (fate.visit % visit.times) }];
      }),
    );
    deaths += ended.deaths.length;
    expect(new Set(ended.effects).size).toBe(ended.effects.length);
    for (const { outcome } of [...plain.runs, ...ended.runs]) expect(outcome).toBe("success");
    if (isConcurrent(ops)) expect(unordered(ended)).toEqual(unordered(plain));
    else expect(differencesOf(plain, ended)).toEqual([]);
  });
  const seed = fc.readConfigureGlobal().seed ?? 0;
  const numRuns = Math.ceil(RUNS / AT_ONCE);
  const all = Array.from({ length: AT_ONCE }, (_, i) =>
    fc.assert(loops, { numRuns, seed: seed + i * 1_000_003, endOnFailure: env.LOOP_RUNS !== undefined }),
  );
  // All of them, or what is left plays on behind the test's end.
  const failed = (await Promise.allSettled(all)).find((one) => one.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  expect(deaths).toBeGreaterThan(RUNS / 2);
}, 1_200_000);

/** What lanes that run side by side have shown stands in any order. */
function unordered({ effects, logs, client, late, openQuestions }: Ended): unknown {
  let run: RunState | undefined;
  for (const log of logs) run = fold(log, run);
  const held = { messages: run?.messages ?? [], state: run?.committed ?? null };
  return {
    effects: [...effects].sort(),
    essence: logs.map((log) => essence(log)),
    screens: [client, late, held].map((one) => screen(one, true)),
    openQuestions,
  };
}
