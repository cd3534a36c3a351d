import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { kinds, memo, uid } from "./builders.ts";
import { folder } from "./folder.ts";
import { transcript } from "./pruning.ts";

let place: Awaited<ReturnType<typeof folder>>;
beforeEach(async () => {
  place = await folder();
});
afterEach(() => place.remove());

/** Starts the child and gives its output line by line. */
function startChild(script = new URL("./crash-child.ts", import.meta.url), ...more: readonly string[]) {
  const child = spawn(process.execPath, ["--import", "tsx", fileURLToPath(script), place.file, ...more], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines: string[] = [];
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const parts = (rest + text).split("\n");
    rest = parts.pop() ?? "";
    lines.push(...parts);
  });
  const until = async (count: number) => {
    while (lines.length < count) await once(child.stdout, "data");
  };
  const kill = async () => {
    const closed = once(child, "close");
    child.kill("SIGKILL");
    await closed;
  };
  return { child, lines, until, kill };
}

test.each([
  [40, "power"],
  [400, "power"],
  [1_500, "power"],
  [400, "process"],
  [1_500, "process"],
])(
  "killed with SIGKILL after %i acknowledged batches (durability: %s): all of them are there, none is there by half, and the runs go on",
  async (count, durability) => {
    const { lines, until, kill } = startChild(undefined, durability);
    await until(1 + count);
    await kill();

    const store = sqlite(place.file);
    expect(await store.open("next")).toEqual({ formerOwnerDead: true });
    const acknowledged = new Map(lines.slice(1).map((line) => [line.split(" ")[0], Number(line.split(" ")[2])]));
    expect(lines.length).toBeGreaterThan(count);
    for (const [run, head] of acknowledged) {
      const entries: Entry[] = [];
      for await (const entry of store.read(uid(run ?? ""), -1)) entries.push(entry);
      expect(entries.length).toBeGreaterThan(head);
      const batches = entries.slice(2).map((entry) => (entry.kind === "memo" ? entry.value : null));
      expect(batches).toEqual(batches.map((_, i) => (i % 3 === 1 ? null : Math.floor(i / 3))));
      expect(batches.length % 3).toBe(0);
    }
    expect((await store.verify()).faults).toEqual([]);
    const lease = await store.claim("next");
    if (lease === null) throw new Error("the leases of a dead owner are void");
    expect(lease.epoch).toBe(2);
    expect(await store.append(lease, { entries: [memo(-1)] })).toMatchObject({ is: "appended" });
    await store.close();
  },
);

test.each([3, 40, 150])(
  "killed with SIGKILL after %i runs were pruned: each run is whole or pruned, none by half, and pruning goes on",
  async (count) => {
    const { lines, until, kill } = startChild(new URL("./prune-child.ts", import.meta.url));
    await until(1 + count);
    await kill();

    const store = sqlite(place.file);
    await store.open("next");
    const told = new Set(lines.slice(1).map((line) => line.split(" ")[0]));
    let pruned = 0;
    for (const { uid: run, pruned: last } of (await store.runs({ tenant: "acme", limit: 500 })).items) {
      const found = await kinds(store, run);
      const isPruned = last !== null;
      expect(found.filter((kind) => kind === "frame")).toHaveLength(isPruned ? 0 : 40);
      expect(found.filter((kind) => kind === "transcript")).toHaveLength(isPruned ? 1 : 0);
      expect(found.filter((kind) => kind === "memo")).toHaveLength(20);
      if (told.has(run)) expect(isPruned).toBe(true);
      if (isPruned) pruned += 1;
    }
    expect(pruned).toBeGreaterThanOrEqual(count);
    expect(pruned).toBeLessThan(200);
    expect((await store.verify()).faults).toEqual([]);
    expect(await store.prune(uid("k199"), 63, transcript)).toBe("pruned");
    await store.close();
  },
);

test.each([
  [undefined, 2],
  ["power", 2],
  ["process", 1],
] as const)("durability %s is SQLite's synchronous=%i, also for a visitor", async (durability, synchronous) => {
  const exec = vi.spyOn(SqliteDatabase.prototype, "exec");
  onTestFinished(() => exec.mockRestore());
  for (const access of ["drive", "visit"] as const) {
    exec.mockClear();
    const store = sqlite(place.file, { access, ...(durability !== undefined && { durability }) });
    await store.open(access);
    expect((exec.mock.contexts.at(-1) as SqliteDatabase | undefined)?.pragma("synchronous")).toBe(synchronous);
    await store.close();
  }
});

test("a second process gets an error that names the first, and can look on; when the first is killed, it gets the file", async () => {
  const { child, until, kill } = startChild();
  await until(20);
  const store = sqlite(place.file);
  await expect(store.open("second")).rejects.toMatchObject({ code: "STORE_LOCKED", pid: child.pid });

  const onlooker = sqlite(place.file, { access: "read" });
  await onlooker.open("onlooker");
  expect((await onlooker.runs({ tenant: "acme" })).items.length).toBeGreaterThan(0);
  await expect(onlooker.put(uid("k1"), "ann", { kind: "cancel" })).rejects.toMatchObject({ code: "STORE_READ_ONLY" });
  await onlooker.close();

  await kill();
  expect(await store.open("second")).toEqual({ formerOwnerDead: true });
  await store.close();
  expect(await store.open("second")).toEqual({ formerOwnerDead: false });
  await store.close();
});
