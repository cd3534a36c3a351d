/** What a process has seen it need not read again. */
import { expect, test } from "vitest";
import { z } from "zod";
import { agent, createRuntime, type EventStore, memory, tool } from "../../src/index.ts";
import { scriptedModel } from "../../src/testing.ts";

/** A store, and how many entries were read from it. */
function counted(): { readonly store: EventStore; readonly read: { entries: number } } {
  const store = memory();
  const read = { entries: 0 };
  const reading = store.read.bind(store);
  store.read = async function* (uid, after) {
    for await (const entry of reading(uid, after)) {
      read.entries += 1;
      yield entry;
    }
  };
  return { store, read };
}

const pay = tool({
  name: "pay",
  description: "Pays.",
  effect: "write",
  input: z.object({}),
  approval: true,
  call: async () => ({ paid: true }),
});
const model = scriptedModel(({ messages }) =>
  messages.at(-1)?.role === "tool"
    ? { text: `${"At length. ".repeat(2_000)}Done.` }
    : { calls: [{ name: "pay", input: {} }] },
);

const TURNS = 60;

test("a turn, an answer and the next turn read nothing of a log that this process has shown; another process reads all of it", async () => {
  const { store, read } = counted();
  const started = () => createRuntime({ agents: [agent({ name: "desk", model, tools: [pay] })], store });
  let runtime = started();
  const post = async (body: object): Promise<string> => {
    const headers = { "content-type": "application/json" };
    const asked = { threadId: "t", protocolVersion: "1.0", ...body };
    const request = new Request("http://127.0.0.1/agents/desk", {
      method: "POST",
      headers,
      body: JSON.stringify(asked),
    });
    return await (await runtime.fetch(request)).text();
  };
  const user = (n: number) => ({ id: `u${n}`, role: "user", content: "pay" });
  const turn = async (n: number): Promise<void> => {
    const messages = Array.from({ length: n }, (_, i) => user(i + 1));
    const asked = await post({ runId: `r${n}`, messages });
    const interruptId = /"interrupts":\[\{"id":"([^"]+)"/.exec(asked)?.[1];
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    expect(await post({ runId: `a${n}`, messages, resume })).toContain("Done.");
  };
  // Long enough that all that each turn has before it would not be kept if it counted for each.
  for (let n = 1; n <= TURNS; n++) await turn(n);
  expect(read.entries).toBe(0);

  await runtime.close();
  runtime = started();
  await turn(TURNS + 1);
  expect(read.entries).toBeGreaterThan(20);
  await runtime.close();
});

const postTo = async (runtime: ReturnType<typeof createRuntime>, path: string, body: object): Promise<string> => {
  const headers = { "content-type": "application/json" };
  const request = new Request(`http://127.0.0.1${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  return await (await runtime.fetch(request)).text();
};
const asks = (n: number) => ({
  ...{ threadId: "t", runId: `r${n}`, protocolVersion: "1.0" },
  messages: Array.from({ length: n }, (_, i) => ({ id: `u${i + 1}`, role: "user", content: "pay" })),
});

test("what a run has done while nobody read it is known to the next turn", async () => {
  const store = memory();
  const prompts: string[] = [];
  const seeing = scriptedModel(({ messages }) => {
    prompts.push(JSON.stringify(messages));
    return messages.at(-1)?.role === "tool" ? { text: "Done." } : { calls: [{ name: "pay", input: {} }] };
  });
  const runtime = createRuntime({ agents: [agent({ name: "desk", model: seeing, tools: [pay] })], store });
  const asked = await postTo(runtime, "/agents/desk", asks(1));
  const interrupt = /"interrupts":\[\{"id":"([^"]+)"/.exec(asked)?.[1] ?? "";
  await postTo(runtime, `/inbox/${interrupt}`, { status: "resolved", payload: { approved: true } });
  await expect.poll(async () => (await store.runs({ tenant: null })).items[0]?.outcome).toBe("success");
  await postTo(runtime, "/agents/desk", asks(2));
  expect(prompts.at(-1)).toContain("paid");
  expect(prompts.at(-1)).toContain("Done.");
  await runtime.close();
});

test("what a run shows while its reader is still joining reaches it, once", async () => {
  const store = memory();
  const reading = store.read.bind(store);
  store.read = async function* (uid, after) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    yield* reading(uid, after);
  };
  const saying = scriptedModel([{ text: "Hello." }]);
  const runtime = createRuntime({ agents: [agent({ name: "desk", model: saying })], store });
  const answer = await postTo(runtime, "/agents/desk", asks(1));
  const types = [...answer.matchAll(/"type":"([A-Z_]+)"/g)].map(([, type]) => type);
  expect(types.filter((type) => type !== "TEXT_MESSAGE_CONTENT")).toEqual([
    ...["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_FINISHED"],
  ]);
  expect([...answer.matchAll(/"delta":"([^"]*)"/g)].map(([, delta]) => delta).join("")).toBe("Hello.");
  await runtime.close();
});
