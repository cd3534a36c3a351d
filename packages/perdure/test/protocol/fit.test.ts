import fc from "fast-check";
import { expect, test } from "vitest";
import { type AGUIEvent, event, type Message } from "../../src/protocol/events.ts";
import { fit } from "../../src/protocol/fit.ts";
import { checkShape } from "../../src/protocol/shape.ts";

/** Small enough that a test can be large, and more than what is around the messages is allowed. */
const LIMIT = 256 * 1024;
const bytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

const LONE_SURROGATE = /\p{Surrogate}/u;

const text = fc
  .tuple(fc.string({ unit: "binary", minLength: 1, maxLength: 8 }), fc.nat(40_000))
  .map(([unit, times]) => unit.repeat(times));

const part = fc.oneof(
  text.map((value) => ({ type: "text" as const, text: value })),
  text.map((value) => ({ type: "image" as const, source: { type: "data" as const, value, mimeType: "image/png" } })),
);

const message = fc.oneof(
  text.map((content) => ({ role: "user" as const, content })),
  fc.array(part, { maxLength: 3 }).map((content) => ({ role: "user" as const, content })),
  text.map((content) => ({ role: "reasoning" as const, content })),
  text.map((content) => ({ role: "tool" as const, toolCallId: "c", content })),
  text.map((content) => ({ role: "activity" as const, activityType: "PLAN", content: { content } })),
  fc.tuple(text, text).map(([content, argument]) => ({
    role: "assistant" as const,
    content,
    toolCalls: [{ id: "c", type: "function" as const, function: { name: "f", arguments: JSON.stringify([argument]) } }],
  })),
);

const messages = fc
  .array(message, { maxLength: 12 })
  .map((list): Message[] => list.map((one, i): Message => ({ id: `m${i}`, ...one })));

test("a snapshot that is cut down fits, is valid, and has the messages under their ids, in their order, with their calls", () => {
  fc.assert(
    fc.property(messages, (list) => {
      const whole = event("MESSAGES_SNAPSHOT", { messages: list });
      const [cut, ...more] = fit(whole, LIMIT);
      expect(more).toEqual([]);
      if (bytes(whole) <= LIMIT) {
        expect(cut).toBe(whole);
        return;
      }
      if (cut?.type !== "MESSAGES_SNAPSHOT") throw new Error("another event");
      expect(bytes(cut)).toBeLessThanOrEqual(LIMIT);
      checkShape(cut);
      expect(cut.messages.map(({ id, role }) => [id, role])).toEqual(list.map(({ id, role }) => [id, role]));
      for (const [i, one] of cut.messages.entries()) {
        const before = list[i];
        if (one === before) continue;
        expect(one.metadata).toEqual({ perdure: { cut: bytes(before) } });
        if (one.role !== "assistant") continue;
        for (const call of one.toolCalls ?? []) JSON.parse(call.function.arguments);
      }
    }),
    { numRuns: 50 },
  );
});

test("of more messages than fit, however short they are made, the newest are kept", () => {
  const list = Array.from(
    { length: 5_000 },
    (_, i): Message => ({ id: `m${i}`, role: "user", content: "x".repeat(100) }),
  );
  const [cut] = fit(event("MESSAGES_SNAPSHOT", { messages: list }), LIMIT);
  if (cut?.type !== "MESSAGES_SNAPSHOT") throw new Error("another event");
  expect(bytes(cut)).toBeLessThanOrEqual(LIMIT);
  expect(cut.messages.length).toBeGreaterThan(1_000);
  expect(cut.messages.map(({ id }) => id)).toEqual(list.slice(-cut.messages.length).map(({ id }) => id));
});

test("the input of a RUN_STARTED is cut down as a snapshot is", () => {
  const input = {
    ...{ threadId: "t", runId: "r", tools: [], context: [], state: {}, forwardedProps: {} },
    messages: [{ id: "u", role: "user" as const, content: "x".repeat(LIMIT) }],
  };
  const [cut] = fit(event("RUN_STARTED", { threadId: "t", runId: "r", input }), LIMIT);
  expect(bytes(cut)).toBeLessThanOrEqual(LIMIT);
  expect(cut).toMatchObject({ input: { threadId: "t", messages: [{ id: "u" }] } });
});

test("a delta goes out in pieces that fit and say the same, no character cut in two", () => {
  const kinds = fc.constantFrom<(delta: string) => AGUIEvent>(
    (delta) => event("TEXT_MESSAGE_CONTENT", { messageId: "m", delta }),
    (delta) => event("REASONING_MESSAGE_CONTENT", { messageId: "m", delta }),
    (delta) => event("TOOL_CALL_ARGS", { toolCallId: "c", delta }),
  );
  const long = fc
    .tuple(fc.string({ unit: "binary", minLength: 1, maxLength: 5 }), fc.nat(3_000))
    .map(([unit, times]) => unit.repeat(times));
  fc.assert(
    fc.property(kinds, long, (make, delta) => {
      const pieces = fit(make(delta), 8_192);
      for (const piece of pieces) expect(bytes(piece)).toBeLessThanOrEqual(8_192);
      const deltas = pieces.map((piece) => ("delta" in piece && typeof piece.delta === "string" ? piece.delta : ""));
      expect(deltas.join("")).toBe(delta);
      for (const one of deltas) expect(LONE_SURROGATE.test(one)).toBe(false);
    }),
    { numRuns: 300 },
  );
});
