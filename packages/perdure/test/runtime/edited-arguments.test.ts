/** Arguments that a human has changed are the call's from then on: in its body, in what goes on after a question, and for its key. */
import { agent, createRuntime, suspend, tool } from "perdure";
import { type ScriptedTurn, scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { asking, saying } from "./asking.ts";

/** Pays what a human says, to whom a human says; asks for the date unless it is called in `atOnce`. */
function payroll({ asksDate }: { asksDate: boolean }) {
  const ledger: string[] = [];
  const pay = tool({
    name: "pay",
    description: "Pays.",
    effect: "write",
    settle: 0,
    approval: true,
    input: z.object({ to: z.string() }),
    output: z.object({ paid: z.string() }),
    answer: z.object({ on: z.string() }),
    idempotencyKey: ({ to }) => ["pay", to],
    async call({ to }) {
      if (asksDate) return suspend({ message: `When do we pay ${to}?` });
      ledger.push(to);
      return { paid: to };
    },
    async resume({ on }, { to }) {
      ledger.push(`${to} on ${on}`);
      return { paid: to };
    },
    reduce(state: { paid?: string[] }, _output, { to }) {
      state.paid = [...(state.paid ?? []), to];
    },
  });
  const script = ({ messages }: { messages: readonly { role: string }[] }): ScriptedTurn =>
    messages.at(-1)?.role === "user" ? { calls: [{ name: "pay", input: { to: "bob" } }] } : { text: "Done." };
  const desk = agent({
    name: "desk",
    model: scriptedModel(script),
    tools: [pay],
    state: { initial: () => ({}) as { paid?: string[] } },
  });
  const runtime = createRuntime({ agents: [desk], onError: () => {} });
  onTestFinished(() => runtime.close());
  const ask = asking(runtime);
  const say = (id: string) => ask("/agents/desk", saying("Pay bob.", { threadId: `t-${id}`, runId: id, id }));
  /** What the questions so far have said of their call. */
  const shown: unknown[] = [];
  /** Answers the only open question, once there is one that was not there before. */
  const seen = new Set<string>();
  const answer = async (payload: object) => {
    const open = async () =>
      (JSON.parse((await ask("/inbox")).text).interrupts as { id: string; run: string; call?: object }[]).filter(
        ({ id }) => !seen.has(id),
      );
    await expect.poll(open).toHaveLength(1);
    const [question] = await open();
    if (question === undefined) throw new Error("nothing was asked");
    seen.add(question.id);
    shown.push(question.call);
    await ask(`/inbox/${encodeURIComponent(question.id)}`, { status: "resolved", payload });
    return question.run;
  };
  const finished = async (run: string) => {
    const entries = async () =>
      (await ask(`/runs/${run}/log`)).text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as { kind: string; path?: string; output?: unknown; patch?: unknown });
    await expect.poll(async () => (await entries()).at(-1)?.kind).toBe("run.finished");
    return (await entries()).filter(({ kind, path }) => kind === "step.finished" && path === "1.0");
  };
  return { ledger, shown, say, answer, finished };
}

const toAnn = { approved: true, editedArgs: { to: "ann" } };

describe("arguments that a human has changed", () => {
  it("are those that a suspended call goes on with, and asks about", async () => {
    const { ledger, shown, say, answer, finished } = payroll({ asksDate: true });
    await say("u1");
    await answer(toAnn);
    const run = await answer({ on: "Monday" });
    const steps = await finished(run);
    expect(ledger).toEqual(["ann on Monday"]);
    expect(steps).toContainEqual(expect.objectContaining({ output: { paid: "ann" } }));
    expect(JSON.stringify(steps)).not.toContain("bob");
    expect(shown).toEqual([
      { name: "pay", input: { to: "bob" } },
      { name: "pay", input: { to: "ann" } },
    ]);
  });

  it("name the key, and what a call that has another's output does to the state", async () => {
    const { ledger, say, answer, finished } = payroll({ asksDate: false });
    await say("u1");
    await finished(await answer(toAnn));
    await say("u2");
    const steps = await finished(await answer(toAnn));
    expect(ledger).toEqual(["ann"]);
    expect(steps).toContainEqual(expect.objectContaining({ via: "dedup", output: { paid: "ann" } }));
    expect(JSON.stringify(steps)).not.toContain("bob");
  });
});
