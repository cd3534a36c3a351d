/** The durable log in SQLite against the raw driver: what a commit and a start cost. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import process from "node:process";
import { sqlite } from "perdure/sqlite";
import { Bench, type Contender } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { begin, fact, rawCommits } from "./store-runs.ts";

const folder = mkdtempSync(join(tmpdir(), "perdure-bench-"));
const bench = new Bench("store");

// ── One run, one entry, one commit

const raw = await rawCommits(join(folder, "raw.db"));
const { commits } = raw;

const store = sqlite(join(folder, "store.db"));
await store.open("bench");
const one = await begin(store, "one");
const appends: Contender = {
  name: "append, awaited",
  sliceMs: 200,
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
