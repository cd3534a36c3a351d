import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold } from "../../src/log/fold.ts";
import { differencesOf } from "../../src/testing/compare.ts";
import { matrixOf } from "../../src/testing/crash-matrix.ts";
import type { Fate } from "../../src/testing/life.ts";
import { sqliteDisk } from "../../src/testing/outside.ts";
import type { Ended } from "../../src/testing/play.ts";
import { quietClient } from "../protocol/published-client.ts";
import { failingTools, refundDesk, stories, unknownWrite } from "./stories.ts";
import { played, type Story, staged, type World } from "./world.ts";

quietClient();

const plain = new Map<string, Promise<Ended<World>>>();
function uninterrupted(story: Story): Promise<Ended<World>> {
  const known = plain.get(story.name) ?? played(story);
  plain.set(story.name, known);
  return known;
}

async function sameAsUninterrupted(story: Story, fates: readonly Fate[]): Promise<Ended<World>> {
  const reference = await uninterrupted(story);
  const ended = await played(story, fates).catch((error: unknown) => {
    throw new Error(`${story.name}, cut at ${JSON.stringify(fates)}`, { cause: error });
  });
  expect(differencesOf(reference, ended), `cut at ${JSON.stringify(fates)}`).toEqual([]);
  return ended;
}

describe.each(stories)("$name", (story) => {
  test("ends without a cut, and its client holds what the log says", async () => {
    const ended = await uninterrupted(story);
    const { messages, committed } = fold(ended.logs.flat());
    expect(ended.runs).toMatchObject([{ outcome: "success", aside: null }]);
    expect(normaliseTranscript(ended.client)).toEqual(normaliseTranscript({ messages, state: committed }));
    expect(ended).toMatchObject({ openQuestions: 0, inbox: 0, deaths: [] });
    if (story.fails === undefined) expect(ended.reported).toEqual([]);
  });

  test("ends the same when its process dies at any commit, or anywhere in a body", async () => {
    const { commits, visits } = await uninterrupted(story);
    const report = await matrixOf(staged(story));
    expect(report.findings, report.table()).toEqual([]);
    expect(report).toMatchObject({ skipped: 0, gaveUp: 0 });
    expect(report.cuts).toBe(2 * commits.length + visits.reduce((sum, { times }) => sum + times, 0));
  });
});

describe("deaths in a row", () => {
  const fate = fc.record({
    when: fc.constantFrom("after" as const, "before" as const),
    commits: fc.integer({ min: 1, max: 25 }),
  });

  test.each(stories)("$name: two more processes die while they recover", async (story) => {
    await fc.assert(
      fc.asyncProperty(fc.array(fate, { minLength: 2, maxLength: 3 }), async (fates) => {
        await sameAsUninterrupted(story, fates);
      }),
      { numRuns: 15 },
    );
  });
});

test("a write that died, was answered for, and then its process died after any commit: the screen says what the log says", async () => {
  const story = unknownWrite("what is true");
  const { visits } = await uninterrupted(story);
  for (const { place } of visits) {
    for (let commits = 1; ; commits++) {
      const { deaths } = await sameAsUninterrupted(story, [
        { at: place.key, nth: 1 },
        { when: "after", commits },
      ]);
      if (deaths.length === 1) break;
    }
  }
});

test("over SQLite, too, a process may die anywhere", async () => {
  // Every second commit: each costs a write to the disk, and which of them is the last makes no difference to the file.
  const { commits } = await uninterrupted(refundDesk);
  const report = await matrixOf(staged(refundDesk, sqliteDisk), {
    cuts: ({ at, point }) => at === "append" && point === "after",
    limit: Math.ceil(commits.length / 2),
  });
  expect(report.findings, report.table()).toEqual([]);
  expect(report.cuts).toBeGreaterThan(20);
});

test("deaths cost a tool none of its attempts", async () => {
  const at = "flaky_read: begins";
  const { deaths } = await sameAsUninterrupted(
    failingTools,
    [1, 2, 3].map((nth) => ({ at, nth })),
  );
  expect(deaths).toHaveLength(3);
});

test("a write that nobody can tell about happens at most once, and a human who cannot tell either ends it", async () => {
  const story = unknownWrite("unknown");
  const { visits } = await uninterrupted(story);
  const marks = visits.flatMap(({ place }) => (place.key.startsWith("mail: ") ? [place.key] : []));
  expect(marks).toHaveLength(3);
  for (const at of marks) {
    const ended = await played(story, [{ at, nth: 1 }]);
    expect(ended.deaths).toHaveLength(1);
    const log = ended.logs.flat();
    expect(log.filter(({ kind }) => kind === "interrupt.opened")).toMatchObject([
      { interrupt: { kind: "unknown-write" } },
    ]);
    expect(ended.effects).toHaveLength(at === "mail: begins" ? 0 : 1);
    expect(log.find(({ kind }) => kind === "run.finished")).toMatchObject({ outcome: "success" });
    const finished = log.find((entry) => entry.kind === "step.finished" && entry.path === "1.0");
    expect(finished).toMatchObject({ status: "error", error: { code: "UNKNOWN" }, applied: "unknown" });
    const result = ended.client.messages.find(({ role }) => role === "tool");
    expect(result?.content).toContain("may have been applied");
  }
});
