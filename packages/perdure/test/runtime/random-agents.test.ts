import fc from "fast-check";
import { expect, test } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { fold } from "../../src/log/fold.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Fate } from "../../src/testing/life.ts";
import type { Ended } from "../../src/testing/play.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import { quietClient } from "../protocol/published-client.ts";
import { type CallPlan, callsOf, fatesOf, isGivenUp, type Plan, randomPlan, rowOf, storyOf } from "./random-agents.ts";
import { played } from "./world.ts";

quietClient();

/** The one run of a plan, and what its client was asked. */
async function playedPlan(plan: Plan, fates: readonly Fate[]) {
  const asked: ScriptQuestion[] = [];
  const ended = await played(
    storyOf(plan, (question) => void asked.push(question)),
    fates,
  );
  expect(ended.runs).toHaveLength(1);
  return { ...ended, log: ended.logs.flat(), asked };
}

/** What is the same however often it died; of a step that a human has given up only that it has ended. */
function told(ended: Ended & { readonly log: readonly Entry[] }, givenUp: ReadonlySet<string>) {
  const { messages, committed } = fold(ended.log);
  const whole = essence(ended.log) as {
    readonly steps: { readonly [path: string]: Json };
    readonly questions: { readonly [id: string]: { readonly path: string } };
  };
  return {
    outcome: ended.runs.map(({ outcome }) => outcome),
    steps: Object.fromEntries(Object.entries(whole.steps).filter(([path]) => !givenUp.has(path))),
    questions: Object.values(whole.questions).filter(({ path }) => !givenUp.has(path)),
    // Where nothing was given up, all that a client holds.
    ...(givenUp.size === 0 && {
      essence: whole,
      client: normaliseTranscript(ended.client),
      late: normaliseTranscript(ended.late),
      log: normaliseTranscript({ messages, state: committed }),
    }),
    ...{ openQuestions: ended.openQuestions, inbox: ended.inbox, aside: ended.runs.map(({ aside }) => aside) },
  };
}

test("a random agent, killed anywhere and answered by anybody in any order, ends as one that was not: each write once, each unknown asked once", async () => {
  let deaths = 0;
  let unknowns = 0;
  await fc.assert(
    fc.asyncProperty(randomPlan, async (plan) => {
      const plain = await playedPlan(plan, []);
      const ended = await playedPlan(plan, fatesOf(plan));
      deaths += ended.deaths.length;

      for (const { name, effect } of callsOf(plan)) {
        const rows = ended.effects.filter((row) => row === rowOf(name) || row.startsWith(`${rowOf(name)} `));
        if (effect !== "read") expect(rows.length, `${name} was done`).toBeLessThanOrEqual(1);
      }
      const asked = [...plain.asked, ...ended.asked].filter(({ kind }) => kind === "unknown-write");
      unknowns += asked.length;
      for (const one of [plain, ended]) {
        const ids = one.log.flatMap((entry) => (entry.kind === "interrupt.opened" ? [entry.interrupt.id] : []));
        expect(new Set(ids).size, "no question is opened twice").toBe(ids.length);
        expect(
          one.asked.map(({ interrupt }) => interrupt.id).filter((id) => !ids.includes(id)),
          "nobody is asked what the log does not know",
        ).toEqual([]);
      }
      const givenUp = new Set(
        [plain, ended].flatMap(({ log }) =>
          log.flatMap((entry) =>
            entry.kind === "step.finished" && entry.status === "error" && entry.error.code === "UNKNOWN"
              ? [entry.path as string]
              : [],
          ),
        ),
      );
      if (givenUp.size > 0) expect(asked.some((question) => isGivenUp(plan, question))).toBe(true);
      expect(told(ended, givenUp)).toEqual(told(plain, givenUp));
    }),
    { numRuns: 100 },
  );
  // Else the property has tested nothing of what it is about.
  expect(deaths).toBeGreaterThan(60);
  expect(unknowns).toBeGreaterThan(8);
}, 180_000);

test("the id of a question is the same whether or not a death has brought up another one before it", async () => {
  const call: CallPlan = {
    ...{ effect: "write", key: false, reconcile: false, approval: "none" },
    ...{ suspends: "resume", fails: "no", publishes: false },
  };
  const plan: Plan = { turns: [[call]], fates: [{ body: 0 }], humans: [{ inInbox: false, cannotTell: false }] };
  const opened = async (fates: readonly Fate[]) => {
    const { log } = await playedPlan(plan, fates);
    return log.flatMap((entry) => (entry.kind === "interrupt.opened" ? [entry.interrupt] : []));
  };
  const [plain, afterDeath] = [await opened([]), await opened(fatesOf(plan))];
  expect(afterDeath.map(({ kind }) => kind)).toEqual(["unknown-write", "suspension"]);
  expect(afterDeath[1]?.id).toBe(plain[0]?.id);
});
