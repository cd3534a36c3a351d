/** Live streams of ten frames a second each: bare `node:http`, and the whole way of ours, behind one load. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { agent, createRuntime, type EventStore, type LanguageModel, serve } from "perdure";
import { collectGarbage } from "./harness.ts";
import { type Load, type Loaded, stamp } from "./streams-load.ts";

const EVERY_MS = 100;
const SETTLE_MS = 1_500;
const MEASURE_MS = 4_000;
/** A server that has not got this far by then does not keep up. */
const LONGEST_MS = 45_000;
const NEVER = Number.POSITIVE_INFINITY;

export interface Served {
  readonly url: string;
  close(): Promise<void>;
}

let begun = 0;

/** Calls `each` ten times a second until it returns false. Streams are spread evenly over the tenth, however quickly they were opened. */
function ticking(each: () => boolean): void {
  // By the golden ratio, which spreads any number of them.
  const phase = ((begun++ * 0.618_034) % 1) * EVERY_MS;
  let due = Math.ceil(performance.now() / EVERY_MS) * EVERY_MS + phase;
  const tick = (): void => {
    due += EVERY_MS;
    if (each()) setTimeout(tick, due - performance.now());
  };
  setTimeout(tick, due - performance.now());
}

export async function bare(): Promise<Served> {
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

export async function ours(store: EventStore): Promise<Served> {
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

export interface Latency {
  /** Milliseconds. All are infinite where the server does not keep up. */
  readonly p50: number;
  readonly p99: number;
  /** What the server holds for each stream, after a collection. KiB. */
  readonly held: number;
}

/** How old frames are when the readers of so many streams have them; the readers are in a process of their own. */
export async function measured(start: () => Promise<Served>, streams: number): Promise<Latency> {
  const served = await start();
  const before = heldBytes();
  const readers = fork(new URL("./streams-load.ts", import.meta.url));
  readers.send({ url: served.url, streams, settle: SETTLE_MS, measure: MEASURE_MS } satisfies Load);
  const loaded = await Promise.race([
    once(readers, "message").then(([message]) => message as Loaded),
    sleep(LONGEST_MS, undefined, { ref: false }),
  ]);
  const held = (heldBytes() - before) / streams / 1024;
  readers.kill();
  await served.close();
  if (loaded === undefined) return { p50: NEVER, p99: NEVER, held: NEVER };
  const sorted = loaded.ages.toSorted((a, b) => a - b);
  const at = (share: number): number => (sorted[Math.floor(share * sorted.length)] ?? Number.NaN) / 1000;
  return { p50: at(0.5), p99: at(0.99), held };
}

function heldBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
