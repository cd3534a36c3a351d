/**
 * What comes in from outside, at every point between a driver's look at its inbox and what it does then: each commit of the run waits at a
 * barrier once, while somebody answers, cancels, or brings a client's result.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold } from "../../src/log/fold.ts";
import type { EventStore, Run } from "../../src/store/store.ts";
import type { Life } from "../../src/testing/life.ts";
import { never } from "../../src/testing/mortal-store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { quietClient } from "../protocol/published-client.ts";

import { posts } from "./asking.ts";
import { clientTool, parallelCalls, refundDesk, suspension } from "./stories.ts";
import { living, StockClient, type Story } from "./world.ts";

quietClient();

/** Somebody outside. */
interface Outsider {
  /** Whether there is something for him to do. */
  due(store: EventStore, run: Run): Promise<boolean>;
  does(life: Life, run: Run): Promise<Response>;
  /** Resolves when his deed is in the store. Default: when he has his answer. */
  done?(store: EventStore): Promise<void>;
}

/** Plays a story's first request, with one deed at the barrier before the nth commit at which there is something to do. */
async function interfere(story: Story, n: number, outsider: Outsider) {
  const { life, world } = living(story.agent);
  const { store } = life.mortal;
  let left = n;
  let isBusy = false;
  let deed: { readonly response: Promise<Response>; readonly head: number } | undefined;
  life.mortal.gate = async () => {
    if (isBusy || deed !== undefined) return;
    isBusy = true;
    const [run] = (await store.runs({ tenant: "local" })).items;
    if (run !== undefined && run.outcome === null && (await outsider.due(store, run)) && --left === 0) {
      const response = outsider.does(life, run);
      await Promise.race([response, outsider.done?.(store) ?? never()]);
      deed = { response, head: run.head };
    }
    isBusy = false;
  };
  await life.runtime.open();
  const client = new StockClient("desk", life.fetch);
  client.say("u", "go");
  const ran = await client.run({ runId: "r1", ...(story.tools && { tools: story.tools }) });
  if (ran === "cut") throw new Error(`cut before the ${n}th commit`, { cause: client.failure });
  life.mortal.gate = undefined;
  const [run] = (await store.runs({ tenant: "local" })).items;
  if (run === undefined) throw new Error("there is no run");
  const response = await deed?.response;
  await response?.body?.cancel();
  return { life, world, store, client, run, ran, deed: deed && { status: response?.status, head: deed.head } };
}

/** Resolves when the run has ended. */
async function ended(store: EventStore, { uid }: Run): Promise<Run> {
  for (;;) {
    const run = await store.run(uid);
    if (run !== null && run.outcome !== null) return run;
    await new Promise<void>((resolve, reject) => {
      const stuck = setTimeout(() => reject(new Error(`run ${uid} does not go on: ${JSON.stringify(run)}`)), 3_000);
      const unwatch = store.watch({ run: uid }, () => {
        clearTimeout(stuck);
        unwatch();
        resolve();
      });
    });
  }
}

async function logOf(store: EventStore, { uid }: Run): Promise<Entry[]> {
  const log: Entry[] = [];
  for await (const entry of store.read(uid, -1)) log.push(entry);
  return log;
}

/** Ids of the questions that some leg's end lists behind `head`. */
function listedBehind(log: readonly Entry[], head: number): string[] {
  return log.flatMap((entry) =>
    entry.kind === "leg.finished" && entry.seq > head && entry.outcome.type === "interrupt"
      ? entry.outcome.interrupts.map(({ id }) => id)
      : [],
  );
}

async function inboxOf(life: Life): Promise<unknown> {
  return await (await life.fetch("http://localhost/inbox", {})).json();
}

/** Answers the one question that he waits for, in the inbox. */
class Answerer implements Outsider {
  answered: string | undefined;
  readonly #payload: unknown;
  readonly #message: RegExp;

  constructor(message: RegExp, payload: unknown) {
    this.#message = message;
    this.#payload = payload;
  }

  async due(store: EventStore): Promise<boolean> {
    const { items } = await store.questions({ tenant: "local" });
    this.answered = items.find(({ interrupt }) => this.#message.test(interrupt.message))?.interrupt.id;
    return this.answered !== undefined;
  }

  async does(life: Life): Promise<Response> {
    return await life.fetch(
      `http://localhost/inbox/${this.answered}`,
      posts({ status: "resolved", payload: this.#payload }),
    );
  }
}

describe.each([
  { story: refundDesk, message: /80 EUR/, payload: { approved: true } },
  { story: suspension, message: /account/, payload: { account: "42" } },
])("an answer from the inbox, in the story of $story.name", ({ story, message, payload }) => {
  test("counts wherever it falls, and its question is not listed any more", async () => {
    for (let n = 1; ; n++) {
      const answerer = new Answerer(message, payload);
      const { life, world, store, run, deed } = await interfere(story, n, answerer);
      if (deed === undefined) {
        expect(n).toBeGreaterThan(1);
        break;
      }
      expect(deed.status).toBe(200);
      await ended(store, run);
      const log = await logOf(store, run);
      expect(listedBehind(log, deed.head), `before commit ${n}`).toEqual([]);
      expect(log.filter(({ kind }) => kind === "interrupt.answered")).toMatchObject([
        { id: answerer.answered, status: "resolved", payload },
      ]);
      expect(await inboxOf(life)).toEqual({ interrupts: [] });
      expect(new Set(world.ledger).size).toBe(world.ledger.length);
      await life.runtime.close();
    }
  });
});

test("one of two answers, wherever it falls between the calls of one turn, leaves only the other question", async () => {
  for (let n = 1; ; n++) {
    const answerer = new Answerer(/80 EUR/, { approved: true });
    const { life, world, store, run, deed, ran, client } = await interfere(parallelCalls, n, answerer);
    if (deed === undefined) {
      expect(n).toBeGreaterThan(4);
      break;
    }
    expect(deed.status).toBe(200);
    expect(listedBehind(await logOf(store, run), deed.head), `before commit ${n}`).not.toContain(answerer.answered);
    const other = ran.questions.find(({ id }) => id !== answerer.answered);
    const known = ran.questions.map(({ id }) => id);
    if (other === undefined) throw new Error("nobody has answered the other question");
    // A client whose list was made before the answer has to address that question too; "cancelled" is covered.
    const resume = known.map((interruptId) =>
      interruptId === other.id
        ? ({ interruptId, status: "resolved", payload: { approved: false } } as const)
        : ({ interruptId, status: "cancelled" } as const),
    );
    expect(await client.run({ runId: "r2", resume }), String(client.failure)).toMatchObject({
      questions: [],
      calls: [],
    });
    await ended(store, run);
    expect(await inboxOf(life)).toEqual({ interrupts: [] });
    expect(world.count("refund 2")).toBe(1);
    expect(world.count("refund 3")).toBe(0);
    await life.runtime.close();
  }
});

describe.each([refundDesk, parallelCalls, suspension, clientTool])("a cancel, in the story of $name", (story) => {
  const canceller: Outsider = {
    due: async () => true,
    does: (life, run) => life.fetch(`http://localhost/runs/${run.uid}/cancel`, { method: "POST" }),
  };

  test("ends the run wherever it falls, with nothing open and no effect unrecorded", async () => {
    for (let n = 1; ; n++) {
      const { life, world, store, run, deed, client } = await interfere(story, n, canceller);
      if (deed === undefined) {
        expect(n).toBeGreaterThan(5);
        break;
      }
      expect(deed.status, `before commit ${n}`).toBe(202);
      expect((await ended(store, run)).outcome, `before commit ${n}`).toBe("cancelled");
      const log = await logOf(store, run);
      const { running, interrupts, finished, messages } = fold(log);
      expect({ running: running.size, interrupts: interrupts.size }).toEqual({ running: 0, interrupts: 0 });
      expect(finished?.unresolved).toEqual([]);
      expect(await inboxOf(life)).toEqual({ interrupts: [] });
      const done = log.filter((entry) => entry.kind === "step.finished" && entry.status === "ok").length;
      expect(new Set(world.ledger).size).toBe(world.ledger.length);
      expect(world.ledger.length).toBeLessThanOrEqual(done);
      const begunAfter = log.filter((entry) => entry.kind === "step.attempt" && entry.seq > cancelSeq(log));
      expect(begunAfter).toEqual([]);
      // Whoever comes then sees the end, and the thread goes on.
      await client.run({ runId: "late" });
      expect(normaliseTranscript(client.held)).toMatchObject(
        normaliseTranscript({ messages, state: client.held.state }) as object,
      );
      await life.runtime.close();
    }
  });
});

function cancelSeq(log: readonly Entry[]): number {
  const taken = log.find((entry) => entry.kind === "inbox.taken" && entry.item === "cancel");
  if (taken === undefined) throw new Error("the cancel is not in the log");
  return taken.seq;
}

test("a client's result counts wherever it falls, and its call is not pending any more", async () => {
  for (let n = 1; ; n++) {
    let call: string | undefined;
    let row = "";
    const { life, store, run, deed, client } = await interfere(clientTool, n, {
      async due(below, { uid }) {
        const entries = fold(await logOf(below, { uid } as Run));
        const open = [...entries.interrupts.values()].find(({ kind }) => kind === "client-tool");
        call = open?.toolCallId;
        row = `${uid}:client:${open?.path}`;
        return call !== undefined;
      },
      async does(one) {
        const messages = [
          { id: "u", role: "user", content: "go" },
          { id: "result", role: "tool", toolCallId: call, content: "painted" },
        ];
        const input = { threadId: "thread", runId: "r2", messages, tools: clientTool.tools, context: [], state: {} };
        return await one.fetch("http://localhost/agents/desk", posts({ ...input, forwardedProps: {} }));
      },
      // A new leg is answered when its driver has begun it, who may be waiting at this barrier.
      async done(below) {
        while ((await below.question(row))?.closed === null) await new Promise((resolve) => setImmediate(resolve));
      },
    });
    if (deed === undefined) {
      expect(n).toBeGreaterThan(1);
      break;
    }
    expect(deed.status, `before commit ${n}`).toBe(200);
    expect((await ended(store, run)).outcome).toBe("success");
    const log = await logOf(store, run);
    const pending = log.flatMap((entry) =>
      entry.kind === "leg.finished" && entry.seq > deed.head && entry.outcome.type === "success"
        ? entry.outcome.pendingToolCallIds
        : [],
    );
    expect(pending, `before commit ${n}`).toEqual([]);
    expect(log.filter((entry) => entry.kind === "step.finished" && entry.path === "1.0")).toMatchObject([
      { via: "client", output: { content: "painted" } },
    ]);
    await client.run({ runId: "late", tools: clientTool.tools ?? [] });
    const { messages } = fold(log);
    expect(normaliseTranscript(client.held)).toEqual(normaliseTranscript({ messages, state: client.held.state }));
    await life.runtime.close();
  }
});

test("a question that expires at rest is rejected, in a leg without a request", async () => {
  const { life } = living(() =>
    agent({
      name: "desk",
      model: scriptedModel([{ calls: [{ name: "pay", input: {} }] }, { text: "Not paid." }]),
      tools: [
        tool({
          ...{ name: "pay", description: "Pays.", effect: "write", input: z.object({}) },
          approval: { message: "Pay?", expiresIn: 900 },
          call: () => never(),
        }),
      ],
    }),
  );
  const { store } = life.mortal;
  await life.runtime.open();
  const client = new StockClient("desk", life.fetch);
  client.say("u", "go");
  const ran = await client.run({ runId: "r1" });
  expect(ran, String(client.failure)).toMatchObject({ questions: [{ message: "Pay?" }] });
  const [run] = (await store.runs({ tenant: "local" })).items;
  if (run === undefined) throw new Error("there is no run");
  expect((await ended(store, run)).outcome).toBe("success");
  const log = await logOf(store, run);
  expect(log.filter(({ kind }) => kind === "interrupt.answered")).toMatchObject([{ status: "expired" }]);
  expect(log.findLast(({ kind }) => kind === "leg.started")).toMatchObject({ leg: 2, request: null });
  expect(await inboxOf(life)).toEqual({ interrupts: [] });
  // What the client still asks its user is covered.
  const questions = ran === "cut" ? [] : ran.questions;
  const resume = questions.map(({ id }) => ({ interruptId: id, status: "cancelled" as const }));
  await client.run({ runId: "r2", resume });
  const { messages } = fold(log);
  expect(normaliseTranscript(client.held)).toEqual(normaliseTranscript({ messages, state: client.held.state }));
  await life.runtime.close();
});
