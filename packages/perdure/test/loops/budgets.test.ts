/** A custom loop within its budget: asked before it is used, raised or stopped by a human, the same after a crash anywhere. */
import { type Agent, agent, applied, type Budget, BudgetExceeded, type LoopContext, notApplied, tool } from "perdure";
import { type CrashReport, crashMatrix, cutHere, scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Json } from "../../src/protocol/json.ts";
import type { MatrixScript } from "../../src/testing/script.ts";

class Shop {
  readonly ledger: string[] = [];
  /** What people were asked about budgets. */
  readonly asked: string[] = [];

  async act(row: string): Promise<void> {
    await cutHere();
    this.ledger.push(row);
    await cutHere();
  }

  readonly pack = tool({
    name: "pack",
    description: "Packs an order.",
    effect: "write",
    settle: 0,
    parallel: true,
    input: z.object({ order: z.string() }),
    output: z.string(),
    call: async ({ order }) => {
      await this.act(`packed ${order}`);
      return `packed ${order}`;
    },
    reconcile: ({ order }) => {
      const done = `packed ${order}`;
      return this.ledger.includes(done) ? applied(done) : notApplied();
    },
  });
}

type Code = (ctx: LoopContext, shop: Shop) => Promise<unknown>;

const loop = (budget: Budget, run: Code) => (shop: Shop) =>
  agent<Json>({ name: "packer", budget, run: (ctx) => run(ctx, shop) }) as Agent;

const answering = (payload: Json): MatrixScript<Shop> => ({
  answers({ kind, message }, { world }) {
    if (kind !== "budget") return { status: "resolved", payload: true };
    world.asked.push(message);
    return { status: "resolved", payload };
  },
});

async function cutEverywhere(
  make: (shop: Shop) => Agent,
  payload: Json,
  limit?: number,
): Promise<{ readonly report: CrashReport; readonly asked: readonly string[] }> {
  const asked: string[] = [];
  const report = await crashMatrix(make, {
    script: answering(payload),
    world: () => new Shop(),
    effects: ({ ledger }) => ledger,
    dispose: (shop) => void asked.push(...shop.asked),
    ...(limit !== undefined && { limit }),
  });
  return { report, asked };
}

/** Asks what to pack, packs it, twice; and says what it has done. */
const oneByOne: Code = async (ctx, shop) => {
  const done: string[] = [];
  for (let i = 0; i < 2; i++) {
    const { text } = await ctx.model({ model: scriptedModel([{ text: "AB"[i] ?? "" }]), prompt: "Which one?" });
    done.push(await ctx.call(shop.pack, { order: text }));
    ctx.say(`Now ${done.length}.`);
  }
  await ctx.once("note", { effect: "read" }, () => "noted");
  return done;
};

/** The same, but a human's "stop" is no failure. */
const patient: Code = async (ctx, shop) => {
  try {
    return await oneByOne(ctx, shop);
  } catch (error) {
    if (!(error instanceof BudgetExceeded)) throw error;
    ctx.say(`Stopped: ${error.limits.map(({ limit }) => limit).join()}.`);
    return { stopped: error.code, at: ctx.now() > 0 };
  }
};

describe("raised, a custom loop goes on to its end, whatever is cut", () => {
  it.each<[string, Budget, Json]>([
    ["steps", { steps: 1 }, { raise: { steps: 1 } }],
    ["calls", { calls: 1 }, { raise: { calls: 1 } }],
    ["calls of a tool", { perTool: { pack: 1 } }, { raise: { perTool: { pack: 1 } } }],
  ])(
    "%s",
    async (_, budget, payload) => {
      const { report, asked } = await cutEverywhere(loop(budget, oneByOne), payload);
      report.assertNoFindings();
      expect(report.effects).toEqual(["packed A", "packed B"]);
      expect(asked.length).toBeGreaterThan(0);
    },
    120_000,
  );
});

describe("stopped, a run fails as one of the built-in loop does, or ends as its code wants, whatever is cut", () => {
  it.each<[string, Budget]>([
    ["steps", { steps: 1 }],
    ["calls", { calls: 1 }],
    ["calls of a tool", { perTool: { pack: 1 } }],
  ])(
    "%s",
    async (_, budget) => {
      for (const code of [oneByOne, patient]) {
        const { report, asked } = await cutEverywhere(loop(budget, code), { stop: true });
        report.assertNoFindings();
        expect(report.effects).toEqual(["packed A"]);
        expect(asked.length).toBeGreaterThan(0);
      }
    },
    120_000,
  );
});
