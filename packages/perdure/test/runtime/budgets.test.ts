/** What a run may use: asked before it is used, raised or stopped by a human, the same after a crash anywhere. */
import { expect, test } from "vitest";
import { z } from "zod";
import type { Budget } from "../../src/agent/agent-budget.ts";
import { agent, tool } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { crashMatrix } from "../../src/testing/crash-matrix.ts";
import { cutHere } from "../../src/testing/places.ts";
import type { MatrixScript } from "../../src/testing/script.ts";
import { type Script, scriptedModel } from "../../src/testing/scripted-model.ts";

interface Shop {
  readonly ledger: string[];
}

const pack = (...orders: readonly string[]) => orders.map((order) => ({ name: "pack", input: { order } }));
const twoByTwo: Script = [
  { text: "Packing.", calls: pack("A", "B") },
  { text: "More.", calls: pack("C") },
  { text: "Packed." },
];

function packer(budget: Budget, script: Script = twoByTwo) {
  return ({ ledger }: Shop): LoopAgent =>
    agent({
      name: "packer",
      model: scriptedModel(script),
      budget,
      tools: [
        tool({
          name: "pack",
          description: "Packs an order.",
          effect: "write",
          settle: 0,
          input: z.object({ order: z.string() }),
          async call({ order }) {
            await cutHere();
            ledger.push(`packed ${order}`);
            return `packed ${order}`;
          },
          reconcile: ({ order }) => {
            const done = `packed ${order}`;
            return ledger.includes(done) ? { applied: "yes" as const, output: done } : { applied: "no" as const };
          },
        }),
      ],
    }) as LoopAgent;
}

/** Answers all questions about a budget, and notes them. */
const noting = (asked: string[], payload: Json): MatrixScript<Shop> => ({
  answers({ kind, message }) {
    if (kind !== "budget") throw new Error(`nobody asks that here: ${kind}`);
    asked.push(message);
    return { status: "resolved", payload };
  },
});

/** @param limit - how many places; the longest stories are cut at some of them */
async function cutEverywhere(
  budget: Budget,
  script: MatrixScript<Shop>,
  { limit = Number.POSITIVE_INFINITY, mayFail = false } = {},
) {
  return await crashMatrix(packer(budget), {
    ...{ script, limit, mayFail },
    world: (): Shop => ({ ledger: [] }),
    effects: ({ ledger }) => ledger,
  });
}

test.each<[string, Budget, Json, number?]>([
  ["steps", { steps: 2 }, { raise: { steps: 1 } }, 60],
  ["calls", { calls: 2 }, { raise: { calls: 5 } }, 60],
  ["calls of one turn", { calls: 1 }, { raise: { calls: 2 } }],
  ["calls of a tool", { perTool: { pack: 2 } }, { raise: { perTool: { pack: 1 } } }, 60],
])("raised, a run goes on to its end, whatever is cut: %s", async (_, budget, answer, limit) => {
  const asked: string[] = [];
  const report = await cutEverywhere(budget, noting(asked, answer), limit === undefined ? {} : { limit });
  report.assertNoFindings();
  expect(report.effects).toEqual(["packed A", "packed B", "packed C"]);
  expect(asked.length).toBeGreaterThan(0);
});

test.each<[string, Budget, Json]>([
  ["steps", { steps: 2 }, { stop: true }],
  ["calls of one turn", { calls: 1 }, { stop: true }],
  ["calls of a tool", { perTool: { pack: 1 } }, { stop: true }],
])("stopped, a run ends as failed with a result for each call, whatever is cut: %s", async (_, budget, answer) => {
  const asked: string[] = [];
  const report = await cutEverywhere(budget, noting(asked, answer), { mayFail: true });
  report.assertNoFindings();
  expect(report.effects).toContain("packed A");
  expect(asked.length).toBeGreaterThan(0);
});
