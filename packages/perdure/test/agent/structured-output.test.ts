/** An agent that answers with a value: by call or as JSON, repaired when it does not fit, whatever dies meanwhile. */
import { HttpAgent } from "@ag-ui/client";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { type Agent, AgentDefinitionError, agent, createRuntime, memory, tool } from "perdure";
import {
  crashMatrix,
  cutHere,
  type Script,
  type ScriptedTurn,
  type ScriptRequest,
  scriptedModel,
} from "perdure/testing";
import { describe, expect, expectTypeOf, onTestFinished, test } from "vitest";
import { z } from "zod";
import type { LanguageModel, NativeOptions, Prompt } from "../../src/agent/model-port.ts";
import type { AGUIEvent, Message } from "../../src/protocol/events.ts";
import { eventsOf, serving } from "../http/rig.ts";
import { asking } from "../runtime/asking.ts";
import { delta, fakeOpenAI, finished } from "./fake-openai.ts";
import { offence } from "./strict-prompt.ts";

const Summary = z.object({ title: z.string(), words: z.number().int().positive() });
const good = { title: "Rain", words: 3 };
const answer = (input: object): ScriptedTurn => ({ calls: [{ name: "final_answer", input: input as never }] });

/** A thread of an agent whose model is asked as a script says, and each prompt, held against the strictest provider. */
function talking(script: Script, options: Partial<Parameters<typeof agent<unknown>>[0]> & { output?: z.ZodType } = {}) {
  const asked: NativeOptions[] = [];
  const scripted = scriptedModel(script);
  const model: LanguageModel = {
    ...scripted,
    doStream(call) {
      asked.push(call);
      expect(offence(call.prompt as Prompt)).toBe(null);
      return scripted.doStream(call);
    },
  };
  const desk = agent({ name: "desk", output: Summary, ...options, model } as Parameters<typeof agent>[0]);
  const reported: unknown[] = [];
  const store = memory();
  const runtime = createRuntime({ agents: [desk as Agent], store, onError: (error) => reported.push(error) });
  onTestFinished(() => runtime.close());
  let runs = 0;
  let held: readonly Message[] = [];
  const say = async (content: string): Promise<readonly AGUIEvent[]> => {
    runs += 1;
    const { text } = await asking(runtime)("/agents/desk", {
      ...{ threadId: "t", runId: `r${runs}`, protocolVersion: "1.0" },
      messages: [...held, { id: `u${runs}`, role: "user", content }],
    });
    const stream = (await asking(runtime)("/threads/t/stream")).text;
    const snapshot = eventsOf(stream).find(({ type }) => type === "MESSAGES_SNAPSHOT");
    if (snapshot?.type === "MESSAGES_SNAPSHOT") held = snapshot.messages;
    return eventsOf(text);
  };
  return { runtime, store, asked, reported, say, held: () => held };
}

const last = (events: readonly AGUIEvent[]) => events.at(-1);
/** What the script is asked after: the repairs that it has got. */
const repairs = ({ messages }: ScriptRequest): number =>
  JSON.stringify(messages).match(/error-text|That was no valid answer/g)?.length ?? 0;

describe("an answer by call", () => {
  test("is the run's output and RUN_FINISHED's result; the call is shown, and has its result", async () => {
    const { say, asked, held, store } = talking([{ text: "Here it is.", ...answer(good) }]);
    const events = await say("sum up");
    expect(last(events)).toMatchObject({ type: "RUN_FINISHED", result: good, outcome: { type: "success" } });
    expect(asked[0]).toMatchObject({ toolChoice: { type: "required" } });
    expect(asked[0]?.tools).toMatchObject([{ name: "final_answer", inputSchema: { required: ["title", "words"] } }]);
    expect(held().map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
    const [run] = (await store.runs({ tenant: "local" })).items;
    const log: unknown[] = [];
    for await (const entry of store.read(run?.uid ?? ("" as never), -1)) log.push(entry);
    expect(log.at(-1)).toMatchObject({ kind: "run.finished", outcome: "success", outputOf: "1.0" });
  });

  test("that does not fit goes back with what is wrong, and only the one that fits counts", async () => {
    const { say, asked } = talking((request) => answer(repairs(request) === 0 ? { title: "Rain" } : good));
    const events = await say("sum up");
    expect(last(events)).toMatchObject({ type: "RUN_FINISHED", result: good });
    expect(JSON.stringify(asked[1]?.prompt)).toMatch(/final_answer.*error-text.*\/words/);
  });

  test.each([0, 1, 2])("after %i repairs the run fails with OUTPUT_INVALID, which says what was wrong", async (n) => {
    const { say, asked } = talking(() => answer({ title: "Rain", words: -1 }), { outputRepairs: n } as never);
    const end = last(await say("sum up"));
    expect(end).toMatchObject({ type: "RUN_ERROR", code: "OUTPUT_INVALID" });
    expect(end?.type === "RUN_ERROR" && end.message).toMatch(/\/words/);
    expect(asked).toHaveLength(n + 1);
  });

  test("that comes as text, or as no JSON, is asked for again", async () => {
    const { say, asked } = talking((request) =>
      repairs(request) === 0 ? { text: "It rained." } : repairs(request) === 1 ? answer({}) : answer(good),
    );
    expect(last(await say("sum up"))).toMatchObject({ type: "RUN_FINISHED", result: good });
    expect(JSON.stringify(asked[1]?.prompt)).toContain("has to be given by calling `final_answer`");
  });

  test("beside other calls: those run too, and each has its result", async () => {
    const looked: string[] = [];
    const look = tool({
      ...{ name: "look", description: "Looks.", effect: "read" },
      input: z.object({ at: z.string() }),
      call: ({ at }) => {
        looked.push(at);
        return at;
      },
    });
    const { say, held } = talking(
      ({ lastUserText }) =>
        lastUserText === "first"
          ? { calls: [{ name: "look", input: { at: "sky" } }, ...(answer(good).calls ?? [])] }
          : answer({ title: "Sun", words: 1 }),
      { tools: [look] } as never,
    );
    expect(last(await say("first"))).toMatchObject({ result: good });
    expect(looked).toEqual(["sky"]);
    expect(held().filter(({ role }) => role === "tool")).toHaveLength(2);
    // And the strictest provider takes the history of the next turn.
    expect(last(await say("second"))).toMatchObject({ result: { title: "Sun", words: 1 } });
  });

  test("is what the schema makes of it; one that is no object is put into one on the way", async () => {
    const Tags = z.array(z.string().trim().toLowerCase());
    const { say, asked } = talking(() => answer({ answer: [" Rain ", "SUN"] }), { output: Tags });
    expect(last(await say("tag"))).toMatchObject({ result: ["rain", "sun"] });
    expect(asked[0]?.tools).toMatchObject([{ inputSchema: { properties: { answer: { type: "array" } } } }]);
  });

  test("is not taken for one when somebody has spoken before it was", async () => {
    const paint = { name: "paint", description: "Paints.", parameters: { type: "object" } };
    const asked: string[] = [];
    const desk = agent({
      name: "desk",
      output: Summary,
      model: scriptedModel(({ lastUserText }) => {
        asked.push(lastUserText);
        const calls = answer({ title: lastUserText, words: 1 }).calls ?? [];
        return { calls: lastUserText === "one" ? [{ name: "paint", input: {} }, ...calls] : calls };
      }),
    });
    const runtime = createRuntime({ agents: [desk] });
    onTestFinished(() => runtime.close());
    const post = async (runId: string, content: string) =>
      eventsOf(
        (
          await asking(runtime)("/agents/desk", {
            ...{ threadId: "t", runId, tools: [paint], protocolVersion: "1.0" },
            messages: [{ id: runId, role: "user", content }],
          })
        ).text,
      ).at(-1);
    expect(await post("r1", "one")).toMatchObject({ outcome: { pendingToolCallIds: [expect.any(String)] } });
    expect(await post("r2", "two")).toMatchObject({ type: "RUN_FINISHED", result: { title: "two", words: 1 } });
    expect(asked).toEqual(["one", "two"]);
  });
});

describe("an answer as JSON", () => {
  const json = { outputMode: "json" } as never;

  test("is asked for with its schema, is shown as text, and is the result", async () => {
    const { say, asked, held } = talking([{ text: JSON.stringify(good) }], json);
    expect(last(await say("sum up"))).toMatchObject({ type: "RUN_FINISHED", result: good });
    expect(asked[0]).toMatchObject({ responseFormat: { type: "json", schema: { required: ["title", "words"] } } });
    expect(asked[0]?.tools).toBeUndefined();
    expect(held().at(-1)).toMatchObject({ role: "assistant", content: JSON.stringify(good) });
  });

  test.each([
    ["is no JSON", "It rained.", "not JSON"],
    ["does not fit", '{"title":"Rain","words":"three"}', "/words"],
  ])("that %s goes back, and the next turn's history has it so", async (_, bad, why) => {
    const { say, asked } = talking((request) => ({ text: repairs(request) === 0 ? bad : JSON.stringify(good) }), json);
    expect(last(await say("sum up"))).toMatchObject({ type: "RUN_FINISHED", result: good });
    expect(asked.map(({ prompt }) => prompt.length)).toEqual([1, 3]);
    expect(JSON.stringify(asked[1]?.prompt.at(-1))).toContain(why);
    await say("again");
    expect(asked[2]?.prompt.map((message) => (message as { role: string }).role)).toEqual([
      ...["user", "assistant", "user", "assistant", "user"],
    ]);
  });

  test("in a fence is JSON", async () => {
    const { say } = talking([{ text: `\`\`\`json\n${JSON.stringify(good)}\n\`\`\`` }], json);
    expect(last(await say("sum up"))).toMatchObject({ result: good });
  });

  test("that was cut at its length fails as any answer does", async () => {
    const { say } = talking([{ text: '{"title":', finishReason: "length" }], json);
    expect(last(await say("sum up"))).toMatchObject({ type: "RUN_ERROR", code: "MODEL_LENGTH" });
  });

  test("fails after its repairs", async () => {
    const { say, asked } = talking(() => ({ text: "no" }), json);
    expect(last(await say("sum up"))).toMatchObject({ type: "RUN_ERROR", code: "OUTPUT_INVALID" });
    expect(asked).toHaveLength(3);
  });

  test("is what the published provider sends where its model says that it can, and a call where it does not", async () => {
    const modes: unknown[] = [];
    await using fake = await fakeOpenAI((request) => {
      const { response_format: format, tool_choice: choice } = request;
      modes.push([format ?? null, choice ?? null]);
      if (format !== undefined) {
        return { frames: [delta({ role: "assistant", content: JSON.stringify(good) }), finished("stop"), "[DONE]"] };
      }
      const call = { index: 0, id: "c", function: { name: "final_answer", arguments: JSON.stringify(good) } };
      return { frames: [delta({ role: "assistant", tool_calls: [call] }), finished("tool_calls"), "[DONE]"] };
    });
    for (const supportsStructuredOutputs of [true, false]) {
      const openai = createOpenAICompatible({ name: "fake", ...fake, apiKey: "none", supportsStructuredOutputs });
      const runtime = createRuntime({ agents: [agent({ name: "desk", model: openai("fake-1"), output: Summary })] });
      onTestFinished(() => runtime.close());
      const { text } = await asking(runtime)("/agents/desk", {
        ...{ threadId: "t", runId: "r", protocolVersion: "1.0" },
        messages: [{ id: "u", role: "user", content: "sum up" }],
      });
      expect(last(eventsOf(text))).toMatchObject({ result: good });
    }
    expect(modes).toMatchObject([
      [{ type: "json_schema", json_schema: { strict: true } }, null],
      [null, "required"],
    ]);
  });
});

test("the published client gets the result, and goes on with the thread", async () => {
  const desk = agent({
    ...{ name: "desk", output: Summary },
    model: scriptedModel(({ lastUserText }) => answer({ title: lastUserText, words: 1 })),
  });
  const { url } = await serving([desk as Agent]);
  const client = new HttpAgent({ url: `${url}/agents/desk`, threadId: "t" });
  for (const [i, content] of ["one", "two"].entries()) {
    client.addMessage({ id: `u${i}`, role: "user", content });
    expect((await client.runAgent()).result).toEqual({ title: content, words: 1 });
  }
  expect(client.messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user", "assistant", "tool"]);
});

describe("whatever dies", () => {
  const looking = (done: string[]) =>
    tool({
      ...{ name: "look", description: "Looks.", effect: "idempotent" },
      input: z.object({ at: z.string() }),
      async call({ at }, { idempotencyKey }) {
        await cutHere(`before ${at}`);
        if (!done.includes(`${at} ${idempotencyKey}`)) done.push(`${at} ${idempotencyKey}`);
        await cutHere(`behind ${at}`);
        return at;
      },
    });

  test.each([
    [
      "tool",
      (request: ScriptRequest): ScriptedTurn =>
        request.turn === 0
          ? { calls: [{ name: "look", input: { at: "sky" } }, ...(answer({ title: "?" }).calls ?? [])] }
          : answer(good),
    ],
    [
      "json",
      (request: ScriptRequest): ScriptedTurn =>
        request.turn === 0
          ? { calls: [{ name: "look", input: { at: "sky" } }] }
          : { text: repairs(request) === 0 ? "no" : JSON.stringify(good) },
    ],
  ] as const)(
    "the answer is the same: %s",
    async (outputMode, script) => {
      const report = await crashMatrix(
        (done: string[]) =>
          agent({
            ...{ name: "desk", output: Summary, outputMode },
            model: scriptedModel(script),
            tools: [looking(done)],
          }) as never,
        { world: (): string[] => [], effects: (done) => done, script: { turns: ["one", "two"] } },
      );
      expect(report.findings, report.table()).toEqual([]);
      expect(report.cuts).toBeGreaterThan(30);
      expect(report.effects.map((effect) => effect.split(" ")[0])).toEqual(["sky"]);
      expect(report).toMatchObject({ skipped: 0, gaveUp: 0 });
    },
    180_000,
  );
});

describe("a definition", () => {
  const model = scriptedModel([]);

  test("types the output", () => {
    const desk = agent({ name: "desk", model, output: Summary });
    type Output =
      NonNullable<typeof desk.output> extends { "~standard": { types?: { output: infer O } | undefined } } ? O : never;
    expectTypeOf<Output>().toEqualTypeOf<z.infer<typeof Summary>>();
  });

  test.each([
    ["another mode", { outputMode: "xml" }, /outputMode: "xml"/],
    ["half a repair", { outputRepairs: 0.5 }, /outputRepairs: 0.5/],
    ["what is no schema", { output: { sky: "string" } }, /the output of agent .* is no Standard Schema; use zod 4/],
    ["a schema that JSON Schema cannot say", { output: z.bigint() }, /no JSON Schema of the output/],
    [
      "a tool of that name",
      {
        tools: [
          tool({
            ...{ name: "final_answer", description: "Mine.", effect: "read", input: z.object({}) },
            call: () => null,
          }),
        ],
      },
      /rename the tool/,
    ],
  ])("is refused with %s", (_, options, message) => {
    const define = () => agent({ name: "desk", model, output: Summary, ...options } as never);
    expect(define).toThrow(AgentDefinitionError);
    expect(define).toThrow(message);
  });
});
