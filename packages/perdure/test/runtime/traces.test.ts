/**
 * The stories of DESIGN's traces, played by the real runtime and held against the logs that were written by hand: the same entries in the same
 * order, deltas of one block taken together, and the same view of a client. What differs, and why:
 *
 * - A question that is closed is told to clients again (CUSTOM), whoever has closed it; the traces show that for the inbox alone.
 * - Questions are told in the run's lane, not in their call's: they outlive the attempt that such a frame would belong to.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import type { LanguageModel } from "../../src/agent/model-port.ts";
import { applied, notApplied, tool } from "../../src/index.ts";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold } from "../../src/log/fold.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { EventStore } from "../../src/store/store.ts";
import { Life } from "../../src/testing/life.ts";
import { never } from "../../src/testing/mortal-store.ts";
import { type Disk, memoryDisk, Outside, sqliteDisk } from "../../src/testing/outside.ts";
import { type ScriptedTurn, scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { finish, modelOf } from "../agent/model-of.ts";
import { eventsOf } from "../http/rig.ts";
import { uninterrupted } from "../log/clients.ts";
import { logOf } from "../log/entries.ts";
import { traces } from "../log/traces.ts";
import { quietClient } from "../protocol/published-client.ts";
import { posts } from "./asking.ts";
import { living, played, StockClient, type Story, World } from "./world.ts";

quietClient();

function search(world: World, found: Json, runs: () => Promise<void> = async () => {}) {
  return tool({
    name: "search_orders",
    description: "Finds orders.",
    effect: "read",
    input: z.looseObject({}),
    async call(_, { signal }) {
      await world.at("search");
      await Promise.race([runs(), new Promise((_, reject) => signal.addEventListener("abort", reject))]);
      return found;
    },
  });
}

function refund(world: World, isAsked: (orderId: string) => boolean, runs: () => Promise<void> = async () => {}) {
  return tool({
    name: "refund",
    description: "Refunds an order, in cents.",
    effect: "write",
    settle: 0,
    input: z.object({ orderId: z.string(), cents: z.number() }),
    output: z.object({ refundId: z.string() }),
    state: z.custom<{ step: string }>(),
    idempotencyKey: ({ orderId }) => ["refund", orderId],
    approval: ({ orderId }) => isAsked(orderId) && { message: "Refund?" },
    async call({ orderId }) {
      await world.at("refund: begins");
      await world.act(`refund ${orderId}`);
      await world.at("refund: has acted");
      await runs();
      return { refundId: `R${orderId}` };
    },
    async reconcile({ orderId }) {
      return world.count(`refund ${orderId}`) > 0 ? applied({ refundId: `R${orderId}` }) : notApplied();
    },
    reduce(desk, { refundId }) {
      if (refundId === "R2") desk.step = "done";
    },
  });
}

function desk(tools: readonly ToolDefinition[], model: LanguageModel | readonly ScriptedTurn[]): LoopAgent {
  return agent<{ step: string }>({
    name: "desk",
    model: "doStream" in model ? model : scriptedModel(model),
    tools,
    state: { initial: () => ({ step: "idle" }) },
  }) as LoopAgent;
}

const says = "refund orders 1 (30 EUR) and 2 (80 EUR)";
const approve = () => ({ status: "resolved" as const, payload: { approved: true } });

/** Entries as lines of a trace. */
function lines(entries: readonly NewEntry[]): string[] {
  const all = entries.map((entry) => {
    if (entry.kind !== "frame") return "path" in entry ? `${entry.kind} ${entry.path}` : entry.kind;
    const type = "ref" in entry ? entry.ref.of : entry.event.type;
    return type === "CUSTOM" ? "▹CUSTOM" : `▹${type} ${entry.path}`;
  });
  return all.filter((one, i) => one !== all[i - 1] || !/CONTENT|ARGS/.test(one));
}

/** A trace as the runtime writes it: clients are told of each question that is closed. */
function traced(name: string): string[] {
  const trace = traces.find((one) => one.name.startsWith(name));
  if (trace === undefined) throw new Error(`no trace ${name}`);
  return lines(trace.batches.flat()).flatMap((line, i, all) =>
    line === "interrupt.answered" && all[i + 1] !== "▹CUSTOM" ? [line, "▹CUSTOM"] : [line],
  );
}

async function heldAfter(name: string): Promise<Json> {
  const trace = traces.find((one) => one.name.startsWith(name));
  return normaliseTranscript(await uninterrupted("1.0.0", logOf(trace?.batches ?? [])));
}

test("t1: killed in a write after the money moved", async () => {
  const story: Story = {
    name: "t1",
    says,
    agent: (world) =>
      desk(
        [search(world, [{ id: "1" }, { id: "2" }]), refund(world, (orderId) => orderId === "2")],
        [
          { text: "Looking.", calls: [{ name: "search_orders", input: { email: "a@b.c" } }] },
          { calls: [{ name: "refund", input: { orderId: "1", cents: 3_000 } }] },
          { calls: [{ name: "refund", input: { orderId: "2", cents: 8_000 } }] },
          { text: "Done." },
        ],
      ),
    answers: approve,
  };
  const { logs, client, world } = await played(story, [{ at: "refund: has acted", nth: 1 }]);
  expect(lines(logs.flat())).toEqual(traced("t1"));
  expect(normaliseTranscript(client)).toEqual(await heldAfter("t1"));
  expect(world.ledger).toEqual(["refund 1", "refund 2"]);
});

/** Streams the parts, then the process dies before there are more. */
const endless = (parts: readonly object[]): LanguageModel => ({
  ...modelOf([]),
  doStream: async () => ({
    stream: new ReadableStream({
      start(controller) {
        for (const part of parts) controller.enqueue(part);
      },
    }),
  }),
});

test("t2: killed in a model step, with half a text and half a call on the screen", async () => {
  const begins = [
    { type: "reasoning-start", id: "r" },
    { type: "reasoning-delta", id: "r", delta: "thi" },
  ];
  const text = [
    { type: "text-start", id: "t" },
    { type: "text-delta", id: "t", delta: "Hel" },
  ];
  const call = [
    { type: "tool-input-start", id: "c", toolName: "search_orders" },
    { type: "tool-input-delta", id: "c", delta: '{"a"' },
  ];
  const whole = [
    ...[...begins, { type: "reasoning-delta", id: "r", delta: "nk" }, { type: "reasoning-end", id: "r" }],
    ...[...text, { type: "text-delta", id: "t", delta: "lo" }, { type: "text-end", id: "t" }],
    ...[...call, { type: "tool-input-delta", id: "c", delta: ":1}" }, { type: "tool-input-end", id: "c" }],
    { type: "tool-call", toolCallId: "c", toolName: "search_orders", input: '{"a":1}' },
    finish("tool-calls"),
  ];
  let asked = 0;
  const story: Story = {
    name: "t2",
    says,
    agent(world) {
      const first = [...begins, { type: "reasoning-end", id: "r" }, ...text, ...call];
      const attempts = [endless(first), modelOf(whole)];
      const script = scriptedModel([{ text: "unused" }, { text: "Found." }]);
      const model: LanguageModel = {
        ...script,
        async doStream(options) {
          if (options.prompt.some((message) => (message as { role: string }).role === "assistant"))
            return await script.doStream(options);
          const turn = asked++;
          await world.at("model");
          return await (attempts[turn] ?? modelOf(whole)).doStream(options);
        },
      };
      return desk([search(world, "found")], model);
    },
  };
  const isHalfCall = (entry: NewEntry) =>
    entry.kind === "frame" && "event" in entry && entry.event.type === "TOOL_CALL_ARGS";
  const { logs, client, deaths } = await played(story, [{ when: "behind", holds: isHalfCall }]);
  expect(deaths).toHaveLength(1);
  expect(lines(logs.flat())).toEqual(traced("t2"));
  expect(normaliseTranscript(client)).toEqual(await heldAfter("t2"));
});

test("t5: a client tool beside a server tool", async () => {
  const story: Story = {
    name: "t5",
    says,
    tools: [{ name: "paint", description: "Paints the page.", parameters: {} }],
    agent: (world) =>
      desk(
        [search(world, "two orders")],
        [
          {
            calls: [
              { name: "paint", input: { color: "red" } },
              { name: "search_orders", input: {} },
            ],
          },
          { text: "Painted." },
        ],
      ),
    results: { paint: "cli" },
  };
  const { logs, client } = await played(story);
  expect(lines(logs.flat())).toEqual(traced("t5"));
  expect(normaliseTranscript(client)).toEqual(await heldAfter("t5"));
});

/** A promise, and who settles it. */
function signalled(): { readonly given: Promise<void>; readonly give: () => void } {
  let give = (): void => {};
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

async function logOfThe(store: EventStore): Promise<Entry[]> {
  const [run] = (await store.runs({ tenant: "local" })).items;
  const log: Entry[] = [];
  if (run !== undefined) for await (const entry of store.read(run.uid, -1)) log.push(entry);
  return log;
}

/** Resolves when the newest run's log has such an entry. */
async function until(store: EventStore, holds: (entry: Entry) => boolean): Promise<Entry[]> {
  for (;;) {
    const log = await logOfThe(store);
    if (log.some(holds)) return log;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("t3: two approvals answered by two ways, with a crash between", async () => {
  const slow = signalled();
  const world = new World();
  const outside = new Outside(memoryDisk());
  const approvals = new Set(["1", "2"]);
  const story = (isFirst: boolean) => {
    const stateless = {
      ...refund(
        world,
        (orderId) => approvals.has(orderId),
        () => (isFirst ? never() : Promise.resolve()),
      ),
      reduce: () => {},
    };
    return desk(
      [search(world, ["found"], () => (isFirst ? never() : slow.given)), stateless],
      [
        {
          calls: [
            { name: "search_orders", input: { email: "x" } },
            { name: "refund", input: { orderId: "1", cents: 1 } },
            { name: "refund", input: { orderId: "2", cents: 2 } },
          ],
        },
        { text: "Done." },
      ],
    );
  };
  let life = new Life(outside, null, story(true));
  await life.runtime.open();
  const client = new StockClient("desk", (url, init) => life.fetch(url, init));
  client.say("u", says);
  const first = client.run({ runId: "r1" });
  const { store } = life.mortal;
  const opened = (log: readonly Entry[]) =>
    log.flatMap((entry) => (entry.kind === "interrupt.opened" ? [entry.interrupt] : []));
  while (opened(await logOfThe(store)).length < 2) await new Promise((resolve) => setImmediate(resolve));
  const one = opened(await logOfThe(store)).find(({ path }) => path === "1.1");
  const answered = await life.fetch(`http://localhost/inbox/${one?.id}`, posts(approve()));
  expect(answered.status).toBe(200);
  while (world.ledger.length === 0) await new Promise((resolve) => setImmediate(resolve));
  life.mortal.die();
  expect(await first).toBe("cut");

  life = new Life(outside, null, story(false));
  await life.runtime.open();
  const again = client.run({ runId: "r1" });
  await until(life.mortal.store, (entry) => entry.kind === "step.finished" && entry.path === "1.1");
  slow.give();
  const ran = await again;
  if (ran === "cut") throw client.failure;
  expect(ran.questions).toMatchObject([{ toolCallId: expect.any(String), reason: "tool_call" }]);
  await client.run({ runId: "r2", resume: [{ interruptId: ran.questions[0]?.id ?? "", ...approve() }] });
  const log = await until(life.mortal.store, ({ kind }) => kind === "run.finished");

  const finish = log.find((entry) => entry.kind === "step.finished" && entry.path === "1.1");
  expect(finish).toMatchObject({ status: "ok", via: "reconcile" });
  expect(world.ledger).toEqual(["refund 1", "refund 2"]);
  // What begins side by side, and what ends so, is in nobody's order; each call for itself is, and so is the rest.
  const [real, written] = [lines(log), traced("t3")];
  const ofCall = (path: string) => (line: string) => line.endsWith(` ${path}`);
  for (const path of ["1.0", "1.1", "1.2"]) expect(real.filter(ofCall(path))).toEqual(written.filter(ofCall(path)));
  expect(real.toSorted()).toEqual(written.toSorted());
  const isOrdered = (line: string) => !/ 1\.[012]$|CUSTOM|interrupt\.opened/.test(line);
  expect(real.filter(isOrdered)).toEqual(written.filter(isOrdered));
  expect(normaliseTranscript(client.held)).toEqual(await heldAfter("t3"));
  await life.runtime.close();
});

test("t4: a sibling that has published is killed, and the other one has finished with its own change", async () => {
  let store: EventStore | undefined;
  const disk = (): Disk => {
    const kept = memoryDisk();
    return {
      ...kept,
      next(settings) {
        store = kept.next(settings);
        return store;
      },
    };
  };
  const story: Story = {
    name: "t4",
    says,
    agent(world) {
      // B waits until A has published; A, in its first life, until B has finished, and there it dies.
      const published = signalled();
      const adds = (name: string, body: (item: () => void, ctx: { publishState(): void }) => Promise<void>) =>
        tool({
          ...{ name: `add_${name}`, description: "Adds an item.", effect: "read", input: z.object({}) },
          state: z.custom<{ items: string[] }>(),
          async call(_, ctx) {
            await body(() => void ctx.state.items.push(name), ctx);
            return name;
          },
        });
      const tools = [
        adds("a", async (add, ctx) => {
          add();
          ctx.publishState();
          published.give();
          if (store === undefined) throw new Error("there is no store");
          await until(store, (entry) => entry.kind === "step.finished" && entry.path === "1.1");
          await world.at("B has finished");
        }),
        adds("b", async (add) => {
          await published.given;
          add();
        }),
      ];
      const calls = ["add_a", "add_b"].map((name) => ({ name, input: {} }));
      return agent<{ items: string[] }>({
        ...{ name: "desk", model: scriptedModel([{ calls }, { text: "Done." }]), tools },
        state: { initial: () => ({ items: [] }) },
      }) as LoopAgent;
    },
  };
  const { logs, client, deaths } = await played(story, [{ at: "B has finished", nth: 1 }], disk);
  const log = logs.flat();
  expect(deaths).toHaveLength(1);
  expect(lines(log)).toEqual(traced("t4"));
  const trace = traces.find(({ name }) => name.startsWith("t4"));
  const said = (entries: readonly NewEntry[]) =>
    entries.flatMap((entry): unknown[] => {
      if (entry.kind === "step.finished" && entry.status === "ok" && entry.patch.length > 0) return [entry.patch];
      return entry.kind === "frame" && "event" in entry && entry.event.type === "STATE_DELTA"
        ? [entry.event.delta]
        : [];
    });
  expect(said(log)).toEqual(said(trace?.batches.flat() ?? []));
  expect(normaliseTranscript(client)).toEqual(await heldAfter("t4"));
  const plain = await played(story, [], disk);
  expect(client.state).toEqual({ items: ["b", "a"] });
  expect(plain.client.state).toEqual(client.state);
});

test("t6: cancelled while a write and a read run, and a second write waits for a human", async () => {
  const money = signalled();
  const { life } = living((one) =>
    desk(
      [
        search(one, "never", () => never()),
        refund(
          one,
          (orderId) => orderId === "2",
          () => money.given,
        ),
      ],
      [
        {
          calls: [
            { name: "refund", input: { orderId: "1", cents: 1 } },
            { name: "search_orders", input: { email: "x" } },
            { name: "refund", input: { orderId: "2", cents: 2 } },
          ],
        },
      ],
    ),
  );
  const { store } = life.mortal;
  await life.runtime.open();
  const client = new StockClient("desk", life.fetch);
  client.say("u", says);
  const ran = client.run({ runId: "r1" });
  await until(store, ({ kind }) => kind === "interrupt.opened");
  const [run] = (await store.runs({ tenant: "local" })).items;
  const cancelled = await life.fetch(`http://localhost/runs/${run?.uid}/cancel`, { method: "POST" });
  expect(cancelled.status).toBe(202);
  await until(store, (entry) => entry.kind === "step.finished" && entry.path === "1.2");
  money.give();
  await ran;
  const log = await until(store, ({ kind }) => kind === "run.finished");

  // The three calls begin side by side, and the two that are cancelled end so: the order among those is nobody's promise.
  const [real, written] = [lines(log), traced("t6")];
  expect([...real].sort()).toEqual([...written].sort());
  const isOrdered = (line: string) => !/ 1\.[012]|CUSTOM|interrupt/.test(line) || / 1\.0/.test(line);
  expect(real.filter(isOrdered)).toEqual(written.filter(isOrdered));
  for (const path of ["1.0", "1.1", "1.2"]) {
    const of = (line: string) => line.endsWith(` ${path}`);
    expect(real.filter(of)).toEqual(written.filter(of));
  }
  expect(normaliseTranscript(client.held)).toEqual(await heldAfter("t6"));
  expect(log.at(-1)).toMatchObject({ kind: "run.finished", outcome: "cancelled", unresolved: [] });
  await life.runtime.close();
});

test("t7: the inbox answers, a leg without a request follows, and readers get it in place", async () => {
  const { life } = living((one) =>
    desk(
      [refund(one, () => true)],
      [{ text: "Refunding.", calls: [{ name: "refund", input: { orderId: "1", cents: 3_000 } }] }, { text: "Done." }],
    ),
  );
  const { store } = life.mortal;
  await life.runtime.open();
  const client = new StockClient("desk", life.fetch);
  client.say("u", says);
  const ran = await client.run({ runId: "r1" });
  if (ran === "cut") throw client.failure;
  const [question] = ran.questions;

  // F follows from the start, C comes back with the cursor of the leg's end.
  const follower = await life.fetch("http://localhost/threads/thread/stream?follow=1", {});
  const reader = follower.body?.getReader();
  const seen = eventReader(reader);
  const prelude = await seen("RUN_FINISHED");
  const cursor = prelude.at(-1)?.id;
  const answered = await life.fetch(`http://localhost/inbox/${question?.id}`, posts(approve()));
  expect(answered.status).toBe(200);
  const log = await until(store, ({ kind }) => kind === "run.finished");
  const followed = await seen("RUN_FINISHED");
  await reader?.cancel();
  const again = await life.fetch(`http://localhost/threads/thread/stream?after=${cursor}`, {});
  const reconnected = eventsOf((await again.text()).replaceAll(/^id: .*\n/gm, ""));

  expect(lines(log)).toEqual(traced("t7"));
  const kinds = ["RUN_STARTED", "CUSTOM", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"];
  expect(followed.map(({ event }) => event.type)).toEqual([...kinds, "TEXT_MESSAGE_END", "RUN_FINISHED"]);
  expect(reconnected).toEqual(followed.map(({ event }) => event));
  expect(log.findLast(({ kind }) => kind === "leg.started")).toMatchObject({ runId: "run-1.2", request: null });

  // A stock client addresses the question that it still knows; it is covered, and the client holds what an uninterrupted one does.
  const resume = [{ interruptId: question?.id ?? "", status: "cancelled" as const }];
  expect(await client.run({ runId: "r2", resume })).toEqual({ questions: [], calls: [] });
  expect(normaliseTranscript(client.held)).toEqual(await heldAfter("t7"));
  await life.runtime.close();
});

/** Reads events with their cursors, up to and with the next of a type. */
function eventReader(reader: ReadableStreamDefaultReader<Uint8Array> | undefined) {
  const decoder = new TextDecoder();
  let text = "";
  return async (last: string): Promise<{ event: AGUIEvent; id: string | undefined }[]> => {
    const events: { event: AGUIEvent; id: string | undefined }[] = [];
    for (;;) {
      const end = text.indexOf("\n\n");
      if (end >= 0) {
        const frame = text.slice(0, end);
        text = text.slice(end + 2);
        const data = /^data: (.*)$/m.exec(frame)?.[1];
        if (data === undefined) continue;
        const event = JSON.parse(data) as AGUIEvent;
        events.push({ event, id: /^id: (.*)$/m.exec(frame)?.[1] });
        if (event.type === last) return events;
        continue;
      }
      const { value, done } = (await reader?.read()) ?? { value: undefined, done: true };
      if (done) throw new Error(`the stream has ended without ${last}`);
      text += decoder.decode(value, { stream: true });
    }
  };
}

describe("t8: SQLite reopened with runs in flight", () => {
  const places = ["model", "search", "label", "refund: begins", "refund: has acted", "parked"] as const;
  type Place = (typeof places)[number];

  /** Each thread is named after the place where its run stands when the process dies. */
  const story = (isFirst: boolean) => (world: World) => {
    const stands = async (place: Place, at: string): Promise<void> => {
      if (isFirst && at === place) await never();
    };
    const call = (name: string, place: Place, orderId: string) => ({ name, input: { place, orderId, cents: 1 } });
    const input = z.object({ place: z.enum(places), orderId: z.string(), cents: z.number() });
    const tools = [
      tool({
        ...{ name: "search", description: "Reads.", effect: "read", input },
        async call({ place }) {
          await stands(place, "search");
          return "found";
        },
      }),
      tool({
        ...{ name: "label", description: "Labels.", effect: "idempotent", input },
        async call({ place, orderId }, { idempotencyKey }) {
          if (world.count(`label ${idempotencyKey}`) === 0) await world.act(`label ${idempotencyKey}`);
          await stands(place, "label");
          return orderId;
        },
      }),
      tool({
        ...{ name: "refund", description: "Refunds.", effect: "write", input, settle: 0 },
        approval: ({ place }) => place === "parked",
        async call({ place, orderId }) {
          await stands(place, "refund: begins");
          await world.act(`refund ${orderId}`);
          await stands(place, "refund: has acted");
          return orderId;
        },
        reconcile: ({ orderId }) => (world.count(`refund ${orderId}`) > 0 ? applied(orderId) : notApplied()),
      }),
    ];
    return desk(
      tools,
      scriptedModel(async ({ lastUserText, turn }) => {
        const [place, orderId] = lastUserText.split("/") as [Place, string];
        if (turn === 0) await stands(place, "model");
        if (turn === 1) return { text: "Done." };
        return { calls: ["search", "label", "refund"].map((name) => call(name, place, orderId)) };
      }),
    );
  };

  test("all go on at once, nothing is done twice, and who waits is left alone", async () => {
    const outside = new Outside(sqliteDisk());
    const world = new World();
    const before = new Life(outside, null, story(true)(world));
    await before.runtime.open();
    const threads = places.flatMap((place) => [1, 2, 3].map((n) => ({ place, n, name: `${place}-${n}` })));
    for (const { place, n, name } of threads) {
      const client = new StockClient("desk", before.fetch, name);
      client.say("u", `${place}/${name}-${n}`);
      void client.run({ runId: "r1" });
    }
    const runsOf = async ({ mortal }: Life) => (await mortal.store.runs({ tenant: "local", limit: 100 })).items;
    const stateOf = async ({ mortal }: Life, thread: string) => {
      const run = (await runsOf({ mortal } as Life)).find((one) => one.thread === thread);
      const log: Entry[] = [];
      if (run !== undefined) for await (const entry of mortal.store.read(run.uid, -1)) log.push(entry);
      return { run, log, state: fold(log) };
    };
    const isThere = (place: Place, log: readonly Entry[]) => {
      if (place === "parked") return log.some(({ kind }) => kind === "run.parked");
      const path = { model: "0", search: "1.0", label: "1.1" }[place as string] ?? "1.2";
      const { running, steps } = fold(log);
      // The calls of other effects go on beside a read.
      const isAlone = place !== "search" || steps.get("1.2" as never)?.finished !== undefined;
      return running.has(path as never) && isAlone && (place !== "model" || log.length > 5);
    };
    for (const { place, name } of threads) {
      while ((await runsOf(before)).every((run) => run.thread !== name)) await new Promise((r) => setImmediate(r));
      while (!isThere(place, (await stateOf(before, name)).log)) await new Promise((r) => setImmediate(r));
    }
    before.mortal.die();

    const after = new Life(outside, null, story(false)(world));
    await after.runtime.open();
    for (const { place, name } of threads) {
      let { run, log } = await stateOf(after, name);
      while (place !== "parked" && run?.outcome === null) {
        await new Promise((resolve) => setImmediate(resolve));
        ({ run, log } = await stateOf(after, name));
      }
      expect(log.filter(({ kind }) => kind === "run.resumed").length, name).toBe(place === "parked" ? 0 : 1);
      expect(run).toMatchObject(
        place === "parked" ? { outcome: null, readyAt: null, owner: null, epoch: 1 } : { outcome: "success", epoch: 2 },
      );
      const cut = log.filter((entry) => entry.kind === "step.failed");
      const applied = { model: "no", search: "no" }[place as string] ?? "unknown";
      if (place !== "parked") expect(cut, name).toMatchObject([{ error: { code: "CUT" }, applied }]);
    }
    const rows = new Map<string, number>();
    for (const row of world.ledger) rows.set(row, (rows.get(row) ?? 0) + 1);
    expect([...rows.values()].every((times) => times === 1)).toBe(true);
    // Fifteen refunds and eighteen labels: three refunds wait.
    expect(world.ledger.length).toBe(33);
    await after.runtime.close();
    await outside.disk.remove();
  });
});
