import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { describe, expect, test } from "vitest";
import { callModel } from "../../src/agent/model-call.ts";
import { ModelError } from "../../src/agent/model-error.ts";
import { ModelOutputUnreadable, partsOf, readModelOutput } from "../../src/agent/model-output.ts";
import type { LanguageModel } from "../../src/agent/model-port.ts";
import { finish, modelOf, run } from "./model-of.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

const call = (toolCallId: string, toolName: string, input: string) => ({
  type: "tool-call",
  toolCallId,
  toolName,
  input,
});
const started = (id: string, toolName: string) => ({ type: "tool-input-start", id, toolName });
const args = (id: string, delta: string) => ({ type: "tool-input-delta", id, delta });

describe("an answer", () => {
  test("streams text, reasoning and a call, and is recorded in its order", async () => {
    const model = new MockLanguageModelV3({
      provider: "acme",
      modelId: "m-1",
      doStream: {
        stream: simulateReadableStream({
          chunkDelayInMs: null,
          initialDelayInMs: null,
          chunks: [
            { type: "stream-start", warnings: [] },
            { type: "response-metadata", id: "resp-1", modelId: "m-1-2026" },
            { type: "reasoning-start", id: "r" },
            { type: "reasoning-delta", id: "r", delta: "hm" },
            { type: "reasoning-delta", id: "r", delta: "", providerMetadata: { acme: { signature: "sig" } } },
            { type: "reasoning-end", id: "r" },
            { type: "text-start", id: "t" },
            { type: "text-delta", id: "t", delta: "Loo" },
            { type: "text-delta", id: "t", delta: "king." },
            { type: "text-end", id: "t" },
            { type: "tool-input-start", id: "c", toolName: "search" },
            { type: "tool-input-delta", id: "c", delta: '{"q":' },
            { type: "tool-input-delta", id: "c", delta: '"x"}' },
            { type: "tool-input-end", id: "c" },
            { type: "tool-call", toolCallId: "c", toolName: "search", input: '{"q":"x"}' },
            {
              type: "finish",
              finishReason: { unified: "tool-calls", raw: "tool_use" },
              usage: {
                inputTokens: { total: 10, noCache: 6, cacheRead: 4, cacheWrite: undefined },
                outputTokens: { total: 5, text: 3, reasoning: 2 },
              },
            },
          ],
        }),
      },
    });
    const { output, emitter } = await run(model);
    expect(emitter.log).toEqual([
      "open reasoning-0",
      'reasoning-0 "hm"',
      "reasoning-0 blob sig",
      "reasoning-0 end",
      "open text-0",
      'text-0 "Loo"',
      'text-0 "king."',
      "text-0 end",
      "open call-0 search",
      'call-0 "{\\"q\\":"',
      'call-0 "\\"x\\"}"',
      "call-0 end",
    ]);
    expect(output).toEqual({
      messageId: null,
      text: "Looking.",
      reasoning: [{ text: "hm", metadata: { acme: { signature: "sig" } } }],
      calls: [{ id: "call-0", providerId: "c", name: "search", input: { q: "x" } }],
      content: [],
      order: ["reasoning", { text: 8 }, "call"],
      finishReason: "tool-calls",
      rawFinishReason: "tool_use",
      usage: [
        {
          provider: "acme",
          model: "m-1",
          inputTokens: 10,
          outputTokens: 5,
          totalTokens: 15,
          reasoningTokens: 2,
          cachedInputTokens: 4,
        },
      ],
      response: { id: "resp-1", modelId: "m-1-2026" },
    });
  });

  test("is the same after a trip through the log, and debris in its place is refused", async () => {
    const { usage: _, ...output } = (
      await run(modelOf([call("c", "t", '{"a":1}'), { type: "text-delta", id: "0", delta: "x" }, finish()]))
    ).output;
    expect(readModelOutput(JSON.parse(JSON.stringify(output)))).toEqual(output);
    expect(() => readModelOutput({ ...output, calls: [{ id: "c" }] })).toThrow(ModelOutputUnreadable);
  });

  test("of V2 counts usage flat and names its reason by a word", async () => {
    const usage = {
      inputTokens: 7,
      outputTokens: 2,
      totalTokens: 99,
      reasoningTokens: 1,
      cachedInputTokens: Number.NaN,
    };
    const { output } = await run(
      modelOf(
        [
          { type: "text-delta", id: "0", delta: "Hi" },
          { type: "finish", finishReason: "unknown", usage },
        ],
        "v2",
      ),
    );
    expect(output).toMatchObject({ text: "Hi", finishReason: "other", rawFinishReason: "unknown" });
    expect(output.usage).toEqual([
      { provider: "acme", model: "m-1", inputTokens: 7, outputTokens: 2, totalTokens: 9, reasoningTokens: 1 },
    ]);
  });

  test("of V4 may have pings, custom content, and a reason that we do not know", async () => {
    const { output } = await run(
      modelOf(
        [
          { type: "ping" },
          { type: "custom", kind: "acme.thing" },
          { type: "file", mediaType: "image/png", data: { type: "data", data: new Uint8Array([1, 2, 3]) } },
          { type: "file", mediaType: "image/png", data: { type: "url", url: new URL("https://a.example/i.png") } },
          finish("interrupted", "pause_turn"),
        ],
        "v4",
      ),
    );
    expect(output.content).toEqual([
      { type: "custom", kind: "acme.thing" },
      { type: "file", mediaType: "image/png", data: { type: "data", data: "AQID" } },
      { type: "file", mediaType: "image/png", data: { type: "url", url: "https://a.example/i.png" } },
    ]);
    expect(output).toMatchObject({ finishReason: "other", rawFinishReason: "pause_turn" });
  });

  test("with no count of tokens has no usage, which is not zero", async () => {
    const { output } = await run(modelOf([{ type: "finish", finishReason: "stop", usage: {} }], "v2"));
    expect(output.usage).toEqual([]);
  });

  test.each(["length", "content-filter", "error"])("that ended with %s says so", async (reason) => {
    const { output } = await run(modelOf([{ type: "text-delta", id: "0", delta: "Hal" }, finish(reason)]));
    expect(output).toMatchObject({ text: "Hal", finishReason: reason });
  });

  test("keeps sources and the calls of the provider's own tools, and shows none of them as calls", async () => {
    const source = { type: "source", sourceType: "url", id: "s", url: "https://a.example" };
    const own = { ...call("w", "web_search", "{}"), providerExecuted: true };
    const result = { type: "tool-result", toolCallId: "w", toolName: "web_search", result: { hits: 1 } };
    const { output, emitter } = await run(
      modelOf([
        { ...started("w", "web_search"), providerExecuted: true },
        args("w", "{}"),
        own,
        result,
        source,
        finish(),
      ]),
    );
    expect(output.content).toEqual([own, result, source]);
    expect(output.calls).toEqual([]);
    expect(emitter.log).toEqual([]);
  });
});

describe("blocks", () => {
  const texts = (...parts: [string, string, string?][]) =>
    parts.map(([type, id, delta]) => ({ type: `text-${type}`, id, delta }));

  test("of text are appended, at most one open at a time, in the order of their first words", async () => {
    const { output, emitter } = await run(
      modelOf([
        ...texts(["start", "a"], ["start", "b"], ["delta", "b", "one "], ["delta", "a", "two"]),
        ...texts(["delta", "b", "more "], ["end", "b"], ["delta", "a", "!"], ["end", "a"]),
        finish(),
      ]),
    );
    expect(output.text).toBe("one more two!");
    expect([...partsOf(output)]).toEqual([
      { type: "text", text: "one more " },
      { type: "text", text: "two!" },
    ]);
    expect(emitter.log.join("|")).toBe(
      'open text-0|text-0 "one "|text-0 "more "|text-0 end|open text-1|text-1 "two"|text-1 "!"|text-1 end',
    );
  });

  test("without a start open with their first delta, late deltas are dropped, a used id starts anew", async () => {
    const { output, emitter } = await run(
      modelOf([
        ...texts(["delta", "0", "a"], ["end", "0"], ["delta", "0", "LATE"], ["start", "0"], ["delta", "0", "b"]),
        finish(),
      ]),
    );
    expect(output.text).toBe("ab");
    expect(emitter.open.size).toBe(0);
  });

  test("without content leave no trace", async () => {
    const { output, emitter } = await run(
      modelOf([
        ...texts(["start", "0"], ["delta", "0", ""], ["end", "0"]),
        { type: "reasoning-start", id: "1" },
        { type: "reasoning-end", id: "1" },
        finish(),
      ]),
    );
    expect(output.order).toEqual([]);
    expect(emitter.log).toEqual([]);
  });

  test("of reasoning that nobody can read show their blob, and keep metadata that came in pieces", async () => {
    const { output, emitter } = await run(
      modelOf([
        {
          type: "reasoning-start",
          id: "1",
          providerMetadata: { openai: { itemId: "rs_1", reasoningEncryptedContent: null } },
        },
        { type: "reasoning-end", id: "1", providerMetadata: { openai: { reasoningEncryptedContent: "BLOB" } } },
        { type: "reasoning-start", id: "2", providerMetadata: { openai: { itemId: "rs_2" } } },
        finish(),
      ]),
    );
    expect(emitter.log).toEqual(["open reasoning-0", "reasoning-0 blob BLOB", "reasoning-0 end"]);
    expect(output.reasoning).toEqual([
      { text: "", metadata: { openai: { itemId: "rs_1", reasoningEncryptedContent: "BLOB" } } },
      { text: "", metadata: { openai: { itemId: "rs_2" } } },
    ]);
  });
});

describe("a tool call", () => {
  test("that was not streamed is shown at once, with its signature", async () => {
    const signed = { ...call("c", "t", '{"a":1}'), providerMetadata: { google: { thoughtSignature: "sig" } } };
    const { output, emitter } = await run(modelOf([signed, finish("tool-calls")]));
    expect(emitter.log).toEqual(["open call-0 t", 'call-0 "{\\"a\\":1}"', "call-0 blob sig", "call-0 end"]);
    expect(output.calls[0]).toMatchObject({ input: { a: 1 }, metadata: { google: { thoughtSignature: "sig" } } });
  });

  test("gets the rest of its arguments from the final call, and without any it has none", async () => {
    const { output, emitter } = await run(
      modelOf([
        started("c", "t"),
        args("c", '{"a"'),
        call("c", "t", '{"a":1}'),
        started("d", "u"),
        call("d", "u", ""),
        finish(),
      ]),
    );
    expect(emitter.blocks.get("call-0")?.text).toBe('{"a":1}');
    expect(output.calls.map(({ input }) => input)).toEqual([{ a: 1 }, {}]);
  });

  test("without an id is a call; two calls under one id are two", async () => {
    const { output } = await run(
      modelOf([
        call("", "t", "{}"),
        { ...call("", "t", "{}"), toolCallId: undefined },
        call("x", "t", '{"a":1}'),
        call("x", "t", '{"a":2}'),
        finish(),
      ]),
    );
    expect(output.calls.map(({ id, providerId, input }) => [id, providerId, input])).toEqual([
      ["call-0", null, {}],
      ["call-1", null, {}],
      ["call-2", "x", { a: 1 }],
      ["call-3", "x", { a: 2 }],
    ]);
  });

  test("said twice word for word is one call, and not run twice when it was announced twice", async () => {
    const once = call("c", "t", '{"a":1}');
    const { output } = await run(modelOf([once, once, started("c", "t"), call("c", "t", '{ "a": 1 }'), finish()]));
    expect(output.calls.map(({ invalid }) => invalid)).toEqual([
      undefined,
      "it is the same call with the same id once more",
    ]);
  });

  test("whose arguments came before its name gets them", async () => {
    const { output, emitter } = await run(
      modelOf([args("c", '{"a"'), args("c", ":1}"), call("c", "t", '{"a":1}'), finish()]),
    );
    expect(output.calls[0]).toMatchObject({ name: "t", input: { a: 1 } });
    expect(emitter.blocks.get("call-0")?.text).toBe('{"a":1}');
  });

  test.each([
    ["no JSON", [call("c", "t", '{"a":')], "its arguments are not JSON"],
    ["no object", [call("c", "t", "[1]")], "its arguments are not a JSON object"],
    ["a poisoned key", [call("c", "t", '{"__proto__":{}}')], /__proto__/],
    ["no name", [call("c", "", "{}")], "it names no tool"],
    ["another name", [started("c", "t"), call("c", "u", "{}")], "it began as a call of `t`"],
    ["other arguments", [started("c", "t"), args("c", '{"a":1}'), call("c", "t", '{"a":2}')], /contradict/],
    ["no end", [started("c", "t"), args("c", '{"a":1}')], /ended \(stop\)/],
  ])("with %s is invalid, with a reason for the model", async (_, parts, reason) => {
    const { output, emitter } = await run(modelOf([...parts, finish()]));
    expect(output.calls).toHaveLength(1);
    expect(output.calls[0]?.invalid).toMatch(reason);
    expect(typeof output.calls[0]?.input).toBe("string");
    expect(emitter.open.size).toBe(0);
  });

  test("cut by the length is invalid even when its text happens to be whole", async () => {
    const whole = [started("c", "t"), args("c", '{"a":1}'), { type: "tool-input-end", id: "c" }];
    const cut = await run(modelOf([...whole, finish("length")]));
    expect(cut.output.calls[0]?.invalid).toMatch(/ended \(length\)/);
    const ended = await run(modelOf([...whole, finish("tool-calls")]));
    expect(ended.output.calls[0]).toMatchObject({ input: { a: 1 } });
    expect(ended.output.calls[0]).not.toHaveProperty("invalid");
  });
});

describe("no answer", () => {
  const failing = (cause: unknown): LanguageModel => ({ ...modelOf([]), doStream: () => Promise.reject(cause) });
  const failure = async (model: LanguageModel) => {
    const emitter = new RecordingEmitter();
    const request = { model, prompt: [], tools: [], signal: new AbortController().signal };
    const error: unknown = await callModel(request, emitter).catch((thrown: unknown) => thrown);
    if (!(error instanceof ModelError)) throw new Error("expected a ModelError", { cause: error });
    return { error, emitter };
  };
  const api = (statusCode?: number, isRetryable?: boolean) =>
    Object.assign(new Error("secret text of https://internal"), { statusCode, isRetryable });

  test("a stream that stops before its finish is cut, and its open blocks are left to the driver", async () => {
    const { error, emitter } = await failure(modelOf([{ type: "text-delta", id: "0", delta: "Hel" }]));
    expect([error.code, error.retryable]).toEqual(["MODEL_CUT", true]);
    expect([...emitter.open]).toEqual(["text-0"]);
  });

  test.each([
    [api(400), "MODEL_REFUSED", false],
    [api(401, false), "MODEL_REFUSED", false],
    [api(429, true), "MODEL_RATE_LIMITED", true],
    [api(408), "MODEL_UNAVAILABLE", true],
    [api(529, true), "MODEL_UNAVAILABLE", true],
    [api(undefined, true), "MODEL_UNAVAILABLE", true],
    [
      new TypeError("fetch failed", { cause: Object.assign(new Error(), { code: "ECONNRESET" }) }),
      "MODEL_UNAVAILABLE",
      true,
    ],
    [new Error("no API key"), "MODEL_REFUSED", false],
  ])("%s becomes %s, retryable: %s, and its text stays on the server", async (cause, code, retryable) => {
    const { error } = await failure(failing(cause));
    expect([error.code, error.retryable, error.cause]).toEqual([code, retryable, cause]);
    expect(error.message).not.toMatch(/secret|key/);
  });

  test("an error part ends the answer, even if a finish follows", async () => {
    const { error } = await failure(modelOf([{ type: "error", error: { message: "overloaded" } }, finish("error")]));
    expect([error.code, error.retryable]).toEqual(["MODEL_FAILED", true]);
  });

  test("a part that does not fit its specification is an error, never skipped", async () => {
    const { error } = await failure(modelOf([{ type: "text-delta", id: "0", textDelta: "v1" }, finish()]));
    expect([error.code, error.retryable]).toEqual(["MODEL_UNREADABLE", false]);
    expect(error.message).toContain('part "text-delta"');
  });

  test("what the emitter throws is no failure of the model, and cancels the stream", async () => {
    let cancelled = false;
    const stream = new ReadableStream<object>({
      pull: (controller) => controller.enqueue({ type: "text-delta", id: "0", delta: "x" }),
      cancel: () => {
        cancelled = true;
      },
    });
    const emitter = new RecordingEmitter();
    const full = new RangeError("full");
    emitter.text = () => {
      throw full;
    };
    const model = { ...modelOf([]), doStream: async () => ({ stream }) };
    await expect(
      callModel({ model, prompt: [], tools: [], signal: new AbortController().signal }, emitter),
    ).rejects.toBe(full);
    expect(cancelled).toBe(true);
  });

  test.each(["while it connects", "while it streams", "while the log is behind"])(
    "an abort ends the call %s, though the provider hangs, with the signal's reason",
    async (when) => {
      const abort = new AbortController();
      const reason = new Error("lease lost");
      const hanging = new ReadableStream<object>({
        start: (controller) => controller.enqueue({ type: "text-delta", id: "0", delta: "x" }),
        cancel: () => new Promise(() => undefined),
      });
      const connects = (): Promise<{ stream: ReadableStream<object> }> => {
        abort.abort(reason);
        return new Promise(() => undefined);
      };
      const model = {
        ...modelOf([]),
        doStream: when === "while it connects" ? connects : async () => ({ stream: hanging }),
      };
      const emitter = new RecordingEmitter();
      emitter.pumped = () => {
        queueMicrotask(() => abort.abort(reason));
        return when === "while the log is behind" ? new Promise(() => undefined) : undefined;
      };
      await expect(callModel({ model, prompt: [], tools: [], signal: abort.signal }, emitter)).rejects.toBe(reason);
    },
  );

  test("a signal that has fired asks nobody", async () => {
    const model = { ...modelOf([]), doStream: () => Promise.reject(new Error("asked")) };
    await expect(
      callModel({ model, prompt: [], tools: [], signal: AbortSignal.abort("gone") }, new RecordingEmitter()),
    ).rejects.toBe("gone");
  });
});
