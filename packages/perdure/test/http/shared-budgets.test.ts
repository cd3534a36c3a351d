/** What the people around a tree of agents see of the one budget that it has. */
import { AgentDefinitionError, agent, agentTool, type Budget, memory, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, test } from "vitest";
import { z } from "zod";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import { spentBy } from "../../src/log/spent.ts";
import type { Uid } from "../../src/protocol/words.ts";
import { as, ask, byHeader, fresh, get, json, serving } from "./rig.ts";

/** A desk whose clerk looks three times, one after the other. */
function staffed(budget: Budget | undefined, clerks?: Budget) {
  const looked: string[] = [];
  const look = tool({
    ...{ name: "look", description: "Looks.", effect: "read" },
    input: z.object({ at: z.string() }),
    call: ({ at }) => void looked.push(at),
  });
  const clerk = agent({
    ...{ name: "clerk", description: "Looks things up.", tools: [look], ...(clerks && { budget: clerks }) },
    model: scriptedModel(({ turn }) =>
      turn < 3 ? { calls: [{ name: "look", input: { at: `${turn}` } }] } : { text: "So." },
    ),
  });
  const desk = agent({
    ...{ name: "desk", tools: [agentTool(clerk)], ...(budget && { budget }) },
    model: scriptedModel(({ turn }) =>
      turn === 0 ? { calls: [{ name: "clerk", input: { task: "x" } }] } : { text: "Done." },
    ),
  });
  return { looked, desk };
}

interface Listed {
  readonly id: string;
  readonly run: string;
  readonly message: string;
}
interface Shown {
  readonly uid: Uid;
  readonly agent: string;
  readonly outcome: string | null;
}

async function begun(budget: Budget | undefined, clerks?: Budget, authorize?: typeof byHeader, headers = json) {
  const { looked, desk } = staffed(budget, clerks);
  const store = memory();
  const { url } = await serving([desk], { store, ...(authorize && { authorize }) });
  const body = fresh({ messages: [{ id: "u1", role: "user", content: "go" }] });
  const say = async (more: object = {}, as = headers) =>
    (await ask(`${url}/agents/desk`, { headers: as, body: JSON.stringify({ ...body, ...more }) })).text;
  const stream = await say();
  const inbox = async () => (await get<{ interrupts: Listed[] }>(`${url}/inbox`, headers)).interrupts;
  const runs = async () => (await get<{ runs: Shown[] }>(`${url}/runs`, headers)).runs;
  const log = async (of: string): Promise<Entry[]> => {
    const uid = (await runs()).find(({ agent }) => agent === of)?.uid as Uid;
    const entries: Entry[] = [];
    for await (const entry of store.read(uid, -1)) entries.push(entry);
    return entries;
  };
  const post = async (path: string, sent: object, as = headers) =>
    await ask(`${url}${path}`, { headers: as, body: JSON.stringify(sent) });
  return { looked, stream, say, inbox, runs, log, post };
}

const reply = (asked: readonly Listed[], payload: object) => ({
  runId: "r2",
  resume: asked.map(({ id }) => ({ interruptId: id, status: "resolved", payload })),
});

describe("a sub-agent that needs more than its caller has left to it", () => {
  it("asks through its caller, and what is added there is added to the caller's limits too", async () => {
    const { looked, say, stream, inbox, runs, log } = await begun({ calls: 3 });
    expect(looked).toEqual(["0", "1"]);
    const asked = await inbox();
    expect(asked).toMatchObject([{ kind: "budget", message: expect.stringContaining("2 of 2 tool calls are used") }]);
    expect(stream).toContain(asked[0]?.id);
    expect(await say(reply(asked, { raise: { calls: 2 } }))).toContain("Done.");
    expect(looked).toEqual(["0", "1", "2"]);
    expect((await runs()).map(({ outcome }) => outcome)).toEqual(["success", "success"]);
    const { calls, raised, reserved } = spentBy(fold(await log("desk")), 0);
    expect({ calls, raised, reserved: reserved.calls }).toEqual({ calls: 4, raised: { calls: 2 }, reserved: 0 });
  });

  it("is stopped by itself: its caller's model is told, and goes on", async () => {
    const { say, inbox, runs, log } = await begun({ calls: 3 });
    expect(await say(reply(await inbox(), { stop: true }))).toContain("Done.");
    expect((await runs()).map(({ agent, outcome }) => [agent, outcome])).toEqual([
      ["clerk", "failed"],
      ["desk", "success"],
    ]);
    expect((await log("desk")).find((entry) => entry.kind === "step.finished" && entry.path === "1.0")).toMatchObject({
      ...{ status: "error", error: { code: "BUDGET_EXCEEDED" } },
      spent: { steps: 3, calls: 2, perTool: { look: 2 }, raised: {} },
    });
  });

  it("is raised by its own run, by whoever may raise its caller's", async () => {
    const boss = as("ada", ["answer", "boss"]);
    const { looked, inbox, runs, post, log } = await begun(
      { calls: 3, audience: "boss" },
      undefined,
      byHeader,
      as("ada"),
    );
    const [asked] = await inbox();
    expect(asked).toMatchObject({ audience: "boss" });
    const raise = (run: string | undefined, sent: object, who: ReturnType<typeof as>) =>
      post(`/runs/${run}/raise`, sent, who);
    expect((await raise(asked?.run, { calls: 2 }, as("ada"))).status).toBe(403);
    expect((await raise(asked?.run, { steps: 2 }, boss)).text).toContain("has no limit on steps; it has calls");
    expect((await raise(asked?.run, { calls: 2 }, boss)).status).toBe(202);
    await expect.poll(async () => (await runs()).map(({ outcome }) => outcome)).toEqual(["success", "success"]);
    expect(looked).toEqual(["0", "1", "2"]);
    expect(await inbox()).toEqual([]);
    expect(spentBy(fold(await log("desk")), 0)).toMatchObject({ calls: 4, raised: { calls: 2 } });
  });
});

test("of a limit that both have the lesser one holds", async () => {
  const own = await begun({ steps: 10, calls: 10 }, { steps: 2 });
  expect(own.looked).toEqual(["0", "1"]);
  expect(await own.inbox()).toMatchObject([{ message: expect.stringContaining("2 of 2 model steps are used") }]);
  const callers = await begun({ steps: 2 }, { steps: 10 });
  expect(callers.looked).toEqual(["0"]);
  expect(await callers.inbox()).toMatchObject([{ message: expect.stringContaining("1 of 1 model steps are used") }]);
});

test("a tool counts by its name wherever it is called, and a sub-agent's call is one of its caller's", async () => {
  const { looked, inbox } = await begun({ perTool: { look: 1, clerk: 1 } });
  expect(looked).toEqual(["0"]);
  expect(await inbox()).toMatchObject([{ message: expect.stringContaining("1 of 1 calls of `look` are used") }]);
  const none = await begun({ perTool: { clerk: 0 } });
  expect(none.looked).toEqual([]);
  expect(await none.inbox()).toMatchObject([{ message: expect.stringContaining("0 of 0 calls of `clerk` are used") }]);
});

test("where nothing is left to begin with, its caller asks", async () => {
  const { looked, inbox, say, runs } = await begun({ steps: 1 });
  expect(looked).toEqual([]);
  expect((await runs()).map(({ agent }) => agent)).toEqual(["desk"]);
  expect(await say(reply(await inbox(), { raise: { steps: 5 } }))).toContain("Done.");
  expect(looked).toEqual(["0", "1", "2"]);
});

test("without a budget nothing is allotted, and nothing is kept of what was used", async () => {
  const { looked, log } = await begun(undefined);
  expect(looked).toEqual(["0", "1", "2"]);
  expect(JSON.stringify([await log("desk"), await log("clerk")])).not.toMatch(/"allotted"|"spent"/);
});

test("a budget in dollars has to know what its sub-agents' models cost", () => {
  expect(() => staffed({ usd: 1 })).toThrow(AgentDefinitionError);
  const pricing = { "scripted/scripted": { input: 1, output: 4 } };
  const model = scriptedModel([{ text: "So." }]);
  const unpriced = agent({ name: "clerk", description: "Looks.", model });
  const priced = agent({ name: "clerk", description: "Looks.", model, pricing });
  const over = (clerk: typeof priced) =>
    agent({ name: "desk", model, pricing, tools: [agentTool(clerk)], budget: { usd: 1 } });
  expect(() => over(unpriced)).toThrow(/its sub-agents share.*"scripted\/scripted"/);
  expect(() => over(priced)).not.toThrow();
});

test("a summary reserves its call, counts what failed of it too, and is no step", async () => {
  let [summaries, turns] = [0, 0];
  const model = scriptedModel(({ messages }) => {
    if (!JSON.stringify(messages).includes("<conversation>")) {
      const turn = turns++;
      return {
        text: `Turn ${turn}, of some length, so that there is something to sum up.`,
        calls: turn < 2 ? [{ name: "look", input: {} }] : [],
      };
    }
    summaries += 1;
    if (summaries === 1) throw Object.assign(new Error("busy"), { statusCode: 503 });
    return { text: "So far, so good.", usage: { inputTokens: 30, outputTokens: 5 } };
  });
  const look = tool({ name: "look", description: "Looks.", effect: "read", input: z.object({}), call: () => "seen" });
  const desk = agent({
    name: "desk",
    model,
    tools: [look],
    budget: { tokens: 200_000, steps: 3 },
    settings: { maxOutputTokens: 100 },
    compaction: { after: 40, keep: 1 },
  });
  const store = memory();
  const { url } = await serving([desk], { store });
  const body = fresh({ messages: [{ id: "u1", role: "user", content: "go" }] });
  expect((await ask(`${url}/agents/desk`, { headers: json, body: JSON.stringify(body) })).text).toContain(
    " 2, of some length",
  );
  const { runs } = await get<{ runs: Shown[] }>(`${url}/runs`, json);
  const entries: Entry[] = [];
  for await (const entry of store.read(runs[0]?.uid as Uid, -1)) entries.push(entry);
  const attempts = entries.flatMap((entry) =>
    entry.kind === "step.attempt" && entry.path.startsWith("c") ? [entry] : [],
  );
  expect(attempts.length).toBeGreaterThanOrEqual(2);
  for (const { reserved } of attempts) expect(reserved).toMatchObject({ output: 8_192 });
  const [failed] = attempts;
  const spent = spentBy(fold(entries), 0);
  expect(spent.steps).toBe(3);
  expect(spent.tokens).toBeGreaterThanOrEqual((failed?.reserved?.input ?? 0) + 8_192 + 35);
});
