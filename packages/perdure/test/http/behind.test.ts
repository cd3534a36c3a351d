/** A client that was away while its thread went on. */
import { agent, createRuntime, type Served, serve, suspend, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { isTranscript } from "../../src/runtime/is-transcript.ts";
import { ask } from "./rig.ts";
import { type StockClient, stockClient, versions } from "./stock-clients.ts";

const confirm = tool({
  name: "confirm",
  description: "Asks a human.",
  effect: "read",
  input: z.object({ what: z.string() }),
  answer: z.boolean(),
  call: () => suspend({ message: "Is that right?" }),
  resume: (isRight) => ({ isRight }),
});

const desk = () =>
  agent({
    name: "desk",
    model: scriptedModel(({ turn }) =>
      turn === 0
        ? { calls: ["a", "b"].map((what) => ({ name: "confirm", input: { what } })) }
        : { text: `Done ${turn}.` },
    ),
    tools: [confirm],
  });

async function desked(): Promise<Served> {
  const server = await serve(createRuntime({ agents: [desk()] }), { port: 0 });
  onTestFinished(() => server.close());
  return server;
}

/** Answers in the inbox, and waits until the thread rests again. */
async function answerInInbox(server: Served, id: string): Promise<void> {
  await ask(`${server.url}/inbox/${id}`, { body: JSON.stringify({ status: "resolved", payload: true }) });
  await ask(`${server.url}/threads/thread/stream?agent=desk`, { method: "GET", headers: {} });
}

async function openInterrupts(server: Served): Promise<string[]> {
  const { text } = await ask(`${server.url}/inbox`, { method: "GET", headers: {} });
  return (JSON.parse(text) as { interrupts: { id: string }[] }).interrupts.map(({ id }) => id);
}

const shown = ({ messages }: StockClient) =>
  messages.map((message) => (message.role === "tool" || message.role === "user" ? message.content : message.role));

it.each(versions)(
  "%s is shown what a leg that was answered elsewhere has said, when its next one begins",
  async (version) => {
    const server = await desked();
    const client = stockClient(version, { url: `${server.url}/agents/desk` });
    client.add({ id: "u0", role: "user", content: "go" });
    await client.run({ runId: "r0" });
    const [first = "", second = ""] = await openInterrupts(server);
    await answerInInbox(server, first);
    await client.run({
      runId: "r1",
      resume: [first, second].map((interruptId) => ({ interruptId, status: "resolved" as const, payload: true })),
    });
    expect(shown(client)).toEqual(["go", "assistant", '{"isRight":true}', '{"isRight":true}', "assistant"]);
  },
);

it.each(versions)("%s is shown how the last turn has ended, when its next one begins", async (version) => {
  const server = await desked();
  const client = stockClient(version, { url: `${server.url}/agents/desk` });
  client.add({ id: "u0", role: "user", content: "go" });
  await client.run({ runId: "r0" });
  const asked = await openInterrupts(server);
  for (const id of asked) await answerInInbox(server, id);
  client.add({ id: "u1", role: "user", content: "and now?" });
  const resume = asked.map((interruptId) => ({ interruptId, status: "cancelled" as const }));
  await client.run({ runId: "r1", resume });
  // A message of its own keeps its place in front of what it had missed: the published clients from 0.0.59 on merge a snapshot so.
  const whole = ["go", "assistant", '{"isRight":true}', '{"isRight":true}', "assistant", "and now?", "assistant"];
  expect(shown(client)).toHaveLength(whole.length);
  expect(shown(client)).toEqual(expect.arrayContaining(whole));
});

it("a client that has seen everything is not sent it again", async () => {
  const server = await desked();
  const client = stockClient("1.0.0", { url: `${server.url}/agents/desk` });
  client.add({ id: "u0", role: "user", content: "go" });
  await client.run({ runId: "r0" });
  const resume = (await openInterrupts(server)).map((interruptId) => ({
    ...{ interruptId, status: "resolved" as const, payload: true },
  }));
  const { types } = await client.run({ runId: "r1", resume });
  client.add({ id: "u1", role: "user", content: "and now?" });
  const next = await client.run({ runId: "r2" });
  expect([...types, ...next.types]).not.toContain("MESSAGES_SNAPSHOT");
});

it("a greeting that a front end made for itself stays on its screen", () => {
  const greeting = { id: "hello", role: "assistant", content: "How can I help?" } as const;
  const user = { id: "u", role: "user", content: "go" } as const;
  expect(isTranscript([greeting, user], [user])).toBe(true);
  expect(isTranscript([greeting], [user])).toBe(false);
  // What we have said and then taken back is no greeting.
  const stale = { ...greeting, id: "01a2295b-656f-7c13-b965-57921e2e81f9:0:m0" };
  expect(isTranscript([stale, user], [user])).toBe(false);
});
