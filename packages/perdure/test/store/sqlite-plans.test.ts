import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { agent, createRuntime, tool } from "../../src/index.ts";
import { sqlite } from "../../src/sqlite.ts";
import { loadDriver, SqliteDatabase } from "../../src/store/sqlite-database.ts";
import { scriptedModel } from "../../src/testing.ts";
import { asking } from "../runtime/asking.ts";
import { folder } from "./folder.ts";

/** What is read from end to end holds only what is open at the moment, or is asked for once, when the store is opened. */
const MAY_SCAN = [
  /^UPDATE runs SET owner = NULL.*: SCAN runs$/,
  /^.*: SCAN (owner|sqlite_schema|queue|runs USING (COVERING )?INDEX runs_ready|questions USING INDEX questions_open)/,
];

test("what a conversation, its questions, the lists and the driver ask of a file is found by indexes, however many runs there are", async () => {
  const place = await folder();
  onTestFinished(place.remove);
  const statements = new Set<string>();
  const Driver = await loadDriver();
  class Noting extends Driver {
    override prepare(sql: string) {
      statements.add(sql);
      return super.prepare(sql);
    }
  }
  vi.spyOn(process, "getBuiltinModule").mockReturnValue({ DatabaseSync: Noting } as never);
  onTestFinished(() => void vi.restoreAllMocks());

  const refund = tool({
    ...{ name: "refund", description: "Refund.", effect: "write", input: z.object({}), approval: true },
    idempotencyKey: () => ["k"],
    call: async () => "done",
  });
  const model = scriptedModel(({ messages }) =>
    messages.at(-1)?.role === "tool" ? { text: "Done." } : { calls: [{ name: "refund", input: {} }] },
  );
  const store = sqlite(place.file);
  const runtime = createRuntime({ agents: [agent({ name: "desk", model, tools: [refund] })], store });
  const ask = asking(runtime);
  for (const thread of ["a", "b"]) {
    const messages = [{ id: `u-${thread}`, role: "user", content: "Refund." }];
    const { text } = await ask("/agents/desk", { threadId: thread, runId: `r-${thread}`, messages });
    const interruptId = /"interrupts":\[\{"id":"([^"]+)"/.exec(text)?.[1];
    await ask("/inbox");
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    await ask("/agents/desk", { threadId: thread, runId: `r-${thread}-2`, messages, resume });
  }
  for (const path of ["/runs", "/runs?agent=desk&thread=a", "/threads/a/stream?agent=desk"]) await ask(path);
  await runtime.close();

  const db = new SqliteDatabase(Driver, place.file, { readOnly: true });
  onTestFinished(() => db.close());
  const plans = [...statements]
    .filter((sql) => /^\s*(SELECT|UPDATE|DELETE)/.test(sql))
    .flatMap((sql) =>
      db.all(`EXPLAIN QUERY PLAN ${sql}`).map(({ detail }) => `${sql.replaceAll(/\s+/g, " ")}: ${String(detail)}`),
    );
  expect(plans.length).toBeGreaterThan(40);
  expect(plans.filter((plan) => /SCAN|TEMP B-TREE/.test(plan) && !MAY_SCAN.some((may) => may.test(plan)))).toEqual([]);
  // A subject may have had any number of conversations.
  const ofThread = plans.filter((plan) => plan.includes("FROM runs WHERE runs.thread_id = (SELECT"));
  expect(ofThread.some((plan) => plan.includes(": SEARCH runs USING INDEX runs_thread"))).toBe(true);
});
