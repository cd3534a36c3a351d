import { agent, createRuntime, serve } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { ask, run } from "./rig.ts";

it("two dozen runs at once raise no warning of a leak", async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on("warning", warned);
  onTestFinished(() => void process.off("warning", warned));
  const desk = agent({ name: "desk", model: scriptedModel([{ text: "one two three" }], { delayMs: 20 }) });
  const server = await serve(createRuntime({ agents: [desk] }), { port: 0 });
  onTestFinished(() => server.close());
  const messages = [{ id: "u", role: "user", content: "go" }];
  const answers = await Promise.all(
    Array.from({ length: 24 }, (_, i) =>
      ask(`${server.url}/agents/desk`, { body: JSON.stringify({ ...run, messages, threadId: `t${i}` }) }),
    ),
  );
  expect(answers.every(({ text }) => text.includes("RUN_FINISHED"))).toBe(true);
  expect(warnings).toEqual([]);
});
