import { generateText, stepCountIs, streamText, tool } from "ai";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { callModel } from "../../src/agent/model-call.ts";
import type { ModelOutput } from "../../src/agent/model-output.ts";
import { type Turn, toPrompt } from "../../src/agent/prompt.ts";
import { ScriptError, type ScriptRequest, scriptedModel } from "../../src/testing.ts";
import { run } from "./model-of.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

const script = [
  {
    reasoning: { text: "hm", encrypted: "BLOB" },
    text: "Looking, now.",
    calls: [{ name: "search", input: { email: "a@b.c" } }],
  },
  { text: "Done." },
];
const user = (content: string): Turn => ({ kind: "message", message: { id: "u", role: "user", content } });
const answered = (output: ModelOutput): Turn[] => [
  { kind: "model", output },
  { kind: "results", results: output.calls.map(({ id, name }) => ({ callId: id, name, output: [] })) },
];

describe("a scripted model", () => {
  test("streams a turn in small deltas, cut at the same places each time", async () => {
    const [one, two] = [await run(scriptedModel(script)), await run(scriptedModel(script))];
    expect(one.emitter.log).toEqual(two.emitter.log);
    expect(one.emitter.log.filter((line) => line.startsWith("text-0 ")).length).toBeGreaterThan(2);
    expect(one.output).toMatchObject({
      text: "Looking, now.",
      reasoning: [{ text: "hm", metadata: { scripted: { encryptedContent: "BLOB" } } }],
      calls: [{ name: "search", input: { email: "a@b.c" } }],
      finishReason: "tool-calls",
      usage: [{ provider: "scripted", model: "scripted", inputTokens: 0, outputTokens: 6, totalTokens: 6 }],
    });
  });

  test("reads the turn off the prompt, so another process goes on where the first one died", async () => {
    const asked = toPrompt({ turns: [user("Hi")] });
    const first = await run(scriptedModel(script), { prompt: asked });
    const prompt = toPrompt({ turns: [user("Hi"), ...answered(first.output)] });
    for (const model of [scriptedModel(script), scriptedModel(script)]) {
      expect((await run(model, { prompt })).output.text).toBe("Done.");
      expect((await run(model, { prompt: asked })).output).toEqual(first.output);
    }
  });

  test("is given its encrypted reasoning back with the next request", async () => {
    const requests: ScriptRequest[] = [];
    const model = scriptedModel((request) => {
      requests.push(request);
      return script[request.turn] ?? { text: "?" };
    });
    const { output } = await run(model, { prompt: toPrompt({ turns: [user("Hi")] }) });
    await run(model, { prompt: toPrompt({ turns: [user("Hi"), ...answered(output)] }) });
    expect(requests[1]?.messages.find(({ role }) => role === "assistant")?.content).toContainEqual({
      type: "reasoning",
      text: "hm",
      providerOptions: { scripted: { encryptedContent: "BLOB" } },
    });
  });

  test("may follow what the last message says and which tools there are", async () => {
    const model = scriptedModel(async ({ lastUserText, tools, turn }) => ({
      text: `${turn} ${lastUserText} ${tools.join()}`,
    }));
    const prompt = toPrompt({ turns: [user("first"), user("refund 1")] });
    const { output } = await run(model, { prompt, tools: [{ name: "t", description: "", inputSchema: {} }] });
    expect(output.text).toBe("0 refund 1 t");
  });

  test("ends as scripted, and fails as scripted: before the answer, or within it", async () => {
    const cut = await run(scriptedModel([{ text: "Hal", finishReason: "length" }]));
    expect(cut.output).toMatchObject({ text: "Hal", finishReason: "length" });
    const refused = scriptedModel([{ error: { message: "slow down", status: 429 } }]);
    await expect(run(refused)).rejects.toMatchObject({ code: "MODEL_RATE_LIMITED", retryable: true });
    const broken = scriptedModel([{ text: "Half", error: { message: "boom", retryable: false } }]);
    const emitter = new RecordingEmitter();
    const asked = callModel({ model: broken, prompt: [], tools: [], signal: new AbortController().signal }, emitter);
    await expect(asked).rejects.toMatchObject({ code: "MODEL_FAILED", retryable: false });
    expect(emitter.blocks.get("text-0")?.text).toBe("Half");
  });

  test("waits before each delta, and an abort ends the wait with its reason", async () => {
    expect((await run(scriptedModel(script, { delayMs: 1 }))).output.text).toBe("Looking, now.");
    const abort = new AbortController();
    const model = scriptedModel([{ text: "Hi" }], { delayMs: 3_600_000 });
    const { stream } = await model.doStream({ prompt: [], abortSignal: abort.signal });
    const waiting = stream.pipeTo(new WritableStream());
    setImmediate(() => abort.abort(new Error("stop")));
    await expect(waiting).rejects.toThrow("stop");
  });

  test("says what is wrong with its script", async () => {
    expect(() => scriptedModel([{ text: "a" }, { reasoning: "only" }])).toThrow(/turn 2 of the script says nothing/);
    const error: unknown = await scriptedModel([])
      .doStream({ prompt: [] })
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ScriptError);
    expect(String(error)).toContain("0 turns and the prompt asks for number 1");
  });

  test("drives the AI SDK's own loop, streaming or not", async () => {
    const tools = { search: tool({ inputSchema: z.object({ email: z.string() }), execute: async () => "none" }) };
    const settings = { model: scriptedModel(script), prompt: "Hi", tools, stopWhen: stepCountIs(3) };
    expect(await streamText(settings).text).toBe("Done.");
    const { text, steps } = await generateText(settings);
    expect(text).toBe("Done.");
    expect(steps[0]?.reasoningText).toBe("hm");
  });
});
