/** What nobody knows of a write: it outran its `timeout`, or failed without saying whether it was applied. */
import { type Agent, agent, applied, createRuntime, notApplied, type Runtime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";

it("a write that outruns its timeout is asked about, not run again", async () => {
  const ledger: string[] = [];
  const pay = tool({
    name: "pay",
    description: "Pays, and never says so.",
    effect: "write",
    settle: 0,
    timeout: 20,
    input: z.object({}),
    async call() {
      ledger.push("paid");
      return await new Promise<never>(() => {});
    },
  });
  const desk = agent({ name: "desk", model: scriptedModel([{ calls: [{ name: "pay", input: {} }] }]), tools: [pay] });
  const runtime = createRuntime({ agents: [desk], onError: () => {} });
  onTestFinished(() => runtime.close());
  const body = JSON.stringify({ threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Pay." }] });
  const headers = { "content-type": "application/json" };
  const response = await runtime.fetch(new Request("http://localhost/agents/desk", { method: "POST", headers, body }));
  const stream = await response.text();
  expect(stream).toContain('"outcome":{"type":"interrupt"');
  const inbox = await (await runtime.fetch(new Request("http://localhost/inbox"))).json();
  expect(inbox).toMatchObject({ interrupts: [{ kind: "unknown-write" }] });
  expect(ledger).toEqual(["paid"]);
});

it.each([
  ["nobody else, when it then knows", 2, "success"],
  ["a human, when it never knows", 99, "parked"],
] as const)("a reconcile that fails is asked again, and then %s", async (_, outages, state) => {
  const ledger: string[] = [];
  let asked = 0;
  const pay = tool({
    name: "pay",
    description: "Pays, and loses the answer.",
    effect: "write",
    settle: 0,
    input: z.object({}),
    output: z.object({ receipt: z.string() }),
    async call() {
      ledger.push("paid");
      throw new Error("connection reset");
    },
    async reconcile() {
      asked++;
      if (asked <= outages) throw new Error("503");
      return applied({ receipt: "R-1" });
    },
  });
  const model = scriptedModel([{ calls: [{ name: "pay", input: {} }] }, { text: "Done." }]);
  const runtime = createRuntime({ agents: [agent({ name: "desk", model, tools: [pay] })], onError: () => {} });
  onTestFinished(() => runtime.close());
  const body = JSON.stringify({ threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Pay." }] });
  const headers = { "content-type": "application/json" };
  const request = new Request("http://localhost/agents/desk", { method: "POST", headers, body });
  await (await runtime.fetch(request)).text();
  const { runs } = (await (await runtime.fetch(new Request("http://localhost/runs"))).json()) as { runs: object[] };
  expect(runs).toMatchObject([{ state }]);
  expect(asked).toBe(3);
  expect(ledger).toEqual(["paid"]);
});

const headers = { "content-type": "application/json" };
const ask = (runtime: Runtime, path: string, body?: object): Promise<Response> =>
  runtime.fetch(
    new Request(`http://localhost${path}`, body && { method: "POST", headers, body: JSON.stringify(body) }),
  );
const pleasePay = { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Pay." }] };

/** A desk whose write outruns its time and lands, in spite of its signal, when it is told to. */
function slowDesk(more: { readonly reconcile?: () => ReturnType<typeof notApplied>; readonly settle?: number }) {
  const ledger: string[] = [];
  let land = (): void => {};
  const landing = new Promise<void>((resolve) => {
    land = resolve;
  });
  let attempts = 0;
  const pay = tool({
    ...{ name: "pay", description: "Pays, in its own time.", effect: "write", settle: 0, timeout: 20, ...more },
    input: z.object({}),
    output: z.object({ receipt: z.string() }),
    async call() {
      attempts++;
      if (attempts === 1) await landing;
      ledger.push("paid");
      return { receipt: `R-${attempts}` };
    },
  });
  const model = scriptedModel([{ calls: [{ name: "pay", input: {} }] }, { text: "Done." }]);
  const desk: Agent = agent({ name: "desk", model, tools: [pay] });
  const reported: unknown[] = [];
  const runtime = createRuntime({ agents: [desk], onError: (error) => reported.push(error) });
  onTestFinished(() => runtime.close());
  return { runtime, ledger, land, reported, attempts: () => attempts };
}

it('a reconcile\'s "not applied" is not believed while the write itself still runs here: a human is asked', async () => {
  const { runtime, ledger, land, attempts } = slowDesk({ reconcile: () => notApplied() });
  await (await ask(runtime, "/agents/desk", pleasePay)).text();
  expect(await (await ask(runtime, "/inbox")).json()).toMatchObject({ interrupts: [{ kind: "unknown-write" }] });
  expect(attempts()).toBe(1);
  land();
  await expect.poll(() => ledger).toEqual(["paid"]);
});

it('a human\'s "no" waits for the write that still runs here, and what that brings counts', async () => {
  const { runtime, ledger, land, attempts } = slowDesk({});
  await (await ask(runtime, "/agents/desk", pleasePay)).text();
  const { interrupts } = (await (await ask(runtime, "/inbox")).json()) as { interrupts: { id: string }[] };
  const no = { status: "resolved", payload: { did: "no" } };
  expect((await ask(runtime, `/inbox/${interrupts[0]?.id}`, no)).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(attempts()).toBe(1);
  land();
  await expect.poll(() => attempts()).toBe(1);
  await expect
    .poll(async () => (await (await ask(runtime, "/runs")).json()) as object)
    .toMatchObject({ runs: [{ state: "success" }] });
  expect(ledger).toEqual(["paid"]);
});

it("a write that ends after its time is taken at its word, long before anybody would have been asked", async () => {
  const { runtime, ledger, land } = slowDesk({ settle: 3_600_000 });
  const stream = ask(runtime, "/agents/desk", pleasePay).then((response) => response.text());
  await new Promise((resolve) => setTimeout(resolve, 50));
  land();
  expect(await stream).toContain('"content":"{\\"receipt\\":\\"R-1\\"}"');
  expect(ledger).toEqual(["paid"]);
  expect(await (await ask(runtime, "/inbox")).json()).toEqual({ interrupts: [] });
});
