/** What the built-in loop does when a model fails: it asks again, asks another one, or ends; and no death in between changes it. */
import { agent, createRuntime, type LanguageModel, type LoopAgent, type ModelAgentDefinition, tool } from "perdure";
import { type Script, scriptedModel } from "perdure/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { CallSettings, NativeOptions } from "../../src/agent/model-port.ts";
import type { Entry, Fact, FactKind } from "../../src/log/entries.ts";
import type { Uid } from "../../src/protocol/words.ts";
import { matrixOf } from "../../src/testing/crash-matrix.ts";
import { sqliteDisk } from "../../src/testing/outside.ts";
import { finish, modelOf } from "../agent/model-of.ts";
import { strict } from "../agent/strict-model.ts";
import { quietClient } from "../protocol/published-client.ts";
import { asking, saying } from "./asking.ts";
import { living, played, StockClient, type Story, staged, World } from "./world.ts";

quietClient();

/** How a provider fails: before it has said anything, or in the middle of its answer. */
type Failing = { readonly status?: number; readonly headers?: Record<string, string> } | { readonly parts: object[] };

const half = [
  { type: "text-start", id: "0" },
  { type: "text-delta", id: "0", delta: "Half of " },
  { type: "text-delta", id: "0", delta: "an answer" },
  { type: "tool-input-start", id: "c", toolName: "look" },
  { type: "tool-input-delta", id: "c", delta: '{"at' },
];

const ways = {
  refusal: { status: 401 },
  overload: { status: 529 },
  "rate limit": { status: 429, headers: { "retry-after": "5" } },
  "a cut": { parts: half },
  "an error in the stream": { parts: [...half, { type: "error", error: { type: "overloaded_error" } }] },
} satisfies { [name: string]: Failing };

/** How often models have failed in a world: the provider's own affair, of which a process that dies hears nothing. */
const failed = new WeakMap<World, string[]>();

function failuresIn(world: World): string[] {
  const known = failed.get(world) ?? [];
  failed.set(world, known);
  return known;
}

/** A model that fails as it is told, so often, and then answers. */
function flaky(world: World, name: string, fails: readonly Failing[], answers: Script): LanguageModel {
  const model = strict(scriptedModel(answers));
  return {
    ...model,
    provider: name,
    modelId: "m",
    async doStream(options: NativeOptions) {
      const own = failuresIn(world);
      const failing = fails[own.filter((one) => one === name).length];
      if (failing === undefined) return await model.doStream(options);
      own.push(name);
      if ("parts" in failing) return await modelOf(failing.parts).doStream(options);
      throw Object.assign(new Error("secret"), {
        ...{ statusCode: failing.status, responseHeaders: failing.headers, isRetryable: failing.status !== 401 },
      });
    },
  };
}

const look = tool({
  name: "look",
  description: "Looks.",
  effect: "read",
  input: z.object({ at: z.string() }),
  call: async ({ at }) => ({ seen: at }),
});

const turns: Script = [{ text: "Let me see.", calls: [{ name: "look", input: { at: "it" } }] }, { text: "Seen." }];

function desk(model: LanguageModel, more: Partial<ModelAgentDefinition<unknown>> = {}): LoopAgent {
  return agent<unknown>({ name: "desk", model, tools: [look], ...more });
}

function facts<K extends FactKind>(logs: readonly (readonly Entry[])[], kind: K): (Fact<K> & Entry)[] {
  return logs.flat().filter((entry): entry is Fact<K> & Entry => entry.kind === kind);
}

/** Which model each attempt asked. */
const asked = (logs: readonly (readonly Entry[])[]) =>
  facts(logs, "step.attempt").flatMap(({ model }) => (model === undefined ? [] : [model.provider]));

/** No attempt before what its failed predecessor says. */
function expectPatience(logs: readonly (readonly Entry[])[]): void {
  for (const log of logs) {
    const failed = new Map<string, number>();
    for (const entry of log) {
      if (entry.kind === "step.failed") failed.set(entry.path, entry.retryAt ?? Number.POSITIVE_INFINITY);
      if (entry.kind === "step.attempt") expect(entry.at).toBeGreaterThanOrEqual(failed.get(entry.path) ?? 0);
    }
  }
}

const passing: Story = {
  name: "a model that fails in all ways and then answers, twice",
  fails: true,
  agent: (world) =>
    desk(flaky(world, "a", [ways["a cut"], ways["rate limit"], ways.overload], turns), { maxRetries: 3 }),
};

const falling: Story = {
  name: "a model that never answers, one that refuses, and one that fails in its answer and then goes on",
  fails: true,
  agent: (world) =>
    desk(flaky(world, "a", Array<Failing>(99).fill(ways.overload), turns), {
      maxRetries: 1,
      fallbacks: [
        flaky(world, "b", Array<Failing>(99).fill(ways.refusal), turns),
        flaky(world, "c", [ways["an error in the stream"]], turns),
      ],
    }),
};

describe.each([passing, falling])("$name", (story) => {
  test("ends as if nothing had failed: what a failed attempt has shown is gone", async () => {
    const { client, late, runs, logs } = await played(story);
    expect(runs).toMatchObject([{ outcome: "success" }]);
    expectPatience(logs);
    for (const { messages } of [client, late]) {
      expect(messages.map(({ role, content }) => [role, content])).toEqual([
        ["user", "go"],
        ["assistant", "Let me see."],
        ["tool", '{"seen":"it"}'],
        ["assistant", "Seen."],
      ]);
    }
  });

  test("so it does when its process dies at any commit or in any call of a model, and nobody is asked earlier or more often", async () => {
    // They wait, in earnest, for most of their time.
    const report = await matrixOf(staged(story), { concurrency: 8 });
    expect(report.findings, report.table()).toEqual([]);
    expect(report.cuts).toBeGreaterThan(50);
  });

  test("and whenever it dies around a failure, attempts are counted and timed as the log says", async () => {
    const reference = await played(story);
    const heard = (logs: typeof reference.logs) =>
      facts(logs, "step.failed").flatMap(({ path, error }) => (error.code === "CUT" ? [] : [`${path} ${error.code}`]));
    const around = reference.commits.flatMap(({ entries }, i) =>
      entries.some(({ kind }) => /^(step\.(attempt|failed)|run\.parked)$/.test(kind)) ? [i + 1] : [],
    );
    expect(around.length).toBeGreaterThan(6);
    for (const commits of around) {
      const { logs } = await played(story, [{ when: "after", commits }]);
      expectPatience(logs);
      // A failure of which nobody has heard is missing, and none is heard of twice.
      const missing = heard(reference.logs).length - heard(logs).length;
      expect([0, 1]).toContain(missing);
      const cut = facts(logs, "step.failed").filter(({ path, error }) => path !== "1.0" && error.code === "CUT").length;
      expect(asked(logs).length).toBe(asked(reference.logs).length + cut - missing);
    }
  });
});

test("over SQLite, a process that dies in a back-off of minutes leaves it to the next one, which waits it out", async () => {
  const story: Story = {
    ...passing,
    agent: (world) => desk(flaky(world, "a", [{ status: 429, headers: { "retry-after": "600" } }], turns)),
  };
  const { commits } = await played(story, [], sqliteDisk);
  const parked = commits.findIndex(({ entries }) => entries.some(({ kind }) => kind === "run.parked"));
  const { logs, runs } = await played(story, [{ when: "after", commits: parked + 1 }], sqliteDisk);
  expect(runs).toMatchObject([{ outcome: "success" }]);
  expect(asked(logs)).toEqual(["a", "a", "a"]);
  expectPatience(logs);
  const [failed] = facts(logs, "step.failed");
  expect((failed?.retryAt ?? 0) - (failed?.at ?? 0)).toBeGreaterThan(599_000);
});

/** Asks an agent once, and gives what the log and its client hold when its run is over, however it ended. */
async function answered(make: (world: World) => LoopAgent) {
  const { world, life } = living(make);
  const client = new StockClient("desk", life.fetch);
  client.say("u", "go");
  await client.run({ runId: "r1" });
  const { store } = life.mortal;
  const { items: runs } = await store.runs({ tenant: "local", limit: 1 });
  const log: Entry[] = [];
  for await (const entry of store.read(runs[0]?.uid ?? ("" as Uid), -1)) log.push(entry);
  await life.runtime.close();
  const logs = [log];
  const finished = facts(logs, "step.finished");
  return { logs, runs, finished, failed: facts(logs, "step.failed"), client: client.held, failures: failuresIn(world) };
}

describe("what is tried again", () => {
  test.each([408, 409, 429, 500, 502, 503, 504, 529])("%s is", async (status) => {
    const { failed, runs } = await answered((world) => desk(flaky(world, "a", [{ status }], turns)));
    expect(failed).toMatchObject([{ path: "0", n: 1, applied: "no", error: { data: { final: false } } }]);
    expect(runs).toMatchObject([{ outcome: "success" }]);
  });

  test.each([400, 401, 402, 403, 404, 413, 422])("%s is not, without another model", async (status) => {
    const { failed, runs, failures, client } = await answered((world) =>
      desk(flaky(world, "a", Array<Failing>(9).fill({ status }), turns)),
    );
    expect(failed).toEqual([]);
    expect(failures).toEqual(["a"]);
    expect(runs).toMatchObject([{ outcome: "failed" }]);
    expect(JSON.stringify(client)).not.toContain("secret");
  });

  test.each([400, 401, 403, 404])("%s asks the next model at once", async (status) => {
    const { failed, logs, runs } = await answered((world) =>
      desk(flaky(world, "a", Array<Failing>(9).fill({ status }), turns), {
        fallbacks: [flaky(world, "b", [], turns)],
      }),
    );
    expect(runs).toMatchObject([{ outcome: "success" }]);
    // Each step begins with the first model again.
    expect(asked(logs)).toEqual(["a", "b", "a", "b"]);
    expect(failed).toMatchObject([{ error: { code: "MODEL_REFUSED", data: { final: true } } }, { path: "2" }]);
    for (const { at, retryAt } of failed) expect(retryAt).toBeLessThanOrEqual(at);
  });

  test("the default is three times, and maxRetries: 0 asks once", async () => {
    const always = Array<Failing>(99).fill(ways.overload);
    const three = await answered((world) => desk(flaky(world, "a", always, turns)));
    expect(three.failures).toHaveLength(3);
    expect(three.finished).toMatchObject([{ status: "error", error: { code: "MODEL_UNAVAILABLE" } }]);
    const once = await answered((world) => desk(flaky(world, "a", always, turns), { maxRetries: 0 }));
    expect(once.failures).toHaveLength(1);
  });

  test("the last failure of all keeps what it said on the screen, closed and marked", async () => {
    const { client, logs } = await answered((world) =>
      desk(flaky(world, "a", Array<Failing>(9).fill(ways["a cut"]), turns), { maxRetries: 1 }),
    );
    expect(client.messages.map(({ role, content }) => [role, content])).toEqual([
      ["user", "go"],
      ["assistant", "Half of an answer"],
    ]);
    const ends = logs.flat().flatMap((e) => ("event" in e && e.event.type === "TEXT_MESSAGE_END" ? [e.event] : []));
    expect(ends.at(-1)?.metadata).toMatchObject({ perdure: { incomplete: true } });
  });

  test("a cancel in the middle of a back-off ends the run, and nobody is asked any more", async () => {
    const world = new World();
    const host = desk(flaky(world, "a", [{ status: 429, headers: { "retry-after": "600" } }], turns));
    const runtime = createRuntime({ agents: [host], onError: () => {} });
    onTestFinished(() => runtime.close());
    const ask = asking(runtime);
    const answer = ask("/agents/desk", saying("go"));
    const run = async () =>
      (JSON.parse((await ask("/runs")).text) as { runs: { uid: string; state: string }[] }).runs[0];
    await expect.poll(async () => (await run())?.state).toBe("parked");
    await ask(`/runs/${(await run())?.uid}/cancel`, {});
    expect((await answer).text).toContain("RUN_FINISHED");
    expect(await run()).toMatchObject({ state: "cancelled" });
    expect(failuresIn(world)).toEqual(["a"]);
  });
});

describe("the log says which model answered", () => {
  test("in the attempt, and in the usage that is told", async () => {
    const { logs, finished } = await answered((world) =>
      desk(flaky(world, "a", Array<Failing>(9).fill(ways.refusal), [{ text: "No." }]), {
        fallbacks: [flaky(world, "b", [], [{ text: "Yes." }])],
      }),
    );
    expect(facts(logs, "step.attempt").map(({ model }) => model)).toEqual([
      { provider: "a", modelId: "m" },
      { provider: "b", modelId: "m" },
    ]);
    expect(finished).toMatchObject([{ usage: [{ provider: "b", model: "m" }] }]);
  });
});

describe("how an answer finished", () => {
  const text = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "Well" },
    { type: "text-end", id: "0" },
  ];
  const ending = (unified: string, raw?: string) => modelOf([...text, finish(unified, raw)]);
  const fallback = scriptedModel([{ text: "From the other." }]);

  test.each([
    ["stop", undefined, "success", 1],
    ["length", undefined, "MODEL_LENGTH", 1],
    ["content-filter", undefined, "MODEL_REFUSED", 1],
    ["error", "MALFORMED", "MODEL_FAILED", 3],
    ["other", "pause", "MODEL_STOPPED", 1],
    ["other", undefined, "MODEL_CUT", 3],
  ])("%s (%s) without a fallback: %s after %s attempts", async (unified, raw, outcome, attempts) => {
    const { logs, client } = await answered(() => desk(ending(unified, raw)));
    const [run] = facts(logs, "run.finished");
    expect(run?.error?.code ?? run?.outcome).toBe(outcome);
    expect(facts(logs, "step.attempt")).toHaveLength(attempts);
    expect(client.messages.at(-1)).toMatchObject({ role: "assistant", content: "Well" });
  });

  test.each([
    ["stop", undefined, "Well"],
    ["length", undefined, "Well"],
    ["content-filter", undefined, "From the other."],
    ["error", "MALFORMED", "From the other."],
    ["other", "pause", "Well"],
    ["other", undefined, "From the other."],
  ])("%s (%s) with a fallback: the client holds %j", async (unified, raw, held) => {
    const { client } = await answered(() => desk(ending(unified, raw), { fallbacks: [fallback] }));
    expect(client.messages.slice(1)).toMatchObject([{ role: "assistant", content: held }]);
  });

  test("tool-calls: they are run, and the model is asked again", async () => {
    const { runs, client } = await answered(() => desk(scriptedModel(turns)));
    expect(runs).toMatchObject([{ outcome: "success" }]);
    expect(client.messages.at(-1)).toMatchObject({ content: "Seen." });
  });
});

describe("settings", () => {
  /** What a model was asked with, beside the prompt. */
  function spying(seen: CallSettings[], world: World, fails: readonly Failing[] = []): LanguageModel {
    const model = flaky(world, "a", fails, turns);
    return {
      ...model,
      async doStream(options: NativeOptions) {
        const { temperature, toolChoice } = options;
        seen.push({ ...(temperature !== undefined && { temperature }), ...(toolChoice && { toolChoice }) });
        return await model.doStream(options);
      },
    };
  }

  test("may be a function of the step, whose result the log holds and the model is asked with", async () => {
    const seen: CallSettings[] = [];
    const { logs } = await answered((world) =>
      desk(spying(seen, world, [ways.overload]), {
        settings: ({ stepNumber, messages }) => ({
          temperature: stepNumber / 10,
          ...(messages.at(-1)?.role === "user" && { toolChoice: { type: "required" } }),
        }),
      }),
    );
    const first = { temperature: 0, toolChoice: { type: "required" } };
    expect(seen).toEqual([first, first, { temperature: 0.1 }]);
    const recorded = facts(logs, "step.started").flatMap(({ input }) =>
      "history" in input ? [input.history.settings] : [],
    );
    expect(recorded).toEqual([first, { temperature: 0.1 }]);
  });

  test("of a step are those with which it began, also for the process that goes on after a crash and was deployed with others", async () => {
    const seen: CallSettings[] = [];
    let processes = 0;
    const { commits } = await played({ name: "deployed", agent: () => desk(scriptedModel(turns)) });
    const begun = commits.findIndex(({ entries }) => entries.some(({ kind }) => kind === "step.attempt"));
    const { logs } = await played(
      {
        name: "redeployed",
        agent: (world) => {
          processes += 1;
          return desk(spying(seen, world), { settings: { temperature: processes } });
        },
      },
      [{ when: "after", commits: begun + 1 }],
    );
    expect(processes).toBe(2);
    expect(facts(logs, "step.attempt").map(({ path, n }) => `${path} ${n}`)).toEqual(["0 1", "0 2", "1.0 1", "2 1"]);
    expect(seen.map(({ temperature }) => temperature)).toEqual([1, 2]);
  });
});

describe("a definition is refused", () => {
  const model = scriptedModel([{ text: "Hi." }]);
  test.each([
    [{ model: "gpt-5" }, /model of agent "desk" is the string "gpt-5"; give a model object/],
    [{ model, fallbacks: [null] }, /fallbacks\[0\] of agent "desk" is null/],
    [{ model, maxRetries: -1 }, /maxRetries: -1; it is a whole number/],
    [{ model, maxRetries: 1.5 }, /maxRetries: 1.5/],
    [{ model, timeouts: { firstToken: "soon" } }, /timeouts\.firstToken of agent "desk" is "soon"/],
    [{ model, timeouts: { betweenTokens: -5 } }, /timeouts\.betweenTokens of agent "desk" is -5/],
  ])("%j", (definition, message) => {
    expect(() => agent({ name: "desk", ...definition } as unknown as Parameters<typeof agent>[0])).toThrow(message);
  });
});
