/** A call that outruns its `timeout` says nothing about what it did. */
import { agent, createRuntime, tool } from "perdure";
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
