/**
 * 500 live streams of ten frames a second: how old a frame is when its reader has it, against bare `node:http` that writes the same frames.
 *
 * Ours is the whole way: a model's delta is verified, appended to the run's log, read from it, rendered, and written to the socket.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agent, createRuntime, type EventStore, type LanguageModel, memory, serve } from "perdure";
import { sqlite } from "perdure/sqlite";
import { Bench } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { type Load, type Loaded, stamp } from "./streams-load.ts";

const STREAMS = 500;
const EVERY_MS = 100;
const SETTLE_MS = 1_500;
const MEASURE_MS = 4_000;
const ROUNDS = 5;

interface Served {
  readonly url: string;
  close(): Promise<void>;
}

let begun = 0;

/** Calls `each` ten times a second until it returns false. Streams are spread evenly over the tenth, however quickly they were opened. */
function ticking(each: () => boolean): void {
  const phase = (begun++ % STREAMS) * (EVERY_MS / STREAMS);
  let due = Math.ceil(performance.now() / EVERY_MS) * EVERY_MS + phase;
  const tick = (): void => {
    due += EVERY_MS;
    if (each()) setTimeout(tick, due - performance.now());
  };
  setTimeout(tick, due - performance.now());
}

async function bare(): Promise<Served> {
  let isOver = false;
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache, no-transform" });
      const frame = (event: object): void =>
        void response.write(
          `id: WyIwMWEyMjk2NC1jZmY5LTc3YmMtYWZmMi0zZDNlZWIxYzZiNzciLDUsInIiXQ\ndata: ${JSON.stringify(event)}\n\n`,
        );
      frame({ type: "RUN_STARTED", threadId: "t", runId: "r" });
      const messageId = "01a22964-cff9-77bc-aff2-3d3eeb1c6b77:0:m0";
      ticking(() => {
        if (isOver) response.end();
        else frame({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: stamp() });
        return !isOver;
      });
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async close() {
      isOver = true;
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function ours(store: EventStore): Promise<Served> {
  let isOver = false;
  const model: LanguageModel = {
    specificationVersion: "v3",
    provider: "bench",
    modelId: "ticking",
    doStream: async () => ({ stream: new ReadableStream({ start: (parts) => talk(parts, () => isOver) }) }),
  };
  const runtime = createRuntime({ agents: [agent({ name: "talker", model })], store });
  const server = await serve(runtime, { port: 0 });
  return {
    url: `${server.url}/agents/talker`,
    async close() {
      isOver = true;
      await server.close();
    },
  };
}

function talk(parts: ReadableStreamDefaultController<object>, isOver: () => boolean): void {
  parts.enqueue({ type: "text-start", id: "0" });
  ticking(() => {
    if (!isOver()) {
      parts.enqueue({ type: "text-delta", id: "0", delta: stamp() });
      return true;
    }
    parts.enqueue({ type: "text-end", id: "0" });
    parts.enqueue({ type: "finish", finishReason: "stop", usage: {} });
    parts.close();
    return false;
  });
}

interface Latency {
  /** Milliseconds. */
  readonly p50: number;
  readonly p99: number;
}

async function measured(start: () => Promise<Served>): Promise<Latency> {
  const served = await start();
  const readers = fork(new URL("./streams-load.ts", import.meta.url));
  readers.send({ url: served.url, streams: STREAMS, settle: SETTLE_MS, measure: MEASURE_MS } satisfies Load);
  const [{ ages }] = (await once(readers, "message")) as [Loaded];
  readers.kill();
  await served.close();
  const sorted = ages.toSorted((a, b) => a - b);
  const at = (share: number): number => (sorted[Math.floor(share * sorted.length)] ?? Number.NaN) / 1000;
  return { p50: at(0.5), p99: at(0.99) };
}

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
  for (const name of round % 2 === 0 ? names : names.toReversed()) latencies[name] = await measured(contenders[name]);
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
