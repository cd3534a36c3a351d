/**
 * A page that is loaded anew holds what it held: same messages, same ids, same order, same state. The oracle is the client that was there from the
 * first event to the last, and it is compared as it is: no id is renamed.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Message } from "@ag-ui/core";
import { type Agent, agent, createRuntime, type RunContext, type Served, serve, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ask, eventsOf, fresh, served, serving } from "./rig.ts";
import { type StockClient, stockClient, type Version, versions } from "./stock-clients.ts";

const Desk = z.object({ looked: z.array(z.string()) });
const look = tool({
  name: "look",
  description: "Looks an order up.",
  effect: "read",
  state: Desk,
  input: z.object({ id: z.string() }),
  async call({ id }, ctx) {
    const activity = ctx.activity("LOOKUP", { id, done: false });
    activity.update((draft) => {
      draft.done = true;
    });
    activity.end();
    return { id, paid: true };
  },
  reduce(desk, _, { id }) {
    desk.looked.push(id);
  },
});
const refund = tool({
  name: "refund",
  description: "Refunds an order.",
  effect: "write",
  input: z.object({ id: z.string() }),
  approval: true,
  call: ({ id }) => ({ refunded: id }),
});

/** Thinks, looks up, refunds with an approval, offers the page's tool, and says so: once for each message of the user. */
const desk = (): Agent =>
  agent({
    name: "desk",
    tools: [look, refund],
    state: { schema: Desk, initial: () => ({ looked: [] }) },
    model: scriptedModel(({ messages, lastUserText: id }) => {
      const since = messages.length - messages.findLastIndex(({ role }) => role === "user");
      if (since === 1)
        return { reasoning: `What of ${id}?`, text: "One moment.", calls: [{ name: "look", input: { id } }] };
      if (since === 3)
        return {
          calls: [
            { name: "refund", input: { id } },
            { name: "look", input: { id: `${id}2` } },
          ],
        };
      if (since === 5) return { text: "Pick.", calls: [{ name: "pick", input: { id } }] };
      return { text: `Done with ${id}.` };
    }),
  });
const tools = [{ name: "pick", description: "Lets the user pick", parameters: { type: "object" } }];

async function started(file: string): Promise<Served> {
  const server = await serve(createRuntime({ agents: [desk()], store: sqlite(file), onError: () => {} }), { port: 0 });
  onTestFinished(() => server.close());
  return server;
}

type Seen = Awaited<ReturnType<StockClient["run"]>>;

/** One turn, to its end: what the user wants, his approval, and the result of the page's tool. */
async function turn(client: StockClient, id: string, watch: (seen: Seen) => void = () => {}): Promise<void> {
  client.add({ id: `user-${id}`, role: "user", content: id });
  const first = await client.run({ runId: `${id}-1`, tools });
  const resume = first.asked.map((question) => ({
    ...{ interruptId: question.id, status: "resolved" as const, payload: { approved: true } },
  }));
  const second = await client.run({ runId: `${id}-2`, tools, resume });
  const call = client.messages
    .flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))
    .findLast(({ function: { name } }) => name === "pick");
  client.add({ id: `picked-${id}`, role: "tool", toolCallId: call?.id ?? "", content: `picked ${id}` });
  const third = await client.run({ runId: `${id}-3`, tools });
  for (const seen of [first, second, third]) watch(seen);
}

/** A page that is loaded anew: it knows its thread and nothing else. */
async function reloaded(version: Version, url: string, threadId = "thread"): Promise<StockClient> {
  const client = stockClient(version, { url, threadId });
  await client.run({ runId: "reload", tools });
  return client;
}

/** A result of 0.0.45 stands where it came. Its own order is all that is not compared. */
const held = ({ messages }: Pick<StockClient, "messages">, version: Version): readonly Message[] =>
  version === "0.0.45" ? [...messages].sort((a, b) => (a.id < b.id ? -1 : 1)) : messages;

describe.each(versions)("the published client %s", (version) => {
  it("holds after two turns of approvals, calls of the page and thoughts what it held, also when the server was started anew", async () => {
    const folder = mkdtempSync(join(tmpdir(), "perdure-reload-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const server = await started(join(folder, "runs.db"));
    const client = stockClient(version, { url: `${server.url}/agents/desk` });
    await turn(client, "A");
    await turn(client, "B");
    const ids = client.messages.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.filter((id) => /^(user|picked)-/.test(id))).toEqual(["user-A", "picked-A", "user-B", "picked-B"]);
    expect(client.messages.filter(({ role }) => role === "tool")).toHaveLength(8);

    const before = await reloaded(version, `${server.url}/agents/desk`);
    expect(held(before, version)).toEqual(held(client, version));
    expect(before.state).toEqual(client.state);
    await server.close();
    const after = await reloaded(version, `${(await started(join(folder, "runs.db"))).url}/agents/desk`);
    expect(held(after, version)).toEqual(held(client, version));
    expect(after.state).toEqual({ looked: ["A", "A2", "B", "B2"] });
  });

  it("is shown a history with a failed run in it, and what came after them", async () => {
    const turns: ((ctx: RunContext<unknown>) => Promise<void>)[] = [
      async (ctx) => {
        ctx.message().delta("Half");
        throw new Error("no");
      },
      async (ctx) => void ctx.say("Whole"),
    ];
    const { url } = await served({
      tries: (ctx) => turns[ctx.lastUserText() === "first" ? 0 : 1]?.(ctx) ?? Promise.resolve(),
    });
    const client = stockClient(version, { url: `${url}/agents/tries` });
    client.add({ id: "u1", role: "user", content: "first" });
    await client.run({ runId: "r1" }).catch(() => {});
    client.add({ id: "u2", role: "user", content: "second" });
    await client.run({ runId: "r2" });
    const again = await reloaded(version, `${url}/agents/tries`);
    const said = ({ messages }: StockClient) => messages.map(({ id, role, content }) => ({ id, role, content }));
    expect(said(again)).toEqual(said(client));
    expect(said(again).map(({ content }) => content)).toEqual(["first", "Half", "second", "Whole"]);
  });
});

it("a client that is up to date is sent no snapshot of the messages, in any leg of any turn", async () => {
  const { url } = await serving([desk()]);
  const client = stockClient("1.0.0", { url: `${url}/agents/desk` });
  const types: string[] = [];
  const watch = ({ types: seen, asked }: Seen): void => {
    // An interrupting end is preceded by both snapshots, as AG-UI has it.
    types.push(...(asked.length > 0 ? seen.slice(0, -3) : seen));
  };
  await turn(client, "A", watch);
  await turn(client, "B", watch);
  expect(types.filter((type) => type === "RUN_FINISHED")).toHaveLength(4);
  expect(types).not.toContain("MESSAGES_SNAPSHOT");
});

it("media of every kind are in the snapshot what they were in the message", async () => {
  const { url } = await serving([desk()]);
  const content = [
    { type: "text", text: "A" },
    { type: "image", source: { type: "data", value: "aGk=", mimeType: "image/png" }, metadata: { alt: "hi" } },
    { type: "audio", source: { type: "url", value: "https://example.com/a.mp3", mimeType: "audio/mpeg" } },
    { type: "video", source: { type: "url", value: "https://example.com/v" } },
    { type: "document", source: { type: "file", value: "file-7", provider: "acme", mimeType: "application/pdf" } },
  ];
  const message = { id: "u", role: "user", content };
  const request = fresh({ messages: [message] });
  const post = async (body: object) => eventsOf((await ask(`${url}/agents/desk`, { body: JSON.stringify(body) })).text);
  await post(request);
  const [snapshot] = (await post({ ...request, runId: "again", messages: [] })).filter(
    ({ type }) => type === "MESSAGES_SNAPSHOT",
  );
  expect(snapshot?.type === "MESSAGES_SNAPSHOT" && snapshot.messages[0]).toEqual(message);
});
