/** Whose body still runs, and who is told when it ends. */
import { expect, test } from "vitest";
import type { Json } from "../../src/protocol/json.ts";
import type { Path, Uid } from "../../src/protocol/words.ts";
import { RunningWrites } from "../../src/runtime/running-writes.ts";

const RUN = "r" as Uid;
const PATH = "1.0" as Path;
const SETTLE = 100;

/** A write that has begun. */
function begun() {
  const time = { now: 1_000 };
  const landed: Uid[] = [];
  const writes = new RunningWrites(
    () => time.now,
    (run) => void landed.push(run),
  );
  let lands = (_: Json): void => {};
  let fails = (): void => {};
  const body = new Promise<{ type: "output"; output: Json }>((resolve, reject) => {
    lands = (output) => resolve({ type: "output", output });
    fails = () => reject(new Error("gone"));
  });
  writes.begin(RUN, PATH, body, SETTLE);
  const ended = () => body.then(() => {}).catch(() => {});
  return { time, landed, writes, lands, fails, ended };
}

test("a write that lands while its run is driven wakes the driver; while nobody does, whoever finds one", async () => {
  for (const isDriven of [true, false]) {
    const { landed, writes, lands, ended } = begun();
    let woken = 0;
    const wake = () => {
      woken += 1;
    };
    if (isDriven) writes.watch(RUN, wake);
    lands("done");
    await ended();
    expect(writes.of(RUN).get(PATH)).toEqual({ is: "landed", output: "done" });
    expect([woken, landed]).toEqual(isDriven ? [1, []] : [0, [RUN]]);
  }
});

test("one that lands behind its driver's last look is not slept through", async () => {
  const { landed, writes, lands, ended } = begun();
  const leave = writes.watch(RUN, () => {});
  lands("done");
  await ended();
  leave();
  expect(landed).toEqual([RUN]);
});

test("one that has landed and is recorded wakes nobody, nor does one that has failed", async () => {
  const recorded = begun();
  const leave = recorded.writes.watch(RUN, () => recorded.writes.recorded(RUN, PATH));
  recorded.lands("done");
  await recorded.ended();
  leave();
  expect(recorded.landed).toEqual([]);

  const failed = begun();
  failed.fails();
  await failed.ended();
  expect(failed.landed).toEqual([]);
});

test("it may land while it runs and for `settle` after it, whatever its step has come to, and no other step's", async () => {
  const { time, writes, fails, ended } = begun();
  expect(writes.mayLand(RUN, PATH)).toBe(true);
  expect(writes.mayLand(RUN, "1.1" as Path)).toBe(false);
  writes.recorded(RUN, PATH);
  expect(writes.mayLand(RUN, PATH)).toBe(true);
  fails();
  await ended();
  time.now += SETTLE - 1;
  expect(writes.mayLand(RUN, PATH)).toBe(true);
  time.now += 1;
  expect(writes.mayLand(RUN, PATH)).toBe(false);
});

test("one that runs may still land, however many have begun and ended beside it", async () => {
  const { time, writes, lands, ended } = begun();
  for (let i = 0; i < 500; i++) {
    const body = Promise.resolve({ type: "output" as const, output: i });
    writes.begin(`r${i}` as Uid, PATH, body, SETTLE);
    await body;
    writes.recorded(`r${i}` as Uid, PATH);
    time.now += SETTLE;
  }
  expect(writes.mayLand(RUN, PATH)).toBe(true);
  lands("done");
  await ended();
  writes.recorded(RUN, PATH);
  expect(writes.mayLand(RUN, PATH)).toBe(true);
  time.now += SETTLE;
  expect(writes.mayLand(RUN, PATH)).toBe(false);
});
