/** Conversations that grow too long: what models are asked with then, in this turn and in later ones, whatever dies meanwhile. */
import fc from "fast-check";
import { type Agent, AgentDefinitionError, agent, type Compaction, createRuntime, memory, tool } from "perdure";
import { crashMatrix, cutHere, type ScriptedTurn, type ScriptRequest, scriptedModel } from "perdure/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { LanguageModel, NativeOptions, Prompt } from "../../src/agent/model-port.ts";
import type { AGUIEvent, Message } from "../../src/protocol/events.ts";
import { eventsOf } from "../http/rig.ts";
import { asking } from "../runtime/asking.ts";
import { offence } from "./strict-prompt.ts";

const look = (found: (at: string) => string = (at) => at) =>
  tool({
    ...{ name: "look", description: "Looks.", effect: "read" },
    input: z.object({ at: z.string() }),
    call: ({ at }) => found(at),
  });

const isSummary = ({ messages }: Pick<ScriptRequest, "messages">): boolean =>
  JSON.stringify(messages).includes("<conversation>");
const roles = (prompt: Prompt): readonly string[] => prompt.map(({ role }) => role);

/** The strictest provider, over a script; and a thread of an agent that asks it. */
function talking(script: (request: ScriptRequest) => ScriptedTurn, compaction: Compaction, limit = Number.MAX_VALUE) {
  const prompts: Prompt[] = [];
  const offences: string[] = [];
  const scripted = scriptedModel(script);
  const model: LanguageModel = {
    ...scripted,
    async doStream(call: NativeOptions) {
      const prompt = call.prompt as Prompt;
      const wrong = offence(prompt);
      if (wrong !== null) offences.push(wrong);
      if (roles(prompt).find((role) => role !== "system") !== "user") offences.push("does not begin with the user");
      if (!isSummary({ messages: prompt as never }) && JSON.stringify(prompt).length > limit) {
        const error = { error: { code: "context_length_exceeded", message: "too long" } };
        throw Object.assign(new Error("Bad request"), { statusCode: 400, data: error });
      }
      prompts.push(prompt);
      return await scripted.doStream(call);
    },
  };
  const desk = agent({ name: "desk", model, tools: [look()], compaction });
  const store = memory();
  const runtime = createRuntime({ agents: [desk as Agent], store, onError: () => {} });
  onTestFinished(() => runtime.close());
  let runs = 0;
  const say = async (content: string): Promise<readonly AGUIEvent[]> => {
    runs += 1;
    const { text } = await asking(runtime)("/agents/desk", {
      ...{ threadId: "t", runId: `r${runs}`, protocolVersion: "1.0" },
      messages: [{ id: `u${runs}`, role: "user", content }],
    });
    return eventsOf(text);
  };
  const shown = async (): Promise<readonly Message[]> => {
    const events = eventsOf((await asking(runtime)("/threads/t/stream")).text);
    const snapshot = events.find(({ type }) => type === "MESSAGES_SNAPSHOT");
    return snapshot?.type === "MESSAGES_SNAPSHOT" ? snapshot.messages : [];
  };
  const pruneAll = async (): Promise<void> => {
    for (const { uid } of (await store.runs({ tenant: "local" })).items) await runtime.prune(uid);
  };
  const steps = async (): Promise<readonly string[]> => {
    const paths: string[] = [];
    for (const { uid, turn } of (await store.runs({ tenant: "local", limit: 500 })).items.toReversed()) {
      for await (const entry of store.read(uid, -1)) {
        if (entry.kind === "step.finished") paths.push(`${turn}:${entry.path} ${entry.status}`);
      }
    }
    return paths;
  };
  return { prompts, offences, say, shown, steps, pruneAll };
}

const long = (what: string): string => `${what} ${"and so on ".repeat(40)}`;

test("the older part is summed up once, by a model, and later turns are asked with the summary and the newest turns", async () => {
  let summaries = 0;
  const { prompts, say, shown, steps, pruneAll, offences } = talking(
    (request) =>
      isSummary(request) ? { text: `They talked (${++summaries}).` } : { text: long(`heard ${request.lastUserText}`) },
    { after: 900, keep: 3 },
  );
  for (const what of ["one", "two", "three", "four"]) await say(long(what));
  expect(summaries).toBe(1);
  // Asked with the summary, the last answer, and the question: what is summed up is not there any more.
  const asked = prompts.at(-1) ?? [];
  expect(roles(asked)).toEqual(["user", "user", "assistant", "user"]);
  expect(JSON.stringify(asked[0])).toContain("Summary of the conversation so far:\\n\\nThey talked (1).");
  expect(JSON.stringify(asked)).not.toContain("heard one");
  expect((await shown()).map(({ role }) => role)).toEqual(
    Array.from({ length: 4 }, () => ["user", "assistant"]).flat(),
  );
  expect(await steps()).toEqual(["1:0 ok", "2:0 ok", "3:0 ok", "4:c0 ok", "4:0 ok"]);
  // The first two questions and the answer to the first were summed up, word for word.
  const summed = JSON.stringify(prompts.find((prompt) => isSummary({ messages: prompt as never })));
  expect(summed).toMatch(/user: one.*assistant: heard one.*user: two/s);
  expect(summed).not.toContain("user: four");
  await pruneAll();
  await say("five");
  expect(summaries).toBe(1);
  expect(JSON.stringify(prompts.at(-1))).toContain("They talked (1).");
  expect(offences).toEqual([]);
});

test("within one run too: calls keep their results, and a summary is summed up with what came after it", async () => {
  const contexts: string[] = [];
  const { prompts, say, steps, offences } = talking(
    ({ messages }) =>
      JSON.stringify(messages).includes(`at 9 `)
        ? { text: "Done." }
        : { calls: [{ name: "look", input: { at: long(`at ${nextAt(messages)}`) } }] },
    {
      after: 900,
      keep: 2,
      by: ({ text, prompt }) => {
        contexts.push(text);
        expect(offence(prompt)).toBe(null);
        return `Looked at 0 to ${/at (\d+) (?!.*at \d)/s.exec(text)?.[1]} (${contexts.length}).`;
      },
    },
  );
  const events = await say("Look at 0 to 9.");
  expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  expect(contexts.length).toBeGreaterThan(1);
  expect(contexts[0]).toContain("user: Look at 0 to 9.");
  expect(contexts[1]).toContain("Summary of the conversation so far:");
  expect(offences).toEqual([]);
  expect(Math.max(...prompts.map((prompt) => JSON.stringify(prompt).length))).toBeLessThan(6_000);
  expect((await steps()).filter((step) => step.includes(":c"))).toHaveLength(contexts.length);
});

function nextAt(messages: ScriptRequest["messages"]): number {
  const all = [...JSON.stringify(messages).matchAll(/at (\d+) /g)].map(([, n]) => Number(n));
  const summed = [...JSON.stringify(messages).matchAll(/0 to (\d+) \(/g)].map(([, n]) => Number(n));
  return Math.max(-1, ...all, ...summed) + 1;
}

test("a summary that fails leaves the conversation as it is, and the run goes on", async () => {
  const { say, steps, prompts } = talking(({ lastUserText }) => ({ text: long(lastUserText) }), {
    ...{ after: 300, keep: 1 },
    by: () => "",
  });
  await say(long("one"));
  expect((await say(long("two"))).at(-1)).toMatchObject({ type: "RUN_FINISHED" });
  expect(await steps()).toEqual(["1:0 ok", "2:c0 error", "2:0 ok"]);
  expect(prompts.at(-1)).toHaveLength(3);
});

describe("a prompt that is too long for its model", () => {
  const summing = (request: ScriptRequest): ScriptedTurn =>
    isSummary(request) ? { text: "They talked." } : { text: long(request.lastUserText) };

  test("is made shorter and asked with once more, and nothing of the refusal is shown", async () => {
    const { say, steps } = talking(summing, { after: 1_000_000, keep: 1 }, 2_500);
    const ends: unknown[] = [];
    for (const what of ["one", "two", "three"]) ends.push((await say(long(what))).at(-1));
    expect(ends).toMatchObject(Array.from({ length: 3 }, () => ({ type: "RUN_FINISHED" })));
    expect(await steps()).toEqual(["1:0 ok", "2:0 ok", "3:0 error", "3:c2 ok", "3:2 ok"]);
  });

  test("fails the run where the agent says so, or where the summary does not help", async () => {
    const strict = talking(summing, { after: 1_000_000, onContextOverflow: "fail" }, 2_500);
    for (const what of ["one", "two"]) await strict.say(long(what));
    expect((await strict.say(long("three"))).at(-1)).toMatchObject({
      type: "RUN_ERROR",
      code: "MODEL_CONTEXT_TOO_LONG",
    });
    const hopeless = talking(summing, { after: 1_000_000, keep: 1 }, 500);
    await hopeless.say("one");
    expect((await hopeless.say(long("two"))).at(-1)).toMatchObject({ code: "MODEL_CONTEXT_TOO_LONG" });
    expect(await hopeless.steps()).toEqual(["1:0 ok", "2:0 error", "2:c2 ok", "2:2 error"]);
  });
});

test("whatever is said: each prompt is one that the strictest provider takes, and the newest turns are in it", async () => {
  let summed = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(3), fc.boolean()), { minLength: 2, maxLength: 6 }),
      fc.integer({ min: 50, max: 1_500 }),
      fc.nat(4),
      async (turns, after, keep) => {
        const { prompts, offences, say } = talking(
          ({ messages, lastUserText }) => {
            const since = messages.length - 1 - messages.findLastIndex(({ role }) => role === "user");
            const rounds = Number(/rounds (\d)/.exec(lastUserText)?.[1] ?? 0);
            const calls = [0, 1].map((i) => ({ name: "look", input: { at: long(`${since}.${i}`) } }));
            return since / 2 < rounds ? { calls } : { text: long("done") };
          },
          { after, keep, by: ({ text }) => `Sum of ${text.length}.` },
        );
        for (const [i, [rounds, isLong]] of turns.entries()) {
          const said = `turn ${i} rounds ${rounds} ${isLong ? long("x") : ""}`;
          const events = await say(said);
          expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
          if (keep > 0) expect(JSON.stringify(prompts.findLast((one) => one.length > 0))).toMatch(/turn|Sum of/);
        }
        summed += prompts.filter((prompt) => JSON.stringify(prompt).includes("Sum of")).length;
        expect(offences).toEqual([]);
      },
    ),
    { numRuns: 40 },
  );
  expect(summed).toBeGreaterThan(40);
}, 120_000);

/** Long, and streamed in few pieces. */
const wide = (what: string): string => `${what} ${"x".repeat(700)}`;

test("whatever dies, the conversation goes on the same, with each summary made and recorded once", async () => {
  let summed = 0;
  const report = await crashMatrix(
    (done: string[]) =>
      agent({
        name: "desk",
        model: scriptedModel(({ lastUserText, messages }) =>
          messages.at(-1)?.role === "user" && lastUserText.startsWith("two")
            ? { calls: [{ name: "look", input: { at: "sky" } }] }
            : { text: wide(`heard ${lastUserText.slice(0, 3)} after ${messages.length}`) },
        ),
        tools: [look()],
        compaction: {
          ...{ after: 350, keep: 2 },
          by: async ({ text }) => {
            await cutHere("before the summary");
            summed += 1;
            if (!done.includes(text)) done.push(text);
            await cutHere("behind the summary");
            return `Summary of ${text.length} characters.`;
          },
        },
      }) as never,
    { world: (): string[] => [], effects: (done) => done, script: { turns: [wide("one"), wide("two"), "three"] } },
  );
  expect(report.findings, report.table()).toEqual([]);
  expect(report).toMatchObject({ skipped: 0, gaveUp: 0 });
  expect(report.cuts).toBeGreaterThan(30);
  expect(report.effects).toHaveLength(3);
  expect(summed).toBeGreaterThanOrEqual(report.cuts);
}, 180_000);

test.each([
  ["no length", { after: 0 }, /after is tokens over 0/],
  ["half a turn", { after: 1, keep: 0.5 }, /keep is turns/],
  ["a model's name", { after: 1, by: "gpt-5" }, /compaction.by of agent "desk" is the string "gpt-5"/],
])("%s is refused where it is defined", (_, compaction, message) => {
  const define = () => agent({ name: "desk", model: scriptedModel([]), compaction: compaction as never });
  expect(define).toThrow(AgentDefinitionError);
  expect(define).toThrow(message);
});
