/**
 * A server to be killed by its own tools, over a SQLite file: it goes on with what it finds, and begins what is not there yet. It says `ready`
 * when a poisoned run is parked and its neighbour has finished, and then ends by itself.
 */
import { writeSync } from "node:fs";
import { agent, createRuntime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";
import { sqlite } from "../../src/store/sqlite.ts";

const [file = ""] = process.argv.slice(2);
const store = sqlite(file);

const bad = tool({
  ...{ name: "bad", description: "Takes its process down.", effect: "read", input: z.object({}) },
  async call() {
    // Its neighbour is on its way by then.
    await new Promise((resolve) => setTimeout(resolve, 50));
    process.kill(process.pid, "SIGKILL");
    return await new Promise<never>(() => {});
  },
});
const good = tool({
  ...{
    name: "good",
    description: "Takes longer than its neighbour lives, the first time.",
    effect: "read",
    input: z.object({}),
  },
  async call(_, { attempt }) {
    await new Promise((resolve) => setTimeout(resolve, attempt === 1 ? 5_000 : 1));
    return "good";
  },
});
const made = (name: string, used: typeof bad | typeof good) =>
  agent({
    name,
    model: scriptedModel([{ calls: [{ name: used.name, input: {} }] }, { text: "Done." }]),
    tools: [used],
  });

const runtime = createRuntime({ agents: [made("bad", bad), made("good", good)], store, onError: () => {} });
await runtime.open();
for (const name of ["good", "bad"]) {
  if ((await store.runs({ tenant: "local", agent: name })).items.length > 0) continue;
  const input = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] };
  const posted = new Request(`http://127.0.0.1/agents/${name}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(input),
  });
  void runtime.fetch(posted).then((response) => response.text());
}
for (;;) {
  const { items } = await store.runs({ tenant: "local" });
  if (items.length === 2 && items.every(({ outcome, readyAt }) => outcome !== null || readyAt === null)) break;
  await new Promise((resolve) => setTimeout(resolve, 5));
}
writeSync(1, "ready\n");
await runtime.close();
