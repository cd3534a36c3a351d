/** Blocks of a loop's code that the end of a leg has closed, and that the code goes on with: once, and again when it is run again later. */
import { type Agent, agent, createRuntime, type LoopContext, memory, tool } from "perdure";
import type { AGUIEvent, Json } from "perdure/protocol";
import { expect, it } from "vitest";
import { z } from "zod";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";

const approved = tool({
  ...{ name: "approved", description: "Acts", effect: "idempotent", approval: true, input: z.object({}) },
  call: () => true,
});

/** Answers each question with yes, after the server was started again. @returns the end, what a client holds then, and after how many legs */
async function legsOf(run: (ctx: LoopContext) => Promise<unknown>) {
  const store = memory();
  let transcript = newTranscript();
  let resume: readonly object[] = [];
  for (let legs = 1; ; legs++) {
    const reported: unknown[] = [];
    const loop: Agent = agent<Json>({ name: "loop", run });
    const runtime = createRuntime({ agents: [loop], store, onError: (error) => reported.push(error) });
    const body = { threadId: "t", runId: `r${legs}`, messages: [{ id: "u", role: "user", content: "go" }], resume };
    const request = new Request("http://localhost/agents/loop", {
      ...{ method: "POST", headers: { "content-type": "application/json" } },
      body: JSON.stringify({ tools: [], context: [], protocolVersion: "1.0", ...body }),
    });
    const text = await (await runtime.fetch(request)).text();
    await runtime.close();
    const events = text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6))] : []));
    expect(reported).toEqual([]);
    transcript = events.reduce(reduce, transcript);
    const last = events.at(-1) as AGUIEvent;
    const open = last.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    if (open.length === 0) return { last, legs, messages: transcript.messages };
    resume = open.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
  }
}

it("a call's arguments, shown again when it is opened again, are the same arguments when the code is run a third time", async () => {
  const { last, legs, messages } = await legsOf(async (ctx) => {
    using shown = ctx.toolCall("shown");
    for (const piece of ['{"a":', "1,", '"b":', "2}"]) {
      shown.args(piece);
      await ctx.call(approved, {}, { show: false });
    }
    shown.result("whole");
    return "done";
  });
  expect(legs).toBe(5);
  expect(last).toMatchObject({ type: "RUN_FINISHED", result: "done" });
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  expect(calls.map((call) => call.function.arguments)).toEqual(['{"a":1,"b":2}']);
});

it("a call that is opened again stands where it stood: before what was shown inside it", async () => {
  const { legs, messages } = await legsOf(async (ctx) => {
    ctx.say("Before.");
    using outer = ctx.toolCall("outer");
    outer.args('{"a":');
    await ctx.call(approved, {});
    outer.args("1}");
    await ctx.call(approved, {});
    outer.result("whole");
    return "done";
  });
  expect(legs).toBe(3);
  const shown = messages.map((message) =>
    message.role === "assistant" ? (message.toolCalls?.map((call) => call.function.name) ?? message.content) : "",
  );
  expect(shown).toEqual(["", "Before.", ["outer"], "", ["approved"], "", ["approved"], ""]);
});

it("a call that one of two lanes has open may be opened again while the other goes on", async () => {
  const { last } = await legsOf(async (ctx) => {
    await ctx.parallel([
      async (lane) => {
        using shown = lane.toolCall("shown");
        shown.args('{"a":');
        await lane.call(approved, {}, { show: false });
        shown.args("1}");
      },
      async (lane) => {
        for (let i = 0; i < 3; i++) await lane.call(approved, {}, { show: false });
      },
    ]);
    return "done";
  });
  expect(last).toMatchObject({ type: "RUN_FINISHED", result: "done" });
});

it("a step bracket that is opened again for what a lane says inside it ends where the code ends it", async () => {
  const { last, legs } = await legsOf(async (ctx) => {
    await ctx.step("plan", async () => {
      await ctx.call(approved, {}, { show: false });
      await ctx.parallel([(lane) => Promise.resolve(lane.say("Inside."))]);
    });
    await ctx.call(approved, {}, { show: false });
    ctx.say("Behind.");
    return "done";
  });
  expect(legs).toBe(3);
  expect(last).toMatchObject({ type: "RUN_FINISHED", result: "done" });
});

it("a bracket that the code itself has ended right before the leg's end is not taken for one that the leg has ended", async () => {
  const { last, messages } = await legsOf(async (ctx) => {
    const first = ctx.call(approved, {}, { show: false });
    await ctx.step("plan", () => ctx.say("One."));
    await first;
    await ctx.step("plan", () => ctx.say("Two."));
    await ctx.call(approved, {}, { show: false });
    return "done";
  });
  expect(last).toMatchObject({ type: "RUN_FINISHED", result: "done" });
  expect(messages.map(({ content }) => content)).toEqual(["go", "One.", "Two."]);
});
