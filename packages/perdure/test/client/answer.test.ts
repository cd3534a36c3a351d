/** Questions as an agent knows them, and the answers it gives in the inbox. */

import { agent, tool } from "perdure";
import {
  AnswerConflictError,
  AnswerForbiddenError,
  InterruptNotFoundError,
  InvalidAnswerError,
  ResumableHttpAgent,
} from "perdure/client";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { BOSS, desk } from "../http/desk.ts";
import { as, byHeader, deferred, serving } from "../http/rig.ts";
import { quietClient } from "../protocol/published-client.ts";
import { cutting, resumable, user, watching } from "./rig.ts";

quietClient();

/** A thread of Ann's that waits for an approval. */
async function asked(cents = "9000") {
  const { agent: asking, ledger } = desk();
  const server = await serving([asking], { authorize: byHeader });
  const of = (subject: string, scopes?: readonly string[], tenant?: string) =>
    resumable(`${server.url}/agents/desk`, { headers: { "x-who": as(subject, scopes, tenant)["x-who"] } });
  const ann = of("ann");
  ann.addMessage(user("u1", cents));
  await ann.runAgent({ runId: "r" });
  const id = ann.pendingInterrupts[0]?.id ?? "";
  return { server, ledger, of, ann, id };
}

const yes = { status: "resolved", payload: { approved: true } } as const;
const no = { status: "resolved", payload: { approved: false } } as const;

describe("answer()", () => {
  it("is taken, says whose run it was, and neither run nor reader is held up by the question any more", async () => {
    const { ann, id, ledger } = await asked();
    expect(ann.openInterrupts.map((question) => question.id)).toEqual([id]);
    expect(await ann.answer(id, yes)).toEqual({ id, run: ann.runUid, state: "answered" });
    expect([ann.openInterrupts, ann.pendingInterrupts]).toEqual([[], []]);
    await ann.connectAgent();
    expect(ledger).toEqual([9000]);
  });

  it("the same again is covered", async () => {
    const { ann, id } = await asked();
    await ann.answer(id, yes);
    expect(await ann.answer(id, yes)).toMatchObject({ id, state: "covered" });
  });

  it("another one comes too late, and learns who was first: AnswerConflictError", async () => {
    const { ann, of, id } = await asked();
    const other = of("ann");
    await other.connectAgent();
    await ann.answer(id, no);
    const late = other.answer(id, yes);
    await expect(late).rejects.toThrow(AnswerConflictError);
    await expect(late).rejects.toMatchObject({
      ...{ status: 409, code: "INTERRUPT_ANSWERED" },
      winner: { status: "resolved", by: "ann", at: expect.any(Number) },
    });
    // It knows now that it is answered.
    expect([other.openInterrupts, other.pendingInterrupts]).toEqual([[], []]);
  });

  it("of whoever may not, is AnswerForbiddenError, which names the scope", async () => {
    const { ann, of, id } = await asked("20000");
    await expect(ann.answer(id, yes)).rejects.toThrow(AnswerForbiddenError);
    await expect(ann.answer(id, yes)).rejects.toMatchObject({
      ...{ status: 403, code: "ANSWER_FORBIDDEN", details: { interrupt: id, why: expect.stringContaining(BOSS) } },
    });
    await expect(ann.answer(id, yes)).rejects.toThrow(`is refused: the scope "${BOSS}" is needed`);
    expect(ann.openInterrupts).toHaveLength(1);
    expect(await of("bob", ["answer", BOSS]).answer(id, yes)).toMatchObject({ state: "answered" });
  });

  it("to a question that is not there, or not one's own, is InterruptNotFoundError", async () => {
    const { ann, of, id } = await asked();
    await expect(ann.answer("nothing", yes)).rejects.toThrow(InterruptNotFoundError);
    await expect(of("eve", ["answer"], "other").answer(id, yes)).rejects.toMatchObject({
      ...{ name: "InterruptNotFoundError", status: 404, code: "INTERRUPT_NOT_FOUND" },
    });
  });

  it("that does not fit is InvalidAnswerError, with each fault and its place", async () => {
    const { ann, id } = await asked();
    const wrong = ann.answer(id, { status: "resolved", payload: { approved: "maybe" } });
    await expect(wrong).rejects.toThrow(InvalidAnswerError);
    await expect(wrong).rejects.toThrow(/is refused: \/approved: /);
    await expect(wrong).rejects.toMatchObject({
      ...{ status: 422, code: "ANSWER_INVALID" },
      issues: [{ path: expect.stringContaining("approved"), message: expect.any(String) }],
    });
  });

  it("whose answer was lost is given again", async () => {
    const { ann, id, server } = await asked();
    const cut = await cutting(server, [10, 200]);
    const other = new ResumableHttpAgent({
      url: `${cut.url}/agents/desk`,
      threadId: "t",
      headers: ann.headers,
      sleep: async () => {},
    });
    expect(await other.answer(id, yes)).toMatchObject({ state: "covered" });
  });
});

describe("openInterrupts", () => {
  it("has a question at once, while another call of the same turn still runs, and until it is answered", async () => {
    const gate = deferred();
    const model = scriptedModel([
      {
        calls: [
          { name: "slow", input: {} },
          { name: "pay", input: {} },
        ],
      },
      { text: "Both done." },
    ]);
    const slow = tool({
      ...{ name: "slow", description: "Takes a while.", effect: "read", input: z.object({}) },
      async call() {
        await gate.promise;
        return "slow";
      },
    });
    const pay = tool({
      ...{ name: "pay", description: "Pays.", effect: "write", input: z.object({}), approval: true },
      call: () => "paid",
    });
    const server = await serving([agent({ name: "two", model, tools: [slow, pay] })]);
    const cut = await cutting(server, [1_500, 2_000]);
    const reader = resumable(`${cut.url}/agents/two`, { initialMessages: [user("u", "x")] });
    const { subscriber, seen, events } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    await seen("CUSTOM");
    expect(reader.openInterrupts).toMatchObject([{ reason: "tool_call" }]);
    expect(reader.pendingInterrupts).toEqual([]);
    await reader.answer(reader.openInterrupts[0]?.id ?? "", yes);
    await seen("CUSTOM", 2);
    gate.resolve();
    await running;
    expect(reader.openInterrupts).toEqual([]);
    // It was answered in time: the leg did not have to end for it.
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
    expect(events.flatMap((event) => (event.type === "CUSTOM" ? [event.value] : []))).toMatchObject([
      { state: "open" },
      { state: "answered" },
    ]);
  });

  it("is told of a question once, also when its cursor is refused and a prelude has it again", async () => {
    const gate = deferred();
    const model = scriptedModel([
      {
        calls: [
          { name: "slow", input: {} },
          { name: "pay", input: {} },
        ],
      },
    ]);
    const slow = tool({
      ...{ name: "slow", description: "Takes a while.", effect: "read", input: z.object({}) },
      async call() {
        await gate.promise;
        return "slow";
      },
    });
    const pay = tool({
      ...{ name: "pay", description: "Pays.", effect: "write", input: z.object({}), approval: true },
      call: () => "paid",
    });
    const server = await serving([agent({ name: "two", model, tools: [slow, pay] })]);
    const connections: AbortController[] = [];
    const reader = resumable(`${server.url}/agents/two`, {
      initialMessages: [user("u", "x")],
      onReconnected: () => gate.resolve(),
      async fetch(to, init) {
        const connection = new AbortController();
        connections.push(connection);
        init.signal?.addEventListener("abort", () => connection.abort());
        return await fetch(to.replace(/after=[^&]*/, "after=forgotten"), { ...init, signal: connection.signal });
      },
    });
    const { subscriber, seen, events } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    await seen("CUSTOM");
    connections[0]?.abort();
    await running;
    expect(connections).toHaveLength(2);
    expect(events.filter(({ type }) => type === "CUSTOM")).toHaveLength(1);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "r", outcome: { type: "interrupt" } });
    expect(reader.openInterrupts).toEqual(reader.pendingInterrupts);
    expect(reader.openInterrupts).toHaveLength(1);
  });
});
