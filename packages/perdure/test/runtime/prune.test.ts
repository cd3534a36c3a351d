import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { agent, createRuntime } from "perdure";
import { expect, onTestFinished, test } from "vitest";
import { explain } from "../../src/cli/why.ts";
import { createRuntimeFrom } from "../../src/http/create-runtime.ts";
import { showDetail } from "../../src/http/shown.ts";
import { essence } from "../../src/log/essence.ts";
import { fold, type RunState } from "../../src/log/fold.ts";
import type { Uid } from "../../src/protocol/words.ts";
import { memory } from "../../src/store/memory.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import type { EventStore } from "../../src/store/store.ts";
import { cases } from "../random-cases.ts";
import { asking, saying } from "./asking.ts";
import { conversation, modelConversation, Talk, type Turn } from "./conversations.ts";

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "perdure-prune-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** What is said of each run by whoever explains it, whatever its frames are. */
async function told(talk: Talk) {
  const all = [];
  let before: RunState | undefined;
  for (const run of await talk.runs()) {
    const entries = await talk.entries(run.uid);
    const state = fold(entries, before);
    before = state;
    const now = 1_900_000_000_000;
    const facts = entries.filter(({ kind }) => kind !== "frame" && kind !== "transcript");
    all.push({
      essence: essence(entries),
      facts: facts.map(({ kind, seq }) => ({ kind, seq })),
      why: explain(await showDetail(talk.store, run, now), { entries, state }, now).map(({ kind, next }) => ({
        kind,
        next,
      })),
      held: { messages: state.messages, shown: state.shown, committed: state.committed },
    });
  }
  return all;
}

async function played(store: EventStore, story: readonly Turn[], isPruning: boolean): Promise<Talk> {
  const talk = new Talk(store, story);
  for (const { prune } of story) {
    await talk.next();
    if (isPruning && prune) await talk.pruneAll();
  }
  return talk;
}

async function everything(talk: Talk) {
  return {
    told: await told(talk),
    shown: await talk.allShown(),
    prompts: talk.prompts,
    client: talk.client.held,
    outcomes: (await talk.runs()).map(({ outcome }) => outcome),
  };
}

test("whatever a thread has gone through, pruned or not, in memory or in a file: it shows, tells and asks the same", async () => {
  const dir = await folder();
  let files = 0;
  let references = 0;
  await fc.assert(
    fc.asyncProperty(conversation, async (story) => {
      const whole = await played(memory(), story, false);
      const inMemory = await played(memory(), story, true);
      const inFile = await played(sqlite(join(dir, `${files++}.db`)), story, true);
      try {
        const expected = await everything(whole);
        for (const talk of [inMemory, inFile]) {
          await talk.end();
          await talk.pruneAll();
        }
        await whole.end();
        const ended = await everything(whole);
        for (const talk of [inMemory, inFile]) {
          expect(await everything(talk)).toEqual(ended);
          for (const { uid, pruned } of await talk.runs()) {
            expect(pruned).not.toBeNull();
            const entries = await talk.entries(uid);
            expect(entries.filter(({ kind }) => kind === "frame")).toEqual([]);
            references += JSON.stringify(entries).split('"of":').length - 1;
          }
          expect((await talk.store.verify()).faults).toEqual([]);
        }
        expect(ended.told.length).toBe(expected.told.length);
        // And once more with a turn behind all that.
        for (const talk of [whole, inMemory, inFile]) {
          await talk.next();
          await talk.end();
        }
        const next = await everything(whole);
        for (const talk of [inMemory, inFile]) expect(await everything(talk)).toEqual(next);
      } finally {
        for (const talk of [whole, inMemory, inFile]) await talk.runtime.close();
      }
    }),
    { numRuns: cases(40, 60), interruptAfterTimeLimit: 100_000 },
  );
  // Else texts were kept twice.
  expect(references).toBeGreaterThan(100);
}, 180_000);

test("pruning changes nothing that was shown a moment before", async () => {
  await fc.assert(
    fc.asyncProperty(modelConversation, async (story) => {
      const talk = await played(memory(), story, false);
      await talk.end();
      const before = [await told(talk), await talk.allShown()];
      await talk.pruneAll();
      expect([await told(talk), await talk.allShown()]).toEqual(before);
      await talk.runtime.close();
    }),
    { numRuns: cases(25, 40), interruptAfterTimeLimit: 60_000 },
  );
}, 120_000);

test("a runtime prunes by itself what ended longer ago than it is told, and nothing else", async () => {
  let time = 1_000_000;
  const store = memory({ clock: () => time });
  const hello = agent({ name: "hello", run: async (ctx) => void ctx.say("Hello.") });
  const asks = agent({ name: "asks", run: (ctx) => ctx.interrupt({ message: "Well?" }) });
  const life = async (after: number | undefined, work: (ask: ReturnType<typeof asking>) => Promise<void>) => {
    const prune = after === undefined ? {} : { prune: { after } };
    const runtime = createRuntimeFrom({ now: () => time }, { agents: [hello, asks], store, ...prune });
    await runtime.open();
    await work(asking(runtime));
    await runtime.close();
  };
  const pruned = async () =>
    (await store.runs({ tenant: "local" })).items.map(({ thread, pruned: last }) => [thread, last !== null]);

  await life(undefined, async (ask) => {
    await ask("/agents/asks", saying("go", { threadId: "waits" }));
    await ask("/agents/hello", saying("go", { threadId: "old" }));
    time += 5_000;
    await ask("/agents/hello", saying("go", { threadId: "new" }));
  });
  time += 1_000;
  await life(3_000, async () => {
    while (!(await pruned()).some(([, isPruned]) => isPruned)) await new Promise((resolve) => setImmediate(resolve));
  });
  // It has looked at all of them before it was closed.
  await store.open("looks");
  expect(await pruned()).toEqual([
    ["new", false],
    ["old", true],
    ["waits", false],
  ]);
  expect(() => createRuntime({ agents: [], prune: { after: "a week" as never } })).toThrow(
    "prune.after of createRuntime",
  );
});

test("a run that is not over, or not there, is refused by name, and nothing of it changes", async () => {
  const asks = agent({ name: "asks", run: (ctx) => ctx.interrupt({ message: "Well?" }) });
  const store = memory();
  const runtime = createRuntime({ agents: [asks], store });
  onTestFinished(() => runtime.close());
  await asking(runtime)("/agents/asks", saying("go"));
  const [run] = (await store.runs({ tenant: "local" })).items;
  await expect(runtime.prune(run?.uid ?? "")).rejects.toMatchObject({
    name: "PruneRefusedError",
    code: "RUN_UNFINISHED",
  });
  await expect(runtime.prune("nobody")).rejects.toMatchObject({ code: "RUN_NOT_FOUND" });
  await store.setAside(run?.uid as Uid, "damaged");
  await asking(runtime)(`/runs/${run?.uid}/abandon`, {});
  expect(await store.run(run?.uid as Uid)).toMatchObject({ head: run?.head, pruned: null });
});
