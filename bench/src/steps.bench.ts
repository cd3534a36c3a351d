/** A durable step against what it has to commit: its attempt before its body runs, and its end before anything rests on it. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agent, createRuntime, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";
import { Bench, type Contender } from "./harness.ts";
import { rawCommits } from "./store-runs.ts";

const folder = mkdtempSync(join(tmpdir(), "perdure-bench-"));
const bench = new Bench("steps");
const raw = await rawCommits(join(folder, "raw.db"));

const CALLS = 50;
const noop = tool({
  name: "noop",
  description: "Does nothing.",
  effect: "idempotent",
  input: z.object({ n: z.number() }),
  async call({ n }) {
    return n;
  },
});
const calls = Array.from({ length: CALLS }, (_, n) => ({ name: "noop", input: { n } }));
const caller = agent({
  name: "caller",
  model: scriptedModel(({ turn }) => (turn === 0 ? { calls } : { text: "Done." })),
  tools: [noop],
});
const runtime = createRuntime({ agents: [caller], store: sqlite(join(folder, "steps.db")) });
let threads = 0;
const steps: Contender = {
  name: `a run of ${CALLS} calls, one after the other`,
  sliceMs: 2_000,
  async run(times) {
    let bytes = 0;
    for (let i = 0; i < times; i++) {
      const body = JSON.stringify({
        threadId: `t${threads++}`,
        runId: "r",
        messages: [{ id: "u", role: "user", content: "Go." }],
        protocolVersion: "1.0",
      });
      const headers = { "content-type": "application/json" };
      const response = await runtime.fetch(
        new Request("http://127.0.0.1/agents/caller", { method: "POST", headers, body }),
      );
      const text = await response.text();
      if (!text.includes("RUN_FINISHED")) throw new Error(text);
      bytes += text.length;
    }
    return bytes;
  },
};
const pairs: Contender = {
  name: `two raw commits ${CALLS} times`,
  run: (times) => raw.commits.run(times * 2 * CALLS),
};
await bench.compare("Durable steps", steps, [pairs], [{ slowerThan: pairs.name, atMost: 3 }]);
await runtime.close();
raw.close();
rmSync(folder, { recursive: true, force: true });
bench.finish();
