import fc from "fast-check";
import { expect, test } from "vitest";
import type { NewEntry } from "../../src/log/entries.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import type { EventStore } from "../../src/store/store.ts";
import { begin, delta, memo, parked, seqs, uid } from "./builders.ts";
import { folder } from "./folder.ts";

/** Changes the file behind the store's back. */
async function byHand(file: string, ...statements: string[]): Promise<void> {
  const db = new SqliteDatabase(await loadDriver(), file);
  for (const sql of statements) db.exec(sql);
  db.close();
}

const of1 = "run = (SELECT id FROM runs WHERE uid = 'u1')";
const at = (seq: number) => `${of1} AND seq = ${seq}`;
/** Two rows change places. */
const swap = (a: number, b: number) => [
  `UPDATE log SET seq = -7 WHERE ${at(a)}`,
  `UPDATE log SET seq = ${a} WHERE ${at(b)}`,
  `UPDATE log SET seq = ${b} WHERE ${at(-7)}`,
];
/** What is at `seq` and behind moves on by one, and a copy of the row `from` comes in between. */
const insert = (seq: number, from: number) => [
  `UPDATE log SET seq = -1000 - seq WHERE ${of1} AND seq >= ${seq}`,
  `INSERT INTO log (run, seq, at, since, chain, entry) SELECT run, ${seq}, at, since, chain, entry FROM log
   WHERE ${of1} AND seq IN (${from}, ${-1000 - from})`,
  `UPDATE log SET seq = -1000 - seq + 1 WHERE ${of1} AND seq < 0`,
];

interface Tampering {
  readonly how: string;
  readonly sql: readonly string[];
  /** The entries among which the first fault is reported. */
  readonly from: number;
  readonly to: number;
}

/** Every way to lay hands on the fact at `seq`; `other` is another row. */
function tamperings(seq: number, other: number, isFact: (seq: number) => boolean, head: number): Tampering[] {
  const here = { from: seq, to: seq };
  const both = { from: Math.min(seq, other), to: Math.max(seq, other) };
  const change = (how: string, set: string): Tampering => ({
    how,
    sql: [`UPDATE log SET ${set} WHERE ${at(seq)}`],
    ...here,
  });
  return [
    change("another value", `entry = replace(replace(entry, '"ann"', '"bob"'), '"t"', '"u"')`),
    change("another text of the same value", "entry = entry || ' '"),
    change("another time", "at = at + 1"),
    change("no time", "at = 'now'"),
    change("no text", "entry = x'00'"),
    change("no hash", "chain = NULL"),
    change("another hash", "chain = iif(chain LIKE 'x%', 'y', 'x') || substr(chain, 2)"),
    change("another distance", "since = 1"),
    { how: "deleted", sql: [`DELETE FROM log WHERE ${at(seq)}`], ...here },
    { how: "cut off", sql: [`DELETE FROM log WHERE ${of1} AND seq >= ${seq}`], ...here },
    {
      how: "swapped",
      sql: seq === other ? swap(seq, seq === 0 ? 1 : 0) : swap(seq, other),
      ...(seq === other ? { from: 0, to: Math.max(1, seq) } : both),
    },
    { how: "inserted before", sql: insert(seq, seq), from: seq, to: seq + 1 },
    ...(isFact(other) ? [{ how: "inserted elsewhere", sql: insert(other, seq), from: other, to: other + 1 }] : []),
    { how: "inserted behind", sql: insert(head + 1, seq), from: head + 1, to: head + 1 },
    {
      how: "a fact made a frame",
      sql: [
        `UPDATE log SET chain = NULL, since = 1, entry = '{"kind":"frame","path":"","ref":{"of":"STATE_SNAPSHOT"}}' WHERE ${at(seq)}`,
      ],
      from: seq,
      to: head,
    },
  ];
}

/** Facts and frames in some order, of which the last is a fact, so that nothing behind it is nobody's. */
const log: fc.Arbitrary<NewEntry[]> = fc
  .array(fc.boolean(), { minLength: 1, maxLength: 12 })
  .map((facts) => [...facts, true].map((isFact, i) => (isFact ? memo(i) : delta(`v${i}`))));

async function twoRuns(store: EventStore, entries: readonly NewEntry[]): Promise<void> {
  for (const run of ["u1", "u2"]) {
    const lease = await begin(store, run);
    for (const entry of entries) await store.append(lease, { entries: [entry] });
    await store.append(lease, { entries: [], ends: parked });
  }
}

test("whatever is done by hand to a fact of a log, verify names the run and the entry, and nothing else", async () => {
  const drawn = fc.record({ entries: log, fact: fc.nat(), other: fc.nat(), how: fc.nat() });
  await fc.assert(
    fc.asyncProperty(drawn, async ({ entries, fact, other, how }) => {
      const place = await folder();
      const store = sqlite(place.file);
      try {
        await store.open("w");
        await twoRuns(store, entries);
        const head = entries.length + 1;
        const isFact = (seq: number) => seq < 2 || entries[seq - 2]?.kind === "memo";
        const facts = Array.from({ length: head + 1 }, (_, seq) => seq).filter(isFact);
        const all = tamperings(facts[fact % facts.length] ?? 0, other % (head + 1), isFact, head);
        const tampering = all[how % all.length];
        if (tampering === undefined) throw new Error("there is a way");
        expect((await store.verify()).faults).toEqual([]);
        await byHand(place.file, ...tampering.sql);
        const { faults } = await store.verify();
        expect(faults, tampering.how).toMatchObject([{ run: "u1", seq: expect.any(Number) }]);
        expect(faults[0]?.seq, tampering.how).toBeGreaterThanOrEqual(tampering.from);
        expect(faults[0]?.seq, tampering.how).toBeLessThanOrEqual(tampering.to);
        expect(await store.run(uid("u1"))).toMatchObject({ aside: faults[0]?.why });
        expect(await seqs(store, "u2")).toHaveLength(head + 1);
      } finally {
        await store.close();
        await place.remove();
      }
    }),
    { numRuns: 60, interruptAfterTimeLimit: 20_000 },
  );
});

test("a reader that comes with a cursor finds the first altered fact behind it, and only there", async () => {
  const place = await folder();
  const store = sqlite(place.file);
  await store.open("w");
  const entries = [memo(1), delta("a"), memo(2), delta("b"), delta("c"), memo(3), delta("d")];
  await twoRuns(store, entries);
  await byHand(place.file, `UPDATE log SET entry = replace(entry, '3', '4') WHERE ${at(7)}`);
  // Before it, and behind it from a tail that stands: what is read there was appended there.
  expect(await seqs(store, "u1", 7)).toEqual([8]);
  for (const after of [6, 5, 4, 3, 2, 1, 0, -1]) {
    await expect(seqs(store, "u1", after)).rejects.toMatchObject({ code: "ENTRY_UNREADABLE", run: "u1", seq: 7 });
  }
  expect(await seqs(store, "u2")).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  await store.close();
  await place.remove();
});

test("a log goes on in the chain that it has, over a close and another epoch", async () => {
  const place = await folder();
  let store = sqlite(place.file);
  for (let life = 0; life < 4; life++) {
    await store.open("w");
    const lease = life === 0 ? await begin(store, "u1") : await store.claim("w");
    if (lease === null) throw new Error("it is ready");
    await store.append(lease, { entries: [memo(life), delta("a"), delta("b")] });
    await store.append(lease, { entries: [delta("c"), memo(life)], ends: { ...parked, runnable: true } });
    await store.close();
    store = sqlite(place.file);
  }
  await store.open("w");
  expect(await store.verify()).toEqual({ runs: 1, entries: 2 + 4 * 5, faults: [] });
  await store.close();
  await place.remove();
});

test("a run whose own row cannot be read is a fault of its own, and verify goes on", async () => {
  const place = await folder();
  const store = sqlite(place.file);
  await store.open("w");
  await twoRuns(store, [memo(1)]);
  await byHand(place.file, "UPDATE runs SET labels = 'oops' WHERE uid = 'u2'");
  expect(await store.verify()).toEqual({
    ...{ runs: 2, entries: 3 },
    faults: [{ run: "u2", seq: null, why: expect.stringContaining("labels") }],
  });
  await store.close();
  await place.remove();
});

test.each([
  ["missing", "DELETE FROM blobs"],
  ["altered", "UPDATE blobs SET text = replace(text, 'v', 'w')"],
  ["of another type", "UPDATE blobs SET text = x'00'"],
])("a large value whose row is %s is a damaged entry of its run, and the others go on", async (_, sql) => {
  const place = await folder();
  const store = sqlite(place.file);
  await store.open("w");
  const large: NewEntry = { kind: "memo", transformer: "t", value: { deep: ["v".repeat(100_000)] } };
  const one = await begin(store, "u1");
  await store.append(one, { entries: [memo(1), large, memo(2)], ends: { ...parked, runnable: true } });
  await store.append(await begin(store, "u2"), { entries: [memo(1)], ends: { ...parked, runnable: true } });
  await byHand(place.file, sql);
  const { faults } = await store.verify();
  expect(faults).toEqual([{ run: "u1", seq: 3, why: expect.stringContaining('"/value/deep/0"') }]);
  await expect(seqs(store, "u1")).rejects.toMatchObject({ code: "ENTRY_UNREADABLE", run: "u1", seq: 3 });
  expect(await store.run(uid("u1"))).toMatchObject({ aside: faults[0]?.why });
  expect(await store.claim("w")).toMatchObject({ uid: "u2" });
  expect(await store.claim("w")).toBeNull();
  await store.close();
  await place.remove();
});

test("the same large value of many entries and runs takes its bytes once", async () => {
  const place = await folder();
  const store = sqlite(place.file);
  await store.open("w");
  const large: NewEntry = { kind: "memo", transformer: "t", value: { state: "v".repeat(100_000) } };
  for (let run = 0; run < 5; run++) {
    const lease = await begin(store, `u${run}`);
    for (let i = 0; i < 5; i++) await store.append(lease, { entries: [large] });
  }
  await store.close();
  const db = new SqliteDatabase(await loadDriver(), place.file);
  expect(db.get("SELECT count(*) AS blobs, sum(length(text)) AS bytes FROM blobs")).toEqual({
    blobs: 1,
    bytes: 100_002,
  });
  expect(db.get("SELECT max(length(entry)) < 1000 AS small FROM log")).toEqual({ small: 1 });
  db.close();
  await place.remove();
});
