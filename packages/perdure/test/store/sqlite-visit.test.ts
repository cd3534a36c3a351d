/** Putting something into a file while nobody drives it, for whoever will. */
import { expect, it, onTestFinished } from "vitest";
import { sqlite } from "../../src/store/sqlite.ts";
import { begin, parked, uid } from "./builders.ts";
import { folder } from "./folder.ts";

async function place() {
  const made = await folder();
  onTestFinished(made.remove);
  return made;
}

it("what a visitor puts is there for the next driver, who still learns that the former one went without a word", async () => {
  const { file, dir } = await place();
  const { copyFile } = await import("node:fs/promises");
  const died = sqlite(file);
  await died.open("died");
  const lease = await begin(died, "u1");
  await died.append(lease, { entries: [], ends: parked });
  // What a process leaves when it dies, as it lies there; the copy has no owner.
  const left = `${dir}/left.db`;
  for (const part of ["", "-wal"]) await copyFile(file + part, left + part);
  await died.close();

  const visitor = sqlite(left, { access: "visit" });
  expect(await visitor.open("visitor")).toEqual({ formerOwnerDead: false });
  expect(await visitor.put(uid("u1"), "ann", { kind: "cancel" })).toBe("put");
  await visitor.close();

  const next = sqlite(left);
  expect(await next.open("next")).toEqual({ formerOwnerDead: true });
  expect(await next.inbox(uid("u1"))).toMatchObject([{ kind: "cancel", by: "ann" }]);
  expect(await next.claim("next")).toMatchObject({ uid: "u1" });
  await next.close();
});

it("a visitor and a driver keep each other out, and a visitor makes no file", async () => {
  const { file } = await place();
  await expect(sqlite(file, { access: "visit" }).open("v")).rejects.toMatchObject({ code: "SQLITE_ERROR" });
  const driver = sqlite(file);
  await driver.open("driver");
  await expect(sqlite(file, { access: "visit" }).open("v")).rejects.toMatchObject({ code: "STORE_LOCKED" });
  await driver.close();
  const visitor = sqlite(file, { access: "visit" });
  await visitor.open("v");
  await expect(sqlite(file).open("driver")).rejects.toMatchObject({ code: "STORE_LOCKED" });
  await visitor.close();
  await driver.open("driver");
  await driver.close();
});
