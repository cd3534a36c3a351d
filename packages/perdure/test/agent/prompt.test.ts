import type { Message } from "@ag-ui/core";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ModelOutput } from "../../src/agent/model-output.ts";
import { HistoryGapError, type ToolResult, type Turn, toPrompt } from "../../src/agent/prompt.ts";
import { offence } from "./strict-prompt.ts";

const said = (text: string, more: Partial<ModelOutput> = {}): Turn => ({ kind: "model", output: output(text, more) });
const output = (text: string, more: Partial<ModelOutput> = {}): ModelOutput => ({
  messageId: "a",
  text,
  reasoning: [],
  calls: [],
  content: [],
  order: [...(text === "" ? [] : [{ text: text.length }]), ...(more.calls ?? []).map(() => "call" as const)],
  finishReason: "stop",
  ...more,
});
const call = (id: string, providerId: string | null = id) => ({ id, providerId, name: "t", input: { of: id } });
const results = (...given: ToolResult[]): Turn => ({ kind: "results", results: given });
const ok = (callId: string): ToolResult => ({ callId, name: "t", output: { of: callId } });
const user = (content: Extract<Message, { role: "user" }>["content"]): Turn => ({
  kind: "message",
  message: { id: "u", role: "user", content },
});
const message = (m: Message): Turn => ({ kind: "message", message: m });

describe("what we recorded", () => {
  test("is given back with everything its provider attached, in its order", () => {
    const signature = { anthropic: { signature: "sig" } };
    const redacted = { anthropic: { redactedData: "BLOB" } };
    const turn = said("Looking.", {
      reasoning: [
        { text: "hm", metadata: signature },
        { text: "", metadata: redacted },
      ],
      calls: [{ ...call("c0", "toolu_1"), metadata: { google: { thoughtSignature: "s" } } }],
      content: [
        { type: "source", sourceType: "url", id: "s", url: "https://a.example" },
        { type: "file", mediaType: "image/png", data: "AQID" },
      ],
      order: [
        "reasoning",
        "reasoning",
        { text: 3, metadata: { openai: { itemId: "m1" } } },
        { text: 5 },
        "content",
        "content",
        "call",
      ],
    });
    const prompt = toPrompt({ instructions: "Be brief.", turns: [user("Hi"), turn, results(ok("c0"))] });
    expect(prompt).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Hi" }] },
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "hm", providerOptions: signature },
          { type: "reasoning", text: "", providerOptions: redacted },
          { type: "text", text: "Loo", providerOptions: { openai: { itemId: "m1" } } },
          { type: "text", text: "king." },
          { type: "file", mediaType: "image/png", data: { type: "data", data: "AQID" } },
          {
            type: "tool-call",
            toolCallId: "toolu_1",
            toolName: "t",
            input: { of: "c0" },
            providerOptions: { google: { thoughtSignature: "s" } },
          },
        ],
      },
      {
        role: "tool",
        content: [
          { type: "tool-result", toolCallId: "toolu_1", toolName: "t", output: { type: "json", value: { of: "c0" } } },
        ],
      },
    ]);
  });

  test("has its results in call order, however and whenever they came", () => {
    const turn = said("", { calls: [call("c0"), call("c1"), call("c2")] });
    const text: ToolResult = { callId: "c2", name: "t", output: "plain" };
    const failed: ToolResult = { callId: "c1", name: "t", error: { code: "NO_STOCK", message: "Out of stock." } };
    const prompt = toPrompt({ turns: [turn, results(text), user("and?"), results(failed, ok("c0"))] });
    expect(prompt[1]).toMatchObject({
      role: "tool",
      content: [
        { toolCallId: "c0", output: { type: "json" } },
        { toolCallId: "c1", output: { type: "error-text", value: "Out of stock." } },
        { toolCallId: "c2", output: { type: "text", value: "plain" } },
      ],
    });
    expect(prompt[2]).toMatchObject({ role: "user" });
  });

  test("names each call once, also when the provider counts from 0 in each answer or gives no id", () => {
    const turn = (n: number): Turn[] => [
      said("", { calls: [call(`${n}a`, "call_0"), call(`${n}b`, null), call(`${n}c`, "no: id")] }),
      results(ok(`${n}a`), ok(`${n}b`), ok(`${n}c`)),
    ];
    const prompt = toPrompt({ turns: [...turn(1), ...turn(2)] });
    expect(offence(prompt)).toBe(null);
    expect(prompt[0]).toMatchObject({ content: [{ toolCallId: "call_0" }, {}, {}] });
  });

  test("shows invalid arguments to the model as text, in an object", () => {
    const invalid = { ...call("c0"), input: '{"a":', invalid: "its arguments are not JSON" };
    const [assistant] = toPrompt({ turns: [said("", { calls: [invalid] }), results(ok("c0"))] });
    expect(assistant).toMatchObject({ content: [{ input: { invalidArguments: '{"a":' } }] });
  });

  test("is left out when it is reasoning alone", () => {
    expect(toPrompt({ turns: [said("", { reasoning: [{ text: "hm" }], order: ["reasoning"] })] })).toEqual([]);
  });

  test.each([
    ["no result", [said("", { calls: [call("c0")] }), said("next")]],
    ["no result at the end", [said("", { calls: [call("c0")] })]],
    ["two results", [said("", { calls: [call("c0")] }), results(ok("c0"), ok("c0"))]],
    ["a result without a call", [said("Hi"), results(ok("c9"))]],
    ["a result before any answer", [results(ok("c9"))]],
    ["a result after the next answer", [said("", { calls: [call("c0")] }), said("next"), results(ok("c0"))]],
  ])("with %s asks no model", (_, turns) => {
    expect(() => toPrompt({ turns })).toThrow(HistoryGapError);
  });
});

describe("what came from outside", () => {
  test("of the user keeps text and files by data and URL; what no model takes is left out", () => {
    const [prompt, ...rest] = toPrompt({
      turns: [
        user([
          { type: "text", text: "see" },
          { type: "text", text: "" },
          { type: "image", source: { type: "data", value: "AQID", mimeType: "image/png" } },
          { type: "image", source: { type: "url", value: "https://a.example/i" } },
          { type: "image", source: { type: "url", value: "data:image/gif;base64,R0lG" } },
          {
            type: "document",
            source: { type: "url", value: "https://a.example/d", mimeType: "application/pdf" },
            metadata: { filename: "d.pdf" },
          },
          { type: "document", source: { type: "url", value: "https://a.example/d" } },
          { type: "image", source: { type: "url", value: "not a url" } },
          { type: "audio", source: { type: "file", value: "file-1", provider: "openai" } },
        ]),
        user(""),
      ],
    });
    expect(rest).toEqual([]);
    expect(prompt?.content).toEqual([
      { type: "text", text: "see" },
      { type: "file", mediaType: "image/png", data: { type: "data", data: "AQID" } },
      { type: "file", mediaType: "image/*", data: { type: "url", url: "https://a.example/i" } },
      { type: "file", mediaType: "image/gif", data: { type: "data", data: "R0lG" } },
      {
        type: "file",
        mediaType: "application/pdf",
        data: { type: "url", url: "https://a.example/d" },
        filename: "d.pdf",
      },
    ]);
  });

  test("of an imported history keeps answered calls, in order, and nothing half", () => {
    const fn = (id: string, args = "{}") => ({
      id,
      type: "function" as const,
      function: { name: "t", arguments: args },
    });
    const prompt = toPrompt({
      instructions: "A",
      turns: [
        message({ id: "1", role: "tool", toolCallId: "x", content: "orphan" }),
        message({
          id: "2",
          role: "assistant",
          content: "Hm",
          toolCalls: [fn("a"), fn("a"), fn("b", '{"n":1}'), fn("c"), fn("d", "nonsense")],
        }),
        message({ id: "3", role: "reasoning", content: "secret" }),
        message({ id: "4", role: "tool", toolCallId: "b", content: [{ type: "text", text: "B" }] }),
        message({ id: "5", role: "tool", toolCallId: "a", content: "A", error: "failed" }),
        message({ id: "6", role: "tool", toolCallId: "d", content: "D" }),
        message({ id: "7", role: "activity", activityType: "PLAN", content: {} }),
        message({ id: "8", role: "system", content: "B" }),
        user("ok"),
        message({ id: "9", role: "tool", toolCallId: "c", content: "too late" }),
      ],
    });
    expect(prompt).toEqual([
      { role: "system", content: "A" },
      { role: "system", content: "B" },
      {
        role: "assistant",
        content: [
          { type: "text", text: "Hm" },
          { type: "tool-call", toolCallId: "a", toolName: "t", input: {} },
          { type: "tool-call", toolCallId: "b", toolName: "t", input: { n: 1 } },
        ],
      },
      {
        role: "tool",
        content: [
          { type: "tool-result", toolCallId: "a", toolName: "t", output: { type: "error-text", value: "failed" } },
          { type: "tool-result", toolCallId: "b", toolName: "t", output: { type: "text", value: "B" } },
        ],
      },
      { role: "user", content: [{ type: "text", text: "ok" }] },
    ]);
  });
});

// Random histories. Ids collide on purpose; foreign messages are lawless, ours keep to the log's law unless `faulty`.
const id = fc.constantFrom("a", "b", "c", "call_0", "call_1", "bad id", "");
const foreign: fc.Arbitrary<Message> = fc.oneof(
  fc.record({ id, role: fc.constant("user" as const), content: fc.constantFrom("", "hi") }),
  fc.record({
    id,
    role: fc.constantFrom("system" as const, "developer" as const),
    content: fc.constantFrom("", "rule"),
  }),
  fc.record({ id, role: fc.constant("tool" as const), toolCallId: id, content: fc.constantFrom("", "done") }),
  fc.record({ id, role: fc.constant("reasoning" as const), content: fc.constant("hm") }),
  fc.record({
    id,
    role: fc.constant("assistant" as const),
    content: fc.constantFrom("", "hello"),
    toolCalls: fc.array(
      fc.record({
        id,
        type: fc.constant("function" as const),
        function: fc.record({ name: fc.constant("t"), arguments: fc.constantFrom("{}", "", "[]", "{") }),
      }),
      { maxLength: 3 },
    ),
  }),
);
const own = fc.record({
  text: fc.constantFrom("", "hm"),
  calls: fc.array(fc.record({ providerId: fc.option(id), invalid: fc.boolean() }), { maxLength: 4 }),
  reasoning: fc.boolean(),
  shuffle: fc.array(fc.nat(), { maxLength: 4 }),
  between: fc.array(foreign, { maxLength: 2 }),
});
const history = fc.array(
  fc.oneof(
    foreign.map((m) => ({ foreign: m })),
    own.map((o) => ({ own: o })),
  ),
  { maxLength: 8 },
);

test("every random history gives a conversation that the strictest provider takes, with each recorded call once", () => {
  fc.assert(
    fc.property(history, (drawn) => {
      let calls = 0;
      const turns = drawn.flatMap((piece): Turn[] => {
        if ("foreign" in piece) return [message(piece.foreign)];
        const { text, reasoning, shuffle, between } = piece.own;
        const made = piece.own.calls.map(({ providerId, invalid }) => ({
          ...call(`wire:${calls++}`, providerId),
          ...(invalid && { input: "{", invalid: "its arguments are not JSON" }),
        }));
        const given = made.map(({ id }) => ok(id));
        for (const [i, by] of shuffle.entries()) given.push(...given.splice(by % Math.max(given.length, 1), i % 2));
        const turn = said(text, { calls: made, ...(reasoning && { reasoning: [{ text: "hm" }] }) });
        const half = Math.floor(given.length / 2);
        return [turn, results(...given.slice(0, half)), ...between.map(message), results(...given.slice(half))];
      });
      const prompt = toPrompt({ instructions: "Be brief.", turns });
      expect(offence(prompt)).toBe(null);
      const values = prompt.flatMap((m) =>
        m.role === "tool" ? m.content.map(({ output: o }) => JSON.stringify(o.value)) : [],
      );
      const recorded = values.filter((value) => value.includes("wire:")).sort();
      expect(recorded).toEqual(Array.from({ length: calls }, (_, i) => JSON.stringify({ of: `wire:${i}` })).sort());
      expect(toPrompt({ instructions: "Be brief.", turns: JSON.parse(JSON.stringify(turns)) as Turn[] })).toEqual(
        prompt,
      );
    }),
    { numRuns: 2000 },
  );
});
