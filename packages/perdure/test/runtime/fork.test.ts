import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { type Agent, agent, agentTool, createRuntime, type Runtime, tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { AgentTool } from "../../src/runtime/agent-definition.ts";
import { memory } from "../../src/store/memory.ts";
import type { EventStore } from "../../src/store/store.ts";
import { replay } from "../../src/testing/replay.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { quietClient } from "../protocol/published-client.ts";
import { asking, saying } from "./asking.ts";
import { StockClient } from "./world.ts";

quietClient();

const Desk = z.object({ refunds: z.array(z.string()) });

let store: EventStore;
let runtime: Runtime;
let paid: string[];
let asked: string[];

const desk = (name: string, says: string) => {
  const refund = tool({
    ...{ name: "refund", description: "Refunds an order.", effect: "write" },
    input: z.object({ order: z.string() }),
    output: z.object({ refunded: z.string() }),
    approval: ({ order }) => order === "2" && { message: "Refund order 2?" },
    state: z.custom<z.infer<typeof Desk>>(),
    async call({ order }, ctx) {
      paid.push(`${order} ${ctx.idempotencyKey}`);
      return { refunded: order };
    },
    reduce(state, { refunded }) {
      state.refunds.push(refunded);
    },
  });
  const model = scriptedModel(({ messages, lastUserText }) => {
    asked.push(JSON.stringify(messages));
    const answers = messages.filter(({ role }) => role === "assistant").length;
    if (answers < 2 && lastUserText.includes("refund"))
      return { calls: [{ name: "refund", input: { order: String(answers + 1) } }] };
    return { text: `${says} (${lastUserText})` };
  });
  return agent({
    ...{ name, model, instructions: `You are ${name}.`, tools: [refund] },
    state: { schema: Desk, initial: () => ({ refunds: [] as string[] }) },
  }) as Agent;
};

beforeEach(() => {
  [paid, asked] = [[], []];
  store = memory();
  runtime = createRuntime({ agents: [desk("desk", "Done."), desk("desk-v2", "All done.")], store });
});
afterEach(() => runtime.close());

const ask = (path: string, body?: object) => asking(runtime)(path, body);

async function logOf(uid: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const entry of store.read(uid as Uid, -1)) entries.push(entry);
  return entries;
}

async function rests(uid: string): Promise<void> {
  for (;;) {
    const run = await store.run(uid as Uid);
    if (run?.owner === null && (run.outcome !== null || !run.legOpen)) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function approve(uid: string): Promise<string> {
  const [question] = (await store.questions({ tenant: "local", run: uid as Uid })).items;
  const id = question?.interrupt.id ?? "nobody asks";
  expect(
    (await ask(`/inbox/${encodeURIComponent(id)}`, { status: "resolved", payload: { approved: true } })).status,
  ).toBe(200);
  await new Promise((resolve) => setImmediate(resolve));
  for (;;) {
    if ((await store.run(uid as Uid))?.outcome !== null) return id;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Two refunds, the second approved. */
async function refunded(): Promise<{ uid: string; log: Entry[]; after: (path: string) => number }> {
  await ask("/agents/desk", saying("refund both"));
  const uid = (await store.runs({ tenant: "local" })).items[0]?.uid ?? "";
  await rests(uid);
  await approve(uid);
  const log = await logOf(uid);
  const after = (path: string) => log.find((entry) => entry.kind === "step.finished" && entry.path === path)?.seq ?? -1;
  return { uid, log, after };
}

const finalText = async (uid: string) => fold(await logOf(uid)).messages.at(-1)?.content;

describe("a fork with another of its agent's models", () => {
  const speaker = (says: string) => scriptedModel(() => ({ text: says }));
  const sayer = (more: object = {}) =>
    agent({ name: "sayer", model: speaker("own"), models: { terse: speaker("terse") }, ...more }) as Agent;
  const reported: unknown[] = [];
  const open = async (one: Agent) => {
    await runtime.close();
    runtime = createRuntime({ agents: [one, desk("desk", "Done.")], store, onError: (error) => reported.push(error) });
    await runtime.open();
  };
  const newest = async () => {
    const uid = (await store.runs({ tenant: "local" })).items[0]?.uid ?? "";
    await rests(uid);
    return uid;
  };
  const begun = async () => {
    await open(sayer());
    await ask("/agents/sayer", saying("hi"));
    return await newest();
  };

  it("goes on with it, and so do the later turns of its thread; a fork of that does, too, unless told otherwise", async () => {
    const uid = await begun();
    const fork = await runtime.fork(uid, { at: 0, edits: { model: "terse" }, thread: "f" });
    await rests(fork.uid);
    expect(await finalText(fork.uid)).toBe("terse");
    await ask("/agents/sayer", saying("again", { threadId: "f", id: "u2" }));
    const second = await newest();
    expect(await finalText(second)).toBe("terse");
    const again = await runtime.fork(second, { at: 0 });
    await rests(again.uid);
    expect(await finalText(again.uid)).toBe("terse");
    expect(await finalText(uid)).toBe("own");
  });

  it("is refused where the agent has no such model, and says which it has", async () => {
    const uid = await begun();
    await expect(runtime.fork(uid, { edits: { model: "vast" } })).rejects.toMatchObject({
      code: "FORK_EDIT",
      message: expect.stringContaining('no model named "vast" among its models; there is terse'),
    });
    expect((await ask(`/runs/${uid}/fork`, { at: 0, edits: { model: "toString" } })).status).toBe(422);
    expect((await ask(`/runs/${uid}/fork`, { at: 0, edits: { model: "terse" } })).status).toBe(201);
  });

  it("goes on with the agent's own, and says so, when a deploy has taken it away; a fork under another agent has that one's", async () => {
    const uid = await begun();
    const fork = await runtime.fork(uid, { at: 0, edits: { model: "terse" }, thread: "f" });
    await rests(fork.uid);
    const other = await runtime.fork(fork.uid, { at: 0, agent: "desk", edits: { state: { refunds: [] } } });
    await rests(other.uid);
    expect(await finalText(other.uid)).toBe("Done. (hi)");
    await open(sayer({ models: {} }));
    await ask("/agents/sayer", saying("again", { threadId: "f", id: "u2" }));
    expect(await finalText(await newest())).toBe("own");
    expect(reported).toMatchObject([{ code: "MODEL_MISSING" }]);
  });

  it("is asked for an output in its own way", async () => {
    const model = (supportsStructuredOutputs: boolean) => ({
      ...scriptedModel(({ tools }) => {
        asked.push(tools.join());
        return supportsStructuredOutputs ? { text: '{"n":1}' } : { calls: [{ name: "final_answer", input: { n: 1 } }] };
      }),
      supportsStructuredOutputs,
    });
    const output = z.object({ n: z.number() });
    await open(sayer({ model: model(false), models: { terse: model(true) }, output }));
    await ask("/agents/sayer", saying("hi"));
    const uid = await newest();
    const fork = await runtime.fork(uid, { at: 0, edits: { model: "terse" } });
    await rests(fork.uid);
    expect(asked).toEqual(["final_answer", ""]);
    for (const run of [uid, fork.uid]) expect((await store.run(run as Uid))?.outcome).toBe("success");
  });

  it("is known when the agent is defined: what is wrong with it, and that a budget in money lacks its price", () => {
    expect(() => sayer({ models: { terse: {} } })).toThrow(/models\.terse of agent "sayer"/);
    expect(() => sayer({ models: { "": speaker("x") } })).toThrow(/has a model named ""/);
    expect(() => sayer({ models: { "openai/gpt-5.1": speaker("x") } })).not.toThrow();
    const pricing = { "own/own": { input: 1, output: 1 } };
    const priced = (models: object) => sayer({ model: named("own"), models, budget: { usd: 1 }, pricing });
    const named = (id: string) => ({ ...speaker(id), provider: id, modelId: id });
    expect(() => priced({})).not.toThrow();
    expect(() => priced({ terse: named("terse") })).toThrow(/terse/);
  });
});

describe("a fork of a run whose tools have begun subagents", () => {
  const dig = tool({
    ...{ name: "dig", description: "Digs.", effect: "read", input: z.object({}) },
    async call(_, ctx) {
      await ctx.subagent({ name: "mole" }, async (mole) => {
        mole.say("Mole speaks.");
        mole.think("deep");
      });
      return "dug";
    },
  });
  const caller = (name: string, called: ToolDefinition | AgentTool, input: Json) => {
    const model = scriptedModel(({ messages }) =>
      messages.at(-1)?.role === "tool" ? { text: "Done." } : { calls: [{ name: called.name, input }] },
    );
    return agent({ ...{ name, description: name, model, tools: [called as ToolDefinition] } }) as Agent;
  };
  const agents = {
    "of a model": () => caller("digger", dig as ToolDefinition, {}),
    "of a model's agent": () => caller("digger", agentTool(caller("kid", dig as ToolDefinition, {})), { task: "dig" }),
    "of code": () =>
      agent({
        name: "digger",
        async run(ctx) {
          await ctx.call(dig, {});
          ctx.say("Done.");
        },
      }) as Agent,
  };

  it.each(Object.entries(agents))(
    "%s has each of their messages once, wherever it is made, and so has a fork of it",
    async (what, make) => {
      await runtime.close();
      runtime = createRuntime({ agents: [make()], store });
      const said = async (uid: string) => {
        await rests(uid);
        const shown = fold(await logOf(uid)).messages.filter(({ subagentRunId }) => subagentRunId !== undefined);
        return shown.map(({ content }) => content).filter((content) => content === "" || moles.includes(content));
      };
      const moles: unknown[] = ["Mole speaks.", "deep"];
      await ask("/agents/digger", saying("dig"));
      const uid = (await store.runs({ tenant: "local", thread: "t" })).items[0]?.uid ?? ("" as Uid);
      expect(await said(uid)).toEqual(moles);
      for (const isPruned of what === "of code" ? [false] : [false, true]) {
        if (isPruned) await runtime.prune(uid);
        for (const { seq } of await logOf(uid)) {
          const fork = await runtime.fork(uid, { at: seq, acknowledge: ["kid"] });
          expect(await said(fork.uid), `at ${seq}`).toEqual(moles);
          if (seq % 5 > 0) continue;
          for (const again of await logOf(fork.uid)) {
            const second = await runtime.fork(fork.uid, { at: again.seq, acknowledge: ["kid"] });
            expect(await said(second.uid), `at ${seq}, and that at ${again.seq}`).toEqual(moles);
          }
        }
      }
    },
  );
});

describe("a fork", () => {
  it("is refused until each write behind its entry is acknowledged, by its path or by its tool", async () => {
    const { uid, after } = await refunded();
    const at = after("1.0");
    const refused = await ask(`/runs/${uid}/fork`, { at });
    expect(refused.status).toBe(409);
    const { error } = JSON.parse(refused.text) as { error: { code: string; details: { writes: unknown[] } } };
    expect(error.code).toBe("WRITES_NOT_ACKNOWLEDGED");
    expect(error.details.writes).toMatchObject([
      { path: "3.0", name: "refund", effect: "write", applied: "yes", input: { order: "2" } },
    ]);
    await expect(runtime.fork(uid, { at: 0, acknowledge: ["3.0"] })).rejects.toMatchObject({
      code: "WRITES_NOT_ACKNOWLEDGED",
      writes: [{ path: "1.0" }],
    });
    expect((await store.runs({ tenant: "local" })).items).toHaveLength(1);
    for (const acknowledge of [["3.0"], ["refund"]]) {
      expect((await ask(`/runs/${uid}/fork`, { at, acknowledge })).status).toBe(201);
    }
    // Behind the last write there is nothing to acknowledge.
    expect((await ask(`/runs/${uid}/fork`, { at: after("3.0") })).status).toBe(201);
  });

  it("asks again for the approval of what had not ended, under a question of its own, and does it under a new key", async () => {
    const { uid, log, after } = await refunded();
    const answered = log.find(({ kind }) => kind === "interrupt.answered")?.seq ?? -1;
    const fork = await runtime.fork(uid, { at: answered, acknowledge: ["refund"] });
    await rests(fork.uid);
    expect(paid).toHaveLength(2);
    const question = await approve(fork.uid);
    expect(question).toBe(`${fork.uid}:3.0:i0`);
    expect(paid.map((row) => row.split(" ")[0])).toEqual(["1", "2", "2"]);
    expect(new Set(paid.map((row) => row.split(" ")[1])).size).toBe(3);
    expect(after("1.0")).toBeLessThan(answered);
    expect(fold(await logOf(fork.uid)).committed).toEqual({ refunds: ["1", "2"] });
    expect(await logOf(uid)).toEqual(log);
  });

  it("goes on under what was edited: instructions, what the user said, the state, another agent", async () => {
    const { uid, after } = await refunded();
    const at = after("3.0");
    asked.length = 0;
    const told = await runtime.fork(uid, { at, edits: { instructions: "Be brief.", input: "refund them all" } });
    await rests(told.uid);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toContain("Be brief.");
    expect(asked[0]).not.toContain("You are desk.");
    expect(await finalText(told.uid)).toBe("Done. (refund them all)");
    expect(fold(await logOf(told.uid)).messages[0]).toMatchObject({ id: "u", content: "refund them all" });
    // What it has from the other run was asked by that one.
    (await replay(await runtime.export(told.uid), { agent: desk("desk", "Done.") })).assert();

    const state = await runtime.fork(uid, { at, edits: { state: { refunds: ["other"] } } });
    await rests(state.uid);
    expect(fold(await logOf(state.uid))).toMatchObject({
      committed: { refunds: ["other"] },
      shown: { refunds: ["other"] },
    });

    const other = await runtime.fork(uid, { at, agent: "desk-v2", thread: "other" });
    await rests(other.uid);
    expect(await finalText(other.uid)).toBe("All done. (refund both)");
    expect(await store.run(other.uid as Uid)).toMatchObject({ agent: "desk-v2", thread: "other", outcome: "success" });
    expect(paid).toHaveLength(2);
  });

  it("keeps its instructions in the later turns of its thread, and its thread's earlier turns in its history", async () => {
    await ask("/agents/desk", saying("first", { id: "u0", runId: "r0" }));
    await ask("/agents/desk", saying("second", { id: "u1", runId: "r1" }));
    const [second] = (await store.runs({ tenant: "local" })).items;
    const fork = await runtime.fork(second?.uid ?? "", { at: 0, thread: "f", edits: { instructions: "Be brief." } });
    await rests(fork.uid);
    asked.length = 0;
    await ask("/agents/desk", saying("third", { threadId: "f", id: "u2", runId: "r2" }));
    expect(asked[0]).toContain("Be brief.");
    expect(asked[0]).toMatch(/first.*Done\. \(first\).*second.*Done\. \(second\).*third/s);
  });

  it("is a conversation like any other to the published client", async () => {
    const { uid, after } = await refunded();
    const fork = await runtime.fork(uid, { at: after("3.0"), thread: "f" });
    await rests(fork.uid);
    const client = new StockClient("desk", (url, init) => runtime.fetch(new Request(url, init)), "f");
    await client.run({ runId: "x" });
    expect(client.held.messages).toEqual(fold(await logOf(fork.uid)).messages);
    client.say("u9", "thanks");
    await client.run({ runId: "y" });
    expect(client.failure).toBeUndefined();
    expect(client.held.messages.at(-1)?.content).toBe("Done. (thanks)");
    expect(client.held.messages.filter(({ role }) => role === "user")).toHaveLength(2);
  });

  it("of a cancelled run is not cancelled, and of a failed one asks the model again", async () => {
    await ask("/agents/desk", saying("refund both"));
    const uid = (await store.runs({ tenant: "local" })).items[0]?.uid ?? "";
    await rests(uid);
    await ask(`/runs/${uid}/cancel`, {});
    for (;;)
      if ((await store.run(uid as Uid))?.outcome !== null) break;
      else await new Promise((r) => setImmediate(r));
    const fork = await runtime.fork(uid);
    await rests(fork.uid);
    expect(await store.run(fork.uid as Uid)).toMatchObject({ outcome: "success" });
    expect(paid).toHaveLength(1);
  });

  it("of a run that its budget has stopped is asked about its own, and is not charged for what the other has used", async () => {
    const model = scriptedModel([
      { calls: [{ name: "nobody", input: {} }], usage: { inputTokens: 60, outputTokens: 30 } },
      { text: "Done." },
    ]);
    const thrifty = agent({
      name: "thrifty",
      model,
      budget: { tokens: 100_000, steps: 1 },
      settings: { maxOutputTokens: 40 },
    });
    const other = createRuntime({ agents: [thrifty], store });
    await asking(other)("/agents/thrifty", saying("go", { threadId: "b" }));
    const uid = (await store.runs({ tenant: "local", thread: "b" })).items[0]?.uid ?? "";
    await rests(uid);
    const question = async (run: string) =>
      (await store.questions({ tenant: "local", run: run as Uid })).items[0]?.interrupt;
    const say = async (run: string, payload: object) =>
      await asking(other)(`/inbox/${encodeURIComponent((await question(run))?.id ?? "")}`, {
        status: "resolved",
        payload,
      });
    expect(await question(uid)).toMatchObject({ kind: "budget" });
    await say(uid, { stop: true });
    for (;;)
      if ((await store.run(uid as Uid))?.outcome === "failed") break;
      else await new Promise((r) => setImmediate(r));
    const fork = await other.fork(uid);
    await rests(fork.uid);
    expect(await store.run(fork.uid as Uid)).toMatchObject({ outcome: null });
    expect((await question(fork.uid))?.metadata).toMatchObject({ limits: [{ limit: "steps", used: 1 }] });
    expect(fold(await logOf(fork.uid)).steps.get("0" as never)?.attempts[0]?.reserved).toBeUndefined();
    await say(fork.uid, { raise: { steps: 1 } });
    for (;;)
      if ((await store.run(fork.uid as Uid))?.outcome === "success") break;
      else await new Promise((r) => setImmediate(r));
    expect(await finalText(fork.uid)).toBe("Done.");
    await other.close();
  });

  it("says what is wrong with it: an entry that is not there, a thread that is, an agent that is not, a state that does not fit", async () => {
    const { uid } = await refunded();
    const refusals = [
      [{ at: 9_999 }, 422, "FORK_POINT"],
      [{ at: 1.5 }, 422, "FORK_POINT"],
      [{ thread: "t" }, 409, "THREAD_EXISTS"],
      [{ agent: "nobody" }, 404, "AGENT_NOT_FOUND"],
      [{ edits: { state: { refunds: 1 } } }, 422, "STATE_INVALID"],
      [{ edits: { model: "gpt-5" } }, 422, "FORK_EDIT"],
      [{ edits: { temperature: 1 } }, 400, "INPUT_INVALID"],
    ] as const;
    for (const [body, status, code] of refusals) {
      const refused = await ask(`/runs/${uid}/fork`, body);
      expect([refused.status, (JSON.parse(refused.text) as { error: { code: string } }).error.code]).toEqual([
        status,
        code,
      ]);
    }
    expect((await ask("/runs/nobody/fork", {})).status).toBe(404);
    expect((await store.runs({ tenant: "local" })).items).toHaveLength(1);
  });
});
