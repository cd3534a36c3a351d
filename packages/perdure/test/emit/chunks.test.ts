import type { BaseEvent } from "@ag-ui/client";
import { transformChunks } from "@ag-ui/client";
import fc from "fast-check";
import { agent, type RunContext, streamRun } from "perdure";
import { type AGUIEvent, newTranscript, reduce } from "perdure/protocol";
import { runContext } from "perdure/testing";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, it } from "vitest";
import { event } from "../../src/protocol/events.ts";
import { legalStream } from "../protocol/legal-streams.ts";

function sent(emit: (ctx: RunContext) => void): AGUIEvent[] {
  const { ctx, events } = runContext();
  emit(ctx);
  return events.drain();
}

describe("chunks that agent code emits", () => {
  it("leave as START, CONTENT and END, and something else of the lane ends them", () => {
    const events = sent((ctx) => {
      ctx.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: "Hel", metadata: { a: 1 } });
      ctx.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "lo" });
      ctx.emit({ type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", parentMessageId: "m" });
      ctx.emit({ type: "TOOL_CALL_CHUNK", delta: "{}" });
      ctx.custom("app.x", 1);
    });
    expect(events).toEqual([
      { type: "TEXT_MESSAGE_START", messageId: "m", metadata: { a: 1 } },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hel", metadata: { a: 1 } },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "lo" },
      { type: "TEXT_MESSAGE_END", messageId: "m" },
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look", parentMessageId: "m" },
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "{}" },
      { type: "TOOL_CALL_END", toolCallId: "c" },
      { type: "CUSTOM", name: "app.x", value: 1 },
    ]);
  });

  it("are refused where they go on with nothing, or contradict what they go on with, and nothing is sent then", () => {
    const { ctx, events } = runContext();
    expect(() => ctx.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "x" })).toThrow(/chunk-without-id/);
    expect(() => ctx.emit({ type: "TOOL_CALL_CHUNK", toolCallId: "c", delta: "{}" })).toThrow(/chunk-without-name/);
    expect(events.drain()).toEqual([]);
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "user", delta: "x" });
    expect(() => ctx.emit({ type: "TEXT_MESSAGE_CHUNK", role: "system", delta: "y" })).toThrow(/chunk-conflict/);
    events.drain();
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "z" });
    expect(events.drain()).toEqual([{ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "z" }]);
  });

  it("do not go on with what another lane has ended", async () => {
    const { ctx } = runContext();
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: "m", delta: "x" });
    await ctx.parallel([async (lane) => lane.emit({ type: "TEXT_MESSAGE_END", messageId: "m" })]);
    expect(() => ctx.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "y" })).toThrow(/chunk-without-id/);
  });

  it("do not go on with a block that a handle has opened", () => {
    const { ctx } = runContext();
    using message = ctx.message();
    const chunk = { type: "TEXT_MESSAGE_CHUNK", messageId: message.id, delta: "x" } as const;
    expect(() => ctx.emit(chunk)).toThrow(/text-already-open/);
  });

  it("of parallel branches, and of a subagent, do not end each other", async () => {
    const { ctx, events } = runContext();
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: "root", delta: "1" });
    using sub = ctx.subagent({ name: "a" });
    await ctx.parallel(
      ["x", "y"].map((id) => async (lane) => {
        lane.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: id, delta: "1" });
        await Promise.resolve();
        lane.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "2" });
      }),
    );
    sub.emit({ type: "REASONING_MESSAGE_CHUNK", messageId: "r", delta: "1" });
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", delta: "2" });
    sub.emit({ type: "REASONING_MESSAGE_CHUNK", delta: "2" });
    const transcript = events.drain().reduce(reduce, newTranscript());
    expect(transcript.messages).toMatchObject([
      { id: "root", content: "12" },
      { id: "x", content: "12" },
      { id: "y", content: "12" },
      { id: "r", content: "12", role: "reasoning", subagentRunId: sub.id },
    ]);
  });

  it("with half a call's arguments are taken back when the run is cut: no client ever sees that call end with them", async () => {
    const subject = agent({
      name: "a",
      async run(ctx) {
        ctx.emit({ type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "wipe", delta: '{"disk":' });
        throw new Error("cut");
      },
    });
    const input = { threadId: "t", runId: "r", messages: [], tools: [], context: [] };
    const events: AGUIEvent[] = [];
    for await (const one of streamRun(subject, input, { onError: () => {} })) events.push(one);
    expect(events.map(({ type }) => type)).toEqual([
      ...["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS"],
      ...["MESSAGES_SNAPSHOT", "TOOL_CALL_END", "RUN_ERROR"],
    ]);
  });

  it("come to what the published client expands them to, on random legal streams", async () => {
    let chunks = 0;
    await fc.assert(
      fc.asyncProperty(legalStream({ maxRuns: 1, maxMoves: 20, chunks: true, strict: true }), async (stream) => {
        const { ctx, events } = runContext();
        // One lane finishes its steps in the reverse order of their beginning.
        const inside = stream.filter(({ type }) => !type.startsWith("RUN_") && !type.startsWith("STEP_"));
        chunks += inside.filter(({ type }) => type.endsWith("_CHUNK")).length;
        for (const one of inside) ctx.emit(one as Parameters<typeof ctx.emit>[0]);
        // The client ends its streams at the run's end.
        ctx.custom("app.end", 1);
        const own = events.drain();
        const whole = [...inside, event("RUN_FINISHED", { threadId: "thread-1", runId: "run-1" })];
        const theirs = await lastValueFrom(from(whole as BaseEvent[]).pipe(transformChunks(false), toArray()));
        expect(own.some(({ type }) => type.endsWith("_CHUNK"))).toBe(false);
        const held = (all: readonly AGUIEvent[]) => all.reduce(reduce, newTranscript()).messages;
        expect(held(own)).toEqual(held(theirs as unknown as AGUIEvent[]));
      }),
      { numRuns: 300 },
    );
    expect(chunks).toBeGreaterThan(300);
  });
});
