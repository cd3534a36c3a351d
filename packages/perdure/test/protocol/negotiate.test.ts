import { expect, test } from "vitest";
import { EVENT_STREAM, negotiate, PROTOBUF } from "../../src/protocol/negotiate.ts";

const SSE = EVENT_STREAM;

test.each<[string | null, readonly string[]]>([
  // Who says nothing, or anything, gets what everybody can read.
  [null, [SSE]],
  ["", [SSE]],
  ["*/*", [SSE]],
  ["text/*", [SSE]],
  ["application/*", []],
  ["*/*;q=0.1", [SSE]],
  ["*/*;q=0", []],
  ["text/event-stream", [SSE]],
  ["TEXT/Event-Stream ; Q=0.5", [SSE]],
  ["text/html, application/json", []],
  // The most specific range decides, whatever the order.
  ["text/event-stream;q=0, */*", []],
  ["*/*, text/event-stream;q=0", []],
  ["text/*;q=0, text/event-stream", [SSE]],
  // Protobuf for whoever names it.
  [PROTOBUF, [PROTOBUF]],
  [`${PROTOBUF};q=0`, []],
  [`${PROTOBUF};q=0, text/event-stream`, [SSE]],
  [`${PROTOBUF}, */*;q=0.1`, [PROTOBUF, SSE]],
  [`${PROTOBUF};q=0.1, */*`, [SSE, PROTOBUF]],
  [`${PROTOBUF}, text/event-stream`, [SSE, PROTOBUF]],
  [`text/event-stream;q=0.9, ${PROTOBUF}`, [PROTOBUF, SSE]],
  // What is no quality is none.
  [`${PROTOBUF};q=high, text/event-stream;q=-1`, []],
])("accept: %s takes %j", (accept, types) => {
  expect(negotiate(accept)).toEqual(types);
});
