/** What nobody knows of a write: it outran its `timeout`, or failed without saying whether it was applied. */
import { agent, applied, createRuntime, tool } from "perdure";
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
