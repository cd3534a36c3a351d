/** A custom loop within its budget: asked before it is used, raised or stopped by a human, the same after a crash anywhere. */
import {
  type Agent,
  AgentDefinitionError,
  agent,
  applied,
  type Budget,
  BudgetExceeded,
  createRuntime,
  type LoopContext,
  notApplied,
  tool,
} from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { type CrashReport, crashMatrix, cutHere, memoryDisk, scriptedModel, sqliteDisk } from "perdure/testing";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";
import type { MatrixScript } from "../../src/testing/script.ts";

class Shop {
  readonly ledger: string[] = [];
  /** What code has made of a stop. Saying it again changes nothing. */
  readonly ends = new Set<string>();
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

/** One thread of one agent. */
function served(make: (shop: Shop) => Agent) {
  const shop = new Shop();
  const reported: unknown[] = [];
  const runtime = createRuntime({ agents: [make(shop)], onError: (error) => void reported.push(error) });
  onTestFinished(() => runtime.close());
  const request = async (path: string, body?: object): Promise<string> => {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    return await (await runtime.fetch(new Request(`http://localhost${path}`, body && init))).text();
  };
  const post = async (path: string, body?: object): Promise<unknown> => JSON.parse(await request(path, body));
  let runs = 0;
  const send = async (resume: readonly object[] = []): Promise<readonly AGUIEvent[]> => {
    const messages = [{ id: "u", role: "user", content: "go" }];
    const input = { threadId: "t", runId: `r${++runs}`, messages, tools: [], context: [], protocolVersion: "1.0" };
    const text = await request("/agents/packer", { ...input, resume });
    return text
      .split("\n")
      .flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6)) as AGUIEvent] : []));
  };
  interface Listed {
    readonly id: string;
    readonly run: string;
    readonly kind: string;
    readonly message: string;
  }
  const inbox = async () => ((await post("/inbox")) as { interrupts: Listed[] }).interrupts;
  const stop = async () =>
    await send((await inbox()).map(({ id }) => ({ interruptId: id, status: "resolved", payload: { stop: true } })));
  const raise = (run: string, amounts: object) => post(`/runs/${run}/raise`, amounts);
  return { shop, reported, send, inbox, stop, raise, post };
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
  disk = memoryDisk,
): Promise<{ readonly report: CrashReport; readonly asked: readonly string[] }> {
  const asked: string[] = [];
  const report = await crashMatrix(make, {
    script: answering(payload),
    world: () => new Shop(),
    effects: ({ ledger, ends }) => [...ledger, ...ends],
    dispose: (shop) => void asked.push(...shop.asked),
    ...{ disk, mayFail: isJsonObject(payload) && payload.stop === true, ...(limit !== undefined && { limit }) },
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
    const limits = error.limits.map(({ limit }) => limit).join();
    ctx.say(`Stopped: ${limits}.`);
    shop.ends.add(`stopped at ${limits}`);
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

it("over a file, too: raised, and stopped where its code ends by itself", async () => {
  const raised = await cutEverywhere(loop({ calls: 1 }, oneByOne), { raise: { calls: 1 } }, 12, sqliteDisk);
  raised.report.assertNoFindings();
  expect(raised.report.effects).toEqual(["packed A", "packed B"]);
  const stopped = await cutEverywhere(loop({ calls: 1 }, patient), { stop: true }, 12, sqliteDisk);
  stopped.report.assertNoFindings();
  expect(stopped.report.effects).toEqual(["packed A", "stopped at calls"]);
}, 120_000);

describe("stopped, a run fails as one of the built-in loop does, or ends as its code wants, whatever is cut", () => {
  it.each<[string, Budget, string]>([
    ["steps", { steps: 1 }, "steps"],
    ["calls", { calls: 1 }, "calls"],
    ["calls of a tool", { perTool: { pack: 1 } }, "perTool"],
  ])(
    "%s",
    async (_, budget, limit) => {
      for (const [code, ends] of [
        [oneByOne, []],
        [patient, [`stopped at ${limit}`]],
      ] as const) {
        const { report, asked } = await cutEverywhere(loop(budget, code), { stop: true });
        report.assertNoFindings();
        expect(report.effects).toEqual(["packed A", ...ends]);
        expect(asked.length).toBeGreaterThan(0);
      }
    },
    120_000,
  );
});

/** Two lanes ask models side by side which order to pack. */
const sideBySide: Code = async (ctx, shop) => {
  const answers = await ctx.parallel(
    ["left", "right"].map((side) => async (lane: LoopContext) => {
      const model = scriptedModel([{ text: side, usage: { inputTokens: 100, outputTokens: 100 } }]);
      return await lane.model({ model, prompt: "Which one?", settings: { maxOutputTokens: 200 } });
    }),
  );
  const packed: string[] = [];
  for (const { text } of answers) packed.push(await ctx.call(shop.pack, { order: text }));
  return packed;
};

describe("lanes side by side, whatever is cut,", () => {
  const lanes = (budget: Budget) => (shop: Shop) =>
    agent<Json>({
      ...{ name: "packer", budget, countTokens: () => 100 },
      run: (ctx) => sideBySide(ctx, shop),
    }) as Agent;

  it("reserve together, and one that has no room waits for what the other gives back", async () => {
    // 300 are reserved for each, of which each uses 200; where both are cut, 600 are lost.
    const { report, asked } = await cutEverywhere(lanes({ tokens: 1_100 }), { stop: true }, 40);
    report.assertNoFindings();
    expect(report.effects).toEqual(["packed left", "packed right"]);
    expect(asked).toEqual([]);
  }, 240_000);

  it("ask together, and one that has had room goes on meanwhile", async () => {
    const { report, asked } = await cutEverywhere(lanes({ steps: 1 }), { raise: { steps: 1 } }, 60);
    report.assertNoFindings();
    expect(report.effects).toEqual(["packed left", "packed right"]);
    expect(new Set(asked)).toEqual(new Set([expect.stringContaining("1 of 1 model steps are used")]));
  }, 240_000);
});

it("a sub-agent with code of its own is bound by what its caller has left to it, and asks through it, whatever is cut", async () => {
  const desk = (shop: Shop) => {
    const clerk = agent<Json>({ name: "clerk", run: (ctx) => oneByOne(ctx, shop) }) as Agent;
    return agent<Json>({
      ...{ name: "desk", agents: [clerk], budget: { calls: 2 } },
      run: (ctx) => ctx.spawn(clerk, "Pack."),
    }) as Agent;
  };
  const { report, asked } = await cutEverywhere(desk, { raise: { calls: 1 } }, 60);
  report.assertNoFindings();
  expect(report.effects).toEqual(["packed A", "packed B"]);
  expect(asked[0]).toMatch(/1 of 1 tool calls are used/);
}, 240_000);

describe("to whoever looks from outside", () => {
  it("what is added before anybody answers closes the question, and the run goes on", async () => {
    const { shop, send, inbox, raise } = served(loop({ calls: 1 }, oneByOne));
    await send();
    const [asked] = await inbox();
    expect(asked).toMatchObject({ kind: "budget", message: expect.stringContaining("1 of 1 tool calls are used") });
    expect(await raise(asked?.run ?? "", { tokens: 5 })).toMatchObject({ error: { code: "RAISE_INVALID" } });
    await raise(asked?.run ?? "", { calls: 1 });
    await vi.waitFor(async () => expect(await inbox()).toEqual([]));
    await vi.waitFor(() => expect(shop.ledger).toEqual(["packed A", "packed B"]));
  });

  it("a run that is stopped has failed with the limits, and nobody is told of a fault in its code", async () => {
    const { send, stop, reported } = served(loop({ calls: 1 }, oneByOne));
    await send();
    expect((await stop()).at(-1)).toMatchObject({
      ...{ type: "RUN_ERROR", code: "BUDGET_EXCEEDED" },
      message: "The run was stopped at its budget: 1 of 1 tool calls are used.",
    });
    expect(reported).toEqual([]);
  });

  it("code that catches it says its last words, reads clocks, and begins nothing", async () => {
    const refused: unknown[] = [];
    const { send, stop, shop } = served(
      loop({ calls: 1 }, async (ctx, shop) => {
        try {
          return await oneByOne(ctx, shop);
        } catch {
          const clerk = agent<Json>({ name: "clerk", run: async () => null }) as Agent;
          const model = scriptedModel([{ text: "Never." }]);
          for (const begin of [
            () => ctx.model({ model, prompt: "Go on." }),
            () => ctx.call(shop.pack, { order: "C" }),
            () => ctx.once("late", { effect: "read" }, () => shop.act("late")),
            () => ctx.ask({ message: "Really?" }),
            () => ctx.sleep("1h"),
            () => ctx.receive("word"),
            () => ctx.spawn(clerk, "Pack."),
          ]) {
            refused.push(await begin().catch((error: unknown) => error));
          }
          ctx.say("That is all.");
          return ctx.now() > 0;
        }
      }),
    );
    await send();
    const events = await stop();
    expect(refused.map((error) => error instanceof BudgetExceeded)).toEqual(Array(7).fill(true));
    expect(refused[0]).toMatchObject({ code: "BUDGET_EXCEEDED", limits: [{ limit: "calls", used: 1, allowed: 1 }] });
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", result: true });
    expect(shop.ledger).toEqual(["packed A"]);
  });

  it("a write that runs while the run is stopped is seen through, and the code hears of it", async () => {
    let land = (): void => {};
    const { send, inbox, post, shop } = served(
      loop({ steps: 0 }, async (ctx, shop) => {
        const model = scriptedModel([{ text: "Never." }]);
        return await ctx.parallel<string>([
          (lane) =>
            lane.once("ship", { settle: 0 }, async () => {
              await new Promise<void>((resolve) => {
                land = resolve;
              });
              await shop.act("shipped");
              return "shipped";
            }),
          async (lane) => {
            try {
              return (await lane.model({ model, prompt: "Go." })).text;
            } catch (error) {
              return (error as BudgetExceeded).code;
            }
          },
        ]);
      }),
    );
    const sent = send();
    await vi.waitFor(async () => expect(await inbox()).toHaveLength(1));
    const [asked] = await inbox();
    await post(`/inbox/${encodeURIComponent(asked?.id ?? "")}`, { status: "resolved", payload: { stop: true } });
    // Longer than code that waits for nothing has.
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    land();
    expect((await sent).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: ["shipped", "BUDGET_EXCEEDED"] });
    expect(shop.ledger).toEqual(["shipped"]);
  });

  it("code that is stopped and does not come to an end is left, and the run fails with its limits", async () => {
    const { send, stop } = served(
      loop({ steps: 0 }, async (ctx) => {
        await ctx
          .model({ model: scriptedModel([{ text: "Never." }]), prompt: "Go." })
          .catch(() => new Promise(() => {}));
      }),
    );
    await send();
    expect((await stop()).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "BUDGET_EXCEEDED" });
  });

  it("`ctx.once` is no call of a tool; a call that a lane has lost interest in keeps no question open", async () => {
    const { send, inbox } = served(
      loop({ calls: 0 }, async (ctx, shop) => {
        const won = await ctx.race<string>([
          async (lane) => await lane.call(shop.pack, { order: "A" }),
          async (lane) => {
            await lane.sleep("1500ms");
            return await lane.once("plain", { effect: "read" }, () => "without it");
          },
        ]);
        return await ctx.ask({ message: `Is "${won}" right?` });
      }),
    );
    expect((await send()).at(-1)).toMatchObject({
      outcome: { type: "interrupt", interrupts: [{ reason: "perdure:budget" }] },
    });
    const asked = async () => (await inbox()).map(({ kind, message }) => [kind, message]);
    await expect.poll(asked).toEqual([["question", 'Is "without it" right?']]);
  });

  it("a run that is cancelled while it waits for a raise is cancelled, not stopped", async () => {
    const caught: unknown[] = [];
    const { send, inbox, post } = served(
      loop({ calls: 0 }, (ctx, shop) =>
        ctx.call(shop.pack, { order: "A" }).catch((error: unknown) => void caught.push(error)),
      ),
    );
    await send();
    const [asked] = await inbox();
    await post(`/runs/${asked?.run}/cancel`, {});
    await vi.waitFor(async () => expect(await inbox()).toEqual([]));
    const { run } = (await post(`/runs/${asked?.run}`)) as { run: { outcome: string } };
    expect(run.outcome).toBe("cancelled");
    expect(caught).toEqual([]);
  });
});

describe("a budget in dollars needs prices", () => {
  const model = scriptedModel([{ text: "So." }]);
  const ask: Code = async (ctx) => (await ctx.model({ model, prompt: "Go." })).text;

  it("of models that code asks, which is said where it asks them", async () => {
    const { send, reported } = served(loop({ usd: 1 }, ask));
    expect((await send()).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "AGENT_DEFINITION" });
    expect(String(reported[0])).toMatch(/no price for its model "scripted\/scripted"; add it: pricing:/);
  });

  it("of those that a caller's code asks under it, too", async () => {
    const clerk = agent<Json>({ name: "clerk", run: (ctx) => ask(ctx, new Shop()) }) as Agent;
    const code: Code = (ctx) => ctx.spawn(clerk, "Go.").catch((error: unknown) => (error as { code: string }).code);
    const desk = (): Agent =>
      agent<Json>({
        name: "packer",
        budget: { usd: 1 },
        agents: [clerk],
        run: (ctx) => code(ctx, new Shop()),
      }) as Agent;
    expect((await served(desk).send()).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "AGENT_DEFINITION" });
  });

  it("and with them it is held to", async () => {
    const priced = (): Agent =>
      agent<Json>({
        ...{ name: "packer", budget: { usd: 0.001 }, pricing: { "scripted/scripted": { input: 1, output: 1 } } },
        run: (ctx) => ask(ctx, new Shop()),
      }) as Agent;
    const { send, inbox } = served(priced);
    expect((await send()).at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "So." });
    expect(await inbox()).toEqual([]);
    const poor = (): Agent =>
      agent<Json>({
        ...{ name: "packer", budget: { usd: 0.000_1 }, pricing: { "scripted/scripted": { input: 1, output: 1 } } },
        run: (ctx) => ask(ctx, new Shop()),
      }) as Agent;
    const short = served(poor);
    await short.send();
    expect(await short.inbox()).toMatchObject([{ message: expect.stringMatching(/of 0\.0001 USD are used/) }]);
  });

  it("and limits that are none are refused where they are written", () => {
    expect(() => loop({ steps: 1.5 }, ask)(new Shop())).toThrow(/budget\.steps: 1\.5; it is a whole number from 0/);
    expect(() => loop({ steps: 1.5 }, ask)(new Shop())).toThrow(AgentDefinitionError);
  });
});
