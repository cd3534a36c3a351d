import { statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Agent, agent, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { Message, RunAgentInput } from "../../src/protocol/events.ts";
import { encodeSse } from "../../src/protocol/sse.ts";
import type { Batches } from "../../src/runtime/batches.ts";
import { Engine } from "../../src/runtime/engine.ts";
import type { Sent } from "../../src/runtime/feed.ts";
import { Streams } from "../../src/runtime/streams.ts";
import { sqlite } from "../../src/store/sqlite.ts";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";

const USER = { tenant: "acme", subject: "ada", scopes: ["*"] };
const TURNS = 100;
/** 999 bytes in 50 words, so in 50 deltas. */
const ANSWER = Array.from({ length: 50 }, (_, i) => `word-${i}`.padEnd(19, "-")).join(" ");

interface Turn {
  /** What its one reader was sent. Bytes. */
  readonly sent: number;
  readonly frames: number;
  /** What its entries take in the log. Bytes. */
  readonly logged: number;
  /** The file after it and a checkpoint. Bytes. */
  readonly file: number;
}

/** A server of one agent over a new file. */
async function serverOf(served: Agent) {
  const folder = await mkdtemp(join(tmpdir(), "perdure-growth-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "store.db");
  let time = Date.now();
  const engine = new Engine({
    store: sqlite(file),
    agents: new Map([[served.name, served]]),
    report: (error) => console.error(error),
    // By this clock deltas are far enough apart to be a frame each.
    now: () => (time += 30),
  });
  onTestFinished(() => engine.close());
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  return { file, engine, streams: new Streams(engine, stopping.signal) };
}

/** 100 turns of one thread, each 100 bytes from the user and 1 KB from the model. */
async function conversation(): Promise<readonly Turn[]> {
  const talker = agent({ name: "talker", model: scriptedModel(() => ({ text: ANSWER })) });
  const { file, engine, streams } = await serverOf(talker);
  const Driver = await loadDriver();
  const turns: Turn[] = [];
  const messages: Message[] = [];
  for (let turn = 1; turn <= TURNS; turn++) {
    const input = request(turn, messages);
    const posted = await engine.post(talker, input, USER);
    let sent = 0;
    let frames = 0;
    const { batches } = await streams.ofPost(posted, input, new AbortController().signal);
    for await (const batch of taken(batches)) {
      for (const { event, cursor } of batch) {
        sent += Buffer.byteLength(encodeSse(event, cursor));
        frames++;
        if (event.type === "TEXT_MESSAGE_START")
          messages.push({ id: event.messageId, role: "assistant", content: ANSWER });
      }
    }
    const db = new SqliteDatabase(Driver, file);
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    const row = db.get("SELECT sum(length(entry)) AS logged FROM log JOIN runs ON runs.id = run WHERE turn = ?", turn);
    db.close();
    turns.push({ sent, frames, logged: Number(row?.logged), file: statSync(file).size });
  }
  return turns;
}

/** As a stock client asks: with everything that it holds. What the thread knows of it is not stored again. */
function request(turn: number, messages: Message[]): RunAgentInput {
  const id = String(turn).padStart(3, "0");
  messages.push({ id: `user-${id}`, role: "user", content: "?".repeat(100) });
  return {
    threadId: "t",
    runId: `run-${id}`,
    state: {},
    messages: [...messages],
    tools: [],
    context: [],
    forwardedProps: {},
    protocolVersion: "1.0",
  };
}

test("100 turns of one thread take at most twice the bytes of one uninterrupted reader, and the last no more than the second", async () => {
  const turns = await conversation();
  // 50 deltas, and what begins and ends a message and a run.
  expect(turns.map(({ frames }) => frames)).toEqual(Array.from({ length: TURNS }, () => 54));

  const sent = turns.reduce((sum, turn) => sum + turn.sent, 0);
  const file = (turn: number): number => turns[turn - 1]?.file ?? Number.NaN;
  expect(file(TURNS)).toBeLessThanOrEqual(2 * sent);
  expect(turns.at(-1)?.logged).toBeLessThanOrEqual(1.1 * (turns[1]?.logged ?? Number.NaN));
  // A file grows by pages: 25 turns are enough of them to compare.
  expect(file(100) - file(75)).toBeLessThanOrEqual(1.1 * (file(27) - file(2)));
});

const STEP = 10_000;
const RUNS = 6;

/** The bytes that are in use, without free pages; and all pages. */
async function pages(file: string): Promise<{ readonly used: number; readonly all: number }> {
  const db = new SqliteDatabase(await loadDriver(), file);
  db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  const [all, free, size] = ["page_count", "freelist_count", "page_size"].map((name) => Number(db.pragma(name)));
  db.close();
  return { used: ((all ?? 0) - (free ?? 0)) * (size ?? 0), all: all ?? 0 };
}

/** Text that no other step has, so that nothing is kept once for several. */
const words = (of: string) =>
  `${of} `
    .padEnd(200, "-")
    .concat(" ")
    .repeat(STEP / 200)
    .slice(0, STEP);

test.each([
  ["calls that nobody is asked about", false],
  ["calls that are approved", true],
])(
  "after pruning a thread takes at most 1.3 times its messages, inputs and outputs, and its file gets no larger by the next turns: %s",
  async (_, approval) => {
    const search = tool({
      name: "search",
      description: "Searches.",
      effect: "read",
      approval,
      input: z.object({ query: z.string() }),
      call: ({ query }) => ({ found: words(`found for ${query.slice(0, 12)}`) }),
    });
    const searcher = agent({
      name: "searcher",
      tools: [search],
      model: scriptedModel(({ messages, lastUserText }) => {
        const of = lastUserText.slice(0, 8);
        return messages.at(-1)?.role === "user"
          ? {
              reasoning: words(`thought of ${of}`),
              calls: [{ name: "search", input: { query: words(`query ${of}`) } }],
            }
          : { text: words(`answer to ${of}`) };
      }),
    });
    const { file, engine, streams } = await serverOf(searcher);
    let turn = 0;
    const run = async (): Promise<void> => {
      turn += 1;
      const content = words(`turn ${String(turn).padStart(3, "0")}`);
      const input = { ...request(turn, []), messages: [{ id: `user-${turn}`, role: "user" as const, content }] };
      const posted = await engine.post(searcher, input, USER);
      const { batches } = await streams.ofPost(posted, input, new AbortController().signal);
      for await (const _ of taken(batches));
      for (const { uid, interrupt } of (await engine.store.questions({ tenant: null })).items) {
        const reply = { status: "resolved", payload: { approved: true } } as const;
        await engine.store.answer({ interrupt: interrupt.id, ...reply, by: USER });
        await expect.poll(async () => (await engine.store.run(uid))?.outcome).toBe("success");
      }
    };
    const pruned = async (): Promise<void> => {
      for (const { uid } of (await engine.store.runs({ tenant: null, prunable: true, limit: 500 })).items) {
        expect(await engine.prune(uid)).toBe("pruned");
      }
    };

    await engine.open();
    const empty = await pages(file);
    for (let i = 0; i < RUNS; i++) await run();
    const whole = await pages(file);
    await pruned();
    const left = await pages(file);
    // A user's message, a thought, a call's arguments, its result, and an answer.
    const content = RUNS * 5 * STEP;
    expect(left.used - empty.used).toBeLessThanOrEqual(1.3 * content);
    expect(whole.used - empty.used).toBeGreaterThan(1.9 * content);

    // What was given back is enough for the frames of as many turns again.
    for (let i = 0; i < RUNS; i++) {
      await run();
      if (i % 2 === 1) await pruned();
    }
    const again = await pages(file);
    expect(again.used - empty.used).toBeLessThanOrEqual(1.3 * 2 * content);
    expect(again.all).toBeLessThanOrEqual(1.05 * whole.all);
  },
  60_000,
);

async function* taken(batches: Batches): AsyncGenerator<readonly Sent[], void> {
  for (let batch = batches.take(); batch !== null; batch = batches.take()) {
    if (batch !== undefined) yield batch;
    else {
      await new Promise<void>((resolve) => {
        batches.onNews = resolve;
      });
    }
  }
}
