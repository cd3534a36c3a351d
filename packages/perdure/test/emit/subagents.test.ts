import { inspect } from "node:util";
import {
  AgentError,
  agent,
  HandleClosedError,
  NotJsonError,
  type RunAgentInput,
  type RunContext,
  streamRun,
} from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { runContext } from "perdure/testing";
import { describe, expect, it } from "vitest";

const short = (event: AGUIEvent): string => {
  const owner = "subagentRunId" in event && event.subagentRunId !== undefined ? `@${event.subagentRunId}` : "";
  return `${event.type}${owner}`;
};

const request: RunAgentInput = { threadId: "t", runId: "r", messages: [], tools: [], context: [] };

async function run(body: (ctx: RunContext) => Promise<unknown>, input = request): Promise<AGUIEvent[]> {
  const events: AGUIEvent[] = [];
  const subject = agent({ name: "a", run: body });
  for await (const event of streamRun(subject, input, { onError: () => {} })) events.push(event);
  return events;
}

describe("an open subagent", () => {
  it("is announced with what it is for and whom it works for, and everything that it emits carries its id", async () => {
    const { ctx, events } = runContext();
    using call = ctx.toolCall("research");
    call.argsJson({});
    events.drain();
    const found = await ctx.subagent(
      { name: "researcher", description: "looks things up", parentToolCallId: call.id, metadata: { model: "m" } },
      async (sub) => {
        sub.think("Hm.");
        const messageId = sub.say("Found.");
        sub.toolCall("search", { parentMessageId: messageId }).resultJson({ n: 1 });
        await sub.step("sort", () => sub.custom("app.x", 1));
        using plan = sub.activity("PLAN", { n: 1 });
        plan.update((draft) => {
          draft.n = 2;
        });
        sub.updateState((state) => Object.assign(state as object, { found: true }));
        sub.raw({ native: true });
        return { pages: 3 };
      },
    );
    expect(found).toEqual({ pages: 3 });
    const sent = events.drain();
    expect(sent[0]).toEqual({
      type: "SUBAGENT_STARTED",
      subagentRunId: "run-1:s0",
      name: "researcher",
      description: "looks things up",
      parentToolCallId: call.id,
      metadata: { model: "m" },
    });
    expect(sent.filter((event) => !("subagentRunId" in event))).toEqual([]);
    expect(new Set(sent.map((event) => "subagentRunId" in event && event.subagentRunId))).toEqual(
      new Set(["run-1:s0"]),
    );
    expect(sent.at(-1)).toEqual({
      type: "SUBAGENT_FINISHED",
      subagentRunId: "run-1:s0",
      result: { pages: 3 },
      outcome: { type: "success" },
    });
  });

  it("leaving its scope ends it without a result, closing first what is open inside, the innermost first", () => {
    const { ctx, events } = runContext();
    {
      using outer = ctx.subagent({ name: "outer" });
      outer.step("plan");
      const inner = outer.subagent({ name: "inner" });
      inner.message().delta("Half");
      events.drain();
    }
    expect(events.drain().map(short)).toEqual([
      "TEXT_MESSAGE_END@run-1:s0:s0",
      "SUBAGENT_FINISHED@run-1:s0:s0",
      "STEP_FINISHED@run-1:s0",
      "SUBAGENT_FINISHED@run-1:s0",
    ]);
  });

  it("nests: the inner one names the outer one as its parent, and events say only the inner one", async () => {
    const { ctx, events } = runContext();
    await ctx.subagent({ name: "outer" }, (outer) =>
      outer.subagent({ name: "inner" }, (inner) => void inner.say("Hi")),
    );
    expect(events.drain()).toMatchObject([
      { type: "SUBAGENT_STARTED", subagentRunId: "run-1:s0" },
      { type: "SUBAGENT_STARTED", subagentRunId: "run-1:s0:s0", parentSubagentRunId: "run-1:s0" },
      { type: "TEXT_MESSAGE_START", subagentRunId: "run-1:s0:s0", messageId: "run-1:s0:s0:m0" },
      { type: "TEXT_MESSAGE_CONTENT", subagentRunId: "run-1:s0:s0" },
      { type: "TEXT_MESSAGE_END", subagentRunId: "run-1:s0:s0" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "run-1:s0:s0" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "run-1:s0" },
    ]);
  });

  it("fails with what its body throws: the client learns what it may, the agent gets the error and may go on", async () => {
    const { ctx, events } = runContext();
    const error = new Error("postgres://user:secret@db");
    const failing = ctx.subagent({ name: "a" }, async (sub) => {
      sub.message().delta("Half");
      await Promise.reject(error);
    });
    await expect(failing).rejects.toBe(error);
    const told = ctx.subagent({ name: "b" }, () => Promise.reject(new AgentError("No shop.", { code: "NO_SHOP" })));
    await expect(told).rejects.toThrow("No shop.");
    ctx.say("Never mind.");
    const sent = events.drain();
    expect(JSON.stringify(sent)).not.toContain("secret");
    expect(sent.filter(({ type }) => type === "SUBAGENT_ERROR" || type === "TEXT_MESSAGE_END")).toEqual([
      {
        type: "TEXT_MESSAGE_END",
        messageId: "run-1:s0:m0",
        subagentRunId: "run-1:s0",
        metadata: { perdure: { incomplete: true } },
      },
      { type: "SUBAGENT_ERROR", subagentRunId: "run-1:s0", code: "INTERNAL", message: "The agent failed (INTERNAL)." },
      { type: "SUBAGENT_ERROR", subagentRunId: "run-1:s1", code: "NO_SHOP", message: "No shop." },
      { type: "TEXT_MESSAGE_END", messageId: "run-1:m0" },
    ]);
  });

  it("takes a call with half its arguments back before it ends it", () => {
    const { ctx, events } = runContext();
    const sub = ctx.subagent({ name: "a" });
    sub.toolCall("search").args('{"q":');
    events.drain();
    sub.fail(new AgentError("Enough."));
    expect(events.drain().map(short)).toEqual([
      "MESSAGES_SNAPSHOT",
      "TOOL_CALL_END@run-1:s0",
      "SUBAGENT_ERROR@run-1:s0",
    ]);
  });

  it("ending twice is fine; after it neither its context, nor a branch, a block or a subagent of it emits any more", async () => {
    const { ctx, events } = runContext();
    const sub = ctx.subagent({ name: "a" });
    const message = sub.message();
    const inner = sub.subagent({ name: "b" });
    let branch: RunContext | undefined;
    await sub.parallel([
      async (lane) => {
        branch = lane;
      },
    ]);
    sub.end();
    sub.end();
    sub.fail(new Error("late"));
    events.drain();
    for (const late of [
      () => sub.say("x"),
      () => message.delta("x"),
      () => inner.say("x"),
      () => branch?.say("x"),
      () => sub.subagent({ name: "c" }),
      () => sub.publishState(),
      () => sub.state,
    ]) {
      expect(late).toThrow(HandleClosedError);
    }
    message[Symbol.dispose]();
    inner[Symbol.dispose]();
    expect(events.drain()).toEqual([]);
    ctx.say("The agent goes on.");
  });

  it("keeps open when its result is not JSON, and its callback form fails then", async () => {
    const { ctx, events } = runContext();
    const sub = ctx.subagent({ name: "a" });
    expect(() => sub.end(() => {})).toThrow(NotJsonError);
    sub.end({ ok: true });
    await expect(ctx.subagent({ name: "b" }, () => 1n)).rejects.toThrow(NotJsonError);
    expect(events.drain().map(short).slice(1)).toEqual([
      "SUBAGENT_FINISHED@run-1:s0",
      "SUBAGENT_STARTED@run-1:s1",
      "SUBAGENT_ERROR@run-1:s1",
    ]);
  });

  it("numbers an id of the agent's own that the run has used already", () => {
    const { ctx } = runContext();
    using one = ctx.subagent({ name: "a", id: "writer" });
    using two = ctx.subagent({ name: "a", id: "writer" });
    expect([one.id, two.id]).toEqual(["writer", "writer#2"]);
    expect([one.say("1"), two.say("2")]).toEqual(["run-1:writer:m0", "run-1:writer#2:m0"]);
  });

  it("carries its own calls out only on its own messages", () => {
    const { ctx } = runContext();
    const parents = ctx.say("Mine.");
    using sub = ctx.subagent({ name: "a" });
    expect(() => sub.toolCall("search", { parentMessageId: parents })).toThrow(/call-owner/);
  });

  it("prints what it is", () => {
    const { ctx } = runContext();
    const sub = ctx.subagent({ name: "scout" });
    expect(inspect(sub)).toBe('<subagent "scout" (run-1:s0) open>');
    sub.end();
    expect(inspect(sub)).toBe('<subagent "scout" (run-1:s0) ended>');
  });

  it("runs beside others in parallel lanes, and their events interleave", async () => {
    const { ctx, events } = runContext();
    await ctx.parallel(
      ["a", "b"].map(
        (name) => (lane) =>
          lane.subagent({ name }, async (sub) => {
            using message = sub.message();
            message.delta("1");
            await Promise.resolve();
            message.delta("2");
          }),
      ),
    );
    const texts = events.drain().filter(({ type }) => type === "TEXT_MESSAGE_CONTENT");
    expect(texts.map((event) => "subagentRunId" in event && event.subagentRunId)).toEqual([
      "run-1:0.0:s0",
      "run-1:0.1:s0",
      "run-1:0.0:s0",
      "run-1:0.1:s0",
    ]);
  });
});

describe("a leg that ends with subagents open", () => {
  it("in an interrupt: they are suspended, each with its own questions, which name it", async () => {
    const events = await run((ctx) =>
      ctx.subagent({ name: "outer" }, (outer) =>
        outer.subagent({ name: "inner" }, (inner) => inner.interrupt({ id: "q", message: "Go on?" })),
      ),
    );
    expect(events.slice(3)).toMatchObject([
      {
        type: "SUBAGENT_FINISHED",
        subagentRunId: "r:s0:s0",
        outcome: { type: "suspended", interruptIds: ["q"] },
      },
      { type: "SUBAGENT_FINISHED", subagentRunId: "r:s0", outcome: { type: "suspended" } },
      { type: "STATE_SNAPSHOT" },
      { type: "MESSAGES_SNAPSHOT" },
      { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ id: "q", subagentRunId: "r:s0:s0" }] } },
    ]);
    expect(events[4]).not.toHaveProperty("outcome.interruptIds");
  });

  it("of two in parallel, each has its own question", async () => {
    const events = await run((ctx) =>
      ctx.parallel(
        ["a", "b"].map(
          (name) => (lane) =>
            lane.subagent({ name, id: name }, (sub) => sub.interrupt({ id: `q-${name}`, message: "?" })),
        ),
      ),
    );
    expect(events.filter(({ type }) => type === "SUBAGENT_FINISHED")).toMatchObject([
      { subagentRunId: "b", outcome: { type: "suspended", interruptIds: ["q-b"] } },
      { subagentRunId: "a", outcome: { type: "suspended", interruptIds: ["q-a"] } },
    ]);
  });

  it("waits for the branches that go on, however many questions another one asks at once", async () => {
    const events = await run((ctx) =>
      ctx.parallel<unknown>([
        (lane) =>
          lane.subagent({ name: "a" }, (sub) =>
            Promise.all([sub.interrupt({ id: "p", message: "?" }), sub.interrupt({ id: "q", message: "?" })]),
          ),
        async (lane) => {
          await new Promise((resolve) => setImmediate(resolve));
          lane.say("I was not done.");
        },
      ]),
    );
    expect(events).toContainEqual(expect.objectContaining({ delta: "I was not done." }));
    expect(events.at(-1)).toMatchObject({ outcome: { interrupts: [{ id: "p" }, { id: "q" }] } });
  });

  it("in a failure: they fail with it", async () => {
    const events = await run(async (ctx) => {
      ctx.subagent({ name: "a" });
      throw new AgentError("Closed.", { code: "CLOSED" });
    });
    expect(events.slice(2)).toEqual([
      { type: "SUBAGENT_ERROR", subagentRunId: "r:s0", code: "CLOSED", message: "Closed." },
      { type: "RUN_ERROR", code: "CLOSED", message: "Closed." },
    ]);
  });

  it("in a cancel: they are told to have been cancelled", async () => {
    const stop = new AbortController();
    const subject = agent({ name: "a", run: (ctx) => ctx.subagent({ name: "a" }, () => new Promise(() => {})) });
    const events: AGUIEvent[] = [];
    for await (const event of streamRun(subject, request, { signal: stop.signal })) {
      events.push(event);
      if (event.type === "SUBAGENT_STARTED") stop.abort();
    }
    expect(events.slice(2)).toEqual([
      { type: "SUBAGENT_ERROR", subagentRunId: "r:s0", code: "CANCELLED", message: "The run was cancelled." },
      { type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "cancelled" } },
    ]);
  });

  it("in a success: one that was forgotten has finished", async () => {
    const events = await run(async (ctx) => void ctx.subagent({ name: "a" }));
    expect(events.slice(2).map(short)).toEqual(["SUBAGENT_FINISHED@r:s0", "RUN_FINISHED"]);
  });
});
