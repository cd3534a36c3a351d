import fc from "fast-check";
import { expect, test } from "vitest";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import { type Json, toJson } from "../../src/protocol/json.ts";
import type { EventStore } from "../../src/store/store.ts";
import {
  asks,
  begin,
  legFinished,
  look,
  memo,
  parked,
  path,
  post,
  request,
  says,
  seqs,
  thread,
  uid,
  yes,
} from "./builders.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** Texts about as long as what is a blob, in one byte a character, in three, and in six. */
const long = fc
  .record({ of: fc.constantFrom("x", "é", "€", "\u0000", '"', "\ud83d\ude00"), bytes: fc.integer({ min: -8, max: 8 }) })
  .map(({ of, bytes }) => {
    const each = Buffer.byteLength(JSON.stringify(of)) - 2;
    return `${of.repeat(Math.floor((64 * KIB - 2) / each))}${"y".repeat(8 + bytes)}`.slice(8);
  });

/** Any JSON, here and there with a part that is large, or large only together. */
export const largeJson: fc.Arbitrary<Json> = fc.letrec<{ any: Json }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    { weight: 3, arbitrary: fc.jsonValue({ maxDepth: 1 }).map((value) => toJson(value)) },
    { weight: 2, arbitrary: long },
    {
      weight: 1,
      arbitrary: fc.integer({ min: 600, max: 800 }).map((n) => Array.from({ length: n }, (_, i) => `${i}`.padEnd(90))),
    },
    { weight: 2, arbitrary: fc.array(tie("any"), { maxLength: 3 }) },
    {
      weight: 3,
      arbitrary: fc.dictionary(
        fc
          .oneof(fc.string({ maxLength: 4 }), fc.constantFrom("a/b", "~", "\n", "", "0", "places"))
          .filter((key) => key !== "__proto__"),
        tie("any"),
        { maxKeys: 3, noNullPrototype: true },
      ),
    },
  ),
})).any;

const stepEnds = (output: Json, value: Json): NewEntry => ({
  ...{ kind: "step.finished", path: path("1.0"), via: "call", status: "ok", output },
  patch: [{ op: "add", path: "/x", value }],
});
const shows = (value: Json): NewEntry => ({
  ...{ kind: "frame", path: path("0.0"), event: { type: "CUSTOM", name: "piece", value } },
});

/** An entry of each kind that holds what others made; `n` keeps ids apart. */
const entryWith = (value: Json, other: Json, kind: number, n: number): NewEntry => {
  switch (kind) {
    case 0:
      return { kind: "memo", transformer: "t", value };
    case 1:
      return stepEnds(value, other);
    case 2:
      return asks(`i${n}`, { schema: value, metadata: other, message: `${JSON.stringify(other)}?` });
    case 3:
      return { kind: "inbox.taken", item: "signal", payload: value, by: "ann" };
    case 4:
      return { kind: "state", path: path(""), patch: [{ op: "replace", path: "", value }] };
    default:
      return shows(value);
  }
};

/** What every store owes of values that are too large for a row, and of those that are too large for any. */
export function largeValues(open: { store(): EventStore; reopen(): Promise<unknown> }): void {
  const read = async (run: string): Promise<Entry[]> => {
    const entries: Entry[] = [];
    for await (const entry of open.store().read(uid(run), 1)) entries.push(entry);
    return entries;
  };

  test("whatever an entry holds, wherever it is large: it is read as it was appended, also by a watcher, and after reopening", async () => {
    let runs = 0;
    const drawn = fc.array(fc.tuple(largeJson, largeJson, fc.nat(5)), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(drawn, async (values) => {
        const run = `p${runs++}`;
        const entries = values.map(([value, other, kind], i) => entryWith(value, other, kind, 10 * runs + i));
        const lease = await begin(open.store(), run);
        const pushed: Entry[] = [];
        const end = open.store().watch({ run: uid(run) }, (appended = []) => void pushed.push(...appended));
        expect(await open.store().append(lease, { entries })).toMatchObject({ is: "appended" });
        end();
        const expected = entries.map((entry, i) => ({ ...entry, seq: i + 2, at: 1_000 }));
        expect(pushed).toEqual(expected);
        expect(await read(run)).toEqual(expected);
        for (const [i, entry] of entries.entries()) {
          if (entry.kind !== "interrupt.opened") continue;
          expect((await open.store().question(`i${10 * runs + i}`))?.interrupt).toEqual(entry.interrupt);
        }
        await open.reopen();
        expect(await read(run)).toEqual(expected);
      }),
      { numRuns: 25, interruptAfterTimeLimit: 15_000 },
    );
    expect((await open.store().verify()).faults).toEqual([]);
  });

  test("a settled key and a closed question give their large values back, after reopening too", async () => {
    const large = { rows: "r".repeat(100 * KIB) };
    const lease = await begin(open.store(), "u1", { more: [asks("i1")] });
    const key = { tenant: "acme", tool: "look_up", key: "k" };
    const claim = { ...key, argsHash: "h" as never, holder: { uid: lease.uid, path: path("1") } };
    await open.store().append(lease, { entries: [], claims: [{ ...claim, to: "running" }] });
    await open.store().append(lease, { entries: [], claims: [{ ...claim, to: "settled", output: large }] });
    await open.store().answer({ ...yes("i1"), payload: large });
    await open.reopen();
    expect(await open.store().claimOf(key)).toMatchObject({ output: large });
    expect((await open.store().question("i1"))?.closed).toMatchObject({ payload: large });
  });

  test("what a large request added is known when it comes again", async () => {
    const asked = request("r1", { messages: [says("m", "w".repeat(300 * KIB))] });
    await begin(open.store(), "u1", { key: thread("t"), runId: "r1", more: [] });
    const lease = await open.store().claim("w2");
    expect(lease).toBeNull();
    await begin(open.store(), "u2", { key: thread("other"), runId: "r0" });
    await post(open.store(), thread("third"), "r1", () => ({
      is: "run",
      first: [
        {
          ...{ kind: "run.started", uid: uid("u3"), agent: "desk", definition: "d" as never, turn: 1, labels: {} },
          owner: { tenant: "acme", subject: "ann" },
          thread: "third",
        },
        { kind: "leg.started", leg: 1, runId: "r1", request: asked },
      ],
    }));
    expect((await look(open.store(), thread("third"), "r1")).known?.added.messages).toEqual(asked.messages);
  });

  /** A string whose JSON has this many bytes. */
  const sized = (bytes: number): string => "x".repeat(bytes - 2);
  const tooLarge = { code: "PAYLOAD_TOO_LARGE", bytes: 4 * MIB + 1, limit: 4 * MIB };

  test.each([
    ["value of a memo", { kind: "memo", transformer: "t", value: sized(4 * MIB + 1) } as NewEntry],
    ["output of a step.finished", stepEnds(sized(4 * MIB + 1), 0)],
    ["schema of the interrupt", asks("i1", { schema: sized(4 * MIB + 1) })],
    ["value of the event", shows(sized(4 * MIB + 1))],
  ])("over 4 MiB as the %s: nothing of the batch is appended, and the neighbours are", async (what, entry) => {
    const [one, two] = [await begin(open.store(), "u1"), await begin(open.store(), "u2")];
    const results = await Promise.allSettled([
      open.store().append(one, { entries: [memo(1), entry] }),
      open.store().append(two, { entries: [memo(2)] }),
    ]);
    expect(results).toMatchObject([{ reason: { ...tooLarge, what } }, { value: { is: "appended" } }]);
    expect(await seqs(open.store(), "u1")).toEqual([0, 1]);
    expect(await open.store().question("i1")).toBeNull();
  });

  test("4 MiB are taken, in each payload of an entry", async () => {
    const lease = await begin(open.store(), "u1");
    const entry = stepEnds(sized(4 * MIB), sized(3 * MIB));
    await open.store().append(lease, { entries: [entry] });
    await open.reopen();
    expect(await read("u1")).toEqual([{ ...entry, seq: 2, at: 1_000 }]);
  });

  test("a request, an answer and a signal over 4 MiB are refused, and nothing is written", async () => {
    const asked = request("r2", { state: sized(4 * MIB + 1) });
    const what = "state of the request";
    const lease = await begin(open.store(), "u1", { key: thread("t"), more: [asks("i1")] });
    const first = (run: string): NewEntry[] => [
      {
        ...{ kind: "run.started", uid: uid(run), agent: "desk", definition: "d" as never, turn: 1, labels: {} },
        owner: { tenant: "acme", subject: "ann" },
        thread: "new",
      },
      { kind: "leg.started", leg: 1, runId: "r2", request: asked },
    ];
    await expect(
      post(open.store(), thread("new"), "r2", () => ({ is: "run", first: first("u2") })),
    ).rejects.toMatchObject({ ...tooLarge, what });
    expect(await open.store().run(uid("u2"))).toBeNull();
    await open.store().append(lease, { entries: [legFinished(1)], ends: parked });
    await expect(
      post(open.store(), thread("t"), "r2", () => ({ is: "leg", uid: uid("u1"), answers: [], request: asked })),
    ).rejects.toMatchObject({ ...tooLarge, what });
    await expect(open.store().answer({ ...yes("i1"), payload: sized(4 * MIB + 1) })).rejects.toMatchObject(tooLarge);
    await expect(
      open.store().put(uid("u1"), "ann", { kind: "signal", payload: sized(4 * MIB + 1) }),
    ).rejects.toMatchObject(tooLarge);
    expect(await open.store().inbox(uid("u1"))).toEqual([]);
    expect(await open.store().question("i1")).toMatchObject({ closed: null });
    expect((await look(open.store(), thread("t"), "r2")).known).toBeNull();
  });
}
