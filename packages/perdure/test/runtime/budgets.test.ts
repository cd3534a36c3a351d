/** What a run may use: asked before it is used, raised or stopped by a human, the same after a crash anywhere. */
import { test } from "vitest";
import { z } from "zod";
import type { Budget } from "../../src/agent/agent-budget.ts";
import { agent, tool } from "../../src/index.ts";
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

const says = (payload: object): MatrixScript<Shop> => ({
  answers: [{ kind: "budget", reply: { status: "resolved", payload } as never }],
});

async function cutEverywhere(budget: Budget, script: MatrixScript<Shop>) {
  return await crashMatrix(packer(budget), {
    script,
    world: (): Shop => ({ ledger: [] }),
    effects: ({ ledger }) => ledger,
  });
}

test.each<[string, Budget, object]>([
  ["steps", { steps: 2 }, { raise: { steps: 1 } }],
  ["calls", { calls: 2 }, { raise: { calls: 5 } }],
  ["calls of one turn", { calls: 1 }, { raise: { calls: 2 } }],
  ["calls of a tool", { perTool: { pack: 2 } }, { raise: { perTool: { pack: 1 } } }],
])("raised, a run goes on to its end, whatever is cut: %s", async (_, budget, answer) => {
  const report = await cutEverywhere(budget, says(answer));
  report.assertNoFindings();
});

test.each<[string, Budget, object]>([
  ["steps", { steps: 2 }, { stop: true }],
  ["calls of one turn", { calls: 1 }, { stop: true }],
  ["calls of a tool", { perTool: { pack: 1 } }, { stop: true }],
])("stopped, a run ends as failed with a result for each call, whatever is cut: %s", async (_, budget, answer) => {
  const report = await cutEverywhere(budget, { ...says(answer), fails: true } as never);
  report.assertNoFindings();
});
