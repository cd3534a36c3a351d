import { runInThisContext } from "node:vm";
import { type Agent, agent, createRuntime, NotDeterministic, StepNotAwaited } from "perdure";
import type { Json } from "perdure/protocol";
import { expect, it } from "vitest";
import { isCalledByUs } from "../../src/runtime/place-in-code.ts";

it("development mode reports clocks, chance and steps that nobody waits for, with their places; not those inside steps, nor our own", async () => {
  const reported: unknown[] = [];
  const loop: Agent = agent<Json>({
    name: "loop",
    async run(ctx) {
      ctx.say("Hello.");
      await ctx.once("inside", { effect: "read" }, () => Date.now() + Math.random());
      for (let i = 0; i < 3; i++) Date.now();
      await ctx.sleep(1);
      const chance = Math.random();
      ctx.now();
      ctx.random();
      void ctx.once("forgotten", { effect: "read" }, () => 1);
      return chance >= 0;
    },
  });
  const runtime = createRuntime({ agents: [loop], development: true, onError: (error) => reported.push(error) });
  const body = JSON.stringify({ threadId: "t", runId: "r", messages: [], tools: [], context: [] });
  const headers = { "content-type": "application/json" };
  const response = await runtime.fetch(new Request("http://localhost/agents/loop", { method: "POST", headers, body }));
  expect(await response.text()).toContain('"result":true');
  await runtime.close();

  const told = reported.filter((error) => error instanceof NotDeterministic);
  expect(told.map(({ what }) => what)).toEqual(["Date.now()", "Math.random()"]);
  for (const { at } of told) expect(at).toContain("development.test.ts");
  const forgotten = reported.filter((error) => error instanceof StepNotAwaited);
  expect(forgotten.map(({ step, at }) => [step, at?.includes("development.test.ts")])).toEqual([["forgotten", true]]);
  expect(reported).toHaveLength(3);
});

it.each([
  ["/app/node_modules/perdure/dist/index.js", true],
  ["/app/node_modules/.pnpm/perdure@1.0.0/node_modules/perdure/dist/loop.js", true],
  ["/app/dist/server.js", false],
  ["/app/src/agent.ts", false],
])("a caller in %s is ours: %s", (filename, isOurs) => {
  const call = runInThisContext("(called) => called()", { filename }) as (called: () => unknown) => unknown;
  expect(
    call(function called() {
      return isCalledByUs(called);
    }),
  ).toBe(isOurs);
});
