import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, test } from "vitest";
import { callModel } from "../../src/agent/model-call.ts";
import { ModelError } from "../../src/agent/model-error.ts";
import type { ModelRequest } from "../../src/agent/model-port.ts";
import { type Turn, toPrompt } from "../../src/agent/prompt.ts";
import { delta, fakeOpenAI, finished, type Reply, usageFrame } from "./fake-openai.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

// The published provider over real sockets.

const tools = ["search", "refund"].map((name) => ({ name, description: `${name}.`, inputSchema: { type: "object" } }));
const hello: Turn = { kind: "message", message: { id: "u", role: "user", content: "Hello" } };

async function ask(fake: { baseURL: string }, turns: readonly Turn[], more: Partial<ModelRequest> = {}) {
  const openai = createOpenAICompatible({ name: "fake", baseURL: fake.baseURL, apiKey: "none", includeUsage: true });
  const emitter = new RecordingEmitter();
  const { signal } = new AbortController();
  const prompt = toPrompt({ instructions: "Be brief.", turns });
  const output = await callModel({ model: openai("fake-1"), prompt, tools, signal, ...more }, emitter);
  return { output, emitter };
}
const failure = (asked: Promise<unknown>): Promise<unknown> =>
  asked.then(
    () => "an answer",
    (error: unknown) => error,
  );

const call = (index: number, more: { [key: string]: string }, args: string) => ({
  tool_calls: [{ index, ...more, function: { ...(more.name !== undefined && { name: more.name }), arguments: args } }],
});
const twoCalls: Reply = {
  frames: [
    delta({ role: "assistant", content: "" }),
    delta({ reasoning_content: "I should " }),
    delta({ reasoning_content: "search." }),
    delta({ content: "Look" }),
    delta({ content: "ing \u{1F50D}." }),
    delta(call(0, { id: "call_a", name: "search" }, "")),
    delta(call(1, { id: "call_b", name: "refund" }, '{"cen')),
    delta(call(0, {}, '{"q":"\\u0')),
    delta(call(1, {}, 'ts":1}')),
    delta(call(0, {}, '0e9"}')),
    finished("tool_calls"),
    usageFrame(),
    "[DONE]",
  ],
};

describe("the OpenAI-compatible provider", () => {
  test("streams text, reasoning and interleaved calls, and gets them back word for word", async () => {
    await using fake = await fakeOpenAI([
      twoCalls,
      { frames: [delta({ content: "Done." }), finished("stop"), "[DONE]"] },
    ]);
    const { output, emitter } = await ask(fake, [hello]);
    expect(emitter.open.size).toBe(0);
    expect(output).toMatchObject({
      text: "Looking \u{1F50D}.",
      reasoning: [{ text: "I should search." }],
      calls: [
        { id: "call-0", providerId: "call_a", name: "search", input: { q: "é" } },
        { id: "call-1", providerId: "call_b", name: "refund", input: { cents: 1 } },
      ],
      order: ["reasoning", { text: 11 }, "call", "call"],
      finishReason: "tool-calls",
      rawFinishReason: "tool_calls",
      response: { id: "chatcmpl-1", modelId: "fake-1-0801" },
    });
    expect(output.usage).toEqual([
      {
        provider: "fake.chat",
        model: "fake-1",
        inputTokens: 20,
        outputTokens: 7,
        totalTokens: 27,
        reasoningTokens: 3,
        cachedInputTokens: 16,
      },
    ]);

    const results: Turn = {
      kind: "results",
      results: [
        { callId: "call-1", name: "refund", error: { code: "NO", message: "Refused." } },
        { callId: "call-0", name: "search", output: [{ id: 1 }] },
      ],
    };
    const next = await ask(fake, [hello, { kind: "model", output }, results]);
    expect(next.output).toMatchObject({ text: "Done.", finishReason: "stop" });
    expect(fake.requests[1]?.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
      {
        role: "assistant",
        content: "Looking \u{1F50D}.",
        reasoning_content: "I should search.",
        tool_calls: [
          { id: "call_a", type: "function", function: { name: "search", arguments: '{"q":"é"}' } },
          { id: "call_b", type: "function", function: { name: "refund", arguments: '{"cents":1}' } },
        ],
      },
      { role: "tool", tool_call_id: "call_a", content: '[{"id":1}]' },
      { role: "tool", tool_call_id: "call_b", content: "Refused." },
    ]);
    expect(fake.requests[0]?.tools).toMatchObject([{ type: "function", function: { name: "search" } }, {}]);
  });

  test("may end its lines with CRLF and its stream without [DONE]", async () => {
    await using fake = await fakeOpenAI([{ frames: [delta({ content: "Hi" }), finished("stop")], newline: "\r\n" }]);
    const { output } = await ask(fake, [hello]);
    expect(output).toMatchObject({ text: "Hi", finishReason: "stop" });
  });

  test("sends files of the user", async () => {
    await using fake = await fakeOpenAI([{ frames: [delta({ content: "A cat." }), finished("stop")] }]);
    const content = [
      { type: "text" as const, text: "What?" },
      { type: "image" as const, source: { type: "data" as const, value: "AQID", mimeType: "image/png" } },
      { type: "image" as const, source: { type: "url" as const, value: "https://a.example/cat" } },
    ];
    await ask(fake, [{ kind: "message", message: { id: "u", role: "user", content } }]);
    expect(fake.requests[0]?.messages).toMatchObject([
      {},
      {
        content: [
          { type: "text", text: "What?" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AQID" } },
          { type: "image_url", image_url: { url: "https://a.example/cat" } },
        ],
      },
    ]);
  });

  test("cut by the token limit within a call gives a call that must not run", async () => {
    await using fake = await fakeOpenAI([
      { frames: [delta(call(0, { id: "call_a", name: "refund" }, '{"cents":1')), finished("length"), "[DONE]"] },
    ]);
    const { output, emitter } = await ask(fake, [hello]);
    expect(output.finishReason).toBe("length");
    expect(output.calls).toMatchObject([{ name: "refund", input: '{"cents":1', invalid: expect.any(String) }]);
    expect(emitter.open.size).toBe(0);
  });

  test.each([
    [400, "MODEL_REFUSED", false],
    [401, "MODEL_REFUSED", false],
    [429, "MODEL_RATE_LIMITED", true],
    [503, "MODEL_UNAVAILABLE", true],
  ])("that answers %s fails with %s, retryable: %s", async (status, code, retryable) => {
    await using fake = await fakeOpenAI([{ status, body: { error: { message: "key sk-123 …" } } }]);
    const error = await failure(ask(fake, [hello]));
    expect(error).toBeInstanceOf(ModelError);
    expect(error).toMatchObject({ code, retryable });
    expect(String(error)).not.toContain("sk-123");
  });

  test("that is not there is unavailable", async () => {
    const fake = await fakeOpenAI([]);
    await fake[Symbol.asyncDispose]();
    expect(await failure(ask(fake, [hello]))).toMatchObject({ code: "MODEL_UNAVAILABLE", retryable: true });
  });

  test.each([
    ["an error frame", { frames: [delta({ content: "Hal" }), { error: { message: "overloaded" } }, "[DONE]"] }],
    ["a frame that is no chunk", { frames: [delta({ content: "Hal" }), { nonsense: true }, finished("stop")] }],
    ["no finish", { frames: [delta({ content: "Hal" }), "[DONE]"] }],
    ["a cut connection", { frames: [delta({ content: "Half an answer" }), finished("stop")], cutAfter: 150 }],
  ] satisfies [string, Reply][])("that breaks off with %s has given no answer", async (_, reply) => {
    await using fake = await fakeOpenAI([reply]);
    expect(await failure(ask(fake, [hello]))).toMatchObject({ code: "MODEL_FAILED", retryable: true });
  });

  test("is hung up on when the call is aborted", async () => {
    await using fake = await fakeOpenAI([{ frames: [delta({ content: "Hi" })], hang: true }]);
    const abort = new AbortController();
    const emitter = new RecordingEmitter();
    emitter.pumped = () => {
      if (emitter.open.size > 0) abort.abort(new Error("cancelled"));
      return undefined;
    };
    const openai = createOpenAICompatible({ name: "fake", baseURL: fake.baseURL });
    const prompt = toPrompt({ turns: [hello] });
    const request = { model: openai("fake-1"), prompt, tools: [], signal: abort.signal };
    await expect(callModel(request, emitter)).rejects.toThrow("cancelled");
    await expect.poll(fake.hungUp, { timeout: 20_000 }).toBe(1);
  });
});
