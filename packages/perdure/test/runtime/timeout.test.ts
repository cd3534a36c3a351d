/** What nobody knows of a write: it outran its `timeout`, or failed without saying whether it was applied. */
import { type Agent, agent, applied, createRuntime, notApplied, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { asking, saying } from "./asking.ts";

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
  const ask = asking(runtime);
  expect((await ask("/agents/desk", saying("Pay."))).text).toContain('"outcome":{"type":"interrupt"');
  expect(JSON.parse((await ask("/inbox")).text)).toMatchObject({ interrupts: [{ kind: "unknown-write" }] });
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
  const ask = asking(runtime);
  await ask("/agents/desk", saying("Pay."));
  expect(JSON.parse((await ask("/runs")).text)).toMatchObject({ runs: [{ state }] });
  expect(asked).toBe(3);
  expect(ledger).toEqual(["paid"]);
});

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
  const runtime = createRuntime({ agents: [desk], onError: () => {} });
  onTestFinished(() => runtime.close());
  return { ask: asking(runtime), ledger, land, attempts: () => attempts };
}

it('a reconcile\'s "not applied" is not believed while the write itself still runs here: a human is asked', async () => {
  const { ask, ledger, land, attempts } = slowDesk({ reconcile: () => notApplied() });
  await ask("/agents/desk", saying("Pay."));
  expect(JSON.parse((await ask("/inbox")).text)).toMatchObject({ interrupts: [{ kind: "unknown-write" }] });
  expect(attempts()).toBe(1);
  land();
  await expect.poll(() => ledger).toEqual(["paid"]);
});

it('a human\'s "no" waits for the write that still runs here, and what that brings counts', async () => {
  const { ask, ledger, land, attempts } = slowDesk({});
  await ask("/agents/desk", saying("Pay."));
  const { interrupts } = JSON.parse((await ask("/inbox")).text) as { interrupts: { id: string }[] };
  const no = { status: "resolved", payload: { did: "no" } };
  expect((await ask(`/inbox/${interrupts[0]?.id}`, no)).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(attempts()).toBe(1);
  land();
  await expect.poll(() => attempts()).toBe(1);
  await expect
    .poll(async () => JSON.parse((await ask("/runs")).text) as object)
    .toMatchObject({ runs: [{ state: "success" }] });
  expect(ledger).toEqual(["paid"]);
});

it("a write that ends after its time is taken at its word, long before anybody would have been asked", async () => {
  const { ask, ledger, land } = slowDesk({ settle: 3_600_000 });
  const stream = ask("/agents/desk", saying("Pay."));
  await new Promise((resolve) => setTimeout(resolve, 50));
  land();
  expect((await stream).text).toContain('"content":"{\\"receipt\\":\\"R-1\\"}"');
  expect(ledger).toEqual(["paid"]);
  expect(JSON.parse((await ask("/inbox")).text)).toEqual({ interrupts: [] });
});
