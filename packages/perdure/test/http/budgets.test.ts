/** A budget's question over real sockets: answered by the published clients, in the inbox and from the command line, or raised before it is asked. */
import { agent, type Served, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { Budget } from "../../src/agent/agent-budget.ts";
import { command } from "../cli/rig.ts";
import { as, ask, byHeader, fresh, get, json, serving } from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

/** Packs three orders, one after the other. */
function packer(budget: Budget) {
  const ledger: string[] = [];
  const pack = tool({
    name: "pack",
    description: "Packs an order.",
    effect: "write",
    input: z.object({ order: z.string() }),
    call({ order }) {
      ledger.push(order);
      return `packed ${order}`;
    },
  });
  const model = scriptedModel(({ turn }) =>
    turn < 3 ? { text: `Order ${turn}.`, calls: [{ name: "pack", input: { order: `${turn}` } }] } : { text: "Packed." },
  );
  return { ledger, agent: agent({ name: "packer", model, tools: [pack], budget }) };
}

interface Listed {
  readonly id: string;
  readonly run: string;
  readonly kind: string;
  readonly message: string;
}
const inboxOf = async (url: string, headers = json) =>
  (await get<{ interrupts: Listed[] }>(`${url}/inbox`, headers)).interrupts;
const go = () => fresh({ messages: [{ id: "u1", role: "user", content: "go" }] });

async function asked(budget: Budget, options: Parameters<typeof serving>[1] = {}, headers = json) {
  const { ledger, agent } = packer(budget);
  const server = await serving([agent], options);
  await ask(`${server.url}/agents/packer`, { headers, body: JSON.stringify(go()) });
  const [question] = await inboxOf(server.url, headers);
  if (question === undefined) throw new Error("nothing was asked");
  return { ledger, question, url: server.url };
}

async function outcomeOf({ url }: Pick<Served, "url">, run: string, headers = json): Promise<string | null> {
  const { run: shown } = await get<{ run: { outcome: string | null } }>(`${url}/runs/${run}`, headers);
  return shown.outcome;
}

describe.each(versions)("the published client %s", (version) => {
  async function started(budget: Budget) {
    const { ledger, agent } = packer(budget);
    const { url } = await serving([agent]);
    const stock = stockClient(version, { url: `${url}/agents/packer`, threadId: "t" });
    stock.add({ id: "u1", role: "user", content: "go" });
    return { stock, ledger, url, asked: (await stock.run({ runId: "r1" })).asked };
  }
  const reply = (id: string, payload: object) => [{ interruptId: id, status: "resolved" as const, payload }];

  it("is asked at the limit, told which one, and goes on with what it adds, question by question", async () => {
    const { stock, ledger, asked } = await started({ steps: 2, perTool: { pack: 2 } });
    expect(ledger).toEqual(["0", "1"]);
    expect(asked).toMatchObject([
      {
        reason: "perdure:budget",
        message: expect.stringContaining("2 of 2 model steps are used"),
        metadata: { kind: "budget", limits: [{ limit: "steps", used: 2, allowed: 2, reserved: 1 }] },
        responseSchema: { oneOf: [{ required: ["raise"] }, { required: ["stop"] }] },
      },
    ]);
    const more = await stock.run({ runId: "r2", resume: reply(asked[0]?.id ?? "", { raise: { steps: 5 } }) });
    expect(more.asked).toMatchObject([
      { metadata: { limits: [{ limit: "perTool", tool: "pack", used: 2, allowed: 2, reserved: 1 }] } },
    ]);
    const last = await stock.run({
      runId: "r3",
      resume: reply(more.asked[0]?.id ?? "", { raise: { perTool: { pack: 1 } } }),
    });
    expect(last.asked).toEqual([]);
    expect(last.types.at(-1)).toBe("RUN_FINISHED");
    expect(ledger).toEqual(["0", "1", "2"]);
    expect(stock.messages.at(-1)).toMatchObject({ role: "assistant", content: "Packed." });
  });

  it("stops the run: it ends with RUN_ERROR BUDGET_EXCEEDED, and the open call has its result", async () => {
    const { stock, ledger, url, asked } = await started({ calls: 1 });
    const types: string[] = [];
    const stopping = stock.run({
      ...{ runId: "r2", resume: reply(asked[0]?.id ?? "", { stop: true }) },
      onType: (type) => void types.push(type),
    });
    await stopping.catch(() => {}); // it rejects with the error or not, as the client's version wants
    expect(types.at(-1)).toBe("RUN_ERROR");
    expect(ledger).toEqual(["0"]);
    const calls = stock.messages.flatMap((m) => (m.role === "assistant" ? (m.toolCalls ?? []) : []));
    const results = stock.messages.flatMap((m) => (m.role === "tool" ? [m.toolCallId] : []));
    expect(results).toEqual(calls.map(({ id }) => id));
    const { runs } = await get<{ runs: { uid: string; outcome: string }[] }>(`${url}/runs`);
    expect(runs).toMatchObject([{ outcome: "failed" }]);
    const log = (await ask(`${url}/runs/${runs[0]?.uid}/log`, { method: "GET" })).text;
    const finished = log
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { kind: string; error?: object });
    expect(finished.find(({ kind }) => kind === "run.finished")?.error).toEqual({
      code: "BUDGET_EXCEEDED",
      message: "The run was stopped at its budget: 1 of 1 tool calls are used.",
      data: { limits: [{ limit: "calls", used: 1, allowed: 1, reserved: 1 }] },
    });
  });
});

describe("the inbox", () => {
  const answer = (url: string, { id }: Listed, payload: object, headers = json) =>
    ask(`${url}/inbox/${encodeURIComponent(id)}`, { headers, body: JSON.stringify({ status: "resolved", payload }) });

  it("refuses what is neither a raise nor a stop, and takes a raise", async () => {
    const { url, question, ledger } = await asked({ steps: 1 });
    for (const wrong of [{}, { raise: {} }, { raise: { steps: -1 } }, { raise: { stepps: 1 } }, { stop: false }]) {
      expect((await answer(url, question, wrong)).status).toBe(422);
    }
    expect((await answer(url, question, { raise: { steps: 3 } })).status).toBe(200);
    await expect.poll(() => outcomeOf({ url }, question.run)).toBe("success");
    expect(ledger).toEqual(["0", "1", "2"]);
  });

  it("stops the run when the question is cancelled", async () => {
    const { url, question } = await asked({ steps: 1 });
    await ask(`${url}/inbox/${encodeURIComponent(question.id)}`, { body: JSON.stringify({ status: "cancelled" }) });
    await expect.poll(() => outcomeOf({ url }, question.run)).toBe("failed");
  });

  it("withdraws the question when the run is cancelled, which ends as cancelled", async () => {
    const { url, question } = await asked({ steps: 1 });
    await ask(`${url}/runs/${question.run}/cancel`, { body: "{}" });
    await expect.poll(() => outcomeOf({ url }, question.run)).toBe("cancelled");
    expect(await inboxOf(url)).toEqual([]);
  });

  it("lets only those answer who have the scope that the budget asks for", async () => {
    const [ann, boss] = [as("ann"), as("boss", ["answer", "spend"])];
    const { url, question } = await asked({ steps: 1, audience: "spend" }, { authorize: byHeader }, ann);
    expect((await answer(url, question, { raise: { steps: 9 } }, ann)).status).toBe(403);
    expect((await answer(url, question, { raise: { steps: 9 } }, boss)).status).toBe(200);
    await expect.poll(() => outcomeOf({ url }, question.run, ann)).toBe("success");
  });
});

describe("POST /runs/:uid/raise", () => {
  const raise = (url: string, run: string, amounts: object, headers = json) =>
    ask(`${url}/runs/${run}/raise`, { headers, body: JSON.stringify(amounts) });

  it("adds to the limits of a run at rest, withdraws the question where that is enough, and lets the run go on", async () => {
    const { url, question, ledger } = await asked({ steps: 2, calls: 2 });
    expect((await raise(url, question.run, { calls: 1 })).status).toBe(202);
    await expect.poll(() => get<{ inbox: unknown[] }>(`${url}/runs/${question.run}`)).toMatchObject({ inbox: [] });
    expect(await inboxOf(url)).toMatchObject([{ id: question.id }]);
    expect((await raise(url, question.run, { steps: 2 })).status).toBe(202);
    await expect.poll(() => outcomeOf({ url }, question.run)).toBe("success");
    expect(ledger).toEqual(["0", "1", "2"]);
    expect((await raise(url, question.run, { steps: 2 })).status).toBe(200);
  });

  it("refuses what is no amount, what has no limit, and whoever lacks the scope", async () => {
    const ann = as("ann");
    const { url, question } = await asked({ steps: 1, audience: "spend" }, { authorize: byHeader }, ann);
    const spender = as("ann", ["answer", "spend"]);
    expect((await raise(url, question.run, { steps: 1 }, ann)).status).toBe(403);
    expect((await raise(url, question.run, { steps: "1" }, spender)).status).toBe(422);
    expect((await raise(url, question.run, {}, spender)).status).toBe(422);
    const { status, text } = await raise(url, question.run, { tokens: 1 }, spender);
    expect({ status, text }).toMatchObject({ status: 422, text: expect.stringContaining("no limit on tokens") });
    expect((await raise(url, "nobody", { steps: 1 }, spender)).status).toBe(404);
  });
});

it("the command says what the limit is and how to answer, and a pasted line does it", async () => {
  const { url, question } = await asked({ steps: 2 });
  const { out } = await command(["why", question.run, "--url", url]);
  expect(out).toContain("2 of 2 model steps are used");
  const value = '{"raise":{"steps":1}}';
  expect(out).toContain(`perdure answer ${question.id} --value '${value}'`);
  expect(out).toContain(`perdure answer ${question.id} --value '{"stop":true}'`);
  for (let at: string | undefined = question.id; at !== undefined; at = (await inboxOf(url))[0]?.id) {
    await command(["answer", at, "--value", value, "--url", url]);
    await expect
      .poll(async () => (await get<{ run: { state: string } }>(`${url}/runs/${question.run}`)).run.state)
      .not.toBe("running");
  }
  await expect.poll(() => outcomeOf({ url }, question.run)).toBe("success");
});
