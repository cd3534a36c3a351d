/** A hint says that there is something new. Late, lost, twice or out of order it costs time, and nothing else. */
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { type Agent, agent, createRuntime, type EventStore, memory, tool } from "../../src/index.ts";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import type { Hint, Topic } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { asking, saying } from "./asking.ts";

/** A runtime over a store whose hints go through other hands. */
function served(one: Agent, watch: (below: EventStore, topic: Topic, hint: Hint) => () => void) {
  const below = memory();
  const store = new Proxy(below, {
    get(target, name) {
      if (name === "watch") return (topic: Topic, hint: Hint) => watch(target, topic, hint);
      const member: unknown = Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  const runtime = createRuntime({ agents: [one], store, onError: () => {} });
  onTestFinished(() => runtime.close());
  return { below, ask: asking(runtime) };
}

test.each([
  ["each after the one behind it", false],
  ["each twice", true],
])("a reader gets every frame once and in order, when hints come %s", async (_, isTwice) => {
  const count = agent({
    name: "count",
    async run(ctx) {
      for (let n = 0; n < 40; n++) {
        ctx.custom("n", n);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  });
  const held: (() => void)[] = [];
  const release = (): void => {
    for (const go of held.splice(0)) go();
  };
  const { ask } = served(count, (below, topic, hint) =>
    below.watch(topic, (appended) => {
      if (isTwice) {
        hint(appended);
        setImmediate(() => hint(appended));
        return;
      }
      held.unshift(() => hint(appended));
      if (held.length > 1) release();
      else setTimeout(release, 5);
    }),
  );
  const stream = (await ask("/agents/count", saying("Go."))).text;
  const events = stream
    .split("\n")
    .flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6)) as AGUIEvent] : []));
  expect(events.flatMap((event) => (event.type === "CUSTOM" ? [event.value] : []))).toEqual(
    Array.from({ length: 40 }, (__, n) => n),
  );
  expect(events.at(-1)?.type).toBe("RUN_FINISHED");
});

test("a cancel of which the driver was told nothing is found when the run would end", async () => {
  let go = (): void => {};
  const gone = new Promise<void>((resolve) => {
    go = resolve;
  });
  let isRunning = (): void => {};
  const running = new Promise<void>((resolve) => {
    isRunning = resolve;
  });
  const work = tool({
    ...{ name: "work", description: "Works.", effect: "read", input: z.object({}) },
    async call() {
      isRunning();
      await gone;
      return "done";
    },
  });
  const model = scriptedModel([{ calls: [{ name: "work", input: {} }] }, { text: "Done." }]);
  const { below, ask } = served(agent({ name: "desk", model, tools: [work] }), (target, topic, hint) =>
    typeof topic === "object" && "inbox" in topic ? () => {} : target.watch(topic, hint),
  );
  const stream = ask("/agents/desk", saying("Go."));
  await running;
  const [run] = (await below.runs({ tenant: "local" })).items;
  expect((await ask(`/runs/${run?.uid}/cancel`, {})).status).toBe(202);
  go();
  await stream;
  expect((await below.runs({ tenant: "local" })).items).toMatchObject([{ outcome: "cancelled" }]);
});
