import { expect, test } from "vitest";
import type { NewEntry } from "../../src/log/entries.ts";
import type { EventStore, Lease } from "../../src/store/store.ts";
import {
  ann,
  asks,
  begin,
  type Clock,
  kinds,
  legFinished,
  legStarted,
  look,
  memo,
  no,
  parked,
  path,
  post,
  request,
  runFinished,
  says,
  started,
  thread,
  uid,
  yes,
} from "./builders.ts";
import { transcript } from "./pruning.ts";

const key = thread("t");

/** The first entries of a child. */
function firstOf(child: string, parent: string, more: readonly NewEntry[] = []): readonly NewEntry[] {
  const begun = started(child, key, { agent: "clerk", parent: { uid: uid(parent), path: path("1.0") } });
  return [{ ...begun, thread: null }, legStarted(1, request("c.1", { messages: [says(`u of ${child}`)] })), ...more];
}

const says1 = (text: string): NewEntry[] => [
  { kind: "frame", path: path(""), ref: { of: "RUN_STARTED", leg: 1 } },
  { kind: "frame", path: path("0"), event: { type: "TEXT_MESSAGE_START", messageId: "a", role: "assistant" } },
  { kind: "frame", path: path("0"), event: { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: text } },
  { kind: "frame", path: path("0"), event: { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: "!" } },
];

/** What every store owes to runs that begin others. */
export function children(at: { store(): EventStore; reopen(): Promise<unknown>; clock(): Clock }): void {
  /** A run on the thread, and its child, both driven. */
  async function family(more: readonly NewEntry[] = []): Promise<{ parent: Lease; child: Lease }> {
    const parent = await begin(at.store(), "p", { key });
    await at.store().append(parent, { entries: [memo(1)], starts: [firstOf("c", "p", more)] });
    const child = await at.store().claim("w1");
    if (child === null) throw new Error("a child is claimable from the beginning");
    return { parent, child };
  }
  const rests = async (lease: Lease, entries: readonly NewEntry[] = []) =>
    (await at.store().append(lease, { entries, ends: parked })).is;

  test("a child begins with its parent's batch, claimable, of no thread; with a batch that is refused it does not", async () => {
    const parent = await begin(at.store(), "p", { key });
    const refused = at.store().append({ ...parent, epoch: 0 }, { entries: [memo(1)], starts: [firstOf("c", "p")] });
    expect((await refused).is).toBe("fenced");
    expect(await at.store().run(uid("c"))).toBeNull();

    await at.store().append(parent, { entries: [memo(1)], starts: [firstOf("c", "p")] });
    for (const look of [async () => {}, () => at.reopen()]) {
      await look();
      expect(await at.store().run(uid("c"))).toMatchObject({
        ...{ thread: null, agent: "clerk", tenant: "acme", subject: "ann", turn: 1, outcome: null },
        parent: { uid: "p", path: "1.0" },
      });
      expect(await kinds(at.store(), "c")).toEqual(["run.started", "leg.started"]);
    }
    expect((await at.store().runs({ tenant: "acme", parent: uid("p") })).items.map(({ uid }) => uid)).toEqual(["c"]);
    expect((await at.store().runs({ tenant: "acme", thread: "t" })).items.map(({ uid }) => uid)).toEqual(["p"]);
  });

  test("a child that is there cannot begin again, nor one that names another parent", async () => {
    const { parent } = await family();
    const again = at.store().append(parent, { entries: [memo(2)], starts: [firstOf("c", "p")] });
    await expect(again).rejects.toMatchObject({ code: "STORE_MISUSED" });
    const others = at.store().append(parent, { entries: [memo(2)], starts: [firstOf("d", "q")] });
    await expect(others).rejects.toMatchObject({ code: "STORE_MISUSED" });
    expect(await kinds(at.store(), "p")).toEqual(["run.started", "leg.started", "memo"]);
    expect(await at.store().run(uid("d"))).toBeNull();
  });

  test("nobody rests over a child that has moved since it was read, or is about to", async () => {
    const { parent, child } = await family();
    const resting = async (head: number) =>
      (await at.store().append(parent, { entries: [], ends: { ...parked, children: [{ uid: uid("c"), head }] } })).is;
    expect(await resting(1)).toBe("inbox"); // it is driven
    await at.store().append(child, { entries: [asks("q")] });
    expect(await rests(child)).toBe("appended");
    expect(await resting(1)).toBe("inbox"); // it has gone on
    await at.store().answer(yes("q"));
    expect(await resting(2)).toBe("inbox"); // it is about to
    const again = await at.store().claim("w1");
    const [row] = await at.store().inbox(uid("c"));
    await at.store().append(again as Lease, { entries: [memo(1)], taken: [row?.row ?? 0], ends: parked });
    expect(await resting(3)).toBe("appended");
    expect(await at.store().claim("w1")).toBeNull();
  });

  test.each([
    ["an answer to its question", async (store: EventStore): Promise<void> => void (await store.answer(no("q")))],
    [
      "what is put to it",
      async (store: EventStore): Promise<void> => void (await store.put(uid("c"), "ann", { kind: "cancel" })),
    ],
    ["its being set aside", (store: EventStore): Promise<void> => store.setAside(uid("c"), "damaged")],
  ] as const)("%s wakes the run above it", async (_, happens) => {
    const { parent, child } = await family();
    await rests(child, [asks("q")]);
    await rests(parent);
    expect(await at.store().claim("w1")).toBeNull();
    await happens(at.store());
    const woken = [await at.store().claim("w1"), await at.store().claim("w1")].map((lease) => lease?.uid);
    expect(woken).toContain("p");
  });

  test("so does its end, and its timer, when somebody takes it", async () => {
    const { parent, child } = await family();
    await rests(parent);
    expect(await rests(child, [legFinished(1), runFinished])).toBe("appended");
    expect((await at.store().claim("w1"))?.uid).toBe("p");
    expect(await at.store().claim("w1")).toBeNull();
  });

  test("a child's timer wakes both", async () => {
    const { parent, child } = await family();
    await at.store().append(child, { entries: [], ends: { ...parked, wakeAt: at.clock().now() + 500 } });
    await rests(parent);
    expect(await at.store().claim("w1")).toBeNull();
    at.clock().tick(500);
    const woken = [await at.store().claim("w1"), await at.store().claim("w1"), await at.store().claim("w1")];
    expect(woken.map((lease) => lease?.uid)).toEqual(["c", "p", undefined]);
  });

  test("a request to the thread finds the child's questions, as asked by it, and answers them", async () => {
    const { parent, child } = await family();
    await rests(child, [asks("q")]);
    await rests(parent, [legFinished(1)]);
    const before = await look(at.store(), key);
    expect(before.open).toMatchObject([{ id: "q", subagentRunId: "c" }]);
    expect(before.closed("q")).toBeNull();
    const asked = request("r2", { resume: [{ interruptId: "q", status: "resolved", payload: { approved: true } }] });
    await post(at.store(), key, "r2", () => ({ is: "leg", uid: uid("p"), answers: [yes("q")], request: asked }));
    expect(await at.store().inbox(uid("c"))).toMatchObject([{ kind: "answer", interrupt: "q" }]);
    expect(await at.store().inbox(uid("p"))).toMatchObject([{ kind: "request" }]);
    const after = await look(at.store(), key);
    expect(after.open).toEqual([]);
    expect(after.closed("q")).toMatchObject({ status: "resolved", by: ann.subject });
    const other = thread("other");
    await begin(at.store(), "o", { key: other });
    expect((await look(at.store(), other)).closed("q")).toBeNull();
  });

  test("what a child has shown comes with the references to it, wherever one begins to read; it is stored once", async () => {
    const { parent, child } = await family(says1("a long text"));
    const ref = (from: number, to = from): NewEntry => ({
      ...{ kind: "frame", path: path("1.0.0"), ref: { of: "CHILD", uid: uid("c"), from, to } },
    });
    await at.store().append(parent, { entries: [ref(3), ref(4, 5)] });
    const shown = async (after: number) => {
      const found: unknown[] = [];
      for await (const entry of at.store().read(uid("p"), after)) if ("shown" in entry) found.push(entry.shown);
      return found;
    };
    const whole = { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: "a long text!" };
    expect(await shown(-1)).toMatchObject([{ type: "TEXT_MESSAGE_START" }, whole]);
    expect(await shown(3)).toEqual([whole]);
    await at.reopen();
    expect(await shown(-1)).toMatchObject([{ type: "TEXT_MESSAGE_START" }, whole]);
    expect(await at.store().verify()).toMatchObject({ faults: [] });
    expect(child.uid).toBe("c");
  });

  test("a child keeps its frames while its parent's refer to them; then both can be pruned", async () => {
    const { parent, child } = await family(says1("x"));
    await at.store().append(parent, {
      entries: [{ kind: "frame", path: path("1.0.0"), ref: { of: "CHILD", uid: uid("c"), from: 3, to: 3 } }],
    });
    await rests(child, [legFinished(1), runFinished]);
    const prunable = async () => (await at.store().runs({ tenant: null, prunable: true })).items.map((run) => run.uid);
    expect(await prunable()).toEqual([]);
    await rests(parent, [legFinished(1), runFinished]);
    expect(await prunable()).toEqual(["p"]);
    const headOf = async (name: string) => (await at.store().run(uid(name)))?.head ?? -1;
    expect(await at.store().prune(uid("c"), await headOf("c"), transcript)).toBe("shown");
    expect(await at.store().prune(uid("p"), await headOf("p"), transcript)).toBe("pruned");
    expect(await prunable()).toEqual(["c"]);
    expect(await at.store().prune(uid("c"), await headOf("c"), transcript)).toBe("pruned");
    expect(await at.store().verify()).toMatchObject({ faults: [] });
  });
}
