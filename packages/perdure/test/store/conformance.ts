import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import type { StoreOptions } from "../../src/store/engine.ts";
import type { Batch, EventStore, Lease } from "../../src/store/store.ts";
import {
  ann,
  answered,
  asks,
  begin,
  bob,
  Clock,
  clientCall,
  clientCallEnds,
  delta,
  hash,
  headless,
  kinds,
  legFinished,
  legStarted,
  look,
  memo,
  no,
  nothing,
  parked,
  path,
  post,
  request,
  runFinished,
  says,
  seqs,
  started,
  thread,
  uid,
  yes,
} from "./builders.ts";
import { children } from "./children.ts";
import { largeValues } from "./large-values.ts";
import { pruning } from "./pruning.ts";

/** How a store under test is made, and made again over what it kept. */
export interface Medium {
  open(options: StoreOptions): EventStore;
  dispose(): Promise<void>;
}

/** What every store owes: run it over each. */
export function storeConformance(name: string, medium: () => Promise<Medium>): void {
  describe(`${name} keeps the store's contract`, () => {
    let clock: Clock;
    let place: Medium;
    let store: EventStore;

    beforeEach(async () => {
      clock = new Clock();
      place = await medium();
      store = place.open({ clock: clock.now, leaseMs: 1_000, claimTtl: 5_000 });
      await store.open("w1");
    });
    afterEach(async () => {
      await store.close();
      await place.dispose();
    });

    async function reopen(owner = "w1") {
      await store.close();
      store = place.open({ clock: clock.now, leaseMs: 1_000, claimTtl: 5_000 });
      return store.open(owner);
    }
    const append = (lease: Lease, entries: NewEntry[], more: Omit<Batch, "entries"> = {}) =>
      store.append(lease, { entries, ...more });
    const take = async (run: string) => (await store.inbox(uid(run))).map(({ row }) => row);

    describe("append", () => {
      test("gives entries of all kinds back as they were written, with seq from 0 and the clock's time", async () => {
        const lease = await begin(store, "u1");
        clock.tick(5);
        const entries: NewEntry[] = [delta("Hé \u0000 \ud83d\ude00"), memo(1), asks("i1"), clientCall("c1", "1.1")];
        expect(await append(lease, entries)).toEqual({ is: "appended", head: 5, at: 1_005 });
        const read = [];
        for await (const entry of store.read(uid("u1"), 1)) read.push(entry);
        expect(read).toEqual(entries.map((entry, i) => ({ ...entry, seq: i + 2, at: 1_005 })));
      });

      test("a stale epoch appends nothing and changes no row", async () => {
        const old = await begin(store, "u1");
        clock.tick(1_001);
        const lease = await store.claim("w2");
        expect(lease).toMatchObject({ uid: "u1", epoch: 2 });
        expect(await append(old, [memo(1), asks("i1")], { ends: parked })).toEqual({ is: "fenced" });
        expect(await seqs(store, "u1")).toEqual([0, 1]);
        expect(await store.question("i1")).toBeNull();
        expect(await store.run(uid("u1"))).toMatchObject({ owner: "w2", head: 1 });
      });

      test("a lease that was given back appends nothing", async () => {
        const lease = await begin(store, "u1");
        await append(lease, [], { ends: { ...parked, runnable: true } });
        expect(await append(lease, [memo(1)])).toEqual({ is: "fenced" });
      });

      test("a batch that was to follow another entry than the last appends nothing and changes no row", async () => {
        const lease = await begin(store, "u1");
        for (const behind of [-1, 0, 2, 3]) {
          expect(await append(lease, [memo(1), asks("i1")], { behind, ends: parked })).toEqual({ is: "fenced" });
        }
        // Of two that were made to follow the same entry, and are committed together, the first.
        const both = await Promise.all([
          append(lease, [memo(1)], { behind: 1 }),
          append(lease, [memo(2)], { behind: 1 }),
        ]);
        expect(both).toMatchObject([{ is: "appended", head: 2 }, { is: "fenced" }]);
        expect(await append(lease, [memo(3)], { behind: 2 })).toMatchObject({ is: "appended", head: 3 });
        expect(await seqs(store, "u1")).toEqual([0, 1, 2, 3]);
        expect(await store.question("i1")).toBeNull();
      });

      test("a batch with one unwritable entry appends nothing, and its neighbours are appended", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        const bad = { kind: "memo", transformer: "t", value: 1n } as unknown as NewEntry;
        const results = await Promise.allSettled([append(one, [memo(1), bad]), append(two, [memo(2)])]);
        expect(results).toMatchObject([{ reason: { code: "NOT_JSON" } }, { value: { is: "appended" } }]);
        expect(await seqs(store, "u1")).toEqual([0, 1]);
        expect(await seqs(store, "u2")).toEqual([0, 1, 2]);
      });

      test("a batch that breaks the contract in the middle appends nothing, and its neighbours are appended", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        const results = await Promise.allSettled([
          append(one, [memo(1), asks("i1"), asks("i1")]),
          append(two, [memo(2)]),
        ]);
        expect(results).toMatchObject([{ reason: { code: "STORE_MISUSED" } }, { value: { is: "appended" } }]);
        expect(await seqs(store, "u1")).toEqual([0, 1]);
        expect(await store.run(uid("u1"))).toMatchObject({ head: 1 });
        expect(await store.question("i1")).toBeNull();
      });

      test("batches of one run that are not awaited are appended in the order of the calls", async () => {
        const lease = await begin(store, "u1");
        const heads = await Promise.all([
          append(lease, [delta("a"), delta("b")]),
          append(lease, [memo(1)]),
          append(lease, [delta("c")]),
        ]);
        expect(heads.map((one) => (one.is === "appended" ? one.head : one))).toEqual([3, 4, 5]);
        expect(await kinds(store, "u1")).toEqual(["run.started", "leg.started", "frame", "frame", "memo", "frame"]);
      });
    });

    describe("read and watch", () => {
      test("a cursor gives exactly the rest, also what is appended while it reads", async () => {
        const lease = await begin(store, "u1");
        await append(
          lease,
          Array.from({ length: 600 }, (_, i) => memo(i)),
        );
        const found: number[] = [];
        for await (const { seq } of store.read(uid("u1"), 9)) {
          if (seq === 300) await append(lease, [memo(-1), memo(-2)]);
          found.push(seq);
        }
        expect(found).toEqual(Array.from({ length: 594 }, (_, i) => i + 10));
        expect(await seqs(store, "u1", 603)).toEqual([]);
        expect(await seqs(store, "u1", 9_999)).toEqual([]);
        expect(await seqs(store, "no such run")).toEqual([]);
      });

      test("a hint comes after each commit, once what it is about can be read, and no more once it is ended", async () => {
        const lease = await begin(store, "u1");
        const heads: Promise<number | undefined>[] = [];
        const end = store.watch({ run: uid("u1") }, () => heads.push(store.run(uid("u1")).then((run) => run?.head)));
        await append(lease, [memo(1)]);
        await append(lease, [delta("a")]);
        await Promise.resolve();
        end();
        await append(lease, [memo(2)]);
        expect(await Promise.all(heads)).toEqual([2, 3]);
      });

      test("what a hint brings is what a reader of the log gets, also of what JSON changes", async () => {
        const lease = await begin(store, "u1");
        const brought: Entry[] = [];
        store.watch({ run: uid("u1") }, (appended = []) => brought.push(...appended));
        const when = new Date(0) as unknown as string;
        await append(lease, [memo(1), delta("a")]);
        await append(lease, [
          { kind: "memo", transformer: "t", value: { when, nothing: undefined as unknown as null } },
        ]);
        await append(lease, [], { ends: parked });
        await Promise.resolve();
        expect(brought).toHaveLength(3);
        const read: Entry[] = [];
        for await (const entry of store.read(uid("u1"), 1)) read.push(entry);
        expect(brought).toStrictEqual(read);
      });

      test("a thread's watcher hears of a new run, and the watcher of work of whatever becomes claimable", async () => {
        const heard: string[] = [];
        store.watch({ thread: thread("t1") }, () => heard.push("t1"));
        store.watch({ thread: thread("t1", { subject: "bob" }) }, () => heard.push("t1 of bob"));
        store.watch("claimable", () => heard.push("claimable"));
        const lease = await begin(store, "u1", { key: thread("t1") });
        await Promise.resolve();
        expect(heard.splice(0)).toEqual(["t1"]);
        await append(lease, [memo(1)]);
        await append(lease, [], { ends: parked });
        await Promise.resolve();
        expect(heard.splice(0)).toEqual([]);
        await store.put(uid("u1"), "ann", { kind: "cancel" });
        await Promise.resolve();
        expect(heard.splice(0)).toEqual(["claimable"]);
      });
    });

    describe("leases", () => {
      test("a run is claimed once, in the order of becoming ready, and each claim raises the epoch", async () => {
        for (const [run, tick] of [
          ["u1", 3],
          ["u2", 2],
          ["u3", 1],
        ] as const) {
          await append(await begin(store, run), [], { ends: { ...parked, wakeAt: clock.ms + tick } });
        }
        expect(await store.claim("w1")).toBeNull();
        expect(await store.nextReadyAt()).toBe(1_001);
        clock.tick(10);
        const claimed = [
          await store.claim("a"),
          await store.claim("b"),
          await store.claim("c"),
          await store.claim("d"),
        ];
        expect(claimed).toEqual([
          { uid: "u3", epoch: 2, owner: "a", until: 2_010, span: 1_000 },
          { uid: "u2", epoch: 2, owner: "b", until: 2_010, span: 1_000 },
          { uid: "u1", epoch: 2, owner: "c", until: 2_010, span: 1_000 },
          null,
        ]);
        expect(await store.nextReadyAt()).toBe(2_010);
      });

      test("a lease that is renewed holds, one that is not is claimed by the next, under the next epoch", async () => {
        const lease = await begin(store, "u1");
        clock.tick(900);
        expect(await store.renew(lease)).toEqual({ ...lease, until: 2_900 });
        clock.tick(900);
        expect(await store.claim("w2")).toBeNull();
        clock.tick(101);
        expect(await store.claim("w2")).toMatchObject({ epoch: 2 });
        expect(await store.renew(lease)).toBeNull();
      });

      test("a parked run is not claimed until something comes in; one with a timer when it is due", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [], { ends: parked });
        await append(two, [], { ends: { ...parked, wakeAt: 1_500 } });
        expect(await store.nextReadyAt()).toBe(1_500);
        expect(await store.claim("w1")).toBeNull();
        await store.put(uid("u1"), "ann", { kind: "signal", payload: { name: "go" } });
        expect(await store.claim("w1")).toMatchObject({ uid: "u1" });
        clock.tick(500);
        expect(await store.claim("w1")).toMatchObject({ uid: "u2" });
      });

      test("a run that is woken is claimed at once, one that has ended never, and nothing has come in", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [], { ends: parked });
        await append(two, [legFinished(1), runFinished], { ends: parked });
        for (const name of ["u1", "u2", "u3"]) await store.wake(uid(name));
        expect(await store.claim("w1")).toMatchObject({ uid: "u1", epoch: 2 });
        expect(await store.claim("w1")).toBeNull();
        expect(await store.inbox(uid("u1"))).toEqual([]);
      });

      test("a driver that opens again under its name has its leases void, and only its own", async () => {
        await begin(store, "u1", { owner: "w1" });
        await begin(store, "u2", { owner: "w2" });
        expect(await store.open("w2")).toEqual({ formerOwnerDead: false });
        expect(await store.open("w1")).toEqual({ formerOwnerDead: true });
        expect(await store.claim("w1")).toMatchObject({ uid: "u1", epoch: 2 });
        expect(await store.claim("w1")).toBeNull();
      });

      test("a run that was set aside is taken from its driver and claimed by nobody; its neighbour is", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await store.setAside(uid("u1"), "it cannot be folded");
        expect(await append(one, [memo(1)])).toEqual({ is: "fenced" });
        await append(two, [], { ends: { ...parked, runnable: true } });
        clock.tick(2_000);
        expect(await store.claim("w1")).toMatchObject({ uid: "u2" });
        expect(await store.claim("w1")).toBeNull();
        expect(await store.run(uid("u1"))).toMatchObject({ aside: "it cannot be folded" });
      });
    });

    describe("inbox", () => {
      test("rows come in order, survive reopening and are gone with the batch that took them", async () => {
        await begin(store, "u1");
        await store.put(uid("u1"), "ann", { kind: "signal", payload: 1 });
        await store.put(uid("u1"), "bob", { kind: "cancel" });
        await reopen();
        const rows = await store.inbox(uid("u1"));
        expect(rows).toMatchObject([
          { kind: "signal", payload: 1, by: "ann", at: 1_000 },
          { kind: "cancel", by: "bob" },
        ]);
        const lease = await store.claim("w1");
        if (lease === null) throw new Error("it is ready");
        await append(lease, [{ kind: "inbox.taken", item: "signal", payload: 1, by: "ann" }], {
          taken: [rows[0]?.row ?? -1],
        });
        expect(await store.inbox(uid("u1"))).toEqual(rows.slice(1));
      });

      test("a batch that parks or finishes is refused while a row is left, whole, and goes through with the row taken", async () => {
        const lease = await begin(store, "u1");
        await store.put(uid("u1"), "ann", { kind: "cancel" });
        expect(await append(lease, [legFinished(1), runFinished], { ends: parked })).toEqual({ is: "inbox" });
        expect(await store.run(uid("u1"))).toMatchObject({ head: 1, legOpen: true, outcome: null, owner: "w1" });
        const taken = await take("u1");
        expect(await append(lease, [legFinished(1), runFinished], { ends: parked, taken })).toMatchObject({
          is: "appended",
        });
        expect(await store.run(uid("u1"))).toMatchObject({ legOpen: false, outcome: "success", owner: null });
      });

      test("a batch that gives a runnable run back is not refused: nothing is slept through", async () => {
        const lease = await begin(store, "u1");
        await store.put(uid("u1"), "ann", { kind: "cancel" });
        expect(await append(lease, [], { ends: { ...parked, runnable: true } })).toMatchObject({ is: "appended" });
        expect(await store.claim("w1")).toMatchObject({ uid: "u1" });
      });

      test("nothing is put to a finished run, nor to one that is not there", async () => {
        const lease = await begin(store, "u1");
        await append(lease, [legFinished(1), runFinished], { ends: parked });
        expect(await store.put(uid("u1"), "ann", { kind: "cancel" })).toBe("finished");
        expect(await store.put(uid("u2"), "ann", { kind: "cancel" })).toBe("none");
        expect(await store.inbox(uid("u1"))).toEqual([]);
      });

      test("a row that is not there cannot be taken", async () => {
        const lease = await begin(store, "u1");
        await expect(append(lease, [memo(1)], { taken: [77] })).rejects.toMatchObject({ code: "STORE_MISUSED" });
        expect(await seqs(store, "u1")).toEqual([0, 1]);
      });
    });

    describe("questions", () => {
      test("two callers, two answers: the first is taken, the other learns who was first and when", async () => {
        await begin(store, "u1", { more: [asks("i1")] });
        const [first, second] = await Promise.all([store.answer(yes("i1", bob)), store.answer(no("i1", ann))]);
        expect(first).toEqual({ is: "taken", uid: "u1" });
        expect(second).toEqual({
          is: "conflict",
          uid: "u1",
          status: "resolved",
          payload: { approved: true },
          by: "bob",
          at: 1_000,
        });
        expect(await store.question("i1")).toMatchObject({ contested: [{ by: "ann", at: 1_000, status: "resolved" }] });
        expect(await store.inbox(uid("u1"))).toMatchObject([
          { kind: "answer", interrupt: "i1", status: "resolved", payload: { approved: true }, by: "bob" },
        ]);
      });

      test("the same answer again is covered, and so is `cancelled` for a question closed by anything", async () => {
        await begin(store, "u1", { more: [asks("i1")] });
        await store.answer(yes("i1", bob));
        expect(await store.answer(yes("i1", ann))).toEqual({ is: "covered", uid: "u1" });
        expect(await store.answer({ interrupt: "i1", status: "cancelled", by: ann })).toEqual({
          is: "covered",
          uid: "u1",
        });
        expect(await store.inbox(uid("u1"))).toHaveLength(1);
      });

      test("a falsy answer is an answer", async () => {
        await begin(store, "u1", { more: [asks("i1"), asks("i2")] });
        await store.answer({ interrupt: "i1", status: "resolved", payload: null, by: ann });
        await store.answer({ interrupt: "i2", status: "resolved", payload: false, by: ann });
        expect(await store.inbox(uid("u1"))).toMatchObject([{ payload: null }, { payload: false }]);
        expect(await store.answer({ interrupt: "i2", status: "resolved", payload: 0, by: ann })).toMatchObject({
          is: "conflict",
        });
      });

      test("a question of another tenant is not there", async () => {
        await begin(store, "u1", { more: [asks("i1")] });
        expect(await store.answer(yes("i1", { ...ann, tenant: "evil" }))).toEqual({ is: "none" });
        expect(await store.answer(yes("no such question"))).toEqual({ is: "none" });
      });

      test("an answer wakes a parked run, and is taken with the entry that it became", async () => {
        const lease = await begin(store, "u1", { more: [asks("i1")] });
        await append(lease, [legFinished(1)], { ends: parked });
        await store.answer(yes("i1"));
        const next = await store.claim("w1");
        if (next === null) throw new Error("it was woken");
        const entries = [answered("i1", "resolved", { payload: { approved: true } })];
        expect(await append(next, entries, { taken: await take("u1"), ends: parked })).toMatchObject({
          is: "appended",
        });
        expect(await store.question("i1")).toMatchObject({ closed: { status: "resolved", by: "ann" } });
        expect(await store.claim("w1")).toBeNull();
      });

      test.each(["expired", "withdrawn"] as const)("the driver closes an open question: %s", async (status) => {
        const lease = await begin(store, "u1", { more: [asks("i1")] });
        await append(lease, [answered("i1", status, { by: "system" })]);
        expect(await store.answer(yes("i1"))).toMatchObject({ is: "conflict", status, by: "system" });
      });

      test("the driver cannot overrule an answer that it has not seen", async () => {
        const lease = await begin(store, "u1", { more: [asks("i1")] });
        await store.answer(yes("i1", bob));
        expect(await append(lease, [answered("i1", "withdrawn")])).toEqual({ is: "inbox" });
        expect(await store.question("i1")).toMatchObject({ closed: { status: "resolved", by: "bob" } });
        await expect(append(lease, [answered("i1", "withdrawn")], { taken: await take("u1") })).rejects.toMatchObject({
          code: "STORE_MISUSED",
        });
      });

      test("the answer to a question that outlived its run makes the run claimable once more", async () => {
        const lease = await begin(store, "u1", { more: [asks("i1", { kind: "unknown-write" })] });
        await append(lease, [legFinished(1), { ...runFinished, unresolved: [path("1.0")] } as NewEntry], {
          ends: parked,
        });
        expect(await store.claim("w1")).toBeNull();
        expect(await store.answer(yes("i1"))).toMatchObject({ is: "taken" });
        const next = await store.claim("w1");
        if (next === null) throw new Error("it was woken");
        const entries = [answered("i1", "resolved", { payload: { approved: true } })];
        await append(next, entries, { taken: await take("u1"), ends: parked });
        expect(await store.claim("w1")).toBeNull();
      });

      test("client calls of one id in two threads are two calls, and the driver gets a result under the call's id", async () => {
        await begin(store, "u1", { more: [clientCall("c1", "1.0")] });
        await begin(store, "u2", { more: [clientCall("c1", "1.0")] });
        await store.answer({ interrupt: "u2:client:1.0", status: "resolved", payload: "a map", by: ann });
        expect(await store.inbox(uid("u1"))).toEqual([]);
        expect(await store.inbox(uid("u2"))).toMatchObject([{ kind: "answer", interrupt: "c1", payload: "a map" }]);
      });

      test("a client call is a row of its run, closed by its first result, never listed", async () => {
        const lease = await begin(store, "u1", { more: [clientCall("c1", "1.0"), clientCall("c2", "1.1")] });
        expect((await store.questions({ tenant: "acme" })).items).toEqual([]);
        expect((await look(store, thread("thread of u1"))).open).toMatchObject([
          { id: "u1:client:1.0", toolCallId: "c1", kind: "client-tool" },
          { id: "u1:client:1.1", toolCallId: "c2", kind: "client-tool" },
        ]);
        await store.answer({ interrupt: "u1:client:1.0", status: "resolved", payload: "a map", by: ann });
        expect(await append(lease, [clientCallEnds("1.0")])).toMatchObject({ is: "appended" });
        expect(await append(lease, [clientCallEnds("1.1", "call")])).toMatchObject({ is: "appended" });
        expect(await store.question("u1:client:1.1")).toMatchObject({ closed: { status: "withdrawn" } });
        expect((await look(store, thread("thread of u1"))).open).toEqual([]);
      });

      test("a client call is not given up over a result that came in", async () => {
        const lease = await begin(store, "u1", { more: [clientCall("c1", "1.0")] });
        await store.answer({ interrupt: "u1:client:1.0", status: "resolved", payload: "a map", by: ann });
        expect(await append(lease, [clientCallEnds("1.0", "call")])).toEqual({ is: "inbox" });
      });
    });

    describe("post", () => {
      const key = thread("t1");

      test("a new run has its first entries, a lease of epoch 1, and its run id as an alias of leg 1", async () => {
        const asked = request("r1", { messages: [says("m1")] });
        const posted = await post(store, key, "r1", (view) => {
          expect(view).toMatchObject({ run: null, open: [], known: null });
          expect(view.hasMessage("m1")).toBe(false);
          return { is: "run", first: [started("u1", key, { labels: { a: "b" } }), legStarted(1, asked)] };
        });
        expect(posted.lease).toEqual({ uid: "u1", epoch: 1, owner: "w1", until: 2_000, span: 1_000 });
        expect(posted.run).toMatchObject({ uid: "u1", head: 1, leg: 1, legOpen: true, labels: { a: "b" }, turn: 1 });
        const view = await look(store, key, "r1");
        expect(view.known).toEqual({ uid: "u1", leg: 1, added: { ...nothing, messages: [says("m1")] } });
        expect(view.run).toMatchObject({ uid: "u1", atRest: false, legDue: false });
        expect([view.hasMessage("m1"), view.hasMessage("m2")]).toEqual([true, false]);
        expect(await store.leg(key, "r1")).toEqual({ uid: "u1", leg: 1 });
      });

      test("what `decide` throws leaves nothing", async () => {
        await expect(
          post(store, key, "r1", () => {
            throw new RangeError("no");
          }),
        ).rejects.toThrow(RangeError);
        const first = [started("u1", key), { kind: "memo" } as unknown as NewEntry];
        await expect(post(store, key, "r1", () => ({ is: "run", first }))).rejects.toMatchObject({
          code: "ENTRY_INVALID",
        });
        expect(await store.run(uid("u1"))).toBeNull();
        expect(await look(store, key, "r1")).toMatchObject({ run: null, known: null });
      });

      test("one unfinished run a thread, one run a uid, one leg a run id", async () => {
        const lease = await begin(store, "u1", { key, runId: "r1" });
        const another = (run: string, runId: string) =>
          post(store, key, runId, () => ({ is: "run", first: [started(run, key), legStarted(1, request(runId))] }));
        await expect(another("u2", "r2")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        await append(lease, [legFinished(1), runFinished], { ends: parked });
        await expect(another("u1", "r2")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        await expect(another("u2", "r1")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        expect(await another("u2", "r2")).toMatchObject({ lease: { uid: "u2" } });
        expect(await look(store, key)).toMatchObject({ run: { uid: "u2" } });
        expect((await look(store, key, "r1")).known).toMatchObject({ uid: "u1" });
      });

      test.each([
        ["tenant", { tenant: "other" }],
        ["subject", { subject: "other" }],
        ["agent", { agent: "other" }],
      ])("a thread of the same name under another %s is another thread", async (_, change) => {
        await begin(store, "u1", { key, runId: "r1", more: [asks("i1")] });
        const view = await look(store, thread("t1", change), "r1");
        expect(view).toMatchObject({ run: null, open: [], known: null });
        expect(view.hasMessage("u of u1")).toBe(false);
        await store.answer(yes("i1"));
        expect(view.closed("i1")).toBeNull();
        expect((await look(store, key, "r1")).closed("i1")).toMatchObject({ status: "resolved" });
      });

      test("a leg: alias without a leg, answers, request row, the lease to drive it; the leg that the driver begins gets the alias", async () => {
        const first = await begin(store, "u1", { key, runId: "r1", more: [asks("i1"), asks("i2")] });
        await append(first, [legFinished(1)], { ends: parked });
        expect((await look(store, key)).run).toMatchObject({ atRest: true });
        const asked = request("r2", {
          resume: [{ interruptId: "i1", status: "resolved", payload: { approved: true } }],
        });
        const posted = await post(store, key, "r2", (view) => {
          expect(view.open.map(({ id }) => id)).toEqual(["i1", "i2"]);
          return { is: "leg", uid: uid("u1"), answers: [yes("i1")], request: asked };
        });
        expect(posted).toMatchObject({ lease: { epoch: 2 }, run: { uid: "u1", legOpen: false, head: 5 - 1 } });
        const due = await look(store, key, "r2");
        expect(due.known).toEqual({ uid: "u1", leg: null, added: { ...nothing, resume: asked.resume } });
        expect(due.run).toMatchObject({ atRest: false, legDue: true });
        expect(due.open.map(({ id }) => id)).toEqual(["i2"]);

        const { lease } = posted;
        if (lease === null) throw new Error("nobody drove it");
        expect(await store.claim("w2")).toBeNull();
        expect(await store.inbox(uid("u1"))).toMatchObject([
          { kind: "request", request: asked, by: "ann" },
          { kind: "answer", interrupt: "i1" },
        ]);
        await append(lease, [legStarted(2, asked), answered("i1", "resolved", { payload: { approved: true } })], {
          taken: await take("u1"),
        });
        expect((await look(store, key, "r2")).known).toEqual({
          uid: "u1",
          leg: 2,
          added: { ...nothing, resume: asked.resume },
        });
      });

      test("a leg of a run that somebody drives, or that was set aside, brings no lease", async () => {
        const lease = await begin(store, "u1", { key });
        await append(lease, [legFinished(1)]);
        const posted = await post(store, key, "r2", () => ({
          ...{ is: "leg", uid: uid("u1"), answers: [], request: request("r2", { messages: [says("m2")] }) },
        }));
        expect(posted).toMatchObject({ lease: null, meaning: { is: "leg" } });
        expect(await store.inbox(uid("u1"))).toHaveLength(1);

        const other = thread("t2");
        const rested = await begin(store, "u2", { key: other });
        await append(rested, [legFinished(1)], { ends: parked });
        await store.setAside(uid("u2"), "for the test");
        const aside = await post(store, other, "r2", () => ({
          ...{ is: "leg", uid: uid("u2"), answers: [], request: request("r2", { messages: [says("m3")] }) },
        }));
        expect(aside.lease).toBeNull();
      });

      test("answers are taken all or none", async () => {
        const lease = await begin(store, "u1", { key, more: [asks("i1"), asks("i2")] });
        await append(lease, [legFinished(1)], { ends: parked });
        await store.answer(yes("i2"));
        const both = () =>
          post(store, key, "r2", () => ({
            is: "leg",
            uid: uid("u1"),
            answers: [yes("i1"), yes("i2")],
            request: request("r2"),
          }));
        await expect(both()).rejects.toMatchObject({ code: "STORE_MISUSED" });
        expect(await store.question("i1")).toMatchObject({ closed: null });
        expect(await store.inbox(uid("u1"))).toHaveLength(1);
        expect((await look(store, key, "r2")).known).toBeNull();
      });

      test("a rejoin of the open leg takes its answers and names that leg; the same request again changes nothing", async () => {
        await begin(store, "u1", { key, more: [asks("i1")] });
        const added = { ...nothing, resume: [{ interruptId: "i1", status: "cancelled" as const }] };
        const cancelled = { interrupt: "i1", status: "cancelled" as const, by: ann };
        await post(store, key, "r2", () => ({ is: "rejoin", uid: uid("u1"), answers: [cancelled], added }));
        expect((await look(store, key, "r2")).known).toEqual({ uid: "u1", leg: 1, added });
        await post(store, key, "r2", () => ({ is: "rejoin", uid: uid("u1"), answers: [], added: nothing }));
        expect((await look(store, key, "r2")).known).toEqual({ uid: "u1", leg: 1, added });
        expect(await store.inbox(uid("u1"))).toHaveLength(1);
      });

      test("who rejoins a leg that is due gets the leg that its request becomes", async () => {
        const lease = await begin(store, "u1", { key });
        await append(lease, [legFinished(1)], { ends: parked });
        const asked = request("r2", { messages: [says("m2")] });
        const { lease: next } = await post(store, key, "r2", () => ({
          ...{ is: "leg", uid: uid("u1"), answers: [], request: asked },
        }));
        await post(store, key, "r3", () => ({ is: "rejoin", uid: uid("u1"), answers: [], added: nothing }));
        expect(await store.leg(key, "r3")).toEqual({ uid: "u1", leg: null });
        if (next === null) throw new Error("nobody drove it");
        await append(next, [legStarted(2, asked)], { taken: await take("u1") });
        expect(await store.leg(key, "r3")).toEqual({ uid: "u1", leg: 2 });
        expect((await look(store, key, "r3")).known).toEqual({ uid: "u1", leg: 2, added: nothing });
      });

      test("a request that finds a headless leg open when it is taken names that leg", async () => {
        const lease = await begin(store, "u1", { key, more: [asks("i1")] });
        await append(lease, [legFinished(1)], { ends: parked });
        await store.answer(yes("i1"));
        const next = await store.claim("w1");
        if (next === null) throw new Error("it was woken");
        await append(next, [headless(2, "u1.2")]);
        await append(next, [legFinished(2)]);
        const asked = request("r2", { resume: [{ interruptId: "i1", status: "cancelled" }] });
        await post(store, key, "r2", () => ({ is: "leg", uid: uid("u1"), answers: [], request: asked }));
        await append(next, [headless(3, "u1.3")]);
        const taken = await take("u1");
        await append(next, [answered("i1", "resolved", { payload: { approved: true } })], { taken });
        expect((await look(store, key, "r2")).known).toEqual({
          uid: "u1",
          leg: 3,
          added: { ...nothing, resume: asked.resume },
        });
        expect((await look(store, key, "u1.2")).known).toEqual({ uid: "u1", leg: 2, added: nothing });
      });

      test("hydrate names the last leg and wakes nobody", async () => {
        const lease = await begin(store, "u1", { key });
        await append(lease, [legFinished(1), runFinished], { ends: parked });
        const posted = await post(store, key, "r9", () => ({ is: "hydrate", uid: uid("u1"), added: nothing }));
        expect(posted).toMatchObject({ lease: null, run: { uid: "u1", outcome: "success", readyAt: null } });
        expect((await look(store, key, "r9")).known).toEqual({ uid: "u1", leg: 1, added: nothing });
      });

      test("a refusal writes nothing but who contested what", async () => {
        const lease = await begin(store, "u1", { key, more: [asks("i1")] });
        await append(lease, [answered("i1", "expired", { by: "system" })]);
        const refused = await post(store, key, "r2", () => ({
          is: "refuse",
          status: 409,
          code: "INTERRUPT_CLOSED",
          details: {},
          contested: [yes("i1", bob)],
        }));
        expect(refused).toMatchObject({ lease: null, run: null, meaning: { code: "INTERRUPT_CLOSED" } });
        expect(await store.question("i1")).toMatchObject({ contested: [{ by: "bob", status: "resolved" }] });
        expect((await look(store, key, "r2")).known).toBeNull();
      });
    });

    describe("requests that wait", () => {
      const key = thread("t");
      const waits = (runId: string, run: string, cancels = false) =>
        post(store, key, runId, () => ({
          ...{ is: "queue", uid: uid(run), answers: [], cancels },
          request: request(runId, { messages: [says(`u of ${runId}`)] }),
        }));
      const goes = (runId: string, run: string, turn: number, queued?: number) =>
        post(store, key, runId, () => ({
          is: "run",
          first: [started(run, key, { turn }), legStarted(1, request(runId, { messages: [says(`u of ${runId}`)] }))],
          ...(queued !== undefined && { queued }),
        }));
      const waiting = async () => (await store.queued(key)).map(({ request: { runId } }) => runId);

      test("keep their order, survive reopening, and their messages are the thread's from the beginning", async () => {
        await begin(store, "u1", { key });
        const { run, lease } = await waits("r2", "u1");
        expect([run?.uid, lease]).toEqual([uid("u1"), null]);
        await waits("r3", "u1");
        await reopen();
        expect(await waiting()).toEqual(["r2", "r3"]);
        const seen = await look(store, key);
        expect(seen.queued.map(({ request: { runId } }) => runId)).toEqual(["r2", "r3"]);
        expect([seen.hasMessage("u of r2"), seen.known]).toEqual([true, null]);
        expect(await store.queued(thread("another"))).toEqual([]);
      });

      test("are due when the run before them has ended, which is told, and become runs in their order", async () => {
        const lease = await begin(store, "u1", { key });
        await waits("r2", "u1");
        await waits("r3", "u1");
        expect(await store.dueThreads()).toEqual([]);
        let told = 0;
        store.watch("claimable", () => (told += 1));
        await append(lease, [runFinished], { ends: parked });
        await Promise.resolve();
        expect(told).toBe(1);
        expect(await store.dueThreads()).toEqual([key]);
        const [first, second] = await store.queued(key);
        await expect(goes("r9", "u9", 2)).rejects.toMatchObject({ code: "STORE_MISUSED" });
        await expect(goes("r3", "u3", 2, second?.n)).rejects.toMatchObject({ code: "STORE_MISUSED" });
        const begun = await goes("r2", "u2", 2, first?.n);
        expect(begun).toMatchObject({ run: { uid: "u2", turn: 2 }, lease: { epoch: 1 } });
        expect(await waiting()).toEqual(["r3"]);
        expect(await store.dueThreads()).toEqual([]);
        expect(await store.leg(key, "r2")).toEqual({ uid: "u2", leg: 1 });
        await expect(goes("r2", "u4", 3, first?.n)).rejects.toMatchObject({ code: "STORE_MISUSED" });
      });

      test("cancel what was begun before them, if they want that, and what begins before them", async () => {
        const lease = await begin(store, "u1", { key });
        await append(lease, [], { ends: parked });
        await waits("r2", "u1", true);
        await waits("r3", "u1", true);
        expect((await store.inbox(uid("u1"))).map(({ kind, by }) => [kind, by])).toEqual([
          ["cancel", "ann"],
          ["cancel", "ann"],
        ]);
        const claimed = await store.claim("w1");
        expect(claimed?.uid).toBe("u1");
        if (claimed !== null) await append(claimed, [runFinished], { taken: await take("u1"), ends: parked });
        await goes("r2", "u2", 2, (await store.queued(key))[0]?.n);
        expect((await store.inbox(uid("u2"))).map(({ kind }) => kind)).toEqual(["cancel"]);
        expect(await store.queued(key)).toHaveLength(1);
      });

      test("leave nothing where they are not taken", async () => {
        await begin(store, "u1", { key });
        await waits("r2", "u1");
        await expect(waits("r2", "u1")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        await expect(waits("r of u1", "u1")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        await expect(waits("r4", "another")).rejects.toMatchObject({ code: "STORE_MISUSED" });
        expect(await waiting()).toEqual(["r2"]);
        expect((await look(store, key)).hasMessage("u of r4")).toBe(false);
        const again = await post(store, key, "r2", () => ({ is: "queued", uid: uid("u1") }));
        expect([again.run?.uid, await waiting()]).toEqual(["u1", ["r2"]]);
      });
    });

    describe("business keys", () => {
      const name = { tenant: "acme", tool: "refund", key: '["refund",1]' };
      const claim = (run: string, to: "running" | "unknown" | "settled" | "released", output?: string) => ({
        ...name,
        to,
        argsHash: hash("a"),
        holder: { uid: uid(run), path: path("1.0") },
        ...(output === undefined ? {} : { output }),
      });

      test("free, running, settled: the second taker is told the output; nothing of its batch is written", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        expect(await append(one, [memo(1)], { claims: [claim("u1", "running")] })).toMatchObject({ is: "appended" });
        expect(await append(two, [memo(1)], { claims: [claim("u2", "running")] })).toMatchObject({
          is: "held",
          claim: { state: "running", holder: { uid: "u1" } },
        });
        await append(one, [memo(2)], { claims: [claim("u1", "settled", "R1")] });
        expect(await append(two, [memo(1)], { claims: [claim("u2", "running")] })).toMatchObject({
          is: "held",
          claim: { state: "settled", output: "R1", holder: { uid: "u1" }, until: 6_000 },
        });
        expect(await seqs(store, "u2")).toEqual([0, 1]);
      });

      test("released is free again; settled too, once its time to live is over", async () => {
        const [one, two, three] = [await begin(store, "u1"), await begin(store, "u2"), await begin(store, "u3")];
        await append(one, [memo(1)], { claims: [claim("u1", "running")] });
        await append(one, [memo(2)], { claims: [claim("u1", "released")] });
        expect(await append(two, [memo(1)], { claims: [claim("u2", "running")] })).toMatchObject({ is: "appended" });
        await append(two, [memo(2)], { claims: [claim("u2", "settled", "R2")] });
        clock.tick(4_999);
        expect(await append(three, [memo(1)], { claims: [claim("u3", "running")] })).toMatchObject({ is: "held" });
        clock.tick(1);
        expect(await append(three, [memo(1)], { claims: [claim("u3", "running")] })).toMatchObject({ is: "appended" });
      });

      test("unknown is never simply taken: alive its holder settles it, dead its question is inherited", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [memo(1)], { claims: [claim("u1", "running")] });
        await append(one, [memo(2)], { claims: [claim("u1", "unknown")] });
        clock.tick(1e9);
        for (const to of ["running", "unknown", "settled", "released"] as const) {
          expect(await append(two, [memo(1)], { claims: [claim("u2", to)] })).toMatchObject({ is: "held" });
        }
        await append(one, [legFinished(1), runFinished], { ends: parked });
        expect(await append(two, [memo(1)], { claims: [claim("u2", "running")] })).toMatchObject({ is: "held" });
        expect(await append(two, [memo(1)], { claims: [claim("u2", "unknown")] })).toMatchObject({ is: "appended" });
        expect(await store.claimOf(name)).toMatchObject({ state: "unknown", holder: { uid: "u2" } });
        expect(await append(two, [memo(2)], { claims: [claim("u2", "running")] })).toMatchObject({ is: "appended" });
      });

      test("a key that is free is only taken", async () => {
        const lease = await begin(store, "u1");
        await expect(append(lease, [memo(1)], { claims: [claim("u1", "settled")] })).rejects.toMatchObject({
          code: "CLAIM_NOT_HELD",
        });
      });

      test("a refused claim takes the claims before it back", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [memo(1)], { claims: [claim("u1", "running")] });
        const other = { ...claim("u2", "running"), key: "free" };
        expect(await append(two, [], { claims: [other, claim("u2", "running")] })).toMatchObject({ is: "held" });
        expect(await store.claimOf(other)).toBeNull();
      });

      test.each([
        ["settled", [{ claims: [claim("u1", "settled", "R")] }]],
        ["released", [{ claims: [claim("u1", "released")] }]],
        ["unknown by a run that ends", [{ claims: [claim("u1", "unknown")] }, { ends: parked }]],
      ] as const)("who waits for a key is woken when it is %s", async (_, batches) => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [], { claims: [claim("u1", "running")] });
        await append(two, [], { ends: { ...parked, waitsForKey: name, wakeAt: 9_000 } });
        expect(await store.claim("w1")).toBeNull();
        for (const batch of batches) await append(one, "ends" in batch ? [runFinished] : [], batch);
        expect(await store.claim("w1")).toMatchObject({ uid: "u2" });
      });

      test("a run that lies down for a key which was given back meanwhile is runnable at once", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [], { claims: [claim("u1", "running")] });
        await append(one, [], { claims: [claim("u1", "settled", "R")] });
        await append(two, [], { ends: { ...parked, waitsForKey: name, wakeAt: 9_000 } });
        expect(await store.claim("w1")).toMatchObject({ uid: "u2" });
      });

      test("a waiter whose holder does not know yet goes on waiting, until its timer", async () => {
        const [one, two] = [await begin(store, "u1"), await begin(store, "u2")];
        await append(one, [], { claims: [claim("u1", "running")] });
        await append(two, [], { ends: { ...parked, waitsForKey: name, wakeAt: 1_500 } });
        await append(one, [], { claims: [claim("u1", "unknown")] });
        expect(await store.claim("w1")).toBeNull();
        clock.tick(500);
        expect(await store.claim("w1")).toMatchObject({ uid: "u2" });
      });
    });

    describe("listings", () => {
      test("runs of a tenant, newest first, page by page, narrowed by subject, agent and thread", async () => {
        for (let i = 0; i < 5; i++) await begin(store, `u${i}`, { key: thread(`t${i}`) });
        await begin(store, "x1", { key: thread("t1", { subject: "bob" }) });
        await begin(store, "x2", { key: thread("t1", { tenant: "other" }) });
        const pages: string[][] = [];
        let after: string | undefined;
        do {
          const page = await store.runs({ tenant: "acme", limit: 3, ...(after === undefined ? {} : { after }) });
          pages.push(page.items.map((run) => run.uid));
          after = page.next ?? undefined;
        } while (after !== undefined);
        expect(pages).toEqual([
          ["x1", "u4", "u3"],
          ["u2", "u1", "u0"],
        ]);
        const list = async (query: object) =>
          (await store.runs({ tenant: "acme", ...query })).items.map((run) => run.uid);
        expect(await list({ subject: "bob" })).toEqual(["x1"]);
        expect(await list({ thread: "t1" })).toEqual(["x1", "u1"]);
        expect(await list({ agent: "nobody" })).toEqual([]);
        expect(await list({ after: "not ours" })).toHaveLength(6);
      });

      test("open questions of a tenant, oldest first, page by page, without those of runs set aside", async () => {
        await begin(store, "u1", { more: [asks("i1"), asks("i2")] });
        await begin(store, "u2", { more: [asks("i3", { audience: "boss" }), clientCall("c1", "2.0")] });
        await begin(store, "u3", { more: [asks("i4")] });
        await begin(store, "x1", { key: thread("t", { tenant: "other" }), more: [asks("i5")] });
        await store.answer(yes("i2"));
        await store.setAside(uid("u3"), "damaged");
        const page = await store.questions({ tenant: "acme", limit: 1 });
        expect(page.items).toMatchObject([
          { uid: "u1", interrupt: { id: "i1" }, run: { agent: "desk" }, openedAt: 1_000 },
        ]);
        const rest = await store.questions({ tenant: "acme", ...(page.next === null ? {} : { after: page.next }) });
        expect(rest).toMatchObject({ items: [{ interrupt: { id: "i3", audience: "boss" } }], next: null });
      });

      test("verify reads everything", async () => {
        await append(await begin(store, "u1"), [memo(1), delta("a")]);
        await begin(store, "u2");
        expect(await store.verify()).toEqual({ runs: 2, entries: 6, faults: [] });
      });
    });

    describe("pruning", () => pruning({ store: () => store, reopen }));

    describe("children", () => children({ store: () => store, reopen, clock: () => clock }));

    describe("large values", () => largeValues({ store: () => store, reopen }));

    test("what was appended is there after reopening, and its lease is void", async () => {
      const lease = await begin(store, "u1", { more: [asks("i1")] });
      await append(lease, [delta("a"), memo(1)]);
      expect(await reopen()).toEqual({ formerOwnerDead: false });
      expect(await seqs(store, "u1")).toEqual([0, 1, 2, 3, 4]);
      expect(await store.question("i1")).toMatchObject({ closed: null, uid: "u1" });
    });

    test("a closed store says so", async () => {
      const lease = await begin(store, "u1");
      await store.close();
      await expect(append(lease, [memo(1)])).rejects.toMatchObject({ code: "STORE_CLOSED" });
      await expect(store.run(uid("u1"))).rejects.toMatchObject({ code: "STORE_CLOSED" });
      await expect(seqs(store, "u1")).rejects.toMatchObject({ code: "STORE_CLOSED" });
    });
  });
}
