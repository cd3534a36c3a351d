import { EventSchema } from "@ag-ui/core/schemas";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MAX_JSON_DEPTH, toJson } from "../../src/protocol/json.ts";
import { checkShape, MAX_ID_LENGTH } from "../../src/protocol/shape.ts";
import { ProtocolError } from "../../src/protocol/verify.ts";
import { legalStream } from "./legal-streams.ts";

function fault(event: unknown): string {
  try {
    checkShape(event);
  } catch (error) {
    if (error instanceof ProtocolError && error.rule === "shape" && error.code === "PROTOCOL_VIOLATION")
      return error.message;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(event)}`);
}

const text = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" };
const snapshot = (value: unknown) => ({ type: "STATE_SNAPSHOT", snapshot: value });

describe("accepts", () => {
  test("every event of random legal streams, and gives back the same object", () => {
    fc.assert(
      fc.property(legalStream({ chunks: true }), (events) => {
        for (const event of events) expect(checkShape(event)).toBe(event);
      }),
      { numRuns: 300 },
    );
  });

  test("the empty delta, half a surrogate pair in a delta, and null where a value is required", () => {
    checkShape({ ...text, delta: "" });
    checkShape({ ...text, delta: "\ud83d" });
    checkShape(snapshot(null));
    checkShape({ type: "RAW", event: null });
    checkShape({ type: "CUSTOM", name: "n", value: null });
  });

  test("null and foreign members inside open objects", () => {
    checkShape({ ...text, metadata: { mine: null, other: { deep: [null] } } });
    checkShape({ type: "STATE_DELTA", delta: [{ op: "remove", path: "/a", value: null, why: "left over" }] });
  });

  test("objects without a prototype and an optional member that is undefined", () => {
    checkShape(Object.assign(Object.create(null), text));
    checkShape({ ...text, subagentRunId: undefined });
  });
});

describe("refuses, and says where", () => {
  test.each<[string, unknown, string]>([
    ["no object", "RUN_STARTED", "no type"],
    ["null", null, "no type"],
    ["an array", [text], "no type"],
    ["an unknown type", { type: "THINKING_START" }, '"THINKING_START"'],
    ["a type from the prototype of objects", { type: "constructor" }, '"constructor"'],
    ["a type that is not a string", { type: ["TEXT_MESSAGE_CONTENT"] }, "type"],
    ["a missing member", { type: "TEXT_MESSAGE_CONTENT", messageId: "m" }, "/delta"],
    ["a mistyped member", { ...text, delta: 5 }, "/delta"],
    ["a required member that is undefined", snapshot(undefined), "/snapshot"],
    ["a required member that is missing", { type: "STATE_SNAPSHOT" }, "/snapshot"],
    ["an undescribed member", { ...text, futureProp: 1 }, "/futureProp"],
    ["a member of a sibling event", { ...text, toolCallId: "c" }, "/toolCallId"],
    ["null for an optional member", { ...text, subagentRunId: null }, "/subagentRunId"],
    ["null metadata", { ...text, metadata: null }, "/metadata"],
    ["null outcome", { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: null }, "/outcome"],
    ["a float timestamp", { ...text, timestamp: 1.5 }, "/timestamp"],
    ["a role outside the set", { type: "TEXT_MESSAGE_START", messageId: "m", role: "critic" }, "/role"],
    ["a tool role for a text", { type: "TEXT_MESSAGE_START", messageId: "m", role: "tool" }, "/role"],
    ["an array as outcome", { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: [] }, "/outcome"],
    [
      "an unknown outcome",
      { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "paused" } },
      "/outcome",
    ],
    [
      "a member of another outcome",
      { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "cancelled", interrupts: [] } },
      "/outcome/interrupts",
    ],
    [
      "no interrupts",
      { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "interrupt", interrupts: [] } },
      "/outcome/interrupts",
    ],
    [
      "null in an interrupt",
      {
        type: "RUN_FINISHED",
        threadId: "t",
        runId: "r",
        outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "x", message: null }] },
      },
      "/outcome/interrupts/0/message",
    ],
    ["a patch path without a slash", { type: "STATE_DELTA", delta: [{ op: "remove", path: "a" }] }, "/delta/0/path"],
    ["an add without a value", { type: "STATE_DELTA", delta: [{ op: "add", path: "/a" }] }, "/delta/0/value"],
    ["an unknown patch operation", { type: "STATE_DELTA", delta: [{ op: "increment", path: "/a" }] }, "/delta/0/op"],
    [
      "an unknown part",
      { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content: [{ type: "hologram" }] },
      "/content/0/type",
    ],
    [
      "an undescribed member of a message",
      { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m", role: "user", content: "x", toolCalls: [] }] },
      "/messages/0/toolCalls",
    ],
    [
      "null in a message's call",
      {
        type: "MESSAGES_SNAPSHOT",
        messages: [
          {
            id: "m",
            role: "assistant",
            toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "" }, metadata: null }],
          },
        ],
      },
      "/messages/0/toolCalls/0/metadata",
    ],
    [
      "null state in an echoed input",
      {
        type: "RUN_STARTED",
        threadId: "t",
        runId: "r",
        input: { threadId: "t", runId: "r", messages: [], state: null },
      },
      "/input/state",
    ],
  ])("%s", (_, event, where) => {
    expect(fault(event)).toContain(where);
  });

  test("ids that are empty, huge, or hold line breaks, NUL or half a surrogate pair, wherever an id stands", () => {
    const bad = ["", "x".repeat(MAX_ID_LENGTH + 1), "a\nb", "a\rb", "a\0b", "a\u0085b", "\ud800", "a\udc00"];
    for (const id of bad) {
      expect(fault({ ...text, messageId: id })).toContain("/messageId");
      expect(fault({ type: "TOOL_CALL_ARGS", toolCallId: id, delta: "x" })).toContain("/toolCallId");
      expect(fault({ ...text, subagentRunId: id })).toContain("/subagentRunId");
      expect(fault({ type: "RUN_STARTED", threadId: id, runId: "r" })).toContain("/threadId");
      expect(fault({ type: "MESSAGES_SNAPSHOT", messages: [{ id, role: "user", content: "" }] })).toContain(
        "/messages/0/id",
      );
      const outcome = { type: "success", pendingToolCallIds: ["fine", id] };
      expect(fault({ type: "RUN_FINISHED", threadId: "t", runId: "r", outcome })).toContain(
        "/outcome/pendingToolCallIds/1",
      );
    }
    checkShape({ ...text, messageId: "x".repeat(MAX_ID_LENGTH) });
    checkShape({ ...text, messageId: "Ünïcode 😀 / ~ %" });
  });

  test("payloads that JSON would drop or change", () => {
    class Money {
      cents = 5;
    }
    const cycle: Record<string, unknown> = {};
    cycle.self = [cycle];
    const bad: [unknown, string][] = [
      [{ a: [1n] }, "/snapshot/a/0 is a BigInt"],
      [{ a: undefined }, "/snapshot/a"],
      [[undefined], "/snapshot/0"],
      [{ "a/b": Number.NaN }, "/snapshot/a~1b is NaN"],
      [{ f: () => 1 }, "/snapshot/f"],
      [Symbol("s"), "/snapshot"],
      [{ when: new Date(0) }, "/snapshot/when is an instance of Date"],
      [new Map(), "/snapshot is an instance of Map"],
      [{ price: new Money() }, "/snapshot/price is an instance of Money"],
      [{ toJSON: () => 1 }, "/snapshot"],
      [cycle, "contains itself"],
      [JSON.parse('{"a":{"__proto__":{"admin":true}}}'), "/snapshot/a/__proto__"],
    ];
    for (const [value, where] of bad) {
      expect(fault(snapshot(value))).toContain(where);
      expect(fault({ ...text, metadata: { value } })).toContain("/metadata/value");
    }
  });

  test("a payload that nests one level too deep", () => {
    let deepest: unknown = 1;
    for (let i = 0; i < MAX_JSON_DEPTH; i++) deepest = [deepest];
    checkShape(snapshot(deepest));
    expect(toJson(deepest)).toEqual(deepest);
    expect(fault(snapshot([deepest]))).toContain("nests deeper");
  });

  test("a deep payload, without overflowing the stack", () => {
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i++) deep = [deep];
    expect(fault(snapshot(deep))).toContain("nests deeper");
  });

  test("members that are inherited, or hidden behind __proto__", () => {
    expect(fault(Object.create(text))).toContain("not a plain object");
    expect(fault(JSON.parse('{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","__proto__":{"delta":"x"}}'))).toContain(
      "__proto__",
    );
    const hidden = Object.defineProperty({ type: text.type, messageId: "m", evil: 1 }, "delta", { value: "x" });
    expect(fault(hidden)).toContain("/evil");
  });

  test("a long key only up to a point", () => {
    expect(fault(snapshot({ ["k".repeat(10_000)]: 1n })).length).toBeLessThan(400);
  });
});

test("the short way for deltas accepts nothing that the schema refuses, and agrees with it on members", () => {
  const member = fc.oneof(
    { arbitrary: fc.string({ maxLength: 3 }), weight: 6 },
    { arbitrary: fc.constantFrom(undefined, null, 1, true, {}, []), weight: 1 },
  );
  const delta = fc.record(
    {
      type: fc.constantFrom("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT"),
      messageId: member,
      toolCallId: member,
      delta: member,
      extra: member,
      subagentRunId: member,
    },
    { requiredKeys: ["type"] },
  );
  const described: Record<string, readonly string[]> = {
    TEXT_MESSAGE_CONTENT: ["type", "messageId", "delta", "subagentRunId"],
    REASONING_MESSAGE_CONTENT: ["type", "messageId", "delta", "subagentRunId"],
    TOOL_CALL_ARGS: ["type", "toolCallId", "delta", "subagentRunId"],
  };
  let accepted = 0;
  fc.assert(
    fc.property(delta, (event) => {
      const names = described[event.type] ?? [];
      const ids = [event.type === "TOOL_CALL_ARGS" ? event.toolCallId : event.messageId, event.subagentRunId];
      const good =
        EventSchema.safeParse(event).success &&
        Object.keys(event).every((name) => names.includes(name)) &&
        ids.every((id) => id === undefined || (typeof id === "string" && /^[^\p{Cc}\p{Cs}]+$/u.test(id)));
      if (good) {
        accepted++;
        expect(checkShape(event)).toBe(event);
      } else expect(fault(event)).toContain(event.type);
    }),
    { numRuns: 20_000 },
  );
  expect(accepted).toBeGreaterThan(100);
});
