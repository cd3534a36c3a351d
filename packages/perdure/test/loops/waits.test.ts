/** What code waits for at once: a time or a signal, and beside it something that only the client or its user can give. */
import { type Agent, agent, createRuntime, type LoopContext, memory } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import type { Json } from "../../src/protocol/json.ts";
import { asking } from "../runtime/asking.ts";
import { StockClient } from "../runtime/world.ts";

const place = { name: "place", description: "Where the user is", parameters: { type: "object" } };

function served(code: (ctx: LoopContext) => Promise<unknown>, agents: readonly Agent[] = []) {
  const loop: Agent = agent<Json>({ name: "loop", run: code, agents });
  const runtime = createRuntime({ agents: [loop], store: memory() });
  onTestFinished(() => runtime.close());
  const client = new StockClient("loop", (url, init) => runtime.fetch(new Request(url, init)));
  client.say("u", "go");
  const resultOf = async (): Promise<unknown> => {
    const { text } = await asking(runtime)("/threads/thread/stream?agent=loop");
    const ends = [...text.matchAll(/^data: (.*"type":"RUN_(?:FINISHED|ERROR)".*)$/gm)].map(([, data]) =>
      JSON.parse(data ?? ""),
    );
    return ends.at(-1)?.result;
  };
  const answer = (payload: unknown, questions: readonly { id: string }[]) =>
    questions.map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload }));
  return { runtime, client, resultOf, answer };
}

const asks = (lane: LoopContext) => lane.ask({ message: "Ship it?", schema: z.boolean() });
const late = (duration: "3d" | "1500ms") => async (lane: LoopContext) => {
  await lane.sleep(duration);
  return "nobody has answered";
};

describe.each([
  ["a question", asks],
  ["a question of a child", (lane: LoopContext) => lane.spawn(child, "ask")],
] as const)("%s beside a long sleep", (_, question) => {
  it("is asked at the end of a leg, as front ends need it, and its answer wins", async () => {
    const { client, answer, resultOf } = served((ctx) => ctx.race<unknown>([question, late("3d")]), [child]);
    const ran = await client.run({ runId: "r1" });
    if (ran === "cut") throw client.failure;
    expect(ran.questions).toMatchObject([{ message: "Ship it?" }]);
    expect(await client.run({ runId: "r2", resume: answer(true, ran.questions) })).toMatchObject({ questions: [] });
    expect(await resultOf()).toBe(true);
  });

  it("is withdrawn when the time has come, and the run goes on by itself", async () => {
    const { client, resultOf } = served((ctx) => ctx.race<unknown>([question, late("1500ms")]), [child]);
    const ran = await client.run({ runId: "r1" });
    expect(ran).toMatchObject({ questions: [{ message: "Ship it?" }] });
    await expect.poll(resultOf).toBe("nobody has answered");
  });
});

const child: Agent = agent<Json>({ name: "child", run: (ctx) => asks(ctx as LoopContext) });

it("a call of the client's beside a long sleep: the client gets to run it, and the sleeping lane goes on when it is time", async () => {
  const { client, resultOf } = served((ctx) =>
    ctx.parallel<unknown>([(lane) => lane.call(lane.clientTool("place") ?? place, {}), late("1500ms")]),
  );
  const ran = await client.run({ runId: "r1", tools: [place] });
  if (ran === "cut") throw client.failure;
  const [call] = ran.calls;
  client.add({ id: "of-call", role: "tool", toolCallId: call ?? "", content: "Lisbon" });
  await client.run({ runId: "r2", tools: [place] });
  await expect.poll(resultOf).toEqual(["Lisbon", "nobody has answered"]);
});

it("a question beside a signal: either may come first", async () => {
  const both = () => served((ctx) => ctx.parallel<unknown>([asks, (lane) => lane.receive("paid")]));
  const [first, second] = [both(), both()];
  for (const { client, runtime, answer, resultOf } of [first, second]) {
    const ran = await client.run({ runId: "r1" });
    if (ran === "cut") throw client.failure;
    const uid: string = JSON.parse((await asking(runtime)("/runs")).text).runs[0].uid;
    const resume = answer(true, ran.questions);
    if (runtime === first.runtime) {
      await runtime.signal(uid, "paid", 5);
      await client.run({ runId: "r2", resume });
    } else {
      const answered = client.run({ runId: "r2", resume });
      await runtime.signal(uid, "paid", 5);
      await answered;
    }
    await expect.poll(resultOf).toEqual([true, 5]);
  }
});

it("a short sleep, or work, keeps the leg open: it is over soon", async () => {
  const { client } = served((ctx) =>
    ctx.parallel<unknown>([
      (lane) => lane.ask({ message: "First?" }),
      async (lane) => {
        await lane.sleep("20ms");
        await lane.model({ model: scriptedModel([{ text: "Meanwhile." }]), prompt: "go" });
        return await lane.ask({ message: "Second?" });
      },
    ]),
  );
  expect(await client.run({ runId: "r1" })).toMatchObject({
    questions: [{ message: "First?" }, { message: "Second?" }],
  });
});

describe("a child whose lane has lost its race is cancelled, and the run ends behind it", () => {
  const rested: string[] = [];
  const busy: Agent = agent<Json>({
    name: "busy",
    async run(ctx) {
      await ctx.once("read", { effect: "read" }, async (step) => {
        rested.push("began");
        await new Promise((resolve) => step.signal.addEventListener("abort", resolve));
        rested.push("stopped");
      });
    },
  });
  const sleeps: Agent = agent<Json>({ name: "sleeps", run: (ctx) => ctx.sleep("3d") });

  it.each([
    ["that asks", child],
    ["that works", busy],
    ["that sleeps", sleeps],
  ])("%s", async (_, lost) => {
    const { client, runtime, resultOf } = served(
      (ctx) =>
        ctx.race<unknown>([
          (lane) => lane.spawn(lost, "go"),
          async (lane) => {
            await lane.sleep("50ms");
            return "first";
          },
        ]),
      [lost],
    );
    await client.run({ runId: "r1" });
    await expect.poll(resultOf).toBe("first");
    const { runs } = JSON.parse((await asking(runtime)("/runs")).text);
    const outcomes = runs.map((run: { agent: string; outcome: string }) => [run.agent, run.outcome]);
    expect(new Map(outcomes)).toEqual(
      new Map([
        ["loop", "success"],
        [lost.name, "cancelled"],
      ]),
    );
    expect(JSON.parse((await asking(runtime)("/inbox")).text).interrupts).toEqual([]);
    if (lost === busy) expect(rested).toEqual(["began", "stopped"]);
  });
});
