import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { agent, createRuntime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { sqlite } from "../../src/store/sqlite.ts";

const RUNS = 400;
const AT_ONCE = 20;

const lookUp = tool({
  name: "look_up",
  description: "Looks something up.",
  effect: "read",
  input: z.object({ id: z.string() }),
  async call({ id }) {
    return { id, text: "x".repeat(1_000) };
  },
});
const support = agent({
  name: "support",
  model: scriptedModel(({ turn }) =>
    turn === 0 ? { calls: [{ name: "look_up", input: { id: "1" } }] } : { text: "word ".repeat(200) },
  ),
  tools: [lookUp],
});

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

test("twice as many finished runs leave no more on the heap", async () => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-memory-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const runtime = createRuntime({ agents: [support], store: sqlite(join(folder, "store.db")) });
  onTestFinished(() => runtime.close());
  let threads = 0;
  const run = async (): Promise<void> => {
    const input = { threadId: `t${threads++}`, runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] };
    const request = new Request("http://127.0.0.1/agents/support", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(input),
    });
    const text = await (await runtime.fetch(request)).text();
    if (!text.includes("RUN_FINISHED")) throw new Error(text);
  };
  const heapAfter = async (runs: number): Promise<number> => {
    for (let i = 0; i < runs; i += AT_ONCE) await Promise.all(Array.from({ length: AT_ONCE }, run));
    await new Promise((resolve) => setTimeout(resolve, 100));
    collect();
    return process.memoryUsage().heapUsed;
  };

  // The first ones compile the code and fill what is kept on purpose.
  const before = await heapAfter(RUNS);
  const after = await heapAfter(RUNS);
  // One run's log is 10 KB, and what it comes to twice that: a run that stays would be seen.
  expect(after - before).toBeLessThan(2_048 * RUNS);
});
