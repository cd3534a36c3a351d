/**
 * 500 live streams of ten frames a second: how old a frame is when its reader has it, against bare `node:http` that writes the same frames.
 *
 * Ours is the whole way: a model's delta is verified, appended to the run's log, read from it, rendered, and written to the socket.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memory } from "perdure";
import { sqlite } from "perdure/sqlite";
import { Bench } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { bare, type Latency, measured, ours } from "./live-streams.ts";

const STREAMS = 500;
const ROUNDS = 5;

const folder = mkdtempSync(join(tmpdir(), "perdure-streams-"));
let files = 0;
const contenders = {
  "bare node:http": bare,
  "memory()": () => ours(memory()),
  "sqlite()": () => ours(sqlite(join(folder, `${files++}.db`))),
} as const;
type Name = keyof typeof contenders;
const names = Object.keys(contenders) as Name[];

const rounds: Record<Name, Latency>[] = [];
for (let round = 0; round < ROUNDS; round++) {
  const latencies: Partial<Record<Name, Latency>> = {};
  for (const name of round % 2 === 0 ? names : names.toReversed())
    latencies[name] = await measured(contenders[name], STREAMS);
  rounds.push(latencies as Record<Name, Latency>);
}
rmSync(folder, { recursive: true, force: true });

const bench = new Bench("streams");
const ratio = spreadOf(rounds.map((round) => round["memory()"].p99 / round["bare node:http"].p99));
const figures = names.flatMap((name) => [
  [`${name}, p50, ms`, spreadOf(rounds.map((round) => round[name].p50))] as const,
  [`${name}, p99, ms`, spreadOf(rounds.map((round) => round[name].p99))] as const,
]);
bench.report(`Age of a frame at its reader, ${STREAMS} streams of ten frames a second`, Object.fromEntries(figures), [
  atMost("p99 over memory(), times that of bare node:http,", ratio, 1.3),
]);
bench.finish();
