import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { agent, createRuntime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { sqlite } from "../src/store/sqlite.ts";
import type { EventStore } from "../src/store/store.ts";
import { asking, saying } from "./runtime/asking.ts";

/** The promise speaks of 10,000: `PERDURE_MEMORY_RUNS=10000 npx vitest run heap.test` takes minutes. */
const RUNS = Number(process.env.PERDURE_MEMORY_RUNS ?? 1_000);
/** More than are kept folded on purpose. */
const WARM_UP = 400;
const PARKED = 1_000;
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

const asks = agent({
  name: "asks",
  model: scriptedModel([{ calls: [{ name: "look_up", input: { id: "1" } }] }]),
  tools: [{ ...lookUp, approval: true }],
});

setFlagsFromString("--expose-gc");
const collect: () => void = runInNewContext("gc");

async function opened() {
  const folder = await mkdtemp(join(tmpdir(), "perdure-memory-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "store.db");
  let threads = 0;
  const begin = () => {
    const runtime = createRuntime({ agents: [support, asks], store: sqlite(file) });
    const run = async (name: string): Promise<void> => {
      const { text } = await asking(runtime)(`/agents/${name}`, saying("Go.", { threadId: `t${threads++}` }));
      if (!text.includes("RUN_FINISHED")) throw new Error(text);
    };
    return { runtime, run };
  };
  return { file, begin };
}

async function runs(count: number, run: () => Promise<void>): Promise<void> {
  for (let i = 0; i < count; i += AT_ONCE) await Promise.all(Array.from({ length: AT_ONCE }, run));
}

async function heap(): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 100));
  collect();
  return process.memoryUsage().heapUsed;
}

test(`${RUNS} finished runs leave the heap within 10 % of where it was`, async () => {
  const { runtime, run } = (await opened()).begin();
  onTestFinished(() => runtime.close());
  // The first ones compile the code and fill what is kept on purpose.
  await runs(WARM_UP, () => run("support"));
  const before = await heap();
  await runs(RUNS, () => run("support"));
  const after = await heap();
  expect(after).toBeLessThan(before * 1.1);
}, 600_000);

test("1,000 parked runs cause no claim when their store is opened again, and hold no memory", async () => {
  const { file, begin } = await opened();
  const first = begin();
  await runs(PARKED, () => first.run("asks"));
  await first.runtime.close();

  const store = sqlite(file);
  let claimed = 0;
  let read = 0;
  const counted: EventStore = new Proxy(store, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== "function") return member;
      if (name === "read") read += 1;
      if (name !== "claim") return member.bind(target);
      return async (owner: string) => {
        const lease = await target.claim(owner);
        if (lease !== null) claimed += 1;
        return lease;
      };
    },
  });
  const before = await heap();
  const runtime = createRuntime({ agents: [support, asks], store: counted });
  onTestFinished(() => runtime.close());
  await runtime.open();
  const after = await heap();
  expect((await store.questions({ tenant: "local", limit: 500 })).items).toHaveLength(500);
  expect({ claimed, read }).toEqual({ claimed: 0, read: 0 });
  // One run's log alone is 2 KB.
  expect(after - before).toBeLessThan(PARKED * 500);
}, 600_000);
