import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type AGUIEvent, event } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { encodeSse, KEEP_ALIVE } from "../../src/protocol/sse.ts";
import { legalStream } from "./legal-streams.ts";

function decode(frame: string): unknown {
  const match = /^(?:id: [^\n]*\n)?data: ([^\n]*)\n\n$/.exec(frame);
  if (match?.[1] === undefined) throw new Error(`not one frame: ${JSON.stringify(frame)}`);
  return JSON.parse(match[1]);
}

describe("encodeSse", () => {
  test("writes one LF-only frame", () => {
    const frame = encodeSse(event("TEXT_MESSAGE_CONTENT", { messageId: "m", delta: "a\r\nb" }));
    expect(frame).toBe('data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a\\r\\nb"}\n\n');
  });

  test("puts the cursor before the data", () => {
    expect(encodeSse(event("TEXT_MESSAGE_END", { messageId: "m" }), "u:12")).toBe(
      'id: u:12\ndata: {"type":"TEXT_MESSAGE_END","messageId":"m"}\n\n',
    );
  });

  test.each(["a\nb", "a\rb", "a\0b"])("refuses the id %j, which would end its line", (id) => {
    expect(() => encodeSse(event("TEXT_MESSAGE_END", { messageId: "m" }), id)).toThrow(
      expect.objectContaining({ code: "BAD_EVENT_ID" }),
    );
  });

  test("writes deltas of any text exactly as JSON.stringify does", () => {
    const text = fc.oneof(
      fc.string({ unit: "binary", maxLength: 100 }),
      // Lone surrogates: a delta may cut a pair in two.
      fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 80 }).map((units) => String.fromCharCode(...units)),
    );
    const delta = fc.oneof(
      fc.record({ type: fc.constant("TEXT_MESSAGE_CONTENT" as const), messageId: text, delta: text }),
      fc.record({ type: fc.constant("REASONING_MESSAGE_CONTENT" as const), messageId: text, delta: text }),
      fc.record({ type: fc.constant("TOOL_CALL_ARGS" as const), toolCallId: text, delta: text }),
    );
    fc.assert(
      fc.property(delta, (made) => {
        expect(encodeSse(made)).toBe(`data: ${JSON.stringify(made)}\n\n`);
      }),
      { numRuns: 5_000 },
    );
  });

  test("keeps the other members of a delta", () => {
    const made: AGUIEvent = {
      type: "TEXT_MESSAGE_CONTENT",
      messageId: "m",
      delta: "x",
      subagentRunId: "s",
      metadata: { a: null },
    };
    expect(decode(encodeSse(made))).toEqual(made);
  });

  test("what is decoded is what was encoded, over random legal streams", () => {
    fc.assert(
      fc.property(legalStream({ chunks: true }), (events) => {
        for (const made of events) expect(decode(encodeSse(checkShape(made), "7"))).toEqual(made);
      }),
      { numRuns: 200 },
    );
  });
});

test("KEEP_ALIVE is a comment in a frame of its own", () => {
  expect(KEEP_ALIVE).toMatch(/^:[^\n]*\n\n$/);
});
