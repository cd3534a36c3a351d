/** What is over 4 MiB: it is refused before the append, where whoever made it can be told, and a run never hangs on it. */
import { type Agent, agent, createRuntime, memory, type RunContext, tool } from "perdure";
import { scriptedModel } from "perdure/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { fold, type RunState } from "../../src/log/fold.ts";
import { Threads } from "../../src/runtime/threads.ts";
import { asking, saying } from "./asking.ts";

const MIB = 1024 * 1024;

interface Played {
  readonly text: string;
  readonly state: RunState;
  readonly reported: readonly unknown[];
}

/** One turn of an agent, to its end. */
async function play(played: Agent<never>): Promise<Played> {
  const store = memory();
  const reported: unknown[] = [];
  const runtime = createRuntime({ agents: [played], store, onError: (error) => void reported.push(error) });
  onTestFinished(() => runtime.close());
  const { text } = await asking(runtime)(`/agents/${played.name}`, { ...saying("Go."), protocolVersion: "1.0" });
  const [run] = (await store.runs({ tenant: "local", subject: "local" })).items;
  if (run === undefined) throw new Error("there is a run");
  return { text, state: fold(await new Threads(store).entries(run.uid, -1)), reported };
}

const calling = (name: string, times = 1) =>
  scriptedModel(({ turn }) => (turn < times ? { calls: [{ name, input: {} }] } : { text: "Done." }));
const input = z.object({});
const base = { description: "Makes something large.", input } as const;
const body = (run: (ctx: RunContext<{ text?: string }>) => Promise<unknown>) =>
  agent<{ text?: string }>({ name: "body", run }) as Agent<never>;
const endOf = ({ state }: Played) => [...state.steps.values()].find(({ started }) => started.step === "tool")?.finished;

test.each([["write", "yes"] as const, ["idempotent", "yes"] as const, ["read", "no"] as const])(
  "a %s whose output is too large has ended, applied: %s, runs once, and the run goes on",
  async (effect, applied) => {
    let runs = 0;
    const large = tool({ ...base, name: "large", effect, call: async () => `${++runs}${"x".repeat(4 * MIB)}` });
    const played = await play(agent({ name: "a", model: calling("large"), tools: [large] }) as Agent<never>);
    expect(endOf(played)).toMatchObject({ status: "error", applied, error: { code: "OUTPUT_INVALID" } });
    expect(endOf(played)).toMatchObject({ error: { message: expect.stringContaining(`${4 * MIB + 3} bytes`) } });
    expect(runs).toBe(1);
    expect(played.state.finished).toMatchObject({ outcome: "success" });
  },
);

test("a state that grows over 4 MiB by small changes keeps what fitted: the outcome of a call stands, its change is left out and reported", async () => {
  const grow = tool({
    ...{ ...base, name: "grow", effect: "write" },
    call: async () => "grown",
    reduce: (state: { texts?: string[] }) => {
      state.texts = [...(state.texts ?? []), "x".repeat(MIB)];
    },
  });
  const played = await play(agent({ name: "a", model: calling("grow", 5), tools: [grow] }) as Agent<never>);
  const ends = [...played.state.steps.values()].filter(({ started }) => started.step === "tool");
  expect(ends.map(({ finished }) => finished?.status)).toEqual(["ok", "ok", "ok", "ok", "ok"]);
  expect((played.state.committed as { texts: string[] }).texts).toHaveLength(3);
  expect(played.state.shown).toEqual(played.state.committed);
  const tooLarge = { code: "PAYLOAD_TOO_LARGE", message: expect.stringContaining("the state of the run") };
  expect(played.reported).toMatchObject([tooLarge, tooLarge]);
  expect(played.state.finished).toMatchObject({ outcome: "success" });
});

test("a tool that publishes too large a state is told so at that line, and its run goes on", async () => {
  const told: unknown[] = [];
  const publish = tool({
    ...{ ...base, name: "publish", effect: "read" },
    async call(_, ctx) {
      try {
        ctx.updateState((state) => {
          (state as { text?: string }).text = "x".repeat(5 * MIB);
        });
        ctx.publishState();
      } catch (error) {
        told.push(error);
      }
      return "went on";
    },
  });
  const played = await play(agent({ name: "a", model: calling("publish"), tools: [publish] }) as Agent<never>);
  expect(told).toMatchObject([{ code: "PAYLOAD_TOO_LARGE" }]);
  expect(endOf(played)).toMatchObject({ status: "ok", output: "went on", patch: [] });
  expect(played.state.finished).toMatchObject({ outcome: "success" });
  expect(played.text).not.toContain("xxxxx");
});

test("a body that publishes too large a state is told so at that line", async () => {
  const told: unknown[] = [];
  const played = await play(
    body(async (ctx) => {
      ctx.setState({ text: "x".repeat(5 * MIB) });
      try {
        ctx.publishState();
      } catch (error) {
        told.push(error);
      }
      ctx.setState({ text: "small" });
    }),
  );
  expect(told).toMatchObject([{ code: "PAYLOAD_TOO_LARGE" }]);
  expect(played.state.committed).toEqual({ text: "small" });
  expect(played.state.finished).toMatchObject({ outcome: "success" });
});

test.each([
  ["returns", async () => "x".repeat(5 * MIB)],
  [
    "leaves in its state",
    async (ctx: RunContext<{ text?: string }>) => {
      ctx.state.text = "x".repeat(5 * MIB);
    },
  ],
  [
    "emits in one event",
    async (ctx: RunContext<{ text?: string }>) => {
      ctx.custom("large", "x".repeat(5 * MIB));
    },
  ],
  [
    "says in one piece",
    async (ctx: RunContext<{ text?: string }>) => {
      ctx.say("x".repeat(5 * MIB));
    },
  ],
])("a run whose body %s too much fails with the code, once and for all", async (_, run) => {
  const played = await play(body(run));
  expect(played.text).toContain("RUN_ERROR");
  expect(played.text).not.toContain("xxxxx");
  expect(played.state.finished).toMatchObject({ outcome: "failed" });
  expect(played.state.run.uid).toBeDefined();
  expect(played.reported).toMatchObject([{ code: "PAYLOAD_TOO_LARGE" }]);
});

test("an answer of the model that is too large fails the run, and one that comes in many large pieces is whole", async () => {
  const text = Array.from({ length: 50 }, () => "x".repeat(100 * 1024)).join(" ");
  const failed = await play(agent({ name: "a", model: scriptedModel(() => ({ text })) }) as Agent<never>);
  expect(failed.state.finished).toMatchObject({ outcome: "failed" });
  const pieces = Array.from({ length: 12 }, (_, i) => String.fromCharCode(97 + i).repeat(300 * 1024));
  const whole = await play(
    body(async (ctx) => {
      using message = ctx.message();
      for (const piece of pieces) message.delta(piece);
    }),
  );
  expect(whole.state.messages.at(-1)).toMatchObject({ content: pieces.join("") });
});
