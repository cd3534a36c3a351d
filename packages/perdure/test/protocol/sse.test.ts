import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type AGUIEvent, event } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { encodeSse, KEEP_ALIVE, SseFrames } from "../../src/protocol/sse.ts";
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

describe("SseFrames", () => {
  const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
  const take = (...pieces: string[]) => {
    const frames = new SseFrames();
    return pieces.flatMap((piece) => frames.take(bytesOf(piece)));
  };

  test("gives back what encodeSse wrote, however its bytes are cut, and nothing of a frame that has no end", () => {
    const stream = fc.array(
      fc.record({
        delta: fc.string({ unit: "binary", maxLength: 40 }),
        id: fc.option(fc.string({ unit: "grapheme" })),
      }),
      { minLength: 1, maxLength: 12 },
    );
    fc.assert(
      fc.property(stream, fc.array(fc.nat(200)), fc.nat(10), fc.boolean(), (sent, cuts, missing, isCrlf) => {
        const frames = sent.map(({ delta, id }) => ({
          id: id === null || /[\r\n\0]/.test(id) ? undefined : `c${id}`,
          data: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta }),
        }));
        const text = frames
          .map(({ id, data }) => `${KEEP_ALIVE}${encodeSse(JSON.parse(data) as AGUIEvent, id)}`)
          .join("");
        const bytes = bytesOf(isCrlf ? text.replaceAll("\n", "\r\n") : text);
        const reader = new SseFrames();
        const found = [];
        const whole = bytes.length - (missing === 0 ? 0 : missing + (isCrlf ? 2 : 1));
        for (let at = 0, i = 0; at < whole; i++) {
          const next = Math.min(whole, at + Math.max(1, cuts[i] ?? whole));
          found.push(...reader.take(bytes.subarray(at, next)));
          at = next;
        }
        expect(found).toEqual(missing === 0 ? frames : frames.slice(0, -1));
      }),
      { numRuns: 2_000 },
    );
  });

  test("ends a frame whose last CRLF comes in two pieces", () => {
    expect(take("data: x\r\n\r", "\ndata: y\r", "\n\r\n")).toEqual([
      { id: undefined, data: "x" },
      { id: undefined, data: "y" },
    ]);
  });

  test("joins data of several lines, and takes it with and without the space", () => {
    expect(take("data:a\ndata: b\nevent: x\nid:7\n\n")).toEqual([{ id: "7", data: "a\nb" }]);
  });

  test("a frame without data, as a comment, is none", () => {
    expect(take(": keep-alive\n\nid: 3\n\n", "data: x\n\n")).toEqual([{ id: undefined, data: "x" }]);
  });
});
