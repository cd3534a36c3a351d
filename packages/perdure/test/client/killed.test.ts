/** A real process that is killed in the middle of a run, and another one in its place. */
import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { effectOf, firstMessage, scripts } from "../../../../campaigns/src/agents.ts";
import { bundleServer } from "../../../../campaigns/src/bundle.ts";
import { Ledger } from "../../../../campaigns/src/ledger.ts";
import { ServerProcess } from "../../../../campaigns/src/server-process.ts";
import { quietClient } from "../protocol/published-client.ts";
import { folder } from "../store/folder.ts";
import { resumable, user, watching } from "./rig.ts";

quietClient();

it("kill -9 in a text, in a call and behind a result: its reader sees one run, in which everything was done once", async () => {
  const program = await bundleServer();
  const { dir, remove } = await folder();
  const server = new ServerProcess({ program, store: join(dir, "runs.db"), ledger: join(dir, "ledger") }, "killed");
  onTestFinished(async () => {
    await server.kill();
    await remove();
    rmSync(dirname(program), { recursive: true, force: true });
  });
  await server.start();
  const order = "o00001";
  const reader = resumable(`http://127.0.0.1:${server.port}/agents/refund`, {
    ...{ threadId: order, initialMessages: [user("u1", firstMessage(order))] },
  });
  const { subscriber, seen, types } = watching();
  const running = reader.runAgent({ runId: "r" }, subscriber);
  let kills = 0;
  for (const at of [
    "TEXT_MESSAGE_CONTENT",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_RESULT",
    "REASONING_MESSAGE_CONTENT",
  ] as const) {
    await seen(at);
    await server.kill();
    kills++;
    await server.start();
  }
  await running;
  expect(kills).toBe(4);
  expect(types().filter((type) => type === "RUN_STARTED" || type === "RUN_FINISHED")).toEqual([
    "RUN_STARTED",
    "RUN_FINISHED",
  ]);
  expect(types()).not.toContain("RUN_ERROR");
  expect(reader.messages.at(-1)).toMatchObject({
    role: "assistant",
    content: scripts.refund?.turns(order).at(-1)?.text,
  });
  const ledger = new Ledger(join(dir, "ledger"));
  expect(ledger.effects().map(({ what }) => what)).toEqual([
    effectOf("refund", `${order}a`),
    effectOf("refund", `${order}b`),
  ]);
  ledger.close();
});
