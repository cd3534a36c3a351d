/**
 * Many connections: 2,000 live streams, 200 readers of one run that is as fast as it can be, and 1,000 that come back at once. The load is in
 * processes of its own.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agent, createRuntime, memory, type RunContext, serve } from "perdure";
import { sqlite } from "perdure/sqlite";
import { Bench, collectGarbage } from "./harness.ts";
import { atMost, spreadOf } from "./judge.ts";
import { bare, type Latency, measured, ours, type Served } from "./live-streams.ts";
import type { Connected, Read, Readers } from "./readers-load.ts";

const folder = mkdtempSync(join(tmpdir(), "perdure-readers-"));
const bench = new Bench("readers");
const ROUNDS = 3;

// ── 2,000 live streams

const STREAMS = 2_000;
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
const over = (of: (round: Record<Name, Latency>) => number) => spreadOf(rounds.map(of));
const figures = names.flatMap((name) => [
  [`${name}, p50, ms`, over((round) => round[name].p50)] as const,
  [`${name}, p99, ms`, over((round) => round[name].p99)] as const,
  [`${name}, held for each, KiB`, over((round) => round[name].held)] as const,
]);
bench.report(`${STREAMS} streams of ten frames a second`, Object.fromEntries(figures), [
  atMost(
    "p99 over memory(), times that of bare node:http,",
    over((round) => round["memory()"].p99 / round["bare node:http"].p99),
    1.2,
  ),
  // In memory() the log itself is held.
  atMost(
    "memory for each stream over sqlite(), times that of bare node:http,",
    over((round) => round["sqlite()"].held / round["bare node:http"].held),
    1.5,
  ),
  atMost(
    "ms that p99 over sqlite() is above that of bare node:http",
    over((round) => round["sqlite()"].p99 - round["bare node:http"].p99),
    15,
  ),
]);

// ── 200 readers, flat out

const READERS = 200;
const FRAMES = 5_000;
const LAST = "the last one";
const WORDS = "some words of a model, about as many as come at once";

async function load(readers: Readers): Promise<{ readonly done: Promise<number>; readonly child: ChildProcess }> {
  const child = fork(new URL("./readers-load.ts", import.meta.url));
  child.send(readers);
  const [first] = (await once(child, "message")) as [Connected | Read];
  const done = "ms" in first ? Promise.resolve(first.ms) : once(child, "message").then(([read]) => (read as Read).ms);
  return { done, child };
}

/** Serves one stream that begins with `begin`, and then is as fast as it can be. */
interface FlatOut extends Served {
  begin(): void;
}

async function flatOut(start: () => Promise<FlatOut>): Promise<number> {
  const served = await start();
  const { done, child } = await load({ url: served.url, readers: READERS, until: LAST });
  collectGarbage();
  const begun = performance.now();
  served.begin();
  await done;
  const seconds = (performance.now() - begun) / 1_000;
  child.kill();
  await served.close();
  return (READERS * FRAMES) / seconds;
}

async function bareFlatOut(): Promise<FlatOut> {
  const responses: ServerResponse[] = [];
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache, no-transform" });
    response.write(": hello\n\n");
    responses.push(response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const send = async (): Promise<void> => {
    for (let i = 1; i <= FRAMES; i++) {
      const delta = i === FRAMES ? LAST : WORDS;
      const data = JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId: "01a22964-cff9:m0", delta });
      const frame = `id: ${i}.WyIwMWEyMjk2NC1jZmY5LTc3YmMtYWZmMi0zZDNlZWIxYzZiNzciLCJydW4iXQ\ndata: ${data}\n\n`;
      for (const response of responses) response.write(frame);
      if (i % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
      await Promise.all(responses.filter((one) => one.writableNeedDrain).map((one) => once(one, "drain")));
    }
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    begin: () => void send(),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A run that waits to begin, and whoever wants to read it. */
async function waiting(body: (ctx: RunContext, begun: Promise<void>) => Promise<void>) {
  let begin = (): void => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const talker = agent({ name: "talker", run: (ctx) => body(ctx, begun) });
  const runtime = createRuntime({ agents: [talker], store: memory() });
  const server = await serve(runtime, { port: 0 });
  const messages = [{ id: "u", role: "user", content: "Talk." }];
  const posted = await fetch(`${server.url}/agents/talker`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ threadId: "t", runId: "r", messages, protocolVersion: "1.0" }),
  });
  await posted.body?.cancel();
  return { url: `${server.url}/threads/t/stream`, begin, close: () => server.close() };
}

const oursFlatOut = (): Promise<FlatOut> =>
  waiting(async (ctx, begun) => {
    using message = ctx.message();
    await begun;
    for (let i = 1; i <= FRAMES; i++) {
      // Not a delta, which would wait for the next ones.
      ctx.emit({ type: "CUSTOM", name: "bench.words", value: i === FRAMES ? LAST : WORDS });
      if (i % 50 === 0) await ctx.flushed();
    }
    message.delta("Done.");
  });

const rates: { readonly bare: number; readonly ours: number }[] = [];
for (let round = -1; round < 5; round++) {
  const bareFirst = round % 2 === 0;
  const one = await flatOut(bareFirst ? bareFlatOut : oursFlatOut);
  const other = await flatOut(bareFirst ? oursFlatOut : bareFlatOut);
  if (round >= 0) rates.push(bareFirst ? { bare: one, ours: other } : { bare: other, ours: one });
}
bench.report(
  `One run as fast as it can be, ${READERS} readers`,
  {
    "bare node:http, frames/s": spreadOf(rates.map((rate) => rate.bare)),
    "ours, frames/s": spreadOf(rates.map((rate) => rate.ours)),
  },
  [
    atMost(
      "times of ours that bare node:http is faster",
      spreadOf(rates.map((rate) => rate.bare / rate.ours)),
      1 / 0.85,
    ),
  ],
);

// ── 1,000 that come back at once

const BACK = 1_000;
const rejoins: number[] = [];
for (let round = 0; round < 5; round++) {
  const served = await waiting(async (ctx, begun) => {
    for (let i = 0; i < 20; i++) ctx.say(WORDS);
    using message = ctx.message();
    message.delta("Half a ");
    await begun;
  });
  const { done, child } = await load({ url: served.url, readers: BACK, until: "TEXT_MESSAGE_START" });
  rejoins.push(await done);
  served.begin();
  child.kill();
  await served.close();
}
bench.report(`${BACK} readers that come back at once`, { "until each has its prelude, ms": spreadOf(rejoins) }, [
  atMost("milliseconds until each has its prelude", spreadOf(rejoins), 2_000),
]);

rmSync(folder, { recursive: true, force: true });
bench.finish();
