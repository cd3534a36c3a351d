/** What a request says beside its messages, as a model is given it; and what a tool asks beside its message, as a client is given it. */
import { agent, suspend, tool } from "perdure";
import { type ScriptRequest, scriptedModel } from "perdure/testing";
import { expect, it } from "vitest";
import { z } from "zod";
import { ask, eventsOf, fresh, says, serving } from "./rig.ts";

const system = ({ messages }: ScriptRequest) => messages.filter(({ role }) => role === "system");

it("the context of a request stands behind the instructions, and that of the newest request is what counts", async () => {
  const prompts: unknown[] = [];
  const model = scriptedModel((request) => {
    prompts.push(system(request));
    return { text: "Hello." };
  });
  const { url } = await serving([
    agent({ name: "plain", model, instructions: "Be kind." }),
    agent({ name: "bare", model }),
  ]);
  const base = fresh({});
  const post = (name: string, id: string, context: unknown[]) =>
    ask(`${url}/agents/${name}`, {
      body: JSON.stringify({ ...base, runId: id, context, messages: [says(id, "hi")] }),
    });
  await post("plain", "r1", [
    { description: "The user's name", value: "Bob" },
    { description: "His page", value: "/orders" },
  ]);
  await post("plain", "r2", [{ description: "The user's name", value: "Ada" }]);
  await post("plain", "r3", []);
  await post("bare", "r1", [{ description: "The user's name", value: "Bob" }]);
  expect(prompts).toEqual([
    [
      {
        role: "system",
        content: "Be kind.\n\nContext from the user interface:\nThe user's name: Bob\nHis page: /orders",
      },
    ],
    [{ role: "system", content: "Be kind.\n\nContext from the user interface:\nThe user's name: Ada" }],
    [{ role: "system", content: "Be kind." }],
    [{ role: "system", content: "Context from the user interface:\nThe user's name: Bob" }],
  ]);
});

it("the model reads of a client's tool what its message says: the text alone, or the error", async () => {
  const read: unknown[] = [];
  const model = scriptedModel(({ messages }) => {
    const last = messages.at(-1);
    if (last?.role !== "tool") return { calls: [{ name: "pick", input: {} }] };
    read.push(...(typeof last.content === "string" ? [] : last.content.map(({ output }) => output)));
    return { text: "Thanks." };
  });
  const { url } = await serving([agent({ name: "shop", model })]);
  const tools = [{ name: "pick", description: "Lets the user pick", parameters: { type: "object" } }];
  const given = [
    { content: "blue" },
    { content: '{"colour":"blue"}' },
    {
      content: [
        { type: "text", text: "light " },
        { type: "text", text: "blue" },
      ],
    },
    { content: "", error: "the picker is broken" },
  ];
  for (const [i, result] of given.entries()) {
    const base = fresh({ tools });
    const post = async (runId: string, messages: unknown[]) =>
      eventsOf((await ask(`${url}/agents/shop`, { body: JSON.stringify({ ...base, runId, messages }) })).text);
    const start = (await post("r1", [says("u", "pick")])).find(({ type }) => type === "TOOL_CALL_START");
    const toolCallId = start?.type === "TOOL_CALL_START" ? start.toolCallId : "";
    const end = await post("r2", [says("u", "pick"), { id: `t${i}`, role: "tool", toolCallId, ...result }]);
    expect(end.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  }
  expect(read).toEqual([
    { type: "text", value: "blue" },
    { type: "text", value: '{"colour":"blue"}' },
    { type: "text", value: "light blue" },
    { type: "error-text", value: "the picker is broken" },
  ]);
});

it("the metadata of a suspension is on its interrupt, when it is opened and when the leg ends", async () => {
  const book = tool({
    name: "book",
    description: "Books a flight.",
    effect: "read",
    input: z.object({}),
    answer: z.string(),
    call: () => suspend({ message: "Which one?", metadata: { options: ["LH 1", "AF 2"] } }),
  });
  const model = scriptedModel([{ calls: [{ name: "book", input: {} }] }, { text: "Booked." }]);
  const { url } = await serving([agent({ name: "travel", model, tools: [book] })]);
  const { text } = await ask(`${url}/agents/travel`, { body: JSON.stringify(fresh({ messages: [says("u", "go")] })) });
  const asked = {
    message: "Which one?",
    reason: "input_required",
    metadata: { kind: "suspension", options: ["LH 1", "AF 2"] },
  };
  const events = eventsOf(text);
  expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [asked] } });
  expect(events.filter(({ type }) => type === "CUSTOM")).toMatchObject([{ name: "perdure.interrupt", value: asked }]);
});
