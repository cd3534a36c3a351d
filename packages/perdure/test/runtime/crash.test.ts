import { describe, expect, test } from "vitest";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { essence } from "../../src/log/essence.ts";
import { fold } from "../../src/log/fold.ts";
import { quietClient } from "../protocol/published-client.ts";
import { stories } from "./stories.ts";
import { type Ended, type Fate, play, type Story } from "./world.ts";

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

async function sameAsUninterrupted(story: Story, fates: readonly Fate[]): Promise<Ended> {
  const reference = await uninterrupted(story);
  const ended = await play(story, fates).catch((error: unknown) => {
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
