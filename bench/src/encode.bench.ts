/** One text delta from event to frame, with every check that a served stream goes through. */
import { EventType, verifyEvents } from "@ag-ui/client";
import { EventEncoder } from "@ag-ui/encoder";
import { type AGUIEvent, checkShape, encodeSse, newWire, verify } from "perdure/protocol";
import { Subject } from "rxjs";
import { Bench, type Contender, made } from "./harness.ts";

/** Deltas as models send them: a word or a part of one, now and then a line break, a quote or another script. */
const PIECES = [
  "Hel",
  "lo",
  ", ",
  "the refund",
  " of ",
  "42.00",
  " EUR",
  " is done",
  ".\n\n",
  '"soon"',
  " größer",
  " 日本",
  "🙂",
  " transaction",
  " a",
];
const DELTAS = Array.from({ length: 1024 }, (_, index) => ({
  type: "TEXT_MESSAGE_CONTENT" as const,
  messageId: "0198c1f2-7a60-7c3e-9d51-3f0a8b6c2d11",
  delta: PIECES[(index * 7) % PIECES.length] ?? "",
}));
const OPENING: AGUIEvent[] = [
  { type: "RUN_STARTED", threadId: "thread", runId: "run" },
  { type: "TEXT_MESSAGE_START", messageId: "0198c1f2-7a60-7c3e-9d51-3f0a8b6c2d11", role: "assistant" },
];

/** A contender that does `job` with one delta after the other. */
function overDeltas(name: string, job: (event: (typeof DELTAS)[number]) => number): Contender {
  return {
    name,
    run(times) {
      let sum = 0;
      for (let i = 0; i < times; i++) {
        const event = DELTAS[i % DELTAS.length];
        if (event) sum += job(event);
      }
      return sum;
    },
  };
}

const stringify = overDeltas("JSON.stringify", (event) => made(JSON.stringify(event)));

let wire = newWire();
for (const event of OPENING) wire = verify(wire, event);
function checkedFrame(event: AGUIEvent): string {
  checkShape(event);
  wire = verify(wire, event);
  return encodeSse(event);
}

const utf8 = new TextEncoder();
const text = overDeltas("shape, order, frame", (event) => made(checkedFrame(event)));
const bytes = overDeltas("shape, order, frame, bytes", (event) => utf8.encode(checkedFrame(event)).length);

/** What the AG-UI packages offer for the same: the client's verifier and the encoder. */
function published(): Contender {
  const events = new Subject<Parameters<EventEncoder["encodeSSE"]>[0]>();
  const encoder = new EventEncoder();
  let read = 0;
  verifyEvents(false)(events).subscribe((event) => {
    read = made(encoder.encodeSSE(event));
  });
  events.next({ type: EventType.RUN_STARTED, threadId: "thread", runId: "run" });
  events.next({ type: EventType.TEXT_MESSAGE_START, messageId: DELTAS[0]?.messageId, role: "assistant" });
  return overDeltas("verifyEvents, EventEncoder", ({ messageId, delta }) => {
    events.next({ type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta });
    return read;
  });
}

const bench = new Bench("encode");
await bench.compare(
  "One text delta to the frame's text",
  text,
  [stringify, published()],
  [{ slowerThan: "JSON.stringify", atMost: 1.5 }],
);
await bench.compare("One text delta to the frame's bytes", bytes, [stringify], []);
bench.finish();
