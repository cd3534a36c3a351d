/** Agents as tools of agents, over real HTTP: what the published clients hold, and what the control plane says. */
import type { Message } from "@ag-ui/core";
import { agent, agentTool, type LoopAgent, memory, tool } from "perdure";
import { normaliseTranscript } from "perdure/log";
import { type ScriptedModelOptions, scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type Entry, encodeEntry, type NewEntry } from "../../src/log/entries.ts";
import { ask, ended, eventsOf, framesOf, fresh, get, json, says, serving } from "./rig.ts";
import { type StockClient, stockClient, type Version, versions } from "./stock-clients.ts";

const TEXT = "It left the warehouse on Monday.";

interface Parts {
  readonly ledger?: string[];
  readonly approval?: boolean;
  readonly options?: ScriptedModelOptions;
  readonly answer?: string;
}

/** Looks an order up, and says where it is. */
function tracer({ ledger = [], approval = false, options = {}, answer = TEXT }: Parts = {}): LoopAgent {
  const look = tool({
    name: "look",
    description: "Look an order up.",
    effect: "write",
    input: z.object({ order: z.string() }),
    approval,
    call({ order }) {
      ledger.push(order);
      return { order };
    },
  });
  const model = scriptedModel(
    ({ turn, lastUserText: order }) =>
      turn === 0
        ? { reasoning: "Where?", text: "I look.", calls: [{ name: "look", input: { order } }] }
        : { text: answer },
    options,
  );
  return agent({ name: "tracer", description: "Finds orders.", model, tools: [look] });
}

/** Asks sub-agents, one for each order, and says so. */
function desk(sub: LoopAgent, orders: readonly string[] = ["A-1"], options: ScriptedModelOptions = {}): LoopAgent {
  const model = scriptedModel(
    ({ turn }) =>
      turn === 0 ? { calls: orders.map((task) => ({ name: sub.name, input: { task } })) } : { text: "There." },
    options,
  );
  return agent({ name: "desk", model, tools: [agentTool(sub)] });
}

const called = (id: string, name: string, input: object) => ({
  id,
  type: "function" as const,
  function: { name, arguments: JSON.stringify(input) },
});

/** What a client is to hold of one order. */
const traced: Message[] = [
  { id: "u1", role: "user", content: "go" },
  { id: "m1", role: "assistant", toolCalls: [called("c1", "tracer", { task: "A-1" })] },
  { id: "r1", role: "tool", toolCallId: "c1", content: TEXT },
  { id: "th", role: "reasoning", content: "Where?", subagentRunId: "s" },
  {
    ...{ id: "m2", role: "assistant", content: "I look.", subagentRunId: "s" },
    toolCalls: [called("c2", "look", { order: "A-1" })],
  } as Message,
  { id: "r2", role: "tool", toolCallId: "c2", content: '{"order":"A-1"}', subagentRunId: "s" },
  { id: "m3", role: "assistant", content: TEXT, subagentRunId: "s" },
  { id: "m4", role: "assistant", content: "There." },
];

/** A reader from before 1.0 is told of no subagents: all of it is the run's work. */
function heldBy(version: Version): ReturnType<typeof normaliseTranscript> {
  const messages = traced.map(({ subagentRunId, ...message }) =>
    version === "1.0.0" && subagentRunId !== undefined ? { ...message, subagentRunId } : message,
  );
  return normaliseTranscript({ messages: messages as Message[], state: {} });
}

const held = ({ messages, state }: StockClient) => normaliseTranscript({ messages, state });

/** What the store keeps of an entry. */
function keptOf({ seq: _, at: _at, ...entry }: Entry): string {
  return encodeEntry(entry as NewEntry).text;
}

interface Listed {
  readonly uid: string;
  readonly agent: string;
  readonly thread: string | null;
  readonly state: string;
  readonly waitsFor: string | null;
  readonly parent: { readonly uid: string; readonly path: string } | null;
  readonly pruned: boolean;
}
const runsOf = async (url: string) => (await get<{ runs: Listed[] }>(`${url}/runs`)).runs;

describe.each(versions)("the published client %s", (version) => {
  function asking(url: string, threadId = "t"): StockClient {
    const stock = stockClient(version, { url: `${url}/agents/desk`, threadId });
    stock.add({ id: "u1", role: "user", content: "go" });
    return stock;
  }

  it("shows what a sub-agent does, and its answer as the result of the call", async () => {
    const { url } = await serving([desk(tracer())]);
    const stock = asking(url);
    const { types } = await stock.run({ runId: "r" });
    expect(held(stock)).toEqual(heldBy(version));
    expect(types.filter((type) => type.startsWith("SUBAGENT"))).toEqual(
      version === "1.0.0" ? ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] : [],
    );
  });

  it.each(["REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT"])(
    "that is cut at %s comes back, and holds what an uninterrupted one does; so does one that comes new",
    async (type) => {
      const { url } = await serving([desk(tracer({ options: { delayMs: 3 } }))]);
      const stock = asking(url);
      await stock.run({ runId: "r", cutAt: type });
      const late = asking(url);
      await Promise.all([stock.run({ runId: "r" }), late.run({ runId: "r" })]);
      expect(held(stock)).toEqual(heldBy(version));
      expect(held(late)).toEqual(heldBy(version));
    },
  );

  it("answers a sub-agent's question through the thread of its caller", async () => {
    const ledger: string[] = [];
    const { url } = await serving([desk(tracer({ ledger, approval: true }))]);
    const stock = asking(url);
    const { asked } = await stock.run({ runId: "r" });
    expect(asked).toHaveLength(1);
    expect(ledger).toEqual([]);
    const [parent] = (await runsOf(url)).filter((run) => run.parent === null);
    expect(parent).toMatchObject({ state: "parked", waitsFor: "child" });
    const resume = asked.map(({ id }) => ({
      ...{ interruptId: id, status: "resolved" as const, payload: { approved: true } },
    }));
    await stock.run({ runId: "r2", resume });
    expect(ledger).toEqual(["A-1"]);
    expect(held(stock)).toEqual(heldBy(version));
  });
});

describe("a sub-agent's question that was just answered in the inbox", () => {
  it("has a leg of its caller that is due: a reader without a cursor waits for it, and is not shown the question once more", async () => {
    let isHeld = false;
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const store = new Proxy(memory(), {
      get(target, name) {
        if (name === "claim" && isHeld) return (owner: string) => held.then(() => target.claim(owner));
        const member = Reflect.get(target, name) as unknown;
        return typeof member === "function" ? (member.bind(target) as unknown) : member;
      },
    });
    const ledger: string[] = [];
    const { url } = await serving([desk(tracer({ ledger, approval: true }))], { store });
    const request = fresh({ messages: [says("u1", "go")] });
    const stopped = await ask(`${url}/agents/desk`, { body: JSON.stringify(request) });
    const end = eventsOf(stopped.text).at(-1);
    const asked = end?.type === "RUN_FINISHED" && end.outcome?.type === "interrupt" ? end.outcome.interrupts : [];
    expect(asked).toHaveLength(1);
    isHeld = true;
    await ask(`${url}/inbox/${asked[0]?.id}`, {
      body: JSON.stringify({ status: "resolved", payload: { approved: true } }),
    });
    const seen = ask(`${url}/threads/${request.threadId}/stream?agent=desk`, { method: "GET" });
    // Whoever reads the log without waiting for anything has read it by now.
    await ask(`${url}/threads/${request.threadId}/stream?agent=nobody`, { method: "GET" });
    release();
    expect(eventsOf((await seen).text).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(ledger).toEqual(["A-1"]);
  });
});

describe("a sub-agent's run", () => {
  it("is listed with its parent, is no conversation, and can be read and pruned with it", async () => {
    const { url } = await serving([desk(tracer())]);
    const body = fresh({ messages: [says("u1", "go")] });
    await ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    const before = await ask(`${url}/threads/${body.threadId}/stream?agent=desk`, { method: "GET" });
    const runs = await runsOf(url);
    expect(runs).toMatchObject([
      { agent: "tracer", thread: null, state: "success", parent: { path: "1.0" } },
      { agent: "desk", thread: body.threadId, state: "success", parent: null },
    ]);
    const [child, parent] = runs;
    expect(child?.parent?.uid).toBe(parent?.uid);
    const stream = await ask(`${url}/runs/${child?.uid}/stream`, { method: "GET" });
    expect(eventsOf(stream.text).at(-1)).toMatchObject({ type: "RUN_FINISHED" });

    const alone = await ask(`${url}/runs/${child?.uid}/prune`);
    expect(alone).toMatchObject({ status: 409 });
    expect(alone.text).toContain("RUN_SHOWN");
    expect((await ask(`${url}/runs/${parent?.uid}/prune`)).status).toBe(200);
    expect((await runsOf(url)).map(({ pruned }) => pruned)).toEqual([true, true]);
    const after = await ask(`${url}/threads/${body.threadId}/stream?agent=desk`, { method: "GET" });
    expect(eventsOf(after.text)).toEqual(eventsOf(before.text));
  });

  it("can be gone on with from every place of its caller's stream, and gives exactly the rest", async () => {
    const { url } = await serving([desk(tracer(), ["A-1", "B-2"])]);
    const body = fresh({ messages: [says("u1", "go")] });
    const frames = framesOf((await ask(`${url}/agents/desk`, { body: JSON.stringify(body) })).text);
    for (const [i, { cursor }] of frames.entries()) {
      const headers = { "last-event-id": cursor ?? "" };
      const rest = await ask(`${url}/threads/${body.threadId}/stream?agent=desk`, { method: "GET", headers });
      expect(framesOf(rest.text)).toEqual(frames.slice(i + 1));
    }
  });

  it("is pruned with its caller: what both have said is kept once, and the thread shows it as before", async () => {
    const store = memory();
    const long = "word ".repeat(2_000);
    const { url } = await serving([desk(tracer({ answer: long }))], { store });
    const body = fresh({ messages: [says("u1", "go")] });
    await ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    const shown = () => ask(`${url}/threads/${body.threadId}/stream?agent=desk`, { method: "GET" });
    const before = eventsOf((await shown()).text);
    const runs = await runsOf(url);
    const parent = runs.find((run) => run.parent === null);
    expect((await ask(`${url}/runs/${parent?.uid}/prune`)).status).toBe(200);
    expect(eventsOf((await shown()).text)).toEqual(before);
    let said = 0;
    for (const { uid } of runs) {
      for await (const entry of store.read(uid as never, -1)) said += keptOf(entry).split(long).length - 1;
    }
    // As the model's answer below, and as the result of the call above.
    expect(said).toBe(2);
    // The next turn goes on from it.
    const next = { ...body, runId: "r2", messages: [...body.messages, says("u2", "again")] };
    expect(eventsOf((await ask(`${url}/agents/desk`, { body: JSON.stringify(next) })).text).at(-1)).toMatchObject({
      ...{ type: "RUN_FINISHED", outcome: { type: "success" } },
    });
  });

  it("is referred to by its caller's log: what it says is kept once", async () => {
    const store = memory();
    const long = "word ".repeat(200);
    const { url } = await serving([desk(tracer({ answer: long }))], { store });
    await ask(`${url}/agents/desk`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    const parent = (await runsOf(url)).find((run) => run.parent === null);
    const rows: string[] = [];
    for await (const entry of store.read((parent?.uid ?? "") as never, -1)) rows.push(keptOf(entry));
    // Once as the result of the call, which is the caller's own fact.
    expect(rows.filter((row) => row.includes("word word"))).toHaveLength(1);
    expect(rows.filter((row) => row.includes('"CHILD"')).length).toBeGreaterThan(3);
  });

  it("asks in the inbox, where an answer lets both go on, with nobody at the client", async () => {
    const ledger: string[] = [];
    const { url } = await serving([desk(tracer({ ledger, approval: true }), ["A-1", "B-2"])]);
    const body = fresh({ messages: [says("u1", "go")] });
    const { text } = await ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    const last = eventsOf(text).at(-1);
    const children = (await runsOf(url)).filter((run) => run.parent !== null);
    expect(last).toMatchObject({
      ...{ type: "RUN_FINISHED" },
      outcome: { type: "interrupt", interrupts: [{ reason: "tool_call" }, { reason: "tool_call" }] },
    });
    const listed = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
    expect(new Set(listed.map(({ subagentRunId }) => subagentRunId))).toEqual(new Set(children.map(({ uid }) => uid)));
    const { interrupts } = await get<{ interrupts: { id: string; run: string; agent: string }[] }>(`${url}/inbox`);
    expect(interrupts).toMatchObject([{ agent: "tracer" }, { agent: "tracer" }]);
    for (const { id } of interrupts) {
      const answer = JSON.stringify({ status: "resolved", payload: { approved: true } });
      expect((await ask(`${url}/inbox/${encodeURIComponent(id)}`, { body: answer })).status).toBe(200);
    }
    await ended(url, body.threadId);
    expect(ledger.toSorted()).toEqual(["A-1", "B-2"]);
    expect((await runsOf(url)).map(({ state }) => state)).toEqual(["success", "success", "success"]);
  });

  it("that fails, or is cancelled by itself, is an error for the model of its caller", async () => {
    const broken = agent({
      ...{ name: "tracer", description: "Finds orders." },
      model: scriptedModel([{ error: { message: "down", status: 400 } }]),
    });
    const { url } = await serving([desk(broken)]);
    const { text } = await ask(`${url}/agents/desk`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    const events = eventsOf(text);
    const [failed] = (await runsOf(url)).filter((run) => run.parent !== null);
    expect(failed).toMatchObject({ state: "failed" });
    const error = events.find((event) => event.type === "SUBAGENT_ERROR");
    expect(error).toMatchObject({ code: expect.stringMatching(/^MODEL/) });
    const result = events.find((event) => event.type === "TOOL_CALL_RESULT");
    expect(result).toMatchObject({ content: expect.stringContaining(`"code":"${error?.code}"`) });
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });

    const waiting = await serving([desk(tracer({ approval: true }))]);
    const body = fresh({ messages: [says("u1", "go")] });
    await ask(`${waiting.url}/agents/desk`, { body: JSON.stringify(body) });
    const [child] = (await runsOf(waiting.url)).filter((run) => run.parent !== null);
    expect((await ask(`${waiting.url}/runs/${child?.uid}/cancel`, { headers: json, body: "{}" })).status).toBe(202);
    await ended(waiting.url, body.threadId);
    const shown = await ask(`${waiting.url}/threads/${body.threadId}/stream?agent=desk`, { method: "GET" });
    expect(shown.text).toContain("SUBAGENT_CANCELLED");
    expect((await runsOf(waiting.url)).map(({ state }) => state)).toEqual(["cancelled", "success"]);
  });

  it.each(["cancel", "abandon"] as const)("ends with its caller: %s", async (kind) => {
    const { url } = await serving([desk(tracer({ approval: true }))]);
    const body = fresh({ messages: [says("u1", "go")] });
    await ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    const parent = (await runsOf(url)).find((run) => run.parent === null);
    expect((await ask(`${url}/runs/${parent?.uid}/${kind}`, { headers: json, body: "{}" })).status).toBe(202);
    await ended(url, body.threadId, ["cancelled", "abandoned"]);
    if (kind === "cancel") {
      expect((await runsOf(url)).map(({ state }) => state)).toEqual(["cancelled", "cancelled"]);
    } else
      await expect.poll(async () => (await runsOf(url)).map(({ state }) => state)).toEqual(["abandoned", "abandoned"]);
    expect((await get<{ interrupts: unknown[] }>(`${url}/inbox`)).interrupts).toEqual([]);
  });

  it("is cancelled in the middle of its answer, too, and nothing of it stays open", async () => {
    const { url } = await serving([desk(tracer({ options: { delayMs: 20 } }))]);
    const body = fresh({ messages: [says("u1", "go")] });
    const asked = ask(`${url}/agents/desk`, { body: JSON.stringify(body) });
    await expect.poll(async () => (await runsOf(url)).length).toBe(2);
    const parent = (await runsOf(url)).find((run) => run.parent === null);
    await ask(`${url}/runs/${parent?.uid}/cancel`, { headers: json, body: "{}" });
    const events = eventsOf((await asked).text);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
    expect(events.filter(({ type }) => type === "SUBAGENT_STARTED")).toHaveLength(1);
    expect(events.filter(({ type }) => type === "SUBAGENT_ERROR")).toHaveLength(1);
    expect((await runsOf(url)).map(({ state }) => state)).toEqual(["cancelled", "cancelled"]);
  });

  it.each([
    [3, "interrupt"],
    [4, "success"],
  ])("counts in its caller's budget: of %d model steps", async (steps, outcome) => {
    const caller = agent({
      ...{ name: "desk", budget: { steps }, tools: [agentTool(tracer())] },
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { calls: [{ name: "tracer", input: { task: "A-1" } }] } : { text: "There." },
      ),
    });
    const { url } = await serving([caller]);
    const { text } = await ask(`${url}/agents/desk`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    expect(eventsOf(text).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: outcome } });
    expect((await runsOf(url)).find((run) => run.parent !== null)).toMatchObject({ state: "success" });
  });

  it("is among what its caller says it can do", async () => {
    const { url } = await serving([desk(tracer())]);
    expect(await get(`${url}/agents/desk`)).toMatchObject({
      multiAgent: { supported: true, delegation: true, subagents: [{ name: "tracer", description: "Finds orders." }] },
    });
    expect((await ask(`${url}/agents/tracer`, { body: JSON.stringify(fresh()) })).status).toBe(404);
  });

  it("counts in what its caller has used", async () => {
    const { url } = await serving([desk(tracer())]);
    const { text } = await ask(`${url}/agents/desk`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    const own = await serving([tracer()]);
    const alone = await ask(`${own.url}/agents/tracer`, {
      body: JSON.stringify(fresh({ messages: [says("u1", "A-1")] })),
    });
    const [both, child] = [text, alone.text].map((sent) => {
      const last = eventsOf(sent).at(-1);
      return last?.type === "RUN_FINISHED" ? (last.usage?.[0]?.outputTokens ?? 0) : 0;
    });
    expect(both).toBeGreaterThan(child ?? 0);
    expect(child).toBeGreaterThan(0);
  });
});

describe("agents below agents", () => {
  const passing = (name: string, below: LoopAgent) =>
    agent({
      ...{ name, description: `Passes it on to ${below.name}.` },
      model: scriptedModel(({ turn, lastUserText: task }) =>
        turn === 0 ? { calls: [{ name: below.name, input: { task } }] } : { text: "Passed on." },
      ),
      tools: [agentTool(below)],
    });

  it("ask through all above them, and are shown inside each other", async () => {
    const ledger: string[] = [];
    const { url } = await serving([desk(passing("lead", tracer({ ledger, approval: true })))]);
    const stock = stockClient("1.0.0", { url: `${url}/agents/desk`, threadId: "t" });
    stock.add({ id: "u1", role: "user", content: "go" });
    const { asked } = await stock.run({ runId: "r" });
    expect(asked).toHaveLength(1);
    const resume = asked.map(({ id }) => ({
      interruptId: id,
      status: "resolved" as const,
      payload: { approved: true },
    }));
    const { types } = await stock.run({ runId: "r2", resume });
    expect(types.filter((type) => type.startsWith("SUBAGENT"))).toEqual([
      ...["SUBAGENT_STARTED", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_FINISHED"],
    ]);
    expect(ledger).toEqual(["A-1"]);
    const results = stock.messages.filter(({ role }) => role === "tool").map(({ content }) => content);
    expect(new Set(results)).toEqual(new Set(["Passed on.", TEXT, '{"order":"A-1"}']));
  });

  it("go no deeper than eight", async () => {
    let below: LoopAgent = passing("a9", tracer());
    for (let n = 8; n >= 1; n--) below = passing(`a${n}`, below);
    const { url } = await serving([below]);
    const { text } = await ask(`${url}/agents/a1`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    expect(text).toContain("SUBAGENT_DEPTH");
    expect(await runsOf(url)).toHaveLength(8);
    expect(eventsOf(text).at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("do not call themselves", async () => {
    const tools: ReturnType<typeof agentTool>[] = [];
    const self = agent({
      ...{ name: "self", description: "Calls itself.", tools: [] },
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { calls: [{ name: "self", input: { task: "x" } }] } : { text: "ok" },
      ),
    });
    tools.push(agentTool(self));
    // No definition can name itself; what gets there all the same is refused.
    const loop = { ...self.loop, tools, tool: (name: string) => tools.find((one) => one.name === name) };
    const knot: LoopAgent = { ...self, loop };
    tools[0] = { ...agentTool(self), agent: knot };
    const { url } = await serving([knot]);
    const { text } = await ask(`${url}/agents/self`, { body: JSON.stringify(fresh({ messages: [says("u1", "go")] })) });
    expect(text).toContain("SUBAGENT_RECURSION");
    expect(await runsOf(url)).toHaveLength(1);
  });
});
