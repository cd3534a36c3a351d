/** The durable log in SQLite against the raw driver: what a commit, a step and a start cost. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import process from "node:process";
import { agent, createRuntime, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { z } from "zod";
import { Bench, type Contender } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { begin, fact } from "./store-runs.ts";

const folder = mkdtempSync(join(tmpdir(), "perdure-bench-"));
const bench = new Bench("store");

// ── One run, one entry, one commit

const { DatabaseSync } = await import("@photostructure/sqlite");
const raw = new DatabaseSync(join(folder, "raw.db"));
raw.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE log (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, entry TEXT NOT NULL, UNIQUE (run, seq))`);
const insert = raw.prepare("INSERT INTO log (run, seq, at, entry) VALUES (1, ?, ?, ?)");
const text = JSON.stringify(fact);
let seq = 0;
const commits: Contender = {
  name: "raw driver, a commit each",
  run(times) {
    for (let i = 0; i < times; i++) insert.run(seq++, Date.now(), text);
    return seq;
  },
};

const store = sqlite(join(folder, "store.db"));
await store.open("bench");
const one = await begin(store, "one");
const appends: Contender = {
  name: "append, awaited",
  async run(times) {
    let head = 0;
    for (let i = 0; i < times; i++) {
      const appended = await store.append(one, { entries: [fact] });
      head += appended.is === "appended" ? appended.head : 0;
    }
    return head;
  },
};
await bench.compare("A durable append of one run", appends, [commits], [{ slowerThan: commits.name, atMost: 1 / 0.8 }]);

// ── Two hundred runs at once

const RUNS = 200;
const EACH = 10;
const leases = await Promise.all(Array.from({ length: RUNS }, (_, i) => begin(store, `many-${i}`)));
const delay = monitorEventLoopDelay({ resolution: 1 });
const delays: number[] = [];
const many: Contender = {
  name: `${RUNS} runs, each awaits its append`,
  async run(times) {
    delay.reset();
    delay.enable();
    const each = async (lease: (typeof leases)[number]): Promise<void> => {
      for (let i = 0; i < times * EACH; i++) await store.append(lease, { entries: [fact] });
    };
    await Promise.all(leases.map(each));
    delay.disable();
    delays.push(delay.percentile(99) / 1e6);
    return times;
  },
};
await bench.compare(
  `Durable appends of ${RUNS} runs`,
  many,
  [],
  [{ atLeastPerSecond: 15_000, of: "entries", each: RUNS * EACH }],
);
bench.report("Event-loop delay meanwhile", { "p99 of a slice, ms": spreadOf(delays) });
await store.close();

// ── A step: its attempt is durable before its body runs, and its end before anything rests on it

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
  run: (times) => commits.run(times * 2 * CALLS),
};
await bench.compare("Durable steps", steps, [pairs], [{ slowerThan: pairs.name, atMost: 3 }]);
await runtime.close();
raw.close();

// ── A process that starts and goes on with a long run

const script = new URL("./store-resume.ts", import.meta.url).pathname;
const times = { open: [] as number[], resume: [] as number[] };
for (let round = 0; round < 7; round++) {
  const file = join(folder, `long-${round}.db`);
  const child = (what: string): string =>
    execFileSync(process.execPath, [...process.execArgv, script, what, file], { encoding: "utf8" });
  child("prepare");
  const { open, resume } = JSON.parse(child("resume")) as { open: number; resume: number };
  times.open.push(open);
  times.resume.push(resume);
}
const resume = spreadOf(times.resume);
bench.report(
  "A run of 10,000 entries, cut, in a process that has just started",
  { "until the store is open, ms": spreadOf(times.open), "until the run goes on, ms": resume },
  [atMost("milliseconds until it goes on", resume, 150)],
);

rmSync(folder, { recursive: true, force: true });
bench.finish();
