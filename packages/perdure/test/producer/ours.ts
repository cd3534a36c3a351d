/** Agents of ours that between them do all that the kit has rules for. */
import { type Agent, AgentError, agent, type RunContext, tool } from "perdure";
import { type ProducerInput, scriptedModel } from "perdure/testing";
import { z } from "zod";

const Desk = z.object({ looked: z.array(z.string()), refunded: z.number() });
type Desk = z.infer<typeof Desk>;

const Board = z.object({ notes: z.record(z.string(), z.string()), list: z.array(z.string()) });
type Board = z.infer<typeof Board>;

/** A model with tools of every kind: one that looks, one that asks, and the client's. */
export function desk(): Agent {
  const look = tool({
    name: "look",
    description: "Looks an order up.",
    effect: "read",
    input: z.object({ order: z.string() }),
    state: Desk,
    call({ order }, ctx) {
      ctx.state.looked.push(order);
      ctx.publishState();
      return { order, cents: 3_000 };
    },
  });
  const refund = tool({
    name: "refund",
    description: "Refunds an order.",
    effect: "write",
    input: z.object({ order: z.string() }),
    state: Desk,
    approval: ({ order }) => ({ message: `Refund ${order}?` }),
    call({ order }, ctx) {
      ctx.state.refunded += 1;
      return { refunded: order };
    },
  });
  const model = scriptedModel(({ messages, tools, lastUserText }) => {
    if (messages.at(-1)?.role !== "user") return { reasoning: "That was it.", text: "Done." };
    if (lastUserText.includes("get_location") && tools.includes("get_location")) {
      return { calls: [{ name: "get_location", input: {} }] };
    }
    if (lastUserText.startsWith("Look")) {
      return {
        reasoning: "Both.",
        text: "One moment.",
        calls: ["A", "B"].map((order) => ({ name: "look", input: { order } })),
      };
    }
    if (lastUserText.startsWith("Refund")) {
      return { text: "Let me ask.", calls: ["A", "B"].map((order) => ({ name: "refund", input: { order } })) };
    }
    return { reasoning: "A greeting.", text: "Hello to you, too." };
  });
  return agent<Desk>({
    name: "desk",
    state: { schema: Desk, initial: (): Desk => ({ looked: [], refunded: 0 }) },
    model,
    tools: [look, refund],
  });
}

const Decision = z.object({ approved: z.boolean() });

/** A function that emits by hand what a model's loop does not: steps, activities, subagents, chunks, failures. */
export function showcase(): Agent {
  return agent<Board>({
    name: "showcase",
    state: { schema: Board, initial: (): Board => ({ notes: {}, list: [] }) },
    async run(ctx) {
      const text = ctx.lastUserText();
      const answer = ctx.resumeFor("confirm", Decision);
      if (answer !== undefined) {
        const call = ctx.messages
          .flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))
          .at(-1);
        if (call !== undefined) ctx.toolResultJson(call.id, { taken: answer.status });
        return ctx.say("As you wish.");
      }
      if (ctx.messages.at(-1)?.role === "tool") return ctx.say("So that is where.");
      if (text.includes("get_location") && ctx.clientTool("get_location")) return ctx.toolCall("get_location").end();
      if (text.startsWith("Ask")) {
        const call = ctx.toolCall("move");
        call.end();
        return ctx.interrupt({
          id: "confirm",
          toolCallId: call.id,
          message: "Move?",
          schema: Decision,
          expiresIn: "1h",
        });
      }
      if (text.startsWith("Fail")) throw new AgentError("The shop opens at nine.", { code: "SHOP_CLOSED" });
      if (text.startsWith("Show")) return await show(ctx);
      if (text.startsWith("Wait"))
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve, { once: true }));
      return ctx.say("Hello to you, too.");
    },
  });
}

async function show(ctx: RunContext<Board>): Promise<void> {
  using _step = ctx.step("showing");
  await ctx.reasoning((reasoning) => reasoning.delta("All of it."));
  const activity = ctx.activity("progress", { plan: "step by step, ".repeat(20), done: 0, "a/b~c": [] as number[] });
  ctx.updateState((board) => {
    board.notes["a/b~c"] = "escaped";
  });
  activity.update((content) => {
    content.done = 1;
    content["a/b~c"].push(1);
  });
  await ctx.parallel(
    ["first", "second"].map((name) => async (lane) => {
      using call = lane.toolCall("list");
      call.args('{"name":');
      call.args(`"${name}"}`);
      lane.updateState((board) => board.list.unshift(name));
      call.resultJson({ listed: name });
    }),
  );
  ctx.emit({ type: "SUBAGENT_STARTED", subagentRunId: "helper", name: "helper" });
  ctx.emit({
    type: "TEXT_MESSAGE_START",
    messageId: `${ctx.runId}-helper`,
    role: "assistant",
    subagentRunId: "helper",
  });
  ctx.emit({
    type: "TEXT_MESSAGE_CONTENT",
    messageId: `${ctx.runId}-helper`,
    delta: "I help.",
    subagentRunId: "helper",
  });
  ctx.emit({ type: "TEXT_MESSAGE_END", messageId: `${ctx.runId}-helper`, subagentRunId: "helper" });
  ctx.emit({ type: "SUBAGENT_FINISHED", subagentRunId: "helper" });
  for (const delta of ["In ", "chunks."])
    ctx.emit({ type: "TEXT_MESSAGE_CHUNK", messageId: `${ctx.runId}-chunks`, delta });
  ctx.usage({ provider: "script", model: "showcase", inputTokens: 5, outputTokens: 7, totalTokens: 12 });
  ctx.say("That is all.");
}

export const showcaseInputs: readonly ProducerInput[] = [
  { name: "show", says: ["Show me.", "Show me more."] },
  { name: "ask", says: ["Ask me.", "Thank you."] },
  { name: "fail", says: "Fail, please." },
];

export const deskInputs: readonly ProducerInput[] = [
  { name: "look", says: ["Look for A and B.", "Look again."] },
  { name: "refund", says: ["Refund A and B.", "Thank you."] },
];
