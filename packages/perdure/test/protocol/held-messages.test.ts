import fc from "fast-check";
import { expect, test } from "vitest";
import { HeldMessages } from "../../src/protocol/held-messages.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { legalStream } from "./legal-streams.ts";

test("held messages are what the reducer makes of the events, whenever somebody asks and whenever nobody does", () => {
  fc.assert(
    fc.property(
      legalStream({ chunks: true }),
      fc.array(fc.boolean(), { minLength: 20, maxLength: 60 }),
      (events, asks) => {
        let transcript = newTranscript();
        let held = HeldMessages.of([]);
        const all = events.map((event, i) => {
          transcript = reduce(transcript, event);
          held = held.after(event);
          if (asks[i % asks.length]) expect(held.messages).toEqual(transcript.messages);
          return { held, messages: transcript.messages };
        });
        for (const { held: then, messages } of all.reverse()) expect(then.messages).toEqual(messages);
      },
    ),
    { numRuns: 200 },
  );
});

test("held messages that nobody asks for are reduced now and then, so that their events can be let go", () => {
  let held = HeldMessages.of([]).after({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
  for (let i = 0; i < 10_000; i++) held = held.after({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" });
  expect(held.messages).toEqual([{ id: "m", role: "assistant", content: "x".repeat(10_000) }]);
});

test("a request's messages that are held already are not held twice", () => {
  const hello = { id: "u", role: "user", content: "hello" } as const;
  const input = { threadId: "t", runId: "r", messages: [hello], tools: [], context: [] };
  const held = HeldMessages.of([hello]).after({ type: "RUN_STARTED", threadId: "t", runId: "r", input });
  expect(held.messages).toEqual([hello]);
});
