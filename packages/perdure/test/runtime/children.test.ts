/** Agents as tools of agents: each call is a run of its own, shown by its parent. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { createRuntime } from "../../src/http/create-runtime.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold } from "../../src/log/fold.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { memory } from "../../src/store/memory.ts";
import { matrixOf } from "../../src/testing/crash-matrix.ts";
import { Life } from "../../src/testing/life.ts";
import { memoryDisk, Outside, sqliteDisk } from "../../src/testing/outside.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { DynTool } from "../../src/tool/dyn-tool.ts";
import { erase } from "../../src/tool/erase.ts";
import { HandlerError } from "../../src/tool/errors.ts";
import { suspend } from "../../src/tool/outcome.ts";
import { tool } from "../../src/tool/tool.ts";
import { quietClient } from "../protocol/published-client.ts";
import { played, StockClient, type Story, staged, World } from "./world.ts";

quietClient();

/** An agent that refunds with an approval, and asks the customer something. */
function clerk(world: World) {
  const refund = tool({
    name: "refund",
    description: "Refund.",
    effect: "write",
    input: z.object({ order: z.string() }),
    output: z.object({ refunded: z.string() }),
    approval: ({ order }) => ({ message: `Refund ${order}?` }),
    async call({ order }) {
      await world.act(`refund ${order}`);
      return { refunded: order };
    },
    reconcile: ({ order }) =>
      world.count(`refund ${order}`) > 0
        ? { applied: "yes" as const, output: { refunded: order } }
        : { applied: "no" as const },
  });
  const survey = tool({
    name: "survey",
    description: "Ask how it went.",
    effect: "write",
    input: z.object({ order: z.string() }),
    answer: z.object({ stars: z.number() }),
    async call({ order }) {
      await world.actOnce(`survey ${order}`);
      return suspend({ message: `How was ${order}?` });
    },
    async resume({ stars }, { order }) {
      await world.actOnce(`stars ${order} ${stars}`);
      return { stars };
    },
    reconcile: ({ order }) =>
      world.ledger.some((row) => row.startsWith(`stars ${order}`))
        ? { applied: "yes" as const, output: { stars: 4 } }
        : { applied: "no" as const },
  });
  const model = scriptedModel(({ turn, lastUserText: order }) => {
    if (turn === 0) return { reasoning: "Hm.", text: `${order}!`, calls: [{ name: "refund", input: { order } }] };
    if (turn === 1) return { calls: [{ name: "survey", input: { order } }] };
    return { text: `Refunded ${order}.` };
  });
  return agent({ name: "clerk", description: "Refunds an order.", model, tools: [refund, survey] });
}

const answers: Story["answers"] = [
  { kind: "approval", reply: { status: "resolved", payload: { approved: true } } },
  { kind: "suspension", reply: { status: "resolved", payload: { stars: 4 } } },
  {
    kind: "unknown-write",
    reply: (q, { world }) => ({
      status: "resolved",
      payload: {
        did: world.count(`refund ${(q.input as { order: string }).order}`) > 0 ? "yes" : "no",
        output: { refunded: "A-1" },
      } as never,
    }),
  },
];

const one: Story = {
  name: "a sub-agent with a write, an approval and a suspension",
  agent: (world) =>
    agent({
      name: "desk",
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { calls: [{ name: "clerk", input: { task: "A-1" } }] } : { text: "Done." },
      ),
      tools: [agentTool(clerk(world))],
    }),
  answers,
};

const two: Story = {
  name: "two sub-agents in one turn",
  agent: (world) =>
    agent({
      name: "desk",
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { calls: ["A-1", "B-2"].map((task) => ({ name: "clerk", input: { task } })) } : { text: "Done." },
      ),
      tools: [agentTool(clerk(world))],
    }),
  answers,
};

/** An agent that calls another one once, and says so. */
const calling = (sub: LoopAgent, calls = [{ name: sub.name, input: { task: "x" } }], more: readonly DynTool[] = []) =>
  agent({
    name: "desk",
    model: scriptedModel(({ turn }) => (turn === 0 ? { calls } : { text: "Done." })),
    tools: [agentTool(sub), ...more],
  });

/** Calls a tool once, and says so. */
const using = (used: DynTool, input: Json = {}) =>
  agent({
    ...{ name: "clerk", description: "Does it.", tools: [used] },
    model: scriptedModel(({ turn }) => (turn === 0 ? { calls: [{ name: used.name, input }] } : { text: "I did." })),
  });

test("while a sub-agent rests for a timer, so does its caller; both go on when it rings", async () => {
  let tries = 0;
  const flaky = erase(
    tool({
      ...{ name: "flaky", description: "Fails once.", effect: "read", input: z.object({}) },
      call() {
        tries += 1;
        if (tries > 1) return "ok";
        throw new HandlerError("busy", { applied: "no", retryable: true, retryAfter: 4_000 });
      },
    }),
  );
  // By the clock on the wall: one that jumps to the timer leaves nobody the time to rest.
  const store = memory();
  const runtime = createRuntime({ agents: [calling(using(flaky))], store });
  const body = {
    threadId: "t",
    runId: "r",
    messages: [{ id: "u", role: "user", content: "go" }],
    protocolVersion: "1.0",
  };
  const posted = await runtime.fetch(
    new Request("http://localhost/agents/desk", {
      ...{ method: "POST", headers: { "content-type": "application/json" } },
      body: JSON.stringify({ ...body, tools: [], context: [], state: {}, forwardedProps: {} }),
    }),
  );
  expect(await posted.text()).toContain('"delta":"Done."');
  expect(tries).toBe(2);
  const { items } = await store.runs({ tenant: "local" });
  expect(items).toMatchObject([
    { agent: "clerk", outcome: "success", leg: 1 },
    { agent: "desk", outcome: "success", leg: 1 },
  ]);
  for (const { uid } of items) {
    const parked: string[] = [];
    for await (const entry of store.read(uid, -1)) if (entry.kind === "run.parked") parked.push(entry.why);
    expect(parked).toEqual(["timer"]);
  }
  await runtime.close();
});

test("a key that the caller holds is refused to its sub-agent at once: it could only wait for itself", async () => {
  const charge = (call: () => unknown) =>
    erase(
      tool({
        ...{ name: "charge", description: "Charge.", effect: "write", input: z.object({ order: z.string() }) },
        idempotencyKey: ({ order }) => [order],
        call: call as () => string,
      }),
    );
  const asks = charge(() => suspend({ message: "Charge?" }));
  let charged = 0;
  const charges = charge(() => {
    charged += 1;
    return "charged";
  });
  const order = { order: "A-1" };
  const clerkOf = using(charges, order);
  const ended = await played({
    name: "key",
    agent: () =>
      calling(
        clerkOf,
        [
          { name: "charge", input: order as never },
          { name: "clerk", input: { task: "x" } },
        ],
        [asks],
      ),
    answers: [{ kind: "suspension", reply: { status: "resolved", payload: "charged" } }],
  });
  const child = ended.children[0]?.log ?? [];
  expect(child.find((entry) => entry.kind === "step.finished" && entry.path === "1.0")).toMatchObject({
    ...{ status: "error", error: { code: "KEY_CONFLICT" }, applied: "no" },
  });
  expect(charged).toBe(0);
  expect(ended.runs).toMatchObject([{ outcome: "success" }]);
});

test("a deploy that takes the tool away does not take its running sub-agent: the call gets its answer", async () => {
  const outside = new Outside(memoryDisk());
  const world = new World();
  const first = new Life(outside, null, one.agent(world));
  const front = new StockClient("desk", first.fetch);
  front.say("u", "go");
  const asked = await front.run({ runId: "r1" });
  expect(asked).toMatchObject({ questions: [{ message: "Refund A-1?" }] });
  await first.runtime.close();

  // The clerk is still there, as an agent of its own.
  const alone = agent({ name: "desk", model: scriptedModel(({ turn }) => ({ text: turn === 0 ? "Hm." : "Done." })) });
  const runtime = createRuntime({ agents: [alone, clerk(world)], store: outside.nextStore(), onError: () => {} });
  const { interrupts } = (await (await runtime.fetch(new Request("http://localhost/inbox"))).json()) as {
    interrupts: { id: string }[];
  };
  const say = async (id: string, payload: Json) =>
    await runtime.fetch(
      new Request(`http://localhost/inbox/${encodeURIComponent(id)}`, {
        ...{ method: "POST", headers: { "content-type": "application/json" } },
        body: JSON.stringify({ status: "resolved", payload }),
      }),
    );
  await say(interrupts[0]?.id ?? "", { approved: false });
  const runs = async () =>
    ((await (await runtime.fetch(new Request("http://localhost/runs"))).json()) as { runs: { state: string }[] }).runs;
  const open = async () =>
    (
      (await (await runtime.fetch(new Request("http://localhost/inbox"))).json()) as typeof asked & {
        interrupts: { id: string }[];
      }
    ).interrupts;
  await expect.poll(async () => (await open()).map(({ id }) => id)).toHaveLength(1);
  await say((await open())[0]?.id ?? "", { stars: 1 });
  await expect.poll(async () => (await runs()).map(({ state }) => state)).toEqual(["success", "success"]);
  await runtime.close();
  expect(world.ledger).toEqual(["survey A-1", "stars A-1 1"]);
});

/** Many plays, on whatever machine. */
const LONG = 600_000;

describe.each([one, two])("$name", (story) => {
  test("ends, and each run of it has ended well", async () => {
    const ended = await played(story);
    expect(ended.reported).toEqual([]);
    expect(ended.runs).toMatchObject([{ outcome: "success", aside: null }]);
    expect(ended.children.map(({ run }) => run.outcome)).toEqual(story === one ? ["success"] : ["success", "success"]);
    expect(ended).toMatchObject({ openQuestions: 0, inbox: 0, deaths: [] });
    const { messages, committed } = fold(ended.logs.flat());
    expect(normaliseTranscript(ended.client)).toEqual(normaliseTranscript({ messages, state: committed }));
  });
});

test(
  "it ends the same when its process dies at any commit of caller and sub-agent, or anywhere in a body",
  async () => {
    const report = await matrixOf(staged(one));
    expect(report.findings, report.table()).toEqual([]);
    expect(report.effects).toEqual(["refund A-1", "survey A-1", "stars A-1 4"]);
    expect(report).toMatchObject({ skipped: 0, gaveUp: 0 });
    expect(report.cuts).toBeGreaterThan(100);
  },
  LONG,
);

test(
  "so do two side by side, and one over SQLite",
  async () => {
    const both = await matrixOf(staged(two), { limit: 40 });
    expect(both.findings, both.table()).toEqual([]);
    expect(both.effects).toEqual([
      "refund A-1",
      "refund B-2",
      "survey A-1",
      "survey B-2",
      "stars A-1 4",
      "stars B-2 4",
    ]);
    const onDisk = await matrixOf(staged(one, sqliteDisk), { limit: 20 });
    expect(onDisk.findings, onDisk.table()).toEqual([]);
    expect(both.cuts + onDisk.cuts).toBe(60);
  },
  LONG,
);
