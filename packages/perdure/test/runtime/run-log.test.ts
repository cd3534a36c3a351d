import fc from "fast-check";
import { expect, onTestFinished, test } from "vitest";
import { agent, createRuntime, type Transformer } from "../../src/index.ts";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { Path } from "../../src/protocol/words.ts";
import { LeaseLostError, RunLog } from "../../src/runtime/run-log.ts";
import { memory } from "../../src/store/memory.ts";
import type { Appended, Batch, EventStore } from "../../src/store/store.ts";
import { begin, memo } from "../store/builders.ts";
import { asking } from "./asking.ts";

/** A log of a run that has just begun, over a store whose appends wait for `turns`, and which refuses the offers that `refuses` names. */
async function begun(turns: () => Promise<void>, refuses: (batch: Batch) => boolean = () => false) {
  const below = memory();
  await below.open("driver");
  const lease = await begin(below, "run");
  const entriesOf = async () => {
    const entries: Entry[] = [];
    for await (const entry of below.read(lease.uid, -1)) entries.push(entry);
    return entries;
  };
  let last: Promise<unknown> = Promise.resolve();
  const store = {
    append(_: unknown, batch: Batch): Promise<Appended> {
      const appended = last
        .then(turns)
        .then(() => (refuses(batch) ? ({ is: "inbox" } as const) : below.append(lease, batch)));
      last = appended.catch(() => {});
      return appended;
    },
  } as unknown as EventStore;
  const log = new RunLog(store, lease, fold(await entriesOf()), () => {}, Date.now);
  return { log, entriesOf };
}

const noted = (n: number): NewEntry => memo(n);

test("an offer and what is added beside it are all in the run, in the order of the store", async () => {
  const { log, entriesOf } = await begun(() => new Promise((resolve) => setTimeout(resolve, 1)));
  const offers = [log.offer(() => ({ entries: [noted(1)] })), log.offer(() => ({ entries: [noted(2)] }))];
  await new Promise((resolve) => setTimeout(resolve));
  log.add([noted(3)]);
  expect(await Promise.all(offers)).toMatchObject([{ is: "appended" }, { is: "appended" }]);
  await log.committed();
  expect(log.state.memos).toEqual({ t: 2 });
  expect((await entriesOf()).slice(-3)).toMatchObject([{ value: 1 }, { value: 3 }, { value: 2 }]);
  expect(log.state.head).toBe((await entriesOf()).length - 1);
});

test("frames that nothing else was added to go to the store as nothing else, which may let them wait", async () => {
  const batches: Batch[] = [];
  const { log } = await begun(
    () => Promise.resolve(),
    (batch) => batches.push(batch) === 0,
  );
  const frame = { kind: "frame", path: "" as Path, event: { type: "CUSTOM", name: "x", value: 1 } } as const;
  const threadId = log.state.run.thread ?? log.uid;
  log.add([{ ...frame, event: { type: "RUN_STARTED", threadId, runId: "r", protocolVersion: "1.0" } }]);
  await log.committed();
  log.add([frame]);
  await log.committed();
  log.addDelta(frame, 1);
  await log.committed();
  log.add([noted(1)], { claims: [], taken: [] });
  await log.committed();
  expect(batches.slice(1)).toEqual([
    ...[
      { entries: [frame], behind: 2 },
      { entries: [frame], behind: 3 },
    ],
    { entries: [noted(1)], behind: 4, claims: [], taken: [] },
  ]);
});

test("an offer is with the store at once, behind what was added before it: one commit can take both", async () => {
  const commits: (() => void)[] = [];
  const { log, entriesOf } = await begun(() => new Promise((resolve) => commits.push(resolve)));
  let isOffered = false;
  log.add([noted(1)]);
  const offered = log.offer(() => {
    isOffered = true;
    return { entries: [noted(2)] };
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect([commits.length, isOffered]).toEqual([1, true]);
  commits.shift()?.();
  await new Promise((resolve) => setImmediate(resolve));
  commits.shift()?.();
  expect(await offered).toMatchObject({ is: "appended" });
  expect((await entriesOf()).slice(-2)).toMatchObject([{ value: 1 }, { value: 2 }]);
});

test("what making an offer has had added is before it, in the run and in the store", async () => {
  const { log, entriesOf } = await begun(() => new Promise((resolve) => setTimeout(resolve, 1)));
  await log.offer(() => {
    log.add([noted(1)]);
    return { entries: [noted(2)] };
  });
  log.add([noted(3)]);
  await log.committed();
  const entries = await entriesOf();
  expect(entries.slice(-3)).toMatchObject([{ value: 1 }, { value: 2 }, { value: 3 }]);
  expect(log.state.memos).toEqual(fold(entries).memos);
});

test("where a batch fails, none behind it is appended, however many are under way, and whatever the store takes again", async () => {
  const deed = fc.constantFrom("add" as const, "offer" as const);
  await fc.assert(
    fc.asyncProperty(fc.array(deed, { minLength: 1, maxLength: 8 }), fc.nat(7), async (deeds, failing) => {
      const batches: Batch[] = [];
      const { log, entriesOf } = await begun(
        () => new Promise((resolve) => setImmediate(resolve)),
        (batch) => {
          batches.push(batch);
          if (batches.length === failing + 1) throw new Error("disk full");
          return false;
        },
      );
      const before = (await entriesOf()).length;
      const done: Promise<unknown>[] = [];
      for (const [n, does] of deeds.entries()) {
        if (does === "add") log.add([noted(n)]);
        else done.push(log.offer(() => ({ entries: [noted(n)] })));
        // Each is a batch of its own.
        await Promise.resolve();
        await Promise.resolve();
      }
      await Promise.allSettled([...done, log.committed()]);
      await new Promise((resolve) => setTimeout(resolve, 5));
      const values = (await entriesOf()).slice(before).map((entry) => entry.kind === "memo" && entry.value);
      const appended = batches.slice(0, failing).flatMap(({ entries }) => entries);
      expect(values).toEqual(appended.map((entry) => entry.kind === "memo" && entry.value));
    }),
    { numRuns: 100 },
  );
});

test("what waits to be durable is counted once, however many appends are under way", async () => {
  const commits: (() => void)[] = [];
  const { log } = await begun(() => new Promise((resolve) => commits.push(resolve)));
  const appendsUnderWay = 6;
  for (let n = 1; n <= appendsUnderWay; n++) {
    log.add([noted(n)], { bytes: 100 });
    await new Promise((resolve) => setImmediate(resolve));
    expect(log.pendingBytes).toBe(100 * n);
  }
  for (let left = appendsUnderWay - 1; left >= 0; left--) {
    commits.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
    expect(log.pendingBytes).toBe(100 * left);
  }
});

test("whatever is added and offered, in any order, and whatever is refused: the run is what the store holds", async () => {
  const deed = fc.oneof(
    fc.record({ does: fc.constant("add" as const) }),
    fc.record({ does: fc.constant("offer" as const), refused: fc.boolean() }),
    fc.record({ does: fc.constant("wait" as const) }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(deed, { maxLength: 12 }),
      fc.array(fc.nat(3), { maxLength: 12 }),
      async (deeds, delays) => {
        const refused = new Set<Batch["entries"]>();
        const { log, entriesOf } = await begun(
          async () => {
            for (let left = delays.pop() ?? 0; left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
          },
          ({ entries }) => refused.has(entries),
        );
        const expected: number[] = [];
        const offers: Promise<unknown>[] = [];
        for (const [n, one] of deeds.entries()) {
          if (one.does === "wait") await new Promise((resolve) => setImmediate(resolve));
          else if (one.does === "add") {
            log.add([noted(n)]);
            expected.push(n);
          } else {
            const batch: Batch = { entries: [noted(n)] };
            if (one.refused) refused.add(batch.entries);
            else expected.push(n);
            offers.push(log.offer(() => batch).then(({ is }) => expect(is).toBe(one.refused ? "inbox" : "appended")));
          }
        }
        await Promise.all(offers);
        await log.committed();
        const entries = await entriesOf();
        const held = entries.flatMap((entry) => (entry.kind === "memo" ? [entry.value] : []));
        const inOrder = (values: readonly unknown[]): string[] => values.map(String).sort();
        expect(inOrder(held)).toEqual(inOrder(expected));
        expect(log.state.head).toBe(entries.length - 1);
        expect(log.state.memos).toEqual(fold(entries).memos);
      },
    ),
    { numRuns: 100 },
  );
});

test("after a failed append nothing more is appended", async () => {
  let fails = false;
  const { log, entriesOf } = await begun(async () => {
    if (fails) throw new Error("disk full");
  });
  const before = (await entriesOf()).length;
  fails = true;
  log.add([noted(1)]);
  const offered = log.offer(() => ({ entries: [noted(2)] }));
  await expect(log.committed()).rejects.toThrow(LeaseLostError);
  fails = false;
  await expect(offered).rejects.toThrow(LeaseLostError);
  expect(() => log.add([noted(3)])).toThrow(LeaseLostError);
  expect(await entriesOf()).toHaveLength(before);
});

test("a delta that may not leave is refused where it is emitted, also one that would only have been gathered, and the log goes on", async () => {
  const strangers: Transformer = {
    name: "strangers",
    initial: null,
    step(memo, event) {
      const isOne = event.type === "TEXT_MESSAGE_CONTENT" && event.delta === "three";
      return { memo, events: [isOne ? { ...event, messageId: "nobody's" } : event] };
    },
  };
  const refusals: unknown[] = [];
  const talker = agent({
    name: "talker",
    transformers: [strangers],
    async run(ctx) {
      using message = ctx.message();
      // The second waits for the window of the first to pass, so the others would wait behind it.
      for (const word of ["one ", "two ", "three", "four"]) {
        try {
          message.delta(word);
        } catch (error) {
          refusals.push(error);
        }
      }
    },
  });
  const runtime = createRuntime({ agents: [talker], onError: () => {} });
  onTestFinished(() => runtime.close());
  const { text: stream } = await asking(runtime)("/agents/talker", { threadId: "t", runId: "r", messages: [] });
  expect(refusals).toMatchObject([{ rule: "text-not-open" }]);
  expect(stream).not.toContain("nobody's");
  expect(stream).toContain('"type":"RUN_FINISHED"');
});
