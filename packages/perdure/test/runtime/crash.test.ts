import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { fold } from "../../src/log/fold.ts";
import { quietClient } from "../protocol/published-client.ts";
import { failingTools, refundDesk, stories, unknownWrite } from "./stories.ts";
import { type Ended, type Fate, inFiles, inMemory, play, type Story } from "./world.ts";

quietClient();

const counted = (ledger: readonly string[]) => [...ledger].sort();

function told(ended: Ended) {
  return {
    essence: essence(ended.log),
    ledger: counted(ended.world.ledger),
    client: normaliseTranscript(ended.client),
    late: normaliseTranscript(ended.late),
    ...{ outcome: ended.run.outcome, openQuestions: ended.openQuestions, inbox: ended.inbox, aside: ended.run.aside },
  };
}

const plain = new Map<string, Promise<Ended>>();
function uninterrupted(story: Story): Promise<Ended> {
  const known = plain.get(story.name) ?? play(story);
  plain.set(story.name, known);
  return known;
}

async function sameAsUninterrupted(story: Story, fates: readonly Fate[], disk = inMemory()): Promise<Ended> {
  const reference = await uninterrupted(story);
  const ended = await play(story, fates, disk).catch((error: unknown) => {
    throw new Error(`${story.name}, cut at ${JSON.stringify(fates)}`, { cause: error });
  });
  expect(told(ended), `cut at ${JSON.stringify(fates)}`).toEqual(told(reference));
  return ended;
}

describe.each(stories)("$name", (story) => {
  test("ends without a cut, and its client holds what the log says", async () => {
    const ended = await uninterrupted(story);
    const { messages, committed } = fold(ended.log);
    expect(ended.run.outcome).toBe("success");
    expect(normaliseTranscript(ended.client)).toEqual(normaliseTranscript({ messages, state: committed }));
    expect(ended).toMatchObject({ openQuestions: 0, inbox: 0 });
    if (story.fails === undefined) expect(ended.reported).toEqual([]);
  });

  test.each(["after", "before"] as const)("ends the same when its process dies %s any commit", async (when) => {
    for (let commits = 1; ; commits++) {
      const { deaths } = await sameAsUninterrupted(story, [{ when, commits }]);
      if (deaths === 0) break;
    }
  });

  test("ends the same when its process dies in any body", async () => {
    const { world } = await uninterrupted(story);
    for (const [at, times] of world.visits) {
      for (let nth = 1; nth <= times; nth++) await sameAsUninterrupted(story, [{ at, nth }]);
    }
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
  const { world } = await uninterrupted(story);
  for (const at of world.visits.keys()) {
    for (let commits = 1; ; commits++) {
      const { deaths } = await sameAsUninterrupted(story, [
        { at, nth: 1 },
        { when: "after", commits },
      ]);
      if (deaths === 1) break;
    }
  }
});

test("over SQLite, too, a process may die anywhere", async () => {
  // Every second commit: each costs a write to the disk, and which of them is the last makes no difference to the file.
  for (let commits = 1; ; commits += 2) {
    const { deaths } = await sameAsUninterrupted(refundDesk, [{ when: "after", commits }], inFiles());
    if (deaths === 0) break;
  }
});

test("deaths cost a tool none of its attempts", async () => {
  const at = "flaky_read: begins";
  await sameAsUninterrupted(
    failingTools,
    [1, 2, 3].map((nth) => ({ at, nth })),
  );
});

test("a write that nobody can tell about happens at most once, and a human who cannot tell either ends it", async () => {
  const story = unknownWrite("unknown");
  const { world } = await uninterrupted(story);
  for (const at of world.visits.keys()) {
    const ended = await play(story, [{ at, nth: 1 }]);
    expect(ended.deaths).toBe(1);
    expect(ended.asked).toMatchObject([{ reason: "perdure:unknown_write" }]);
    expect(ended.world.ledger).toHaveLength(at === "mail: begins" ? 0 : 1);
    expect(ended.log.find(({ kind }) => kind === "run.finished")).toMatchObject({ outcome: "success" });
    const finished = ended.log.find((entry) => entry.kind === "step.finished" && entry.path === "1.0");
    expect(finished).toMatchObject({ status: "error", error: { code: "UNKNOWN" }, applied: "unknown" });
    const result = ended.client.messages.find(({ role }) => role === "tool");
    expect(result?.content).toContain("may have been applied");
  }
});
