/** Agents as tools of agents: each call is a run of its own, shown by its parent. */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { agentTool } from "../../src/agent/agent-tool.ts";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold } from "../../src/log/fold.ts";
import { matrixOf } from "../../src/testing/crash-matrix.ts";
import { sqliteDisk } from "../../src/testing/outside.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { suspend } from "../../src/tool/outcome.ts";
import { tool } from "../../src/tool/tool.ts";
import { quietClient } from "../protocol/published-client.ts";
import { played, type Story, staged, type World } from "./world.ts";

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
    const { commits, visits } = await played(one);
    const report = await matrixOf(staged(one));
    expect(report.findings, report.table()).toEqual([]);
    expect(report).toMatchObject({ skipped: 0, gaveUp: 0 });
    expect(report.cuts).toBeGreaterThanOrEqual(
      2 * commits.length + visits.reduce((sum, { times }) => sum + times, 0) - 4,
    );
  },
  LONG,
);

test(
  "so do two side by side, and one over SQLite",
  async () => {
    const both = await matrixOf(staged(two), { limit: 40 });
    expect(both.findings, both.table()).toEqual([]);
    const onDisk = await matrixOf(staged(one, sqliteDisk), { limit: 20 });
    expect(onDisk.findings, onDisk.table()).toEqual([]);
    expect(both.cuts + onDisk.cuts).toBe(60);
  },
  LONG,
);
