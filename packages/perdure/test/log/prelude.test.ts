import fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { quietClient } from "../protocol/published-client.ts";
import { rejoined, uninterrupted, versions } from "./clients.ts";
import { frame, headsOf, logOf } from "./entries.ts";
import { Play, play, reasoningFirst, sameShape, turns } from "./play.ts";
import { traces } from "./traces.ts";

quietClient();
afterEach(() => vi.unstubAllGlobals());

describe.each(traces)("at every head of $name", ({ batches }) => {
  const log = logOf(batches);
  const heads = headsOf(batches);

  test("the prelude and what is live after it are a stream that the strict verifier accepts", () => {
    for (const head of heads) {
      const state = fold(log.slice(0, head + 1));
      const as = { threadId: "thread", runId: state.leg?.runId ?? "again" };
      const live = [...rendered(log.slice(head + 1), state)].map(({ event }) => event);
      let wire = newWire({ strict: true });
      for (const event of [...prelude(state, as), ...live]) wire = verify(wire, event);
      verifyEnd(wire);
    }
  });

  test.each(versions)(
    "a client %s ends with the same transcript, reloaded or with what it had seen",
    async (version) => {
      const whole = normaliseTranscript(await uninterrupted(version, log));
      for (const [i, head] of heads.entries()) {
        // Nothing seen, the batch before, and something in between: a connection may be cut anywhere, also within a batch.
        for (const seen of new Set([-1, Math.max(-1, head - 1 - (i % 5)), heads[Math.floor(i / 2)] ?? -1])) {
          const held = await rejoined(version, log, seen, head);
          expect(normaliseTranscript(held), `seen ${seen}, head ${head}`).toEqual(whole);
        }
      }
    },
  );
});

describe("at every head of a random run with crashes", () => {
  test("prelude and live rest are valid and end with the messages and state of one who has read everything", () => {
    fc.assert(
      fc.property(turns, (story) => {
        const { batches, state: end } = play(story);
        const log = logOf(batches);
        const whole = normaliseTranscript({ messages: end.messages, state: end.shown });
        for (const head of headsOf(batches)) {
          const state = fold(log.slice(0, head + 1));
          const live = [...rendered(log.slice(head + 1), state)].map(({ event }) => event);
          let wire = newWire({ strict: true });
          let held = newTranscript();
          for (const event of [...prelude(state, { threadId: "thread", runId: "r1" }), ...live]) {
            wire = verify(wire, event);
            held = reduce(held, event);
          }
          verifyEnd(wire);
          expect(normaliseTranscript(held), `head ${head}`).toEqual(whole);
        }
      }),
      { numRuns: 40 },
    );
  });

  test.each(versions)("a client %s, cut off anywhere, ends with the same transcript", async (version) => {
    await fc.assert(
      fc.asyncProperty(turns, fc.nat(), fc.nat(), async (any, cut, back) => {
        // A client keeps its own order in a snapshot: where the next try begins with something else, what it has seen stays in front.
        const story = sameShape(version === "0.0.45" ? reasoningFirst(any) : any);
        const { batches } = play(story);
        const log = logOf(batches);
        const heads = headsOf(batches);
        const head = heads[back % heads.length] ?? 0;
        const held = await rejoined(version, log, (cut % (head + 1)) - 1, head);
        expect(normaliseTranscript(held)).toEqual(normaliseTranscript(await uninterrupted(version, log)));
      }),
      { numRuns: 60 },
    );
  });
});

describe("a prelude", () => {
  const log = logOf(traces.find(({ name }) => name.startsWith("t1"))?.batches ?? []);
  const untilSeq = (last: (entry: Entry) => boolean) => fold(log.slice(0, log.findIndex(last) + 1));
  const as = { threadId: "thread", runId: "mine" };

  test("tells of the open questions, with the ids that the reader knows", () => {
    const events = prelude(
      untilSeq(({ kind }) => kind === "run.parked"),
      as,
    );
    expect(events.map(({ type }) => type)).toEqual([
      ...["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "CUSTOM", "RUN_FINISHED"],
    ]);
    expect(events[3]).toMatchObject({
      name: "perdure.interrupt",
      value: { id: "I1", toolCallId: "c2", state: "open" },
    });
    expect(events.at(-1)).toMatchObject({ runId: "mine", outcome: { type: "interrupt", interrupts: [{ id: "I1" }] } });
  });

  test("has the half call not in its snapshot but begun again, with all its arguments so far", () => {
    const state = untilSeq(
      (entry) => entry.kind === "frame" && "event" in entry && entry.event.type === "TOOL_CALL_ARGS",
    );
    const [, , snapshot, ...rest] = prelude(state, as);
    expect(JSON.stringify(snapshot)).not.toContain("toolCalls");
    expect(rest).toEqual([
      { type: "TOOL_CALL_START", toolCallId: "c0", toolCallName: "search_orders", parentMessageId: "a0" },
      { type: "TOOL_CALL_ARGS", toolCallId: "c0", delta: '{"email":"a@b.c"}' },
    ]);
  });

  test("begins open subagents again as they were announced", () => {
    const run = new Play();
    run.begin();
    const started = { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper", description: "helps" } as const;
    run.append(frame("0", started), frame("0", { type: "STEP_STARTED", stepName: "plan", subagentRunId: "s" }));
    expect(prelude(run.state, as).slice(3)).toEqual([
      started,
      { type: "STEP_STARTED", stepName: "plan", subagentRunId: "s" },
    ]);
  });
});
