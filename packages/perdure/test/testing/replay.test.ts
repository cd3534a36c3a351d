import fc from "fast-check";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { type Agent, agent, createRuntime, memory, tool } from "../../src/index.ts";
import type { RunFixture } from "../../src/log/fixture.ts";
import { ReplayError, replay } from "../../src/testing/replay.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { asking } from "../runtime/asking.ts";
import { Talking, talk } from "../runtime/forking.ts";

const model = scriptedModel([
  { reasoning: "Which?", text: "Let me see.", calls: [{ name: "search", input: { email: "ann@example.org" } }] },
  { calls: [{ name: "refund", input: { order: "7", cents: 100 } }] },
  { text: "Done. Mail goes to ann@example.org." },
]);
/** Whoever asks it fails the test. */
const silent = { ...model, doStream: () => Promise.reject(new Error("a replay asks no model")) };

const never = (): never => {
  throw new Error("a replay runs no tool");
};

interface Changes {
  readonly instructions?: string;
  readonly description?: string;
  readonly max?: number;
  readonly effect?: "write" | "idempotent";
  readonly key?: string;
  readonly approval?: true;
  readonly without?: string;
  readonly temperature?: number;
}

function desk(
  { instructions = "You are a desk.\nBe kind.", description = "Refunds.", max = 1_000, ...more }: Changes,
  isLive = false,
): Agent {
  const { effect = "write", key = "refund", approval, without, temperature = 0 } = more;
  const search = tool({
    ...{ name: "search", description: "Searches.", effect: "read", input: z.object({ email: z.string() }) },
    ...{ output: z.array(z.string()), call: () => (isLive ? ["7"] : never()) },
  });
  const refund = tool({
    ...{ name: "refund", description, effect, input: z.object({ order: z.string(), cents: z.number().max(max) }) },
    idempotencyKey: ({ order }) => [key, order],
    ...(approval && { approval }),
    output: z.object({ ok: z.boolean() }),
    call: () => (isLive ? { ok: true } : never()),
  });
  return agent({
    ...{ name: "desk", model: isLive ? model : silent, instructions, settings: { temperature } },
    tools: [search, refund].filter(({ name }) => name !== without),
  }) as Agent;
}

async function recorded(exporting?: Agent, redact?: (text: string) => string): Promise<RunFixture> {
  const store = memory();
  const runtime = createRuntime({ agents: [desk({}, true)], store, onError: () => {} });
  onTestFinished(() => runtime.close());
  const message = { id: "u", role: "user", content: "refund ann@example.org" };
  await asking(runtime)("/agents/desk", { threadId: "t", runId: "r", messages: [message] });
  const uid = (await store.runs({ tenant: "local" })).items[0]?.uid ?? "";
  while ((await store.run(uid as never))?.outcome === null) await new Promise((resolve) => setImmediate(resolve));
  const from = exporting === undefined ? runtime : createRuntime({ agents: [exporting], store, onError: () => {} });
  const fixture = await from.export(uid, redact && { redact });
  return JSON.parse(JSON.stringify(fixture)) as RunFixture;
}

describe("replay", () => {
  it("finds nothing in an agent that is what it was, and calls neither model nor tool for it", async () => {
    const report = await replay(await recorded(), { agent: desk({}) });
    expect(report.toString()).toMatch(/^agent "desk" does and asks what run [0-9a-f-]{36} recorded$/);
    expect(report).toMatchObject({ equal: true, differences: [] });
    report.assert();
  });

  it("keeps what was asked, in few lines: deltas of a block are one", async () => {
    const { logs, asked } = await recorded();
    expect(Object.keys(asked)).toEqual(["0", "2", "4"]);
    const deltas = logs.flat().filter((entry) => entry.kind === "frame" && "event" in entry && "delta" in entry.event);
    expect(deltas).toHaveLength(5);
  });

  it("shows what the model would be given otherwise, line by line, once", async () => {
    const fixture = await recorded();
    const report = await replay(fixture, {
      agent: desk({ instructions: "You are a desk.\nBe brief.", temperature: 1 }),
    });
    expect(report.differences.map(({ step, what }) => [step, what])).toEqual([
      ["0", "instructions"],
      ["0", "settings"],
    ]);
    expect(report.differences[0]?.diff).toBe(
      ["    [", '      "You are a desk.\\n', '  - Be kind."', '  + Be brief."', "    ]"].join("\n"),
    );
    expect(() => report.assert()).toThrow(
      /step 0, instructions[\s\S]*- {3}"temperature": 0\n {2}\+ {3}"temperature": 1/,
    );
  });

  it.each([
    ["a tool that is gone", { without: "refund" }, ["tools", "tool"], "there is no tool refund any more"],
    ["a schema that refuses what was recorded", { max: 50 }, ["tools", "tool"], "refund refuses what it took then"],
    ["a schema that takes more", { max: 5_000 }, ["tools", "tool"], "the contract of refund"],
    ["another effect", { effect: "idempotent" }, ["tool"], "refund was a write, now it is a idempotent"],
    ["another business key", { key: "pay" }, ["key"], "another idempotency key"],
    ["an approval", { approval: true }, ["approval"], "refund asks for an approval now"],
    ["another description", { description: "Pays back." }, ["tools"], "the model is given other tools"],
  ] as const)("finds %s", async (_, changes, what, message) => {
    const report = await replay(await recorded(), { agent: desk(changes) });
    expect(report.differences.map((one) => one.what)).toEqual(what);
    expect(report.toString()).toContain(message);
  });

  it("tells from hashes alone that something is otherwise, where the export did not know what it had been", async () => {
    const fixture = await recorded(desk({ instructions: "Other." }));
    expect(fixture.asked).toEqual({});
    expect((await replay(fixture, { agent: desk({}) })).equal).toBe(true);
    const [difference] = (await replay(fixture, { agent: desk({ instructions: "Other." }) })).differences;
    expect(difference).toMatchObject({ step: "0", what: "instructions" });
    expect(difference?.message).toContain("export it with the agent as it was");
  });

  it("replays what was redacted: nothing of it is left in the file, and it still fits", async () => {
    const fixture = await recorded(undefined, (text) => text.replaceAll(/[\w.]+@[\w.]+/g, "<mail>"));
    const text = JSON.stringify(fixture);
    expect(text).not.toContain("ann@");
    expect(text.match(/<mail>/g)?.length).toBeGreaterThan(5);
    const report = await replay(fixture, { agent: desk({}) });
    expect(report.toString()).toContain("does and asks");
  });

  it("finds nothing in any conversation, whoever was asked in it and whatever has failed, nor in a fork of it", async () => {
    await fc.assert(
      fc.asyncProperty(talk, fc.nat(), async (plan, place) => {
        const talking = new Talking(plan);
        const last = (await talking.talks("t")).at(-1);
        const fork = await talking.runtime.fork(last?.uid ?? "", {
          at: place % ((last?.head ?? 0) + 1),
          acknowledge: talking.names,
        });
        await talking.toTheEnd(fork.thread);
        for (const uid of [last?.uid ?? "", fork.uid]) {
          const fixture = JSON.parse(JSON.stringify(await talking.runtime.export(uid))) as RunFixture;
          const asked = fixture.logs.at(-1)?.filter((entry) => entry.kind === "step.started" && entry.step === "model");
          expect(Object.keys(fixture.asked)).toHaveLength(asked?.length ?? -1);
          expect((await replay(fixture, { agent: talking.agent })).toString()).toContain("does and asks");
        }
        await talking.runtime.close();
      }),
      { numRuns: 12, endOnFailure: true },
    );
  }, 60_000);

  it("says what it cannot replay", async () => {
    await expect(replay({ perdure: "thread" }, { agent: desk({}) })).rejects.toThrow(ReplayError);
    const body = agent({ name: "body", run: async () => null }) as Agent;
    expect((await replay(await recorded(), { agent: body })).differences[0]).toMatchObject({
      ...{ step: "0", what: "decision" },
      message: 'step 0 was model "model", and now is nothing: the code does not begin it',
    });
  });
});
