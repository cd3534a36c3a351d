import fc from "fast-check";
import { describe, expect, expectTypeOf, test } from "vitest";
import {
  type Entry,
  EntryError,
  encodeEntry,
  type Fact,
  type FactKind,
  type LegRequest,
  type NewEntry,
  parseEntry,
} from "../../src/log/entries.ts";
import type { Hash, Path, Uid } from "../../src/protocol/words.ts";

const uid = "0190b2c4-u1" as Uid;
const hash = "d0d0" as Hash;
const path = (name: string) => name as Path;
const place = { run: uid, seq: 7, at: 1_000 };
const failure = { code: "REFUSED", message: "The bank said no." };

const request: LegRequest = {
  runId: "r1",
  messages: [{ id: "u", role: "user", content: "refund order 1" }],
  results: [{ id: "tm", role: "tool", toolCallId: "c1", content: "a map" }],
  resume: [{ interruptId: "i1", status: "resolved", payload: { approved: true } }],
  tools: [{ name: "open_map", description: "Opens a map.", parameters: { type: "object" } }],
  context: [{ description: "time zone", value: "CET" }],
  state: null,
  forwardedProps: {},
  principal: { tenant: "acme", subject: "ann", scopes: ["answer"] },
  protocolVersion: null,
};

/** Each fact with nothing in it that could be left out. */
const facts: { readonly [K in FactKind]: readonly Fact<K>[] } = {
  "run.started": [
    {
      kind: "run.started",
      uid,
      agent: "desk",
      definition: hash,
      owner: { tenant: "acme", subject: "ann" },
      thread: "t1",
      turn: 1,
      labels: { plan: "free" },
    },
  ],
  "leg.started": [
    { kind: "leg.started", leg: 1, runId: "r1", request },
    { kind: "leg.started", leg: 2, runId: "u1.2", request: null },
  ],
  "leg.finished": [
    { kind: "leg.finished", leg: 1, outcome: { type: "success", pendingToolCallIds: ["c1"] }, usage: [] },
    { kind: "leg.finished", leg: 1, outcome: { type: "cancelled" }, usage: [{ model: "m", inputTokens: 3 }] },
    {
      kind: "leg.finished",
      leg: 1,
      outcome: { type: "interrupt", interrupts: [{ id: "i1", reason: "tool_call" }] },
      usage: [],
    },
    { kind: "leg.finished", leg: 1, outcome: { type: "error", error: failure }, usage: [] },
  ],
  "step.started": [
    {
      kind: "step.started",
      path: path("0"),
      step: "model",
      name: "m",
      effect: "read",
      input: { history: { upTo: -1, instructions: hash, tools: hash, settings: {} } },
      contract: null,
    },
    {
      kind: "step.started",
      path: path("1.0"),
      step: "tool",
      name: "refund",
      effect: "write",
      input: { call: { model: path("0"), index: 0 } },
      contract: hash,
    },
    {
      kind: "step.started",
      path: path("2"),
      step: "ask",
      name: "ask",
      effect: "read",
      input: { value: null },
      contract: null,
    },
  ],
  "step.attempt": [
    { kind: "step.attempt", path: path("1.0"), n: 1, epoch: 1, phase: "call", key: null, deadline: null },
    { kind: "step.attempt", path: path("1.0"), n: 2, epoch: 3, phase: "resume", key: "k", deadline: 9.5 },
  ],
  "step.waiting": [{ kind: "step.waiting", path: path("1.0"), holder: { uid, path: path("3.0") }, until: 9_000 }],
  "step.failed": [
    { kind: "step.failed", path: path("1.0"), n: 1, error: failure, applied: "unknown", retryAt: 5_000 },
    { kind: "step.failed", path: path("1.0"), n: 1, error: failure, applied: "no", retryAt: null },
  ],
  "step.finished": [
    { kind: "step.finished", path: path("1.0"), via: "reconcile", status: "ok", output: null, patch: [] },
    { kind: "step.finished", path: path("1.0"), via: "call", status: "error", error: failure, applied: "yes" },
    { kind: "step.finished", path: path("1.0"), via: "client", status: "cancelled" },
  ],
  state: [{ kind: "state", path: path(""), patch: [{ op: "add", path: "/items/0", value: "a" }] }],
  memo: [{ kind: "memo", transformer: "t", value: [1] }],
  "interrupt.opened": [
    {
      kind: "interrupt.opened",
      interrupt: {
        id: "i1",
        path: path("1.0"),
        kind: "approval",
        reason: "tool_call",
        message: "Refund 80 EUR?",
        schema: { type: "object" },
        argsHash: null,
        audience: null,
        expiresAt: null,
      },
    },
  ],
  "interrupt.answered": [{ kind: "interrupt.answered", id: "i1", status: "withdrawn", by: "ann" }],
  "inbox.taken": [{ kind: "inbox.taken", item: "cancel", payload: null, by: "ann" }],
  "run.parked": [{ kind: "run.parked", why: "interrupt" }],
  "run.resumed": [{ kind: "run.resumed", why: "recovered", epoch: 2 }],
  transcript: [
    {
      kind: "transcript",
      messages: [
        { kept: "all" },
        { kept: { from: 0, to: 2 } },
        { brought: 0 },
        {
          message: { id: "a0", role: "assistant", content: "" },
          texts: [{ at: ["content"], of: { output: path("0"), in: ["reasoning", 0, "text"] } }],
        },
        {
          message: { id: "a1", role: "user", content: [{ type: "text", text: "" }] },
          texts: [{ at: ["content", 0, "text"], of: { brought: 0, in: ["content"] } }],
        },
        {
          message: { id: "a2", role: "tool", toolCallId: "c", content: "" },
          texts: [{ at: ["content"], of: { result: path("1.0") } }],
        },
      ],
    },
  ],
  "run.finished": [{ kind: "run.finished", outcome: "cancelled", unresolved: [path("1.0")] }],
};

const frames: readonly NewEntry[] = [
  { kind: "frame", path: path("0.0"), event: { type: "TEXT_MESSAGE_CONTENT", messageId: "a0", delta: "Hel" } },
  { kind: "frame", path: path(""), ref: { of: "RUN_STARTED", leg: 1 } },
  { kind: "frame", path: path("1.0"), ref: { of: "TOOL_CALL_RESULT", path: path("1.0") } },
  { kind: "frame", path: path(""), ref: { of: "STATE_SNAPSHOT" } },
  { kind: "frame", path: path(""), ref: { of: "MESSAGES_SNAPSHOT", without: { path: path("0"), n: 1 } } },
  { kind: "frame", path: path(""), ref: { of: "MESSAGES_SNAPSHOT", withdrawn: ["c1"] } },
  { kind: "frame", path: path("3"), ref: { of: "CHILD", uid, from: 0, to: 9 } },
];

const samples: readonly (readonly [string, NewEntry])[] = [...Object.values(facts).flat(), ...frames].map(
  (entry, i) => [`${entry.kind} (${i})`, entry] as const,
);

function faultOf(work: () => unknown): EntryError {
  try {
    work();
  } catch (error) {
    if (error instanceof EntryError) return error;
    throw error;
  }
  throw new Error("nothing was wrong");
}

describe.each(samples)("%s", (_, entry) => {
  test("is read as it was written", () => {
    expect(parseEntry(encodeEntry(entry).text, place)).toEqual({ ...entry, seq: 7, at: 1_000 });
  });

  test("lacks no member, has none too many, and none of a wrong type, in writing or reading", () => {
    for (const member of Object.keys(entry).filter((key) => key !== "ref" && key !== "event")) {
      const without = Object.fromEntries(Object.entries(entry).filter(([key]) => key !== member));
      for (const wrong of [without, { ...entry, [member]: undefined }]) {
        expect(faultOf(() => encodeEntry(wrong as NewEntry)).code, member).toBe("ENTRY_INVALID");
        expect(faultOf(() => parseEntry(JSON.stringify(wrong), place)).code, member).toBe("ENTRY_UNREADABLE");
      }
      if (member === "value" || member === "payload" || member === "output") continue;
      expect(faultOf(() => parseEntry(JSON.stringify({ ...entry, [member]: [[]] }), place)).seq, member).toBe(7);
    }
    const extra: NewEntry & { extra: number } = { ...entry, extra: 1 };
    expect(faultOf(() => encodeEntry(extra)).why).toContain("extra");
    expect(faultOf(() => parseEntry(JSON.stringify({ ...entry, seq: 1 }), place)).why).toContain("seq");
  });
});

test("what may be left out may be there", () => {
  const usage = [{ provider: "p", model: "m", outputTokens: 1 }];
  const full: NewEntry[] = [
    {
      ...facts["run.started"][0],
      kind: "run.started",
      parent: { uid, path: path("3") },
      forkedFrom: { uid, seq: 2 },
    } as Fact<"run.started">,
    { kind: "run.finished", outcome: "failed", output: 0, error: { ...failure, data: null }, unresolved: [] },
    { kind: "run.finished", outcome: "success", outputOf: path("2"), unresolved: [] },
    { kind: "interrupt.answered", id: "i1", status: "resolved", payload: false, by: "ann" },
    { kind: "step.finished", path: path("0"), via: "call", usage, status: "ok", output: "", patch: [], dropped: [] },
    { kind: "frame", path: path(""), event: { type: "RAW", event: { any: [1, null] } } },
    { kind: "transcript", messages: [], shown: null },
  ];
  for (const entry of full) expect(parseEntry(encodeEntry(entry).text, place)).toEqual({ ...entry, seq: 7, at: 1_000 });
});

describe("an error says run, seq, where and why", () => {
  test.each([
    ["", "", "not JSON"],
    ['{"kind":"memo","transformer"', "", "not JSON"],
    ["[]", "", "expected object"],
    ['{"kind":"zap"}', "/kind", "run.started"],
    ['{"kind":"frame","path":"","event":{"type":"ZAP"}}', "/event", "not that of an AG-UI 1.0 event"],
    ['{"kind":"frame","path":"","ref":{"of":"ZAP"}}', "/ref/of", "RUN_STARTED"],
    ['{"kind":"state","path":"","patch":[{"op":"add","path":"/a"}]}', "/patch/0/value", ""],
    ['{"kind":"step.finished","path":"0","via":"call","status":"ok","patch":[]}', "/output", "missing"],
    ['{"kind":"transcript","messages":[{"kept":"some"}]}', "/messages/0", ""],
  ])("%s", (text, where, why) => {
    const fault = faultOf(() => parseEntry(text, place));
    expect(fault).toMatchObject({ code: "ENTRY_UNREADABLE", run: uid, seq: 7, where });
    expect(fault.why).toContain(why);
    expect(fault.message).toContain(`entry 7 of run ${uid} cannot be read: `);
  });

  test("what JSON cannot hold is named by its place in the entry", () => {
    const entry = { kind: "memo", transformer: "t", value: { deep: [1n] } } as unknown as NewEntry;
    expect(() => encodeEntry(entry)).toThrow('entry memo cannot be written as JSON: a BigInt at "/value/deep/0"');
  });
});

test("whatever a file holds: an entry, or an EntryError, and an entry that was read is written as it was", () => {
  const texts = samples.map(([, entry]) => encodeEntry(entry).text);
  const damaged = fc
    .tuple(fc.constantFrom(...texts), fc.nat(), fc.nat(12), fc.string({ maxLength: 12 }))
    .map(([text, at, cut, put]) => {
      const from = at % (text.length + 1);
      return text.slice(0, from) + put + text.slice(from + cut);
    });
  fc.assert(
    fc.property(fc.oneof(damaged, fc.json(), fc.string()), (text) => {
      let entry: Entry;
      try {
        entry = parseEntry(text, place);
      } catch (error) {
        expect(error).toBeInstanceOf(EntryError);
        return;
      }
      const { seq, at, ...rest } = entry;
      expect(JSON.parse(encodeEntry(rest as NewEntry).text)).toEqual(JSON.parse(text));
      expect([seq, at]).toEqual([7, 1_000]);
    }),
    { numRuns: 2_000 },
  );
});

test("the types tell the kinds apart", () => {
  expectTypeOf<Fact<"run.parked">>().toEqualTypeOf<Readonly<{ kind: "run.parked"; why: string }>>();
  expectTypeOf<Extract<Fact<"step.finished">, { status: "cancelled" }>>().not.toHaveProperty("output");
  expectTypeOf<Extract<NewEntry, { kind: "memo" }>>().not.toHaveProperty("seq");
  // @ts-expect-error an unknown outcome
  expect(() => encodeEntry({ kind: "run.finished", outcome: "bored", unresolved: [] })).toThrow(EntryError);
});
