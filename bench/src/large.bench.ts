/** Large results and waiting for humans: what they leave in the file and on the heap, and what a question costs. */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { sqlite } from "perdure/sqlite";
import { desk, straightTurn, turn } from "./desk.ts";
import { Bench, collectGarbage } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { rawCommits } from "./store-runs.ts";

const folder = mkdtempSync(join(tmpdir(), "perdure-bench-"));
const bench = new Bench("large");

// ── 200 turns, each with a result of 100 KB that a human has approved

const THREADS = 20;
const TURNS = 10;
const BYTES = 100_000;
const file = join(folder, "large.db");
const large = desk(sqlite(file), (order) => String(order).padEnd(BYTES - 2, "."));
const heap: number[] = [];
for (let thread = 0; thread < THREADS; thread++) {
  for (let n = 0; n < TURNS; n++) await turn(large, `t${thread}`, n);
  collectGarbage();
  heap.push(process.memoryUsage().heapUsed / 2 ** 20);
}
await large.close();
const stored = statSync(file).size / (THREADS * TURNS * BYTES);
const after = (threads: number): number => heap[threads - 1] ?? Number.NaN;
const growth = after(THREADS) - after(THREADS / 2);
bench.report(
  `${THREADS * TURNS} turns with ${BYTES / 1_000} KB results and an approval each`,
  {
    "store, bytes for each of the results": spreadOf([stored]),
    "heap after half of them, MiB": spreadOf([after(THREADS / 2)]),
    "heap after all of them, MiB": spreadOf([after(THREADS)]),
  },
  [
    atMost("bytes in the store for each of the results", spreadOf([stored]), 1.5),
    // The second half's results alone are 9.5 MiB.
    atMost("MiB on the heap that the second half adds", spreadOf([growth]), 2),
  ],
);

// ── A question: asked, parked, answered, claimed, run

const raw = await rawCommits(join(folder, "raw.db"));
const asking = desk(sqlite(join(folder, "asking.db")), (order) => order);
const straight = desk(sqlite(join(folder, "straight.db")), (order) => order, false);
const ROUNDS = 11;
/** Enough that the collection before them, which leaves the code cold, is a small part. */
const EACH = 20;
let threads = 0;
async function millisecondsOf(job: () => unknown): Promise<number> {
  collectGarbage();
  const begun = performance.now();
  for (let i = 0; i < EACH; i++) await job();
  return (performance.now() - begun) / EACH;
}
const costs: number[] = [];
const ratios: number[] = [];
for (let round = -5; round < ROUNDS; round++) {
  const withQuestion = await millisecondsOf(() => turn(asking, `t${threads++}`, 0));
  const without = await millisecondsOf(() => straightTurn(straight, `t${threads++}`, 0));
  const commits = await millisecondsOf(() => raw.commits.run(8));
  if (round < 0) continue; // until it is compiled
  costs.push(withQuestion - without);
  ratios.push((withQuestion - without) / commits);
}
const ratio = spreadOf(ratios);
bench.report(
  "An approval's round trip: what a turn takes longer when its call is asked for, parked, answered by a second request, claimed and run",
  { "an approval, ms": spreadOf(costs), "times of eight raw commits": ratio },
  [atMost("times of eight raw commits", ratio, 1)],
);
await asking.close();
await straight.close();
raw.close();
rmSync(folder, { recursive: true, force: true });
bench.finish();
