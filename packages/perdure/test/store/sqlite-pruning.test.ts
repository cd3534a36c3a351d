import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { NewEntry } from "../../src/log/entries.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { BLOB_COLUMNS, hasBlobs, PRUNABLE } from "../../src/store/sqlite-schema.ts";
import type { EventStore } from "../../src/store/store.ts";
import { begin, delta, legFinished, memo, parked, path, runFinished, seqs, thread, uid } from "./builders.ts";
import { folder } from "./folder.ts";
import { transcript } from "./pruning.ts";

let place: Awaited<ReturnType<typeof folder>>;
beforeEach(async () => {
  place = await folder();
});
afterEach(() => place.remove());

async function inFile<T>(work: (db: SqliteDatabase) => T): Promise<T> {
  const db = new SqliteDatabase(await loadDriver(), place.file);
  try {
    return work(db);
  } finally {
    db.close();
  }
}

async function ended(store: EventStore, run: string, turn: number, entries: readonly NewEntry[]): Promise<number> {
  const lease = await begin(store, run, { key: thread("t"), turn });
  await store.append(lease, { entries: [...entries, legFinished(1), runFinished], ends: parked });
  return (await store.run(uid(run)))?.head ?? Number.NaN;
}

const shows = (value: string): NewEntry => ({
  ...{
    kind: "frame",
    path: path(""),
    event: { type: "CUSTOM", name: "large", value: { text: value.repeat(100_000) } },
  },
});

test("the rows of frames and of large values that nothing else has are deleted, and their pages are used again", async () => {
  const store = sqlite(place.file);
  await store.open("w");
  const frames = Array.from({ length: 2_000 }, () => delta("x".repeat(200)));
  const theirs = await ended(store, "u1", 1, [shows("a"), memo(1)]);
  const head = await ended(store, "u2", 2, [...frames, shows("a"), shows("b"), memo(1)]);
  const used = (): Promise<number> =>
    inFile((db) => Number(db.pragma("page_count")) - Number(db.pragma("freelist_count")));
  const before = await used();
  await store.prune(uid("u2"), head, transcript);
  const after = await used();
  expect(after).toBeLessThan(before / 2);
  expect(await inFile((db) => db.get("SELECT count(*) AS n FROM blobs"))).toEqual({ n: 1 });
  expect(await inFile((db) => db.get("SELECT count(*) AS n FROM log WHERE chain IS NULL"))).toEqual({ n: 1 });
  await store.prune(uid("u1"), theirs, transcript);
  expect(await inFile((db) => db.get("SELECT count(*) AS n FROM blobs"))).toEqual({ n: 0 });

  const pages = await inFile((db) => Number(db.pragma("page_count")));
  await ended(store, "u3", 3, [...frames, shows("c")]);
  expect(await inFile((db) => Number(db.pragma("page_count")))).toBeLessThanOrEqual(pages);
  await store.close();
});

test("what pruning asks is answered by an index, however large the file is", async () => {
  const store = sqlite(place.file);
  await store.open("w");
  await store.close();
  const plan = (sql: string): Promise<string> =>
    inFile((db) =>
      db
        .all(`EXPLAIN QUERY PLAN ${sql}`, ...(sql.includes("?") ? ["h"] : []))
        .map((row) => String(row.detail))
        .join("; "),
    );
  for (const [table, column] of BLOB_COLUMNS) {
    const found = await plan(`SELECT 1 FROM ${table} WHERE ${hasBlobs(column)} AND instr(${column}, ?) > 0 LIMIT 1`);
    expect(found).toMatch(/USING INDEX \w+_blobs/);
  }
  expect(await plan(`SELECT * FROM runs WHERE ${PRUNABLE} ORDER BY id DESC`)).toContain("runs_prunable");
});

test("of a pruned log, too, whatever is done by hand to a fact is named by run and entry", async () => {
  const drawn = fc.record({
    facts: fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
    which: fc.nat(),
    how: fc.constantFrom("deleted", "altered", "moved", "cut off", "a frame again"),
  });
  await fc.assert(
    fc.asyncProperty(drawn, async ({ facts, which, how }) => {
      const own = await folder();
      const store = sqlite(own.file);
      try {
        await store.open("w");
        for (const [i, run] of ["u1", "u2"].entries()) {
          const entries = facts.map((isFact, n) => (isFact ? memo(n) : delta("a")));
          await store.prune(uid(run), await ended(store, run, i + 1, entries), transcript);
        }
        expect((await store.verify()).faults).toEqual([]);
        const left = await seqs(store, "u1");
        const seq = left[which % left.length] ?? 0;
        const of1 = "run = (SELECT id FROM runs WHERE uid = 'u1')";
        const at = `${of1} AND seq = ${seq}`;
        const sql = {
          deleted: `DELETE FROM log WHERE ${at}`,
          altered: `UPDATE log SET at = at + 1 WHERE ${at}`,
          moved: `UPDATE log SET seq = 1000 WHERE ${at}`,
          "cut off": `DELETE FROM log WHERE ${of1} AND seq >= ${seq}`,
          "a frame again": `UPDATE log SET chain = NULL, since = 1, entry = '{"kind":"frame","path":"","ref":{"of":"STATE_SNAPSHOT"}}' WHERE ${at}`,
        }[how];
        const db = new SqliteDatabase(await loadDriver(), own.file);
        db.exec(sql);
        db.close();
        expect((await store.verify()).faults, how).toMatchObject([{ run: "u1", seq: expect.any(Number) }]);
        expect(await seqs(store, "u2")).toEqual(left);
      } finally {
        await store.close();
        await own.remove();
      }
    }),
    { numRuns: 40, interruptAfterTimeLimit: 20_000 },
  );
});

test("a store of the version before pruning is upgraded, with its runs", async () => {
  const store = sqlite(place.file);
  await store.open("w");
  const head = await ended(store, "u1", 1, [delta("a"), memo(1)]);
  await store.close();
  await inFile((db) => {
    // What later versions have added.
    db.exec("DROP TABLE queue; DROP INDEX runs_parent");
    for (const column of ["parent", "parent_path"]) db.exec(`ALTER TABLE runs DROP COLUMN ${column}`);
    for (const index of [
      "runs_prunable",
      "log_blobs",
      "questions_blobs",
      "answers_blobs",
      "claims_blobs",
      "blobs_blobs",
    ])
      db.exec(`DROP INDEX ${index}`);
    db.exec("ALTER TABLE runs DROP COLUMN pruned; PRAGMA user_version = 1");
  });
  await store.open("w");
  expect(await seqs(store, "u1")).toHaveLength(head + 1);
  expect(await store.prune(uid("u1"), head, transcript)).toBe("pruned");
  expect((await store.verify()).faults).toEqual([]);
  await store.close();
});
