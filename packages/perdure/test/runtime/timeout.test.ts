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

/** A desk whose write outruns its time and lands or fails, in spite of its signal, when it is told to. */
function slowDesk({
  receipt,
  ...more
}: {
  readonly reconcile?: () => ReturnType<typeof notApplied>;
  readonly settle?: number;
  /** In place of the one that its schema asks for. */
  readonly receipt?: unknown;
}) {
  const ledger: string[] = [];
  let land = (): void => {};
  let fail = (): void => {};
  const landing = new Promise<void>((resolve, reject) => {
    land = resolve;
    fail = () => reject(new Error("connection reset"));
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
      return { receipt: (receipt ?? `R-${attempts}`) as string };
    },
  });
  const model = scriptedModel([{ calls: [{ name: "pay", input: {} }] }, { text: "Done." }]);
  const desk: Agent = agent({ name: "desk", model, tools: [pay] });
  const runtime = createRuntime({ agents: [desk], onError: () => {} });
  onTestFinished(() => runtime.close());
  const ask = asking(runtime);
  const inbox = async () =>
    (JSON.parse((await ask("/inbox")).text) as { interrupts: { id: string; message: string }[] }).interrupts;
  const state = async () => (JSON.parse((await ask("/runs")).text) as { runs: { state: string }[] }).runs[0]?.state;
  return { ask, ledger, land, fail, attempts: () => attempts, inbox, state };
}

it('a reconcile\'s "not applied" is not believed while the write itself still runs here: a human is asked', async () => {
  const { ask, ledger, land, attempts } = slowDesk({ reconcile: () => notApplied() });
  await ask("/agents/desk", saying("Pay."));
  expect(JSON.parse((await ask("/inbox")).text)).toMatchObject({ interrupts: [{ kind: "unknown-write" }] });
  expect(attempts()).toBe(1);
  land();
  await expect.poll(() => ledger).toEqual(["paid"]);
});

it("what a write brings counts at once while a human is asked, and nobody has to speak", async () => {
  const { ask, ledger, land, inbox, state } = slowDesk({});
  await ask("/agents/desk", saying("Pay."));
  const [question] = await inbox();
  expect(question?.message).toContain("it still runs");
  land();
  await expect.poll(state).toBe("success");
  expect(ledger).toEqual(["paid"]);
  expect(await inbox()).toEqual([]);
  // Whoever still shows the question lays it aside, or is told that it is closed.
  const late = { status: "resolved", payload: { did: "unknown" } };
  expect(await ask(`/inbox/${question?.id}`, late)).toMatchObject({ status: 409 });
  expect(await ask(`/inbox/${question?.id}`, { status: "cancelled" })).toMatchObject({ status: 200 });
});

it("a write whose late output cannot be recorded was applied all the same: nobody is asked any more, and it never runs again", async () => {
  const { ask, ledger, land, attempts, inbox, state } = slowDesk({ receipt: 7 });
  await ask("/agents/desk", saying("Pay."));
  expect(await inbox()).toHaveLength(1);
  land();
  await expect.poll(state).toBe("success");
  expect(await inbox()).toEqual([]);
  const [{ uid } = { uid: "" }] = (JSON.parse((await ask("/runs")).text) as { runs: { uid: string }[] }).runs;
  expect((await ask(`/runs/${uid}/log`)).text).toContain('"code":"OUTPUT_INVALID"');
  expect(ledger).toEqual(["paid"]);
  expect(attempts()).toBe(1);
});

it.each(["the inbox", "a resume"] as const)(
  'a human\'s "no" is refused in %s while the write still runs here: were this process to die then, it would be done twice',
  async (where) => {
    const { ask, ledger, fail, attempts, inbox, state } = slowDesk({});
    await ask("/agents/desk", saying("Pay."));
    const [{ id } = { id: "" }] = await inbox();
    const says = (payload: object, n: number) =>
      where === "the inbox"
        ? ask(`/inbox/${id}`, { status: "resolved", payload })
        : ask("/agents/desk", {
            ...{ threadId: "t", runId: `r${n}`, messages: [] },
            resume: [{ interruptId: id, status: "resolved", payload }],
          });
    const refused = await says({ did: "no" }, 2);
    expect(refused).toMatchObject({ status: 409 });
    expect(JSON.parse(refused.text)).toMatchObject({ error: { code: "STILL_RUNNING", details: { interrupt: id } } });
    expect(await inbox()).toHaveLength(1);

    // It ends without a word of what it has done: from then on a human may say so.
    fail();
    await expect.poll(async () => (await says({ did: "no" }, 3)).status).toBe(200);
    await expect.poll(state).toBe("success");
    expect(attempts()).toBe(2);
    expect(ledger).toEqual(["paid"]);
  },
);

it("a write that ends after its time is taken at its word, long before anybody would have been asked", async () => {
  const { ask, ledger, land } = slowDesk({ settle: 3_600_000 });
  const stream = ask("/agents/desk", saying("Pay."));
  await new Promise((resolve) => setTimeout(resolve, 50));
  land();
  expect((await stream).text).toContain('"content":"{\\"receipt\\":\\"R-1\\"}"');
  expect(ledger).toEqual(["paid"]);
  expect(JSON.parse((await ask("/inbox")).text)).toEqual({ interrupts: [] });
});
