/** Custom loops, killed everywhere: what happens in the world, in the log and on the screen is what happens without a death. */
import { type Agent, agent, applied, type LoopContext, notApplied, tool } from "perdure";
import { crashMatrix, cutHere, memoryDisk, scriptedModel, sqliteDisk } from "perdure/testing";
import { expect, it } from "vitest";
import { z } from "zod";

/** The outside: it counts, and nothing keeps it from being done twice. */
class Shop {
  readonly ledger: string[] = [];

  async act(row: string): Promise<void> {
    await cutHere();
    this.ledger.push(row);
    await cutHere();
  }
}

interface Desk {
  steps: string[];
  done: number;
}

const toolsOf = (shop: Shop) => ({
  look: tool({
    name: "look",
    description: "Looks",
    effect: "read",
    input: z.object({ id: z.string() }),
    call: ({ id }) => ({ found: id }),
  }),
  pay: tool({
    name: "pay",
    description: "Pays",
    effect: "write",
    settle: 0,
    approval: true,
    input: z.object({ id: z.string() }),
    output: z.object({ paid: z.string() }),
    state: z.custom<Desk>(),
    async call({ id }) {
      await shop.act(`pay ${id}`);
      return { paid: id };
    },
    async reconcile({ id }) {
      return shop.ledger.includes(`pay ${id}`) ? { applied: "yes", output: { paid: id } } : { applied: "no" };
    },
    reduce(desk, { paid }) {
      desk.steps.push(`paid ${paid}`);
    },
  }),
});

const answers = [
  { kind: "approval", reply: { status: "resolved", payload: { approved: true } } },
  { kind: "question", reply: { status: "resolved", payload: true } },
] as const;

const signals = { quote: { cents: 5 }, parcel: (_: unknown, nth: number) => `parcel${nth}` };

async function matrixOf(make: (shop: Shop) => Agent, deaths = 1, limit?: number, disk = memoryDisk) {
  return await crashMatrix((shop: Shop) => make(shop), {
    world: () => new Shop(),
    effects: (shop) => shop.ledger,
    script: { answers, signals },
    ...{ deaths, disk },
    ...(limit !== undefined && { limit }),
  });
}

const loop = (run: (ctx: LoopContext<Desk>, shop: Shop) => Promise<unknown>) => (shop: Shop) =>
  agent<Desk>({
    name: "loop",
    state: { initial: () => ({ steps: [], done: 0 }) },
    run: (ctx) => run(ctx, shop),
  }) as Agent;

const everything = loop(async (ctx, shop) => {
  const { look, pay } = toolsOf(shop);
  ctx.say("Looking.");
  const { found } = (await ctx.call(look, { id: "a" })) as { found: string };
  using message = ctx.message();
  message.delta(`Found ${found}`);
  const row = await ctx.once("load", { effect: "read" }, async () => ({ row: found }));
  message.delta(` in ${row.row}.`);
  message.end();
  ctx.updateState((desk) => void desk.steps.push(`found ${found}`));
  await ctx.sleep("1h");
  ctx.say("An hour later.");
  const isSure = await ctx.ask({ message: "Pay?", schema: z.boolean() });
  if (!isSure) return "no";
  const { cents } = await ctx.receive("quote", z.object({ cents: z.number() }));
  ctx.say(`It is ${cents} cents.`);
  const { paid } = await ctx.call(pay, { id: "a" });
  await ctx.once(
    "note",
    {
      effect: "write",
      settle: 0,
      reconcile: async () => (shop.ledger.includes("note a") ? { applied: "yes", output: "noted" } : { applied: "no" }),
    },
    async () => {
      await shop.act("note a");
      return "noted";
    },
  );
  ctx.updateState((desk) => {
    desk.done += 1;
  });
  const at = ctx.now();
  const chance = ctx.random();
  ctx.say(`Paid ${paid} ${ctx.state.steps.join()}.`);
  return { paid, isLate: at > 0, isChance: chance >= 0, id: ctx.uuid().length };
});

it("a signal over files, in a process that has opened none before", async () => {
  const received = loop(async (ctx, shop) => await write(ctx, shop, await ctx.receive("parcel", z.string())));
  const report = await matrixOf(received, 1, 6, sqliteDisk);
  report.assertNoFindings();
  expect(report.effects).toEqual(["parcel0"]);
}, 60_000);

it("one after another: calls, steps, a question, a signal, a timer, readings, texts and state", async () => {
  const report = await matrixOf(everything);
  report.assertNoFindings();
  expect(report.effects).toEqual(["pay a", "note a"]);
  expect(report.plays).toBeGreaterThan(60);
}, 120_000);

const modelled = loop(async (ctx, shop) => {
  const { look, pay } = toolsOf(shop);
  const tools = [look, pay];
  const model = scriptedModel([
    {
      reasoning: "Hm.",
      text: "Looking.",
      calls: [
        { name: "look", input: { id: "a" } },
        { name: "pay", input: { id: "b" } },
      ],
    },
    { text: "Found and paid." },
  ]);
  const turn = await ctx.model({ model, messages: ctx.messages, tools });
  const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
  const last = await ctx.model({ model, messages: [...ctx.messages, turn, ...results], tools });
  return last.text;
});

it("models: their answers stream once, and their calls are run once", async () => {
  const report = await matrixOf(modelled);
  report.assertNoFindings();
  expect(report.effects).toEqual(["pay b"]);
}, 300_000);

const write = (lane: LoopContext<Desk>, shop: Shop, row: string) =>
  lane.once(
    row,
    { settle: 0, reconcile: () => (shop.ledger.includes(row) ? applied(row) : notApplied()) },
    async () => {
      await shop.act(row);
      return row;
    },
  );

const lanes = loop(async (ctx, shop) => {
  const written = await ctx.parallel([
    (lane) => write(lane, shop, "left"),
    async (lane) => {
      await lane.sleep("1h");
      return await write(lane, shop, "right");
    },
  ]);
  const won = await ctx.race<string>([
    (lane) => lane.once("quick", { effect: "read" }, () => "quick"),
    async (lane) => {
      await lane.sleep("3d");
      return await write(lane, shop, "never");
    },
  ]);
  await ctx.step("closing", async () => {
    const isSure = await ctx.ask({ message: "Close?", schema: z.boolean() });
    ctx.say(`Closed: ${String(isSure)}.`);
  });
  return [...written, won, ctx.version("closing", 2)];
});

const signalled = loop(async (ctx, shop) => {
  const { pay } = toolsOf(shop);
  const [one, two] = await ctx.parallel([
    (lane) => lane.receive("parcel", z.string()),
    (lane) => lane.receive("parcel", z.string()),
    (lane) => lane.call(pay, { id: "s" }),
  ]);
  const first = await ctx.race<string>([
    async (lane) => {
      await lane.receive("quote");
      return "quoted";
    },
    async (lane) => {
      await lane.sleep("2h");
      return "too late";
    },
  ]);
  const last = await ctx.receive("parcel", z.string());
  return await write(ctx, shop, [one, two, first, last].join("-"));
});

it("signals: each wait gets one, in their order, also beside a question, and before the time that it races with", async () => {
  const report = await matrixOf(signalled, 2, 120);
  report.assertNoFindings();
  expect(report.effects).toEqual(["pay s", "parcel0-parcel1-quoted-parcel2"]);
}, 300_000);

it("lanes side by side, a race, and a step of the screen that a question interrupts", async () => {
  const report = await matrixOf(lanes);
  report.assertNoFindings();
  expect(report.effects).toEqual(["left", "right"]);
}, 300_000);

const shown = loop(async (ctx, shop) => {
  const { pay } = toolsOf(shop);
  ctx.think("What is there to do?");
  const plan = ctx.activity("PLAN", { done: [] as string[] });
  await ctx.subagent({ name: "clerk" }, async (clerk) => {
    clerk.think("It is asked of me.");
    await clerk.call(pay, { id: "c" });
    clerk.say("Paid.");
  });
  plan.update((draft) => {
    draft.done.push("paid");
  });
  const isRight = await ctx.ask({ message: "Right?", schema: z.boolean() });
  const call = ctx.toolCall("stamp");
  call.argsJson({ isRight });
  ctx.state.done += 1;
  call.publishState();
  call.resultJson("stamped");
  plan.update((draft) => {
    draft.done.push("stamped");
  });
  plan.end();
  return isRight;
});

it("all that it shows: reasoning, a plan, a subagent that acts, a call of its own", async () => {
  const report = await matrixOf(shown);
  report.assertNoFindings();
  expect(report.effects).toEqual(["pay c"]);
}, 300_000);
