/** Tool calls on the wire, as models make them: several at once, in pieces or whole, for the server and for the client. */
import { EventSchema } from "@ag-ui/core/schemas";
import { type Agent, agent, type RunContext, tool } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { type Script, scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { finish, modelOf } from "../agent/model-of.ts";
import { ask, eventsOf, fresh, says, served, serving } from "./rig.ts";
import { type StockClient, stockClient, versions } from "./stock-clients.ts";

const look = tool({
  name: "look",
  description: "Looks an order up.",
  effect: "read",
  input: z.object({ id: z.string() }),
  call: ({ id }) => ({ id, paid: true }),
});
const refund = tool({
  name: "refund",
  description: "Refunds an order.",
  effect: "write",
  input: z.object({ id: z.string() }),
  approval: true,
  call: ({ id }) => ({ refunded: id }),
});
const pageTools = ["pick", "show"].map((name) => ({ name, description: name, parameters: { type: "object" } }));

async function eventsOfAgent(given: Agent, more: object = {}): Promise<AGUIEvent[]> {
  const { url } = await serving([given]);
  const request = fresh({ messages: [says("u", "go")], ...more });
  return eventsOf((await ask(`${url}/agents/${given.name}`, { body: JSON.stringify(request) })).text);
}

const desk = (script: Script) => agent({ name: "desk", model: scriptedModel(script), tools: [look, refund] });

/** The calls that a client holds, with their arguments, and what it was told of them. */
function callsHeld({ messages }: StockClient) {
  return messages.flatMap((message) =>
    message.role === "assistant"
      ? (message.toolCalls ?? []).map(({ id, function: { name, arguments: args } }) => {
          const results = messages.flatMap((m) => (m.role === "tool" && m.toolCallId === id ? [m.content] : []));
          return { name, args, results };
        })
      : [],
  );
}

describe.each(versions)("parallel calls, for the published client %s", (version) => {
  async function client(given: Agent) {
    const { url } = await serving([given]);
    const stock = stockClient(version, { url: `${url}/agents/${given.name}` });
    stock.add({ id: "u", role: "user", content: "go" });
    return stock;
  }

  it("keep their own arguments, however their pieces are mixed", async () => {
    const mixed = agent({
      name: "mixed",
      tools: [look],
      model: {
        ...modelOf([]),
        doStream: (request) => {
          const isFirst = !request.prompt.some((message) => "role" in message && message.role === "tool");
          const parts = isFirst ? mixedCalls : [...textOf("Done."), finish()];
          return modelOf([{ type: "stream-start", warnings: [] }, ...parts]).doStream(request);
        },
      },
    });
    const stock = await client(mixed);
    await stock.run({ runId: "r" });
    expect(callsHeld(stock)).toEqual([
      { name: "look", args: '{"id":"A"}', results: ['{"id":"A","paid":true}'] },
      { name: "look", args: '{"id":"B"}', results: ['{"id":"B","paid":true}'] },
      { name: "look", args: '{"id":"C"}', results: ['{"id":"C","paid":true}'] },
    ]);
  });

  it("of the client are pending together, beside one of the server that has run; and go on when all are answered", async () => {
    const stock = await client(
      desk(({ turn }) =>
        turn === 0
          ? {
              calls: [
                { name: "pick", input: { n: 1 } },
                { name: "look", input: { id: "A" } },
                { name: "show", input: { n: 2 } },
              ],
            }
          : { text: "Thanks." },
      ),
    );
    await stock.run({ runId: "r1", tools: pageTools });
    expect(callsHeld(stock)).toEqual([
      { name: "pick", args: '{"n":1}', results: [] },
      { name: "look", args: '{"id":"A"}', results: ['{"id":"A","paid":true}'] },
      { name: "show", args: '{"n":2}', results: [] },
    ]);
    const ids = stock.messages.flatMap((m) => (m.role === "assistant" ? (m.toolCalls ?? []) : [])).map(({ id }) => id);
    stock.add({ id: "t1", role: "tool", toolCallId: ids[0] ?? "", content: "red" });
    stock.add({ id: "t2", role: "tool", toolCallId: ids[2] ?? "", content: "shown" });
    await stock.run({ runId: "r2", tools: pageTools });
    expect(callsHeld(stock).map(({ results }) => results)).toEqual([["red"], ['{"id":"A","paid":true}'], ["shown"]]);
    expect(stock.messages.at(-1)).toMatchObject({ role: "assistant", content: "Thanks." });
  });
});

const start = (id: string) => ({ type: "tool-input-start", id, toolName: "look" });
const piece = (id: string, delta: string) => ({ type: "tool-input-delta", id, delta });
const end = (id: string, input: string) => [
  { type: "tool-input-end", id },
  { type: "tool-call", toolCallId: id, toolName: "look", input },
];
/** Two whose pieces are mixed, and one that comes whole. */
const mixedCalls = [
  ...[
    start("a"),
    start("b"),
    piece("a", '{"i'),
    piece("b", '{"id"'),
    piece("a", 'd":"'),
    piece("b", ':"B'),
    piece("a", 'A"}'),
  ],
  ...[...end("a", '{"id":"A"}'), piece("b", '"}'), ...end("b", '{"id":"B"}')],
  { type: "tool-call", toolCallId: "c", toolName: "look", input: '{"id":"C"}' },
  finish("tool-calls"),
];
const textOf = (delta: string) => [
  { type: "text-start", id: "t" },
  { type: "text-delta", id: "t", delta },
  { type: "text-end", id: "t" },
];

describe("a run on the wire", () => {
  const story = desk([
    { reasoning: "Look first.", text: "One moment.", calls: [{ name: "look", input: { id: "A" } }] },
    {
      calls: [
        { name: "look", input: { id: "B" } },
        { name: "look", input: { id: "C" } },
      ],
    },
    { text: "Again.", calls: [{ name: "look", input: { id: "D" } }] },
    { text: "Done." },
  ]);

  it("names every text, call and result by an id of its own, of its own kind", async () => {
    const events = await eventsOfAgent(story);
    const ids = events.flatMap((event) => {
      switch (event.type) {
        case "TEXT_MESSAGE_START":
        case "REASONING_MESSAGE_START":
        case "TOOL_CALL_RESULT":
          return [event.messageId];
        case "TOOL_CALL_START":
          return [event.toolCallId];
        default:
          return [];
      }
    });
    expect(ids).toHaveLength(1 + 3 + 4 + 4);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("begins every text that comes after calls and results, and ends what is open before something else begins", async () => {
    const shape = (await eventsOfAgent(story)).flatMap(({ type }) => (/CONTENT|ARGS|RUN_/.test(type) ? [] : [type]));
    const call = ["TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"];
    const text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_END"];
    const thought = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END", "REASONING_END"];
    const sorted = (types: string[]) => [...types].sort();
    expect(shape.slice(0, 6)).toEqual([...thought, ...text]);
    expect(shape.slice(6, 9)).toEqual(call);
    expect(sorted(shape.slice(9, 15))).toEqual(sorted([...call, ...call]));
    expect(shape.slice(15)).toEqual([...text, ...call, ...text]);
  });

  it("has for the parent of a call the message that client, thread and snapshot know it by", async () => {
    const { url } = await serving([story]);
    const request = fresh({ messages: [says("u", "go")] });
    const post = async (body: object) =>
      eventsOf((await ask(`${url}/agents/desk`, { body: JSON.stringify(body) })).text);
    const parents = (await post(request)).flatMap((event) =>
      event.type === "TOOL_CALL_START" ? [[event.toolCallId, event.parentMessageId]] : [],
    );
    const snapshot = (await post({ ...request, runId: "again" })).find(({ type }) => type === "MESSAGES_SNAPSHOT");
    const messages = snapshot?.type === "MESSAGES_SNAPSHOT" ? snapshot.messages : [];
    const owners = messages.flatMap((message) =>
      message.role === "assistant" ? (message.toolCalls ?? []).map(({ id }) => [id, message.id]) : [],
    );
    expect(parents).toHaveLength(4);
    expect(parents).toEqual(owners);
  });

  it("holds nothing that nobody asked for: no RAW, no foreign event, and no state where none changed", async () => {
    const events = await eventsOfAgent(story);
    expect(events.filter(({ type }) => /^(RAW|STATE_|MESSAGES_)/.test(type))).toEqual([]);
    expect(events.filter((event) => "rawEvent" in event)).toEqual([]);
  });

  it("leaves out what is absent, instead of null: each event is what the official schema takes, and is not changed by it", async () => {
    const asks = desk([
      {
        calls: [
          { name: "refund", input: { id: "A" } },
          { name: "pick", input: {} },
        ],
      },
    ]);
    const seen = [...(await eventsOfAgent(story)), ...(await eventsOfAgent(asks, { tools: pageTools }))];
    expect(new Set(seen.map(({ type }) => type)).size).toBeGreaterThan(12);
    for (const event of seen) {
      expect(EventSchema.parse(event)).toEqual(event);
      const members = Object.entries(event).filter(([name]) => !["snapshot", "value", "result"].includes(name));
      expect(members.filter(([, value]) => value === null)).toEqual([]);
    }
  });

  it("echoes the ids of its request, also when it is answered with what there is already", async () => {
    const { url } = await serving([story]);
    const request = fresh({ runId: "mine", messages: [says("u", "go")] });
    for (const runId of ["mine", "mine", "another"]) {
      const events = eventsOf((await ask(`${url}/agents/desk`, { body: JSON.stringify({ ...request, runId }) })).text);
      const { threadId } = request;
      expect(events[0]).toMatchObject({ type: "RUN_STARTED", threadId, runId });
      expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", threadId, runId });
    }
  });
});

describe("a question", () => {
  const shape = (events: readonly AGUIEvent[]) => events.map(({ type }) => type);

  it("of a model's call comes after the END of each call of its turn, and after both snapshots", async () => {
    const calls = ["A", "B"].map((id) => ({ name: "refund", input: { id } }));
    const events = await eventsOfAgent(desk([{ text: "Both?", calls }]));
    expect(events.filter(({ type }) => type === "TOOL_CALL_END")).toHaveLength(2);
    expect(shape(events).slice(-3)).toEqual(["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    expect(shape(events).lastIndexOf("TOOL_CALL_END")).toBeLessThan(events.length - 3);
  });

  it.each(versions)(
    "of a body closes what the body has left open: the published client %s takes it",
    async (version) => {
      const asks = async (ctx: RunContext): Promise<void> => {
        ctx.step("plan");
        ctx.message().delta("Shall I");
        await ctx.interrupt({ id: "q", message: "Shall I?" });
      };
      const { url } = await served({ asks });
      const stock = stockClient(version, { url: `${url}/agents/asks` });
      const { types, asked } = await stock.run({ runId: "r" });
      expect(asked).toMatchObject([{ message: "Shall I?" }]);
      const closed = ["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_FINISHED"];
      expect(types.filter((type) => closed.includes(type))).toEqual(closed);
    },
  );

  it("ends its stream: nothing comes after it that would clear it from a client, and the server keeps it open", async () => {
    const { url } = await serving([desk([{ calls: [{ name: "refund", input: { id: "A" } }] }])]);
    const request = fresh({ messages: [says("u", "go")] });
    const post = (body: object) => ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    const asked = eventsOf((await post(request)).text);
    expect(asked.filter(({ type }) => type.startsWith("RUN_"))).toMatchObject([
      { type: "RUN_STARTED" },
      { type: "RUN_FINISHED", outcome: { type: "interrupt" } },
    ]);
    const plain = await post({ ...request, runId: "r2", messages: [says("u", "go"), says("u2", "and?")] });
    expect(plain.status).toBe(409);
    expect(plain.text).toContain("INTERRUPTS_OPEN");
    expect(eventsOf((await post({ ...request, runId: "r3" })).text).at(-1)).toMatchObject({
      ...{ type: "RUN_FINISHED", outcome: { type: "interrupt" } },
    });
  });
});
