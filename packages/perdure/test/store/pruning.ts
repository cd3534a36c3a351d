import { expect, test } from "vitest";
import type { Fact, NewEntry } from "../../src/log/entries.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { EventStore } from "../../src/store/store.ts";
import {
  answered,
  asks,
  begin,
  delta,
  kinds,
  legFinished,
  memo,
  parked,
  path,
  runFinished,
  seqs,
  thread,
  uid,
  yes,
} from "./builders.ts";

export const transcript: Fact<"transcript"> = { kind: "transcript", messages: [{ brought: 0 }] };

const large = (name: string) => ({ [name]: "v".repeat(100_000) });
const shows = (value: Json): NewEntry => ({
  ...{ kind: "frame", path: path(""), event: { type: "CUSTOM", name: "large", value } },
});

/** What every store owes when it is asked to prune. */
export function pruning(at: { store(): EventStore; reopen(): Promise<unknown> }): void {
  /** run.started, leg.started, then these, then the end: leg.finished, a frame, run.finished. @returns the head */
  async function ended(run: string, entries: readonly NewEntry[], turn = 1): Promise<number> {
    const lease = await begin(at.store(), run, { key: thread("t"), turn });
    await at.store().append(lease, {
      entries: [...entries, legFinished(1), delta("end"), runFinished],
      ends: parked,
    });
    return (await at.store().run(uid(run)))?.head ?? Number.NaN;
  }

  test("the frames are gone, the facts keep their places, the transcript stands behind them; also after reopening", async () => {
    const head = await ended("u1", [delta("a"), memo(1), delta("b"), delta("c"), memo(2)]);
    expect(await at.store().run(uid("u1"))).toMatchObject({ head: 9, pruned: null });
    expect(await at.store().prune(uid("u1"), head, transcript)).toBe("pruned");
    for (const look of [async () => {}, () => at.reopen()]) {
      await look();
      expect(await seqs(at.store(), "u1")).toEqual([0, 1, 3, 6, 7, 9, 10]);
      expect(await kinds(at.store(), "u1")).toEqual([
        ...["run.started", "leg.started", "memo", "memo", "leg.finished", "run.finished", "transcript"],
      ]);
      expect(await at.store().run(uid("u1"))).toMatchObject({ head: 10, pruned: 8, outcome: "success" });
      expect(await at.store().verify()).toMatchObject({ entries: 7, faults: [] });
    }
  });

  test("a reader goes on from any place, also from one that is gone, and over the pages of a long log", async () => {
    const entries = Array.from({ length: 2_000 }, (_, i) => (i % 3 === 0 ? memo(i) : delta("a")));
    const head = await ended("u1", entries);
    await at.store().prune(uid("u1"), head, transcript);
    const left = await seqs(at.store(), "u1");
    expect(left).toHaveLength(2 + Math.ceil(2_000 / 3) + 3);
    for (const after of [0, 1, 2, 3, 4, 5, 700, 701, 702, head - 1, head, head + 1]) {
      expect(await seqs(at.store(), "u1", after)).toEqual(left.filter((seq) => seq > after));
    }
  });

  test("one that reads while it is pruned gets every fact, in order, and the transcript", async () => {
    const entries = Array.from({ length: 1_000 }, (_, i) => (i % 2 === 0 ? memo(i) : delta("a")));
    const head = await ended("u1", entries);
    const found: [number, string][] = [];
    for await (const { seq, kind } of at.store().read(uid("u1"), -1)) {
      if (seq === 100) await at.store().prune(uid("u1"), head, transcript);
      found.push([seq, kind]);
    }
    const facts = found.filter(([, kind]) => kind !== "frame");
    expect(facts.map(([seq]) => seq)).toEqual(await seqs(at.store(), "u1"));
    expect(found.at(-1)).toEqual([head + 1, "transcript"]);
  });

  test("again, it changes nothing", async () => {
    const head = await ended("u1", [delta("a")]);
    await at.store().prune(uid("u1"), head, transcript);
    expect(await at.store().prune(uid("u1"), head + 1, transcript)).toBe("already");
    expect(await at.store().run(uid("u1"))).toMatchObject({ head: head + 1 });
  });

  test("nothing is removed of a run that is not over, is not there, goes on behind the transcript, or is driven", async () => {
    await begin(at.store(), "u1", { more: [delta("a")] });
    expect(await at.store().prune(uid("u1"), 2, transcript)).toBe("unfinished");
    expect(await at.store().prune(uid("u9"), 2, transcript)).toBe("none");
    const head = await ended("u2", [delta("a"), asks("i1", { kind: "unknown-write" })]);
    expect(await at.store().prune(uid("u2"), head - 1, transcript)).toBe("moved");
    await at.store().answer(yes("i1"));
    const lease = await at.store().claim("w1");
    expect(lease).toMatchObject({ uid: "u2" });
    expect(await at.store().prune(uid("u2"), head, transcript)).toBe("driven");
    expect(await seqs(at.store(), "u1")).toEqual([0, 1, 2]);
    expect(await seqs(at.store(), "u2")).toEqual(Array.from({ length: head + 1 }, (_, i) => i));
  });

  test("the late answer to a question that outlived its run is appended behind the transcript", async () => {
    const head = await ended("u1", [delta("a"), asks("i1", { kind: "unknown-write" })]);
    await at.store().prune(uid("u1"), head, transcript);
    await at.store().answer(yes("i1"));
    const lease = await at.store().claim("w1");
    if (lease === null) throw new Error("it was woken");
    const [row] = await at.store().inbox(uid("u1"));
    const entries = [answered("i1", "resolved", { payload: { approved: true } })];
    expect(await at.store().append(lease, { entries, taken: [row?.row ?? -1], ends: parked })).toMatchObject({
      is: "appended",
      head: head + 2,
    });
    expect((await kinds(at.store(), "u1")).slice(-2)).toEqual(["transcript", "interrupt.answered"]);
    expect((await at.store().verify()).faults).toEqual([]);
  });

  test("a transcript that cannot be written leaves everything as it is", async () => {
    const head = await ended("u1", [delta("a"), shows(large("a"))]);
    const bad = { ...transcript, shown: 1n } as unknown as typeof transcript;
    await expect(at.store().prune(uid("u1"), head, bad)).rejects.toMatchObject({ code: "NOT_JSON" });
    const tooLarge = { ...transcript, shown: "v".repeat(5 * 1024 * 1024) };
    await expect(at.store().prune(uid("u1"), head, tooLarge)).rejects.toMatchObject({ code: "PAYLOAD_TOO_LARGE" });
    expect(await seqs(at.store(), "u1")).toEqual(Array.from({ length: head + 1 }, (_, i) => i));
    expect(await at.store().run(uid("u1"))).toMatchObject({ pruned: null, head });
  });

  test("large values go with the frames that had them, unless something else has them too", async () => {
    // The same value of another run's frame, of a fact, and of a question.
    await ended("u1", [shows(large("theirs"))]);
    const inside = { deep: [large("a"), "w".repeat(100_000)] };
    const head = await ended(
      "u2",
      [
        ...[shows(large("theirs")), shows(large("mine")), shows(inside)],
        { kind: "memo", transformer: "t", value: { kept: large("fact") } },
        ...[shows(large("fact")), asks("i1", { schema: large("asked") }), shows(large("asked"))],
      ],
      2,
    );
    expect(await at.store().prune(uid("u2"), head, { ...transcript, shown: large("shown") })).toBe("pruned");
    expect(await at.store().verify()).toMatchObject({ faults: [] });
    expect(await at.store().question("i1")).toMatchObject({ interrupt: { schema: large("asked") } });
    const first = [];
    for await (const entry of at.store().read(uid("u1"), -1)) first.push(entry);
    expect(first).toContainEqual(expect.objectContaining(shows(large("theirs"))));
  });

  test("runs that are over and have their frames can be listed", async () => {
    const head = await ended("u1", [delta("a")]);
    await ended("u2", [delta("a")], 2);
    await begin(at.store(), "u3", { key: thread("t2") });
    await ended("u4", [delta("a")], 3);
    await at.store().setAside(uid("u4"), "damaged");
    const list = async () => (await at.store().runs({ tenant: null, prunable: true })).items.map(({ uid: u }) => u);
    expect(await list()).toEqual(["u2", "u1"]);
    await at.store().prune(uid("u1"), head, transcript);
    expect(await list()).toEqual(["u2"]);
  });
}
