import fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { Entry, LegOutcome } from "../../src/log/entries.ts";
import { type HeldByClient, normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { CLIENT_TOOLS, legalStream } from "../protocol/legal-streams.ts";
import { quietClient } from "../protocol/published-client.ts";
import { cases } from "../random-cases.ts";
import { rejoined, uninterrupted, versions } from "./clients.ts";
import { type Batch, frame, headsOf, logOf, request, runStarted } from "./entries.ts";
import { Play, play, reasoningFirst, sameShape, turns } from "./play.ts";
import { traces } from "./traces.ts";

/** A stream of one run as a log, each event a batch of its own. */
function batchesOf(events: readonly AGUIEvent[]): Batch[] {
  const tools = CLIENT_TOOLS.map((name) => ({ name, description: name }));
  const [started, ...rest] = events.map((event) => frame("", event));
  const leg: Batch = [
    runStarted,
    { kind: "leg.started", leg: 1, runId: "run1", request: request("run1", { tools }) },
    ...(started === undefined ? [] : [started]),
  ];
  const last = events.at(-1);
  const ending: Batch = [{ kind: "leg.finished", leg: 1, outcome: outcomeOf(last), usage: [] }, ...rest.slice(-1)];
  return [leg, ...rest.slice(0, -1).map((one) => [one]), ending];
}

/**
 * A transcript, but for the order of the calls of one message: a call that is open when a reader comes back is begun again behind those that
 * have ended.
 */
function compared({ messages, state }: HeldByClient) {
  return normaliseTranscript({
    state,
    messages: messages.map((message) =>
      message.role === "assistant" && message.toolCalls !== undefined
        ? { ...message, toolCalls: message.toolCalls.toSorted((a, b) => (a.id < b.id ? -1 : 1)) }
        : message,
    ),
  });
}

function outcomeOf(last: AGUIEvent | undefined): LegOutcome {
  if (last?.type !== "RUN_FINISHED") return { type: "error", error: { code: "BROKEN", message: "broken" } };
  const { outcome } = last;
  if (outcome === undefined || outcome.type === "success") {
    return { type: "success", pendingToolCallIds: outcome?.pendingToolCallIds ?? [] };
  }
  return outcome;
}

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
      { numRuns: cases(20, 40) },
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
      { numRuns: cases(30, 60) },
    );
  });
});

describe("at every event of a random legal stream, with subagents in subagents", () => {
  // A reader's verifier takes a call that it finds in a snapshot for an earlier run's, which no longer goes on.
  const streams = legalStream({ maxRuns: 1, maxMoves: 25, strict: true }).filter((events) => {
    const calls = events.flatMap((event) => (event.type === "TOOL_CALL_START" ? [event.toolCallId] : []));
    return new Set(calls).size === calls.length;
  });

  test("prelude and live rest are valid and end with the messages and state of one who has read everything", () => {
    let subagents = 0;
    fc.assert(
      fc.property(streams, (events) => {
        const batches = batchesOf(events);
        const log = logOf(batches);
        const whole = compared(events.reduce(reduce, newTranscript()));
        for (const head of headsOf(batches)) {
          const state = fold(log.slice(0, head + 1));
          const live = [...rendered(log.slice(head + 1), state)].map(({ event }) => event);
          const begun = prelude(state, { threadId: "thread", runId: "run1" });
          if (begun.some(({ type }) => type === "SUBAGENT_STARTED")) subagents++;
          let wire = newWire({ strict: true });
          let held = newTranscript();
          for (const event of [...begun, ...live]) {
            wire = verify(wire, event);
            held = reduce(held, event);
          }
          verifyEnd(wire);
          expect(compared(held), `head ${head}`).toEqual(whole);
        }
      }),
      { numRuns: cases(50, 100) },
    );
    expect(subagents).toBeGreaterThan(cases(100, 200));
  });

  test.each(versions.filter((version) => version !== "0.0.45"))(
    "a client %s that is cut off there ends with the same transcript",
    async (version) => {
      await fc.assert(
        fc.asyncProperty(streams, fc.nat(), fc.nat(), async (events, cut, back) => {
          const batches = batchesOf(events);
          const log = logOf(batches);
          const heads = headsOf(batches);
          const head = heads[back % heads.length] ?? 0;
          const held = await rejoined(version, log, (cut % (head + 1)) - 1, head);
          expect(compared(held)).toEqual(compared(await uninterrupted(version, log)));
        }),
        { numRuns: cases(30, 80) },
      );
    },
  );
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
    const step = { type: "STEP_STARTED", stepName: "plan", subagentRunId: "s", metadata: { icon: "map" } } as const;
    run.append(frame("0", started), frame("0", step));
    expect(prelude(run.state, as).slice(3)).toEqual([started, step]);
  });

  test("tells of subagents that have ended too, each with its end, before what is open", () => {
    const run = new Play();
    run.begin();
    const announced = [
      { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper" },
      { type: "SUBAGENT_STARTED", subagentRunId: "t", name: "helper", parentSubagentRunId: "s" },
    ] as const;
    const ended = { type: "SUBAGENT_FINISHED", subagentRunId: "s", result: 1, outcome: { type: "success" } } as const;
    const step = { type: "STEP_STARTED", stepName: "plan", subagentRunId: "t" } as const;
    run.append(...[...announced, step, ended].map((event) => frame("0", event)));
    expect(prelude(run.state, as).slice(3)).toEqual([...announced, ended, step]);
  });

  test("begins an open call with the metadata and the signature that it has", () => {
    const run = new Play();
    run.begin();
    const metadata = { cost: 3 };
    run.append(
      frame("0", { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look", metadata }),
      frame("0", { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: "c", encryptedValue: "blob" }),
    );
    expect(prelude(run.state, as).slice(3)).toEqual([
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look", parentMessageId: "c", metadata },
      { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: "c", encryptedValue: "blob" },
    ]);
  });
});
