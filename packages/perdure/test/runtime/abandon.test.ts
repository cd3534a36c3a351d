/** A run that is given up ends at once, wherever it stands, and what nobody knows of its writes is left to whoever looks for it. */
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import type { Run } from "../../src/store/store.ts";
import { never } from "../../src/testing/mortal-store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { quietClient } from "../protocol/published-client.ts";
import { posts } from "./asking.ts";
import { living, StockClient } from "./world.ts";

quietClient();

/** A run of one call to `pay`, whose body behaves as told. */
async function desk(approval: boolean, body: (signal: AbortSignal) => Promise<{ ok: boolean }>) {
  const begun: AbortSignal[] = [];
  const { life } = living(() =>
    agent({
      name: "desk",
      model: scriptedModel(({ turn }) =>
        turn === 0 ? { text: "Paying.", calls: [{ name: "pay", input: { id: "1" } }] } : { text: "Done." },
      ),
      tools: [
        tool({
          ...{ name: "pay", description: "Pays.", effect: "write", settle: 0, approval },
          ...{ input: z.object({ id: z.string() }), output: z.object({ ok: z.boolean() }) },
          idempotencyKey: ({ id }) => ["pay", id],
          call: (_, { signal }) => {
            begun.push(signal);
            return body(signal);
          },
        }),
      ],
    }),
  );
  onTestFinished(() => life.runtime.close());
  const { store } = life.mortal;
  await life.runtime.open();
  const client = new StockClient("desk", life.fetch);
  client.say("u", "go");
  const seen: AGUIEvent[] = [];
  const ran = client.run({ runId: "r1" }, seen);
  const run = async (): Promise<Run> => {
    const [one] = (await store.runs({ tenant: "local" })).items;
    if (one === undefined) throw new Error("there is no run");
    return one;
  };
  const until = async (isSo: () => Promise<boolean> | boolean): Promise<void> => {
    for (let i = 0; !(await isSo()); i++) {
      if (i > 10_000) throw new Error(`it does not come to that: ${JSON.stringify(await run())}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const abandon = async () => {
    expect(await store.put((await run()).uid, "op", { kind: "abandon" })).toBe("put");
    await until(async () => (await run()).outcome !== null);
    const log: Entry[] = [];
    for await (const entry of store.read((await run()).uid, -1)) log.push(entry);
    return { log, end: log.findLast((entry) => entry.kind === "run.finished") };
  };
  const claim = () => store.claimOf({ tenant: "local", tool: "pay", key: JSON.stringify(["pay", "1"]) });
  return { life, store, client, seen, ran, run, until, abandon, claim, begun };
}

test("parked for a human: its question is withdrawn, nothing is unresolved, and the thread goes on", async () => {
  const { ran, abandon, store, client, seen, begun, until, run } = await desk(true, () => never());
  const asked = await ran;
  const { log, end } = await abandon();
  expect(end).toMatchObject({ outcome: "abandoned", unresolved: [] });
  expect(log.find((entry) => entry.kind === "interrupt.answered")).toMatchObject({ status: "withdrawn" });
  expect(log.at(-2)).toMatchObject({ kind: "frame", ref: { of: "RUN_ERROR" } });
  expect((await store.questions({ tenant: "local" })).items).toEqual([]);
  expect(begun).toEqual([]);
  // The client still holds the question; what it says of it is covered.
  const questions = asked === "cut" ? [] : asked.questions;
  const resume = questions.map(({ id }) => ({ interruptId: id, status: "cancelled" as const }));
  expect(resume).toHaveLength(1);
  await client.run({ runId: "late", resume }, seen);
  expect(seen.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "ABANDONED" });
  client.say("u2", "again");
  await client.run({ runId: "r2", resume });
  await until(async () => (await run()).turn === 2);
});

test("while a write runs that heeds no signal: it is unresolved, its key is unknown, and its late end changes nothing", async () => {
  let land = (): void => {};
  const { ran, abandon, store, seen, until, begun, claim, life, run } = await desk(
    false,
    () => new Promise((resolve) => (land = () => resolve({ ok: true }))),
  );
  await until(() => begun.length === 1);
  const { log, end } = await abandon();
  await ran;
  expect(begun[0]?.aborted).toBe(true);
  expect(end).toMatchObject({ outcome: "abandoned", unresolved: ["1.0"] });
  expect(seen.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "ABANDONED" });
  const result = fold(log).messages.findLast(({ role }) => role === "tool");
  expect(result?.content).toContain("may have been applied");
  expect((await store.questions({ tenant: "local" })).items).toMatchObject([{ interrupt: { kind: "unknown-write" } }]);
  expect(await claim()).toMatchObject({ state: "unknown" });

  const { head } = await run();
  land();
  await until(() => life.reported.some((error) => (error as { code?: string }).code === "LATE_OUTCOME"));
  expect((await run()).head).toBe(head);
  expect(await store.put((await run()).uid, "op", { kind: "abandon" })).toBe("finished");
});

test("while a human is asked about a write: the question stays, and its answer settles the key only", async () => {
  const { ran, abandon, store, claim, run, until, life } = await desk(false, async () => {
    throw new Error("connection reset");
  });
  await ran;
  const { end } = await abandon();
  expect(end).toMatchObject({ outcome: "abandoned", unresolved: ["1.0"] });
  expect(await claim()).not.toMatchObject({ state: "released" });
  const [question] = (await store.questions({ tenant: "local" })).items;
  const answered = await life.fetch(
    `http://localhost/inbox/${encodeURIComponent(question?.interrupt.id ?? "")}`,
    posts({ status: "resolved", payload: { did: "yes", output: { ok: true } } }),
  );
  expect(answered.status).toBe(200);
  await until(async () => (await claim())?.state === "settled");
  expect((await run()).outcome).toBe("abandoned");
});
