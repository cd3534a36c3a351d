import { readdir, readFile, writeFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { EmbeddedStore } from "../../src/store/embedded-store.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { loadDriver, SqliteDatabase, SqliteError } from "../../src/store/sqlite-database.ts";
import { SqliteRows } from "../../src/store/sqlite-rows.ts";
import { migrate, SCHEMA_VERSION } from "../../src/store/sqlite-schema.ts";
import { SqliteWriter } from "../../src/store/sqlite-writer.ts";
import { asks, begin, delta, memo, parked, seqs, uid } from "./builders.ts";
import { folder } from "./folder.ts";

let place: Awaited<ReturnType<typeof folder>>;
beforeEach(async () => {
  place = await folder();
});
afterEach(() => place.remove());

/** One turn of the event loop. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Changes the file behind the store's back. */
async function byHand(sql: string, file = place.file): Promise<void> {
  const db = new SqliteDatabase(await loadDriver(), file);
  db.exec(sql);
  db.close();
}

describe("what is not ours is refused, and not touched", () => {
  test.each([
    ["a text", async () => writeFile(place.file, "dear diary ".repeat(1_000))],
    ["a SQLite file with other tables", async () => byHand("CREATE TABLE diary (day TEXT)")],
    ["a SQLite file of another program", async () => byHand("PRAGMA application_id = 77; CREATE TABLE t (a)")],
  ])("%s", async (_, make) => {
    await make();
    const before = await readFile(place.file);
    await expect(sqlite(place.file).open("w")).rejects.toMatchObject({ code: "NOT_A_PERDURE_STORE", file: place.file });
    expect(await readFile(place.file)).toEqual(before);
    expect(await readdir(place.dir)).toEqual(["test.db"]);
  });

  test("a store of a newer version", async () => {
    const store = sqlite(place.file);
    await store.open("w");
    await store.close();
    await byHand("PRAGMA user_version = 99");
    const before = await readFile(place.file);
    await expect(store.open("w")).rejects.toMatchObject({ code: "STORE_TOO_NEW", version: 99, known: SCHEMA_VERSION });
    expect(await readFile(place.file)).toEqual(before);
  });

  test("a name that is no file, and a folder that is not there", async () => {
    expect(() => sqlite(":memory:")).toThrow("memory()");
    await expect(sqlite(`${place.dir}/no/such.db`).open("w")).rejects.toMatchObject({ code: "STORE_FILE" });
  });

  test("without any SQLite: the error has the command to run", async () => {
    vi.resetModules();
    vi.doMock("@photostructure/sqlite", () => {
      throw new Error("not installed");
    });
    const builtin = vi.spyOn(process, "getBuiltinModule").mockReturnValue(undefined);
    try {
      const { loadDriver: load } = await import("../../src/store/sqlite-database.ts");
      await expect(load()).rejects.toMatchObject({
        code: "SQLITE_MISSING",
        message: expect.stringContaining('"npm install @photostructure/sqlite@1.2.1"'),
      });
    } finally {
      builtin.mockRestore();
      vi.doUnmock("@photostructure/sqlite");
      vi.resetModules();
    }
  });
});

describe("a run that cannot be read is set aside with its cause, and its neighbours go on", () => {
  const of1 = "run = (SELECT id FROM runs WHERE uid = 'u1')";
  test.each([
    ["text cut short", `UPDATE log SET entry = substr(entry, 1, 20) WHERE seq = 3 AND ${of1}`, "ENTRY_UNREADABLE", 3],
    ["an unknown kind", `UPDATE log SET entry = '{"kind":"zap"}' WHERE seq = 2 AND ${of1}`, "ENTRY_UNREADABLE", 2],
    [
      "a member too many",
      `UPDATE log SET entry = json_set(entry, '$.x', 1) WHERE seq = 2 AND ${of1}`,
      "ENTRY_UNREADABLE",
      2,
    ],
    ["a hole", `DELETE FROM log WHERE seq = 2 AND ${of1}`, "ENTRY_MISSING", 2],
    ["the end missing", `DELETE FROM log WHERE seq >= 3 AND ${of1}`, "ENTRY_MISSING", 3],
  ])("%s", async (_, sql, code, seq) => {
    const store = sqlite(place.file);
    await store.open("w");
    const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
    for (const lease of [one, two]) {
      await store.append(lease, { entries: [memo(1), memo(2), delta("a")], ends: { ...parked, runnable: true } });
    }
    await byHand(sql);
    const report = await store.verify();
    expect(report).toMatchObject({ runs: 2, faults: [{ run: "u1" }] });
    await expect(seqs(store, "u1")).rejects.toMatchObject({ code, run: "u1", seq });
    expect(await store.run(uid("u1"))).toMatchObject({ aside: report.faults[0]?.why });
    expect(await store.claim("w")).toMatchObject({ uid: "u2" });
    expect(await store.claim("w")).toBeNull();
    expect(await seqs(store, "u2")).toEqual([0, 1, 2, 3, 4]);
    await store.close();
  });

  test("a row of the inbox", async () => {
    const store = sqlite(place.file);
    await store.open("w");
    await begin(store, "u1");
    await store.put(uid("u1"), "ann", { kind: "cancel" });
    await byHand("UPDATE inbox SET item = '{'");
    await expect(store.inbox(uid("u1"))).rejects.toMatchObject({ code: "STORE_DAMAGED" });
    expect(await store.run(uid("u1"))).toMatchObject({ aside: expect.stringContaining("inbox row 1") });
    await store.close();
  });

  test("the run's own row", async () => {
    const store = sqlite(place.file);
    await store.open("w");
    for (const run of ["u1", "u2"]) {
      await store.append(await begin(store, run), { entries: [], ends: { ...parked, runnable: true } });
    }
    await byHand("UPDATE runs SET labels = 'oops' WHERE uid = 'u1'");
    expect(await store.claim("w")).toMatchObject({ uid: "u2" });
    expect(await store.claim("w")).toBeNull();
    await store.close();
  });

  test("a page of the file that is garbage", async () => {
    const store = sqlite(place.file);
    await store.open("w");
    const needle = "a needle ".repeat(400);
    const lease = await begin(store, "u1");
    await store.append(lease, { entries: Array.from({ length: 50 }, () => delta(needle)) });
    await begin(store, "u2");
    await store.close();
    const bytes = await readFile(place.file);
    const page = Math.floor(bytes.indexOf("a needle a needle", bytes.length / 2) / 4_096);
    await writeFile(place.file, bytes.fill(0xff, page * 4_096, (page + 1) * 4_096));

    await store.open("w");
    const { faults } = await store.verify();
    expect(faults.map(({ run }) => run)).toContain("u1");
    expect(await store.run(uid("u1"))).toMatchObject({ aside: expect.any(String) });
    expect(await store.claim("w")).toMatchObject({ uid: "u2" });
    await store.close();
  });
});

describe("the writer", () => {
  /** A store whose file may not grow beyond `pages`. */
  async function bounded(pages: number) {
    const db = new SqliteDatabase(await loadDriver(), place.file);
    migrate(db);
    db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    const rows = new SqliteRows(db, true);
    const writer = new SqliteWriter(db, () => rows.forget());
    const store = new EmbeddedStore({
      rows,
      open: async () => ({ exclusive: false, formerOwnerDead: false }),
      transact: (work, pace) => writer.transact(work, pace),
      faults: () => [],
      close: async () => db.close(),
    });
    const bound = (count: number) => db.exec(`PRAGMA max_page_count = ${count}`);
    bound(pages);
    return { store, writer, bound };
  }

  test("a commit that fails at its very end is told to nobody who watches, and the next one is", async () => {
    const { store, writer } = await bounded(1_000);
    const lease = await begin(store, "u1");
    const told: number[] = [];
    store.watch({ run: uid("u1") }, (entries = []) => told.push(...entries.map(({ seq }) => seq)));
    const run = writer.db.run.bind(writer.db);
    let isBroken = true;
    vi.spyOn(writer.db, "run").mockImplementation((sql, ...values) => {
      if (sql === "COMMIT" && isBroken) throw new SqliteError("SQLITE_IOERR", "disk I/O error", {});
      return run(sql, ...values);
    });
    await expect(store.append(lease, { entries: [memo(1)] })).rejects.toMatchObject({ code: "COMMIT_FAILED" });
    await Promise.resolve();
    expect(told).toEqual([]);
    isBroken = false;
    await store.append(lease, { entries: [memo(2)] });
    await Promise.resolve();
    expect(told).toEqual([2]);
  });

  test("a full disk fails the commit, for all who share it, with a typed error; nothing that was acknowledged is lost", async () => {
    const { store, bound } = await bounded(100);
    const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
    const big = delta("x".repeat(20_000));
    let appended = 0;
    let failed: unknown = null;
    while (failed === null) {
      const results = await Promise.allSettled([
        store.append(one, { entries: [big, memo(1)] }),
        store.append(two, { entries: [memo(1)] }),
      ]);
      const reasons = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
      if (reasons.length > 0) {
        expect(reasons).toMatchObject(Array(2).fill({ code: "COMMIT_FAILED", reason: "SQLITE_FULL" }));
        failed = reasons[0];
      } else appended += 1;
    }
    expect(appended).toBeGreaterThan(5);
    expect(await store.run(uid("u1"))).toMatchObject({ head: 1 + 2 * appended });
    expect(await seqs(store, "u2")).toHaveLength(2 + appended);
    bound(1_000);
    expect(await store.append(two, { entries: [memo(2)] })).toEqual({
      is: "appended",
      head: 2 + appended,
      at: expect.any(Number),
    });
    expect((await store.verify()).faults).toEqual([]);
    await store.close();
  });

  test("what gathers in one turn shares one commit, refusals among it", async () => {
    const { store, writer } = await bounded(10_000);
    const leases = await Promise.all(Array.from({ length: 50 }, (_, i) => begin(store, `u${i}`)));
    expect(writer.commits).toBe(1);
    const stale = { ...leases[0], epoch: 0 } as (typeof leases)[0];
    const results = await Promise.all([
      ...leases.map((lease) => store.append(lease, { entries: [memo(1)] })),
      store.append(stale, { entries: [memo(1)] }),
      store.put(uid("u1"), "ann", { kind: "cancel" }),
    ]);
    expect(writer.commits).toBe(2);
    expect(results.slice(50)).toEqual([{ is: "fenced" }, "put"]);
    await store.close();
  });

  test("frames alone wait, and go with the first fact, in their order", async () => {
    const { store, writer } = await bounded(10_000);
    const lease = await begin(store, "u1");
    const before = writer.commits;
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const frames = () => [1, 2].map((n) => store.append(lease, { entries: [delta(String(n))] }));
      const waiting = frames();
      await turn();
      expect(writer.commits).toBe(before);
      const fact = store.append(lease, { entries: [memo(1)] });
      expect(await Promise.all([...waiting, fact])).toMatchObject([{ head: 2 }, { head: 3 }, { head: 4 }]);
      expect(writer.commits).toBe(before + 1);
      const alone = frames();
      await turn();
      expect(writer.commits).toBe(before + 1);
      vi.advanceTimersByTime(250);
      expect(await Promise.all(alone)).toMatchObject([{ head: 5 }, { head: 6 }]);
      expect(writer.commits).toBe(before + 2);
    } finally {
      vi.useRealTimers();
    }
    await store.close();
  });

  test("what waits when the store is closed is committed first", async () => {
    const store = sqlite(place.file);
    await store.open("w");
    const lease = await begin(store, "u1");
    const waiting = store.append(lease, { entries: [delta("last words")] });
    await store.close();
    expect(await waiting).toMatchObject({ is: "appended", head: 2 });
    await store.open("w");
    expect(await seqs(store, "u1")).toEqual([0, 1, 2]);
    await store.close();
  });
});

test("an inbox row, an open question and a lease are there after a close; the lease is void", async () => {
  const store = sqlite(place.file);
  await store.open("w");
  await begin(store, "u1", { more: [asks("i1")] });
  await store.put(uid("u1"), "ann", { kind: "cancel" });
  await store.close();
  await store.open("w");
  expect(await store.inbox(uid("u1"))).toMatchObject([{ kind: "cancel" }]);
  expect((await store.questions({ tenant: "acme" })).items).toHaveLength(1);
  expect(await store.claim("w")).toMatchObject({ uid: "u1", epoch: 2 });
  await store.close();
});
