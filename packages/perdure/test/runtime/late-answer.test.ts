/** A question that outlives its run: the run was cancelled while nobody knew whether its write had happened. */
import { agent, createRuntime, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { asking, saying } from "./asking.ts";

/** A run whose write failed without a word, cancelled while the question about it was open. */
async function cancelled() {
  const ledger: string[] = [];
  const pay = tool({
    name: "pay",
    description: "Pays.",
    effect: "write",
    settle: 0,
    input: z.object({ order: z.string() }),
    idempotencyKey: ({ order }) => ["pay", order],
    async call({ order }) {
      ledger.push(order);
      if (ledger.length === 1) throw new Error("the connection was lost");
      return { paid: order };
    },
  });
  const model = scriptedModel(({ turn, messages }) =>
    messages.at(-1)?.role === "user"
      ? { calls: [{ name: "pay", input: { order: "o1" } }] }
      : { text: `Said after ${turn} turns.` },
  );
  const desk = agent({ name: "desk", model, tools: [pay] });
  const runtime = createRuntime({ agents: [desk], onError: () => {} });
  const ask = asking(runtime);
  const say = (id: string) => ask("/agents/desk", saying("Pay o1.", { runId: `run-${id}`, id }));
  const inbox = async () => JSON.parse((await ask("/inbox")).text).interrupts as { id: string; run: string }[];

  await say("u1");
  const [question] = await inbox();
  if (question === undefined) throw new Error("nothing was asked");
  const { id, run } = question;
  await ask(`/runs/${run}/cancel`, {});
  const kinds = async () =>
    (await ask(`/runs/${run}/log`)).text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { kind: string; status?: string; error?: { code: string } });
  await expect.poll(async () => (await kinds()).at(-1)?.kind).toBe("run.finished");
  const answer = (payload: object) => ask(`/inbox/${encodeURIComponent(id)}`, { status: "resolved", payload });
  return { ledger, runtime, say, inbox, kinds, answer };
}

describe("a question that a cancelled run left open", () => {
  it('takes no "not done" while the write still runs: a later run that got its key would do it beside that', async () => {
    let land = (): void => {};
    const landing = new Promise<void>((resolve) => {
      land = resolve;
    });
    const pay = tool({
      ...{ name: "pay", description: "Pays, in its own time.", effect: "write", settle: 0, timeout: 20 },
      input: z.object({}),
      idempotencyKey: () => ["pay"],
      call: () => landing,
    });
    const desk = agent({ name: "desk", model: scriptedModel([{ calls: [{ name: "pay", input: {} }] }]), tools: [pay] });
    const runtime = createRuntime({ agents: [desk], onError: () => {} });
    const ask = asking(runtime);
    await ask("/agents/desk", saying("Pay."));
    const [question] = JSON.parse((await ask("/inbox")).text).interrupts as { id: string; run: string }[];
    await ask(`/runs/${question?.run}/cancel`, {});
    const state = async () => JSON.parse((await ask("/runs")).text).runs[0].state;
    await expect.poll(state).toBe("cancelled");

    const no = () => ask(`/inbox/${question?.id}`, { status: "resolved", payload: { did: "no" } });
    const refused = await no();
    expect(refused).toMatchObject({ status: 409 });
    expect(JSON.parse(refused.text)).toMatchObject({ error: { code: "STILL_RUNNING" } });
    land();
    await expect.poll(async () => (await no()).status).toBe(200);
    await runtime.close();
  });

  it("stays in the inbox, and the call's result says that nobody knows", async () => {
    const { runtime, inbox, kinds } = await cancelled();
    expect(await inbox()).toHaveLength(1);
    expect((await kinds()).filter(({ kind }) => kind === "step.finished").at(-1)).toMatchObject({
      status: "error",
      error: { code: "UNKNOWN" },
    });
    await runtime.close();
  });

  it("is answered by one entry behind run.finished, and nothing runs or is shown for it", async () => {
    const { runtime, kinds, answer, inbox, ledger } = await cancelled();
    const before = (await kinds()).length;
    expect(await answer({ did: "no" })).toMatchObject({ status: 200 });
    await expect
      .poll(async () => (await kinds()).slice(before).map(({ kind }) => kind))
      .toEqual(["interrupt.answered"]);
    expect(await inbox()).toEqual([]);
    expect(ledger).toEqual(["o1"]);
    await runtime.close();
  });

  it("gives its business key back when the write was not done, so that a later run does it once", async () => {
    const { runtime, kinds, answer, say, ledger } = await cancelled();
    await answer({ did: "no" });
    await expect.poll(async () => (await kinds()).at(-1)?.kind).toBe("interrupt.answered");
    expect((await say("u2")).text).toContain('{\\"paid\\":\\"o1\\"}');
    expect(ledger).toEqual(["o1", "o1"]);
    await runtime.close();
  });

  it("settles its business key when the write was done, so that a later run gets the answer and does nothing", async () => {
    const { runtime, kinds, answer, say, ledger } = await cancelled();
    await answer({ did: "yes", output: { paid: "by hand" } });
    await expect.poll(async () => (await kinds()).at(-1)?.kind).toBe("interrupt.answered");
    expect((await say("u2")).text).toContain('{\\"paid\\":\\"by hand\\"}');
    expect(ledger).toEqual(["o1"]);
    await runtime.close();
  });
});
