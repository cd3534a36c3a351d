/**
 * The published clients over real HTTP. The oracle is the transcript written here, message by message: neither our reducer nor theirs.
 */
import { agent, createRuntime, type RunContext, type Served, serve } from "perdure";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { withoutUids } from "./rig.ts";
import { type StockClient, stockClient, versions } from "./stock-clients.ts";

interface Board {
  tasks: string[];
  note: string;
}
const board = { initial: (): Board => ({ tasks: [], note: "n".repeat(120) }) };
const Approve = z.object({ approved: z.boolean() });

const bodies: Record<string, (ctx: RunContext<Board>) => Promise<unknown>> = {
  async text(ctx) {
    using message = ctx.message();
    message.delta("Hel");
    message.delta("lo");
  },
  async reasoning(ctx) {
    ctx.think("Thinking.");
    ctx.say("Thought.");
  },
  async tool(ctx) {
    const said = ctx.say("Looking.");
    using call = ctx.toolCall("search", { parentMessageId: said });
    call.args('{"q":');
    call.args('"x"}');
    call.resultJson({ found: 1 });
  },
  async parts(ctx) {
    ctx.toolCall("draw").result([
      { type: "text", text: "a " },
      { type: "text", text: "circle" },
    ]);
  },
  async state(ctx) {
    ctx.updateState((state) => state.tasks.push("one"));
    ctx.updateState((state) => state.tasks.unshift("zero"));
  },
  async activity(ctx) {
    using plan = ctx.activity("PLAN", { steps: ["a"], filler: "f".repeat(120) });
    plan.update((draft) => draft.steps.push("b"));
  },
  async steps(ctx) {
    await ctx.step("plan", () => ctx.say("Planned."));
  },
  async approval(ctx) {
    const answer = ctx.resumeFor("approve", Approve);
    if (answer === undefined) {
      const call = ctx.toolCall("refund", { id: "refund-1" });
      call.argsJson({ cents: 5 });
      call.end();
      await ctx.interrupt({ id: "approve", toolCallId: call.id, message: "Refund?", schema: Approve });
    }
    ctx.toolResultJson("refund-1", { refunded: answer?.payload?.approved === true });
    ctx.say("Done.");
  },
  async client(ctx) {
    const answered = ctx.messages.some((message) => message.role === "tool");
    if (answered) return void ctx.say("Nice colour.");
    using call = ctx.toolCall("pick_colour", { id: "pick-1" });
    call.argsJson({ default: "red" });
    call.end();
  },
  async named(ctx) {
    using message = ctx.message({ role: "user", name: "ada", metadata: { draft: true } });
    message.delta("Hi");
    message.end({ metadata: { draft: false, cost: 3 } });
  },
  async shorter(ctx) {
    if (ctx.lastUserText() === "again") return { held: ctx.messages.map(({ content }) => content) };
    const first = ctx.say("Long ago.");
    ctx.say("Just now.");
    ctx.messagesSnapshot((messages) => messages.filter(({ id }) => id !== first));
    ctx.say("And on.");
    return undefined;
  },
  async failure(ctx) {
    const message = ctx.message();
    message.delta("Half");
    throw new Error("postgres://user:secret@db");
  },
  async result(ctx) {
    ctx.usage({ provider: "p", model: "m", inputTokens: 3 });
    return { answer: 42 };
  },
};

let server: Served;
const reported: unknown[] = [];
beforeAll(async () => {
  const agents = Object.entries(bodies).map(([name, run]) => agent<Board>({ name, state: board, run }));
  server = await serve(createRuntime({ agents, onError: (error) => reported.push(error) }), { port: 0 });
});
afterAll(() => server.close());

describe.each(versions)("the published client %s", (version) => {
  let threads = 0;
  const client = (name: string): StockClient => {
    const threadId = `${version}-${++threads}`;
    const stock = stockClient(version, { url: `${server.url}/agents/${name}`, threadId });
    stock.add({ id: "u1", role: "user", content: "go" });
    return stock;
  };
  const user = { id: "u1", role: "user", content: "go" };

  it("shows streamed text as one message", async () => {
    const stock = client("text");
    await stock.run({ runId: "r1" });
    expect(withoutUids(stock.messages)).toEqual([user, { id: "#1:m0", role: "assistant", content: "Hello" }]);
  });

  it("shows reasoning and text as two messages", async () => {
    const stock = client("reasoning");
    await stock.run({ runId: "r1" });
    expect(withoutUids(stock.messages)).toEqual([
      user,
      { id: "#1:r0", role: "reasoning", content: "Thinking." },
      { id: "#1:m0", role: "assistant", content: "Thought." },
    ]);
  });

  it("shows a tool call on the message that made it, with its result behind it", async () => {
    const stock = client("tool");
    await stock.run({ runId: "r1" });
    expect(withoutUids(stock.messages)).toEqual([
      user,
      {
        id: "#1:m0",
        role: "assistant",
        content: "Looking.",
        toolCalls: [{ id: "#1:c0", type: "function", function: { name: "search", arguments: '{"q":"x"}' } }],
      },
      { id: "#1:t0", role: "tool", toolCallId: "#1:c0", content: '{"found":1}' },
    ]);
  });

  it("shows a result of content parts, as text before 1.0", async () => {
    const stock = client("parts");
    await stock.run({ runId: "r1" });
    const content =
      version === "1.0.0"
        ? [
            { type: "text", text: "a " },
            { type: "text", text: "circle" },
          ]
        : "a circle";
    expect(withoutUids(stock.messages).at(-1)).toEqual({ id: "#1:t0", role: "tool", toolCallId: "#1:c0", content });
  });

  it("holds the state after a snapshot and after deltas", async () => {
    const stock = client("state");
    const { types } = await stock.run({ runId: "r1" });
    expect(types.filter((type) => type.startsWith("STATE"))).toEqual(["STATE_SNAPSHOT", "STATE_DELTA", "STATE_DELTA"]);
    expect(stock.state).toEqual({ tasks: ["zero", "one"], note: "n".repeat(120) });
  });

  it("sends its state back, and then deltas alone are enough", async () => {
    const stock = client("state");
    await stock.run({ runId: "r1" });
    stock.add({ id: "u2", role: "user", content: "again" });
    const { types } = await stock.run({ runId: "r2" });
    expect(types.filter((type) => type.startsWith("STATE"))).toEqual(["STATE_DELTA", "STATE_DELTA"]);
    expect(stock.state).toMatchObject({ tasks: ["zero", "zero", "one", "one"] });
  });

  it("shows an activity and its change in place", async () => {
    const stock = client("activity");
    const { types } = await stock.run({ runId: "r1" });
    expect(types.filter((type) => type.startsWith("ACTIVITY"))).toEqual(["ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA"]);
    expect(withoutUids(stock.messages)).toEqual([
      user,
      { id: "#1:a0", role: "activity", activityType: "PLAN", content: { steps: ["a", "b"], filler: "f".repeat(120) } },
    ]);
  });

  it("follows steps", async () => {
    const { types } = await client("steps").run({ runId: "r1" });
    expect(types).toEqual([
      "RUN_STARTED",
      "STATE_SNAPSHOT",
      "STEP_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
      "STEP_FINISHED",
      "RUN_FINISHED",
    ]);
  });

  it("is asked by an interrupt, and its answer lands on the old call: one result, no second START", async () => {
    const stock = client("approval");
    const { asked: questions } = await stock.run({ runId: "r1" });
    const asked = {
      id: "refund-1",
      role: "assistant",
      toolCalls: [{ id: "refund-1", type: "function", function: { name: "refund", arguments: '{"cents":5}' } }],
    };
    expect(withoutUids(stock.messages)).toEqual([user, asked]);
    expect(withoutUids(questions)).toMatchObject([
      { id: "#1:q:0:approve", reason: "tool_call", toolCallId: "refund-1" },
    ]);
    const resume = questions.map(({ id }) => ({
      interruptId: id,
      status: "resolved" as const,
      payload: { approved: true },
    }));
    const { types } = await stock.run({ runId: "r2", resume });
    expect(types).not.toContain("TOOL_CALL_START");
    expect(withoutUids(stock.messages)).toEqual([
      user,
      asked,
      { id: "#1:t0", role: "tool", toolCallId: "refund-1", content: '{"refunded":true}' },
      { id: "#1:m0", role: "assistant", content: "Done." },
    ]);
  });

  it("runs a client tool between two runs", async () => {
    const stock = client("client");
    const tools = [{ name: "pick_colour", description: "Lets the user pick", parameters: { type: "object" } }];
    await stock.run({ runId: "r1", tools });
    stock.add({ id: "tool-1", role: "tool", toolCallId: "pick-1", content: "blue" });
    await stock.run({ runId: "r2", tools });
    expect(withoutUids(stock.messages)).toEqual([
      user,
      {
        id: "pick-1",
        role: "assistant",
        toolCalls: [
          { id: "pick-1", type: "function", function: { name: "pick_colour", arguments: '{"default":"red"}' } },
        ],
      },
      { id: "tool-1", role: "tool", toolCallId: "pick-1", content: "blue" },
      { id: "#1:m0", role: "assistant", content: "Nice colour." },
    ]);
  });

  it("keeps what a failing run has shown, and is told a code without the cause", async () => {
    const stock = client("failure");
    const { types } = await stock.run({ runId: "r1" }).catch((error: unknown) => {
      expect(String(error)).not.toContain("secret");
      return { types: ["RUN_ERROR"] };
    });
    expect(types.at(-1)).toBe("RUN_ERROR");
    expect(reported.map(String)).toContainEqual(expect.stringContaining("secret"));
    expect(withoutUids(stock.messages)).toMatchObject([user, { role: "assistant", content: "Half" }]);
  });

  it("shows who speaks, and what is noted of a message, the last value of each key, as far as it knows of them", async () => {
    const stock = client("named");
    await stock.run({ runId: "r1" });
    const noted = version === "0.0.45" ? {} : { name: "ada", metadata: { draft: false, cost: 3 } };
    expect(withoutUids(stock.messages)).toEqual([user, { id: "#1:m0", role: "user", content: "Hi", ...noted }]);
  });

  it("drops what a snapshot leaves out, and so does the next run", async () => {
    const stock = client("shorter");
    await stock.run({ runId: "r1" });
    expect(withoutUids(stock.messages)).toEqual([
      user,
      { id: "#1:m1", role: "assistant", content: "Just now." },
      { id: "#1:m2", role: "assistant", content: "And on." },
    ]);
    stock.add({ id: "u2", role: "user", content: "again" });
    expect(await stock.run({ runId: "r2" })).toMatchObject({
      result: { held: ["go", "Just now.", "And on.", "again"] },
    });
  });

  it("gets the result that the body returned", async () => {
    expect(await client("result").run({ runId: "r1" })).toMatchObject({ result: { answer: 42 } });
  });
});
