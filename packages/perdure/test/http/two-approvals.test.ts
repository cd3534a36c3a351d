/** Three calls of one turn, two of which ask a human, who answers one at a time, anywhere, while the server dies, is deployed anew, and pages are reloaded. */
import { copyFileSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { agent, createRuntime, type Served, serve, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { ask, ended, eventsOf, get, json, run, says } from "./rig.ts";

interface Listed {
  readonly id: string;
  readonly message: string;
  readonly toolCall?: { readonly id: string };
}
const inboxOf = async (url: string): Promise<readonly Listed[]> =>
  (await get<{ interrupts: Listed[] }>(`${url}/inbox`)).interrupts;

/** The shop as it is deployed first, and as it is deployed later: with another prompt, another tool, and its tools in another order. */
function shop(ledger: string[], version: 1 | 2) {
  const look = tool({
    name: "look",
    description: "Looks an order up.",
    effect: "read",
    input: z.object({ order: z.string() }),
    call: ({ order }) => ({ order, paid: true }),
  });
  const refund = tool({
    name: "refund",
    description: "Refunds an order.",
    effect: "write",
    input: z.object({ order: z.string() }),
    approval: ({ order }) => ({ message: `Refund ${order}?` }),
    call({ order }) {
      ledger.push(order);
      return { refunded: order };
    },
  });
  const farewell = tool({
    name: "farewell",
    description: "Says good-bye.",
    effect: "read",
    input: z.object({}),
    call: () => "bye",
  });
  const model = scriptedModel(({ messages }) =>
    messages.at(-1)?.role === "user"
      ? {
          text: "One moment.",
          calls: [
            { name: "look", input: { order: "A" } },
            { name: "refund", input: { order: "A" } },
            { name: "refund", input: { order: "B" } },
          ],
        }
      : { text: "Done." },
  );
  const tools = version === 1 ? [look, refund] : [farewell, refund, look];
  return agent({ name: "shop", model, instructions: version === 1 ? "Refund." : "Refund with a smile.", tools });
}

class Deployment {
  readonly ledger: string[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "perdure-approvals-"));
  #generation = 0;
  #servers: Served[] = [];

  constructor() {
    onTestFinished(async () => {
      await Promise.all(this.#servers.map((server) => server.close()));
      rmSync(this.#folder, { recursive: true, force: true });
    });
  }

  get #file(): string {
    return join(this.#folder, `${this.#generation}.db`);
  }

  async start(version: 1 | 2 = 1): Promise<string> {
    const agents = [shop(this.ledger, version)];
    const server = await serve(createRuntime({ agents, store: sqlite(this.#file), onError: () => {} }), { port: 0 });
    this.#servers.push(server);
    return server.url;
  }

  /** What a process that died left on the disk, with a new one on it. */
  async crash(): Promise<string> {
    const left = this.#file;
    this.#generation++;
    for (const part of ["", "-wal"]) if (existsSync(left + part)) copyFileSync(left + part, this.#file + part);
    return await this.start();
  }

  async deploy(): Promise<string> {
    await this.#servers.pop()?.close();
    return await this.start(2);
  }
}

const begin = { ...run, runId: "r1", messages: [says("u", "Refund A and B.")] };
const post = (url: string, body: object) => ask(`${url}/agents/shop`, { body: JSON.stringify(body) });
const approve = { status: "resolved", payload: { approved: true } };

/** What clients are told of the calls, by order: their results, in whatever stream they came. */
function results(text: string): string[] {
  return eventsOf(text).flatMap((event) => (event.type === "TOOL_CALL_RESULT" ? [event.content as string] : []));
}

describe.each(["nothing", "a crash", "a deploy"] as const)("with %s between", (between) => {
  describe.each(["A", "B"] as const)("%s answered first", (first) => {
    it.each([
      ["in the inbox", "over AG-UI"],
      ["over AG-UI", "in the inbox"],
      ["over AG-UI", "over AG-UI"],
      ["in the inbox", "in the inbox"],
    ] as const)("%s, then the other %s: each call runs once, with its own answer", async (here, there) => {
      const shop = new Deployment();
      let url = await shop.start();
      const asking = await post(url, begin);
      const open = await inboxOf(url);
      expect(open.map(({ message }) => message)).toEqual(["Refund A?", "Refund B?"]);
      expect(eventsOf(asking.text).at(-1)).toMatchObject({
        type: "RUN_FINISHED",
        outcome: { type: "interrupt", interrupts: open.map(({ id }) => ({ id })) },
      });
      const ordered = first === "A" ? open : open.toReversed();

      const answer = async ({ id }: Listed, how: string, runId: string): Promise<string> => {
        if (how === "over AG-UI") {
          const { status, text } = await post(url, { ...begin, runId, resume: [{ interruptId: id, ...approve }] });
          expect(status, text).toBe(200);
          return text;
        }
        const { status, text } = await ask(`${url}/inbox/${id}`, { headers: json, body: JSON.stringify(approve) });
        expect(status, text).toBe(200);
        return "";
      };

      const one = await answer(ordered[0] as Listed, here, "r2");
      await expect.poll(() => shop.ledger).toEqual([first]);
      if (here === "over AG-UI") {
        expect(results(one)).toEqual([JSON.stringify({ refunded: first })]);
        expect(eventsOf(one).at(-1)).toMatchObject({ outcome: { interrupts: [{ id: ordered[1]?.id }] } });
      }
      await expect.poll(async () => (await inboxOf(url)).map(({ id }) => id)).toEqual([ordered[1]?.id]);
      if (between === "a crash") url = await shop.crash();
      if (between === "a deploy") url = await shop.deploy();
      expect((await inboxOf(url)).map(({ id }) => id)).toEqual([ordered[1]?.id]);

      await answer(ordered[1] as Listed, there, "r3");
      expect((await ended(url, "t")).state).toBe("success");
      expect(shop.ledger).toEqual(first === "A" ? ["A", "B"] : ["B", "A"]);
      expect(await inboxOf(url)).toEqual([]);

      // A page that is reloaded now finds each result on its own call.
      const late = eventsOf((await post(url, { ...run, runId: "late" })).text);
      const shown = late.flatMap((event) => (event.type === "MESSAGES_SNAPSHOT" ? event.messages : []));
      const calls = shown.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
      const told = calls.map(({ id, function: { arguments: args } }) => {
        const result = shown.find((message) => message.role === "tool" && message.toolCallId === id);
        return [JSON.parse(args).order, result?.content];
      });
      expect(told).toEqual([
        ["A", JSON.stringify({ order: "A", paid: true })],
        ["A", JSON.stringify({ refunded: "A" })],
        ["B", JSON.stringify({ refunded: "B" })],
      ]);
    });
  });
});

it("a late answer to a question that was rejected is a conflict, which says who was first, and runs nothing", async () => {
  const shop = new Deployment();
  const url = await shop.start();
  await post(url, begin);
  const [a, b] = await inboxOf(url);
  const reject = { status: "resolved", payload: { approved: false, reason: "no receipt" } };
  for (const question of [a, b]) {
    const { status } = await ask(`${url}/inbox/${question?.id}`, { headers: json, body: JSON.stringify(reject) });
    expect(status).toBe(200);
  }
  expect((await ended(url, "t")).state).toBe("success");
  const late = await ask(`${url}/inbox/${a?.id}`, { headers: json, body: JSON.stringify(approve) });
  expect(late.status).toBe(409);
  expect(JSON.parse(late.text)).toMatchObject({ error: { code: "INTERRUPT_ANSWERED" } });
  const overWire = await post(url, { ...begin, runId: "r9", resume: [{ interruptId: b?.id, ...approve }] });
  expect(overWire.status).toBe(409);
  expect(shop.ledger).toEqual([]);
});

it("of two opposite answers at once one is 200 and one is 409, and what happens is what the first said", async () => {
  for (let round = 0; round < 10; round++) {
    const shop = new Deployment();
    const url = await shop.start();
    await post(url, begin);
    const [a] = await inboxOf(url);
    const replies = [approve, { status: "resolved", payload: { approved: false } }];
    const inbox = (reply: object) => ask(`${url}/inbox/${a?.id}`, { headers: json, body: JSON.stringify(reply) });
    const overWire = (reply: object) =>
      post(url, { ...begin, runId: "r2", resume: [{ interruptId: a?.id, ...reply }] });
    const [x, y] = round % 2 === 0 ? replies : replies.toReversed();
    const answers = await Promise.all([
      inbox(x as object),
      round % 3 === 0 ? overWire(y as object) : inbox(y as object),
    ]);
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409]);
    const winner = answers[0]?.status === 200 ? x : y;
    if (winner === approve) await expect.poll(() => shop.ledger).toEqual(["A"]);
    await expect.poll(async () => (await inboxOf(url)).map(({ message }) => message)).toEqual(["Refund B?"]);
    if (winner !== approve) expect(shop.ledger).toEqual([]);
  }
});

it("an answer is streamed from where its turn rests, whatever turn of the thread that is: each once, all of it, and again from a cursor", async () => {
  const shop = new Deployment();
  const url = await shop.start();
  const answered: { readonly text: string; readonly types: readonly string[] }[] = [];
  for (const turn of [1, 2, 3]) {
    const messages = [says(`u${turn}`, "Refund A and B.")];
    await post(url, { ...run, runId: `asks${turn}`, messages });
    const resume = (await inboxOf(url)).map(({ id }) => ({ interruptId: id, ...approve }));
    const { status, text } = await post(url, { ...run, runId: `answers${turn}`, messages, resume });
    expect(status, text).toBe(200);
    const events = eventsOf(text);
    expect(events[0]).toMatchObject({ type: "RUN_STARTED", runId: `answers${turn}` });
    expect(results(text)).toEqual(["A", "B"].map((refunded) => JSON.stringify({ refunded })));
    expect(shop.ledger).toHaveLength(2 * turn);
    answered.push({ text, types: events.map(({ type }) => type) });
  }
  const [first, ...later] = answered;
  for (const { types } of later) expect(types).toEqual(first?.types);

  const [begun = "", ...rest] = (answered.at(-1)?.text ?? "").split(/^(?=id: )/m).filter((frame) => frame !== "");
  const cursor = /^id: (.*)$/m.exec(begun)?.[1] ?? "";
  const { text } = await ask(`${url}/threads/t/stream?after=${encodeURIComponent(cursor)}`, { method: "GET" });
  expect(text).toBe(rest.join(""));
});
