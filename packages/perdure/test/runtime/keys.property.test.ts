/** Random histories of runs that want the same thing done, in a world that knows no keys. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { applied, HandlerError, notApplied, suspend, tool, unknown } from "../../src/index.ts";
import type { Uid } from "../../src/protocol/words.ts";
import { type Death, Mortal } from "../../src/testing/mortal-store.ts";
import { type Disk, memoryDisk, sqliteDisk } from "../../src/testing/outside.ts";
import { Shop } from "./shop.ts";

/** What the nth body to run does; then it does its work. */
type Does = "works" | "fails after it" | "fails before it" | "says no" | "suspends";
interface History {
  readonly runs: number;
  readonly bodies: readonly Does[];
  /** Whether the nth question to `reconcile` is answered. It never lies. */
  readonly knows: readonly boolean[];
  /** What the nth human says of a write about which nobody knows. */
  readonly humans: readonly ("the truth" | "unknown" | "not done")[];
  /** After how many looks each run is cancelled. */
  readonly cancels: readonly (number | null)[];
  readonly deaths: readonly Death[];
}

const o1 = { name: "pay", input: { order: "o1" } };
/** Looks at the world, a few ms apart. Nobody needs so many. */
const PATIENCE = 600;

/** Plays a history to the end of all runs. @returns what was done, and how often a human said "not done" of what was */
async function played(history: History, disk: Disk) {
  let at = 1_700_000_000_000;
  const clock = (): number => {
    at += 1;
    return at;
  };
  const ledger: string[] = [];
  const next = { body: 0, knows: 0, human: 0, death: 0 };
  let excused = 0;
  const payer = (life: () => Mortal) =>
    tool({
      ...{ name: "pay", description: "Pays.", effect: "write", settle: 0 },
      input: z.object({ order: z.string() }),
      output: z.string(),
      answer: z.boolean(),
      idempotencyKey: ({ order }) => ["pay", order],
      async call({ order }) {
        const does = history.bodies[next.body++] ?? "works";
        await new Promise((resolve) => setImmediate(resolve));
        if (life().isDead) return await new Promise<never>(() => {});
        if (does === "suspends") return suspend({ message: "Really?" });
        if (does === "says no") throw new HandlerError("no", { applied: "no" });
        if (does === "fails before it") throw new Error("lost request");
        ledger.push(order);
        if (does === "fails after it") throw new Error("lost answer");
        return "paid";
      },
      async resume(_, { order }) {
        if (life().isDead) return await new Promise<never>(() => {});
        ledger.push(order);
        return "paid";
      },
      async reconcile() {
        if (!(history.knows[next.knows++] ?? false)) return unknown();
        return ledger.length > 0 ? applied("paid") : notApplied();
      },
    });
  let ids = 0;
  const begin = () => {
    const life: Mortal = new Mortal(disk.next({ clock, leaseMs: 1e9 }), history.deaths[next.death++] ?? null);
    const newUid = () => {
      ids += 1;
      return `run-${ids}` as Uid;
    };
    const shop = new Shop(life.store, [payer(() => life)], { now: clock, newUid });
    for (let i = 0; i < history.runs; i++) shop.wish(`t${i}`, o1).catch(() => {});
    return { life, shop };
  };
  let { life, shop } = begin();
  const alive = <T>(asking: Promise<T>): Promise<T | undefined> =>
    Promise.race([asking, life.died.then(() => undefined)]);
  const payloadFor = (kind: string) => {
    if (kind !== "unknown-write") return true;
    const says = history.humans[next.human++] ?? "the truth";
    if (says === "unknown") return { did: "unknown" };
    if (says === "the truth" && ledger.length > 0) return { did: "yes", output: "paid" };
    if (ledger.length > 0) excused += 1;
    return { did: "no" };
  };
  for (let look = 0; ; look++) {
    if (look > PATIENCE) throw new Error("somebody waits for ever");
    if (life.isDead) ({ life, shop } = begin());
    await new Promise((resolve) => setTimeout(resolve, 2));
    await alive(shop.runtime.open());
    const runs = (await alive(shop.store.runs({ tenant: "local" })))?.items ?? [];
    if (runs.length === history.runs && runs.every(({ outcome }) => outcome !== null)) break;
    for (const [i, when] of history.cancels.entries()) {
      if (when === look) await alive(shop.cancel(`t${i}`).catch(() => {}));
    }
    // Questions of runs that were cancelled stay open, and nobody looks at them.
    const goOn = new Set(runs.flatMap(({ thread, outcome }) => (outcome === null ? [thread] : [])));
    const open = (await alive(shop.inbox()))?.find(({ thread }) => goOn.has(thread));
    if (open !== undefined) await alive(shop.answer(open.thread, payloadFor(open.kind)));
  }
  const claim = await shop.store.claimOf({ tenant: "local", tool: "pay", key: '["pay","o1"]' });
  await shop.runtime.close();
  await disk.remove();
  return { ledger, excused, claim };
}

/** Weighted towards what leaves a key unknown, for there it is that something may be done twice. */
const histories: fc.Arbitrary<History> = fc.record({
  runs: fc.integer({ min: 2, max: 3 }),
  bodies: fc.array(
    fc.oneof(
      { arbitrary: fc.constant<Does>("fails after it"), weight: 3 },
      { arbitrary: fc.constantFrom<Does>("works", "fails before it", "says no", "suspends"), weight: 3 },
    ),
    { minLength: 1, maxLength: 4 },
  ),
  knows: fc.array(fc.constantFrom(false, false, true), { maxLength: 6 }),
  humans: fc.array(fc.constantFrom("the truth", "unknown", "unknown", "not done"), { minLength: 1, maxLength: 4 }),
  cancels: fc.array(fc.option(fc.integer({ min: 0, max: 8 })), { maxLength: 3 }),
  deaths: fc.array(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 1, max: 40 }) }),
    { maxLength: 2 },
  ),
});

describe.each([
  ["in memory", memoryDisk, 60],
  ["in files", sqliteDisk, 12],
] as const)("%s", (_, disk, numRuns) => {
  test("one key is applied at most once unless a human said that it was not done, and nobody waits for ever", async () => {
    await fc.assert(
      fc.asyncProperty(histories, async (history) => {
        const { ledger, excused, claim } = await played(history, disk());
        expect(ledger.length).toBeLessThanOrEqual(1 + excused);
        // What was done and is not in doubt stays known.
        if (claim?.state === "settled") expect(ledger.length).toBeGreaterThan(0);
        expect(claim?.state).not.toBe("running");
      }),
      { numRuns },
    );
  }, 120_000);
});
