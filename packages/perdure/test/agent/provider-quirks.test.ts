/** What services that speak OpenAI's chat completions do to a stream, met by the published providers: what we make of it, or how it ends. */
import { describe, expect, test } from "vitest";
import { callModel } from "../../src/agent/model-call.ts";
import { ModelError } from "../../src/agent/model-error.ts";
import type { ModelAnswer } from "../../src/agent/model-output.ts";
import { toPrompt } from "../../src/agent/prompt.ts";
import type { Json } from "../../src/protocol/json.ts";
import { body, compatible, type Delivery, openaiChat, service } from "./fake-apis.ts";
import { delta, finished, usageFrame } from "./fake-openai.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

const chats = [compatible, openaiChat];
const tools = ["look", "find"].map((name) => ({ name, description: name, inputSchema: { type: "object" } }));

/** The answer, or the error, that a provider makes of these frames. Texts go out as they are. */
async function met(api: (typeof chats)[number], frames: readonly Json[], delivery?: Delivery) {
  const text = frames.map((f) => (typeof f === "string" ? f : `data: ${JSON.stringify(f)}\n\n`)).join("");
  const { model } = service(api, () => body(text, delivery));
  const emitter = new RecordingEmitter();
  const prompt = toPrompt({
    turns: [{ kind: "message", message: { id: "u", role: "user", content: "Hello" } }],
  });
  const outcome = await callModel({ model, prompt, tools, signal: new AbortController().signal }, emitter).catch(
    (error: unknown) => error,
  );
  return { outcome, emitter };
}

const DONE = "data: [DONE]\n\n";
const call = (of: { index?: number; id?: string; name?: string; args?: string }) => {
  const { index, id, name, args } = of;
  return delta({
    tool_calls: [
      {
        ...(index !== undefined && { index }),
        ...(id !== undefined && { id, type: "function" }),
        function: { ...(name !== undefined && { name }), ...(args !== undefined && { arguments: args }) },
      },
    ],
  });
};
const ended = [finished("tool_calls"), usageFrame(), DONE];
const said = (outcome: unknown) =>
  (outcome as ModelAnswer).calls.map(({ name, input, invalid }) => [
    name,
    input,
    ...(invalid === undefined ? [] : [invalid]),
  ]);

describe.each(chats)("$name", (api) => {
  test.each<[string, readonly Json[], readonly unknown[]]>([
    [
      "arguments cut inside an escape, of calls that come by turns",
      [
        call({ index: 0, id: "a", name: "look", args: "" }),
        call({ index: 1, id: "b", name: "find", args: '{"n' }),
        call({ index: 0, args: '{"at":"\\u0' }),
        call({ index: 1, args: '":1}' }),
        call({ index: 0, args: "0e9\\" }),
        call({ index: 0, args: 'n"}' }),
        ...ended,
      ],
      [
        ["look", { at: "é\n" }],
        ["find", { n: 1 }],
      ],
    ],
    [
      "an id that each delta repeats, with an empty name",
      [
        call({ index: 0, id: "a", name: "look", args: '{"at"' }),
        call({ index: 0, id: "a", name: "", args: ':"x"}' }),
        ...ended,
      ],
      [["look", { at: "x" }]],
    ],
    [
      "an id and a name that each delta repeats",
      [
        call({ index: 0, id: "a", name: "look", args: '{"at"' }),
        call({ index: 0, id: "a", name: "look", args: ':"x"}' }),
        ...ended,
      ],
      [["look", { at: "x" }]],
    ],
    [
      "one index for two calls",
      [
        call({ index: 0, id: "a", name: "look", args: '{"at":"x"}' }),
        call({ index: 0, id: "b", name: "find", args: '{"n":1}' }),
        ...ended,
      ],
      [
        ["look", { at: "x" }],
        ["find", { n: 1 }],
      ],
    ],
    ["no arguments at all", [call({ index: 0, id: "a", name: "look" }), ...ended], [["look", {}]]],
    [
      "a whole call in one delta, and finish_reason stop for it",
      [call({ index: 0, id: "a", name: "look", args: '{"at":"x"}' }), finished("stop"), DONE],
      [["look", { at: "x" }]],
    ],
    [
      "calls whose ids are all the same",
      [
        call({ index: 0, id: "0", name: "look", args: '{"at":"x"}' }),
        call({ index: 1, id: "0", name: "look", args: '{"at":"y"}' }),
        ...ended,
      ],
      [
        ["look", { at: "x" }],
        ["look", { at: "y" }],
      ],
    ],
  ])("%s", async (_, frames, calls) => {
    const { outcome, emitter } = await met(api, frames);
    expect(outcome).not.toBeInstanceOf(Error);
    expect(said(outcome)).toEqual(calls);
    expect(emitter.open.size).toBe(0);
    expect((outcome as ModelAnswer).calls.map(({ id }) => id)).toEqual(calls.map((_, i) => `call-${i}`));
  });

  test.each<[string, readonly Json[]]>([
    ["no id", [call({ index: 0, name: "look", args: '{"at":"x"}' }), ...ended]],
    ["an empty id", [call({ index: 0, id: "", name: "look", args: '{"at":"x"}' }), ...ended]],
    ["no index", [call({ id: "a", name: "look", args: '{"at":' }), call({ args: '"x"}' }), ...ended]],
    [
      "a name that comes after the arguments",
      [call({ index: 0, id: "a", args: '{"at":' }), call({ index: 0, name: "look", args: '"x"}' }), ...ended],
    ],
  ])(
    "a call with %s is whole, or where the package does not take it nothing is run and the error is typed",
    async (what, frames) => {
      const { outcome, emitter } = await met(api, frames);
      const isRefused = api === openaiChat && ["no index", "a name that comes after the arguments"].includes(what);
      if (isRefused) {
        expect(outcome).toBeInstanceOf(ModelError);
        expect(outcome).toMatchObject({ code: "MODEL_FAILED", retryable: true });
      } else {
        expect(said(outcome)).toEqual([["look", { at: "x" }]]);
        expect(emitter.open.size).toBe(0);
      }
    },
  );

  test.each<[string, readonly Json[], Delivery?]>([
    ["CRLF", [delta({ content: "Hi" }), finished("stop"), usageFrame(), DONE], { newline: "\r\n" }],
    ["a stream that ends without [DONE]", [delta({ content: "Hi" }), finished("stop"), usageFrame()]],
    [
      "comments and empty lines between frames",
      [": ping\n\n", delta({ content: "Hi" }), "\n\n: ping\n\n", finished("stop"), usageFrame(), DONE],
    ],
    [
      "frames without content, before and behind",
      [
        delta({ role: "assistant", content: "" }),
        delta({}),
        delta({ content: "Hi" }),
        delta({}),
        finished("stop"),
        delta({}),
        usageFrame(),
        DONE,
      ],
    ],
    [
      "the reason and the last text in one frame",
      [
        {
          ...(delta({ content: "Hi" }) as object),
          choices: [{ index: 0, delta: { content: "Hi" }, finish_reason: "stop" }],
        } as Json,
        usageFrame(),
        DONE,
      ],
    ],
    [
      "null members",
      [
        delta({ role: "assistant", content: "Hi", tool_calls: null, refusal: null }),
        finished("stop"),
        usageFrame(),
        DONE,
      ],
    ],
    ["frames behind [DONE]", [delta({ content: "Hi" }), finished("stop"), usageFrame(), DONE, ": bye\n\n"]],
  ])("%s changes nothing", async (_, frames, delivery) => {
    const { outcome, emitter } = await met(api, frames, delivery);
    expect(outcome).toMatchObject({
      text: "Hi",
      calls: [],
      finishReason: "stop",
      usage: [{ inputTokens: 20, outputTokens: 7 }],
    });
    expect(emitter.log).toEqual(["open text-0", 'text-0 "Hi"', "text-0 end"]);
  });

  test("text behind the reason to finish, which services send late, is part of the answer or gone, never of another one", async () => {
    const { outcome, emitter } = await met(api, [
      delta({ content: "Hi" }),
      finished("stop"),
      delta({ content: " there" }),
      usageFrame(),
      DONE,
    ]);
    expect((outcome as ModelAnswer).text).toMatch(/^Hi( there)?$/);
    expect([...emitter.blocks.values()].map(({ text }) => text).join("")).toBe((outcome as ModelAnswer).text);
  });

  test("an answer without usage has none, which is not zero", async () => {
    const { outcome } = await met(api, [delta({ content: "Hi" }), finished("stop"), DONE]);
    expect(outcome).toMatchObject({ text: "Hi", usage: [] });
  });

  test.each<[string, readonly Json[]]>([
    ["an error frame", [delta({ content: "Hal" }), { error: { message: "secret", code: 503 } }, DONE]],
    ["a frame that is no JSON", [delta({ content: "Hal" }), "data: {oops\n\n", finished("stop"), DONE]],
    ["a frame that is no chunk", [delta({ content: "Hal" }), { nonsense: true }, finished("stop"), DONE]],
    ["a page in place of a stream", ["<html><body>Bad gateway</body></html>"]],
    ["nothing", []],
  ])(
    "%s is an error of the model's that is worth another try, and says nothing of what was received",
    async (_, frames) => {
      const { outcome } = await met(api, frames);
      if (outcome instanceof ModelError) {
        expect(outcome.retryable).toBe(true);
        expect(outcome.message).not.toMatch(/secret|html|oops/);
      } else {
        // No word on how it finished: the loop asks again.
        expect(outcome).toMatchObject({ finishReason: "other" });
        expect(outcome).not.toHaveProperty("rawFinishReason");
      }
    },
  );
});
