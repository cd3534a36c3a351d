import type { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import type {
  LanguageModelV2,
  LanguageModelV2Message,
  LanguageModelV3,
  LanguageModelV3Message,
} from "@ai-sdk/provider";
import { MockLanguageModelV3 } from "ai/test";
import { describe, expect, expectTypeOf, test } from "vitest";
import {
  type LanguageModel,
  modelProblem,
  nativeOptions,
  type Prompt,
  type PromptMessage,
} from "../../src/agent/model-port.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { modelOf } from "./model-of.ts";

/** What specification V4 adds to V3 in the members that we use (@ai-sdk/provider 4.0.38). */
interface LanguageModelV4 {
  readonly specificationVersion: "v4";
  readonly provider: string;
  readonly modelId: string;
  supportedUrls: PromiseLike<Record<string, RegExp[]>> | Record<string, RegExp[]>;
  doStream(options: {
    prompt: {
      role: string;
      content: string | { type: string; data?: { type: "data" | "url" | "reference" | "text" } }[];
    }[];
    maxOutputTokens?: number;
    tools?: { type: "function" | "provider"; name: string }[];
    abortSignal?: AbortSignal;
    reasoning?: "provider-default" | "none" | "high";
    providerOptions?: Record<string, Record<string, unknown>>;
  }): PromiseLike<{ stream: ReadableStream<{ type: "ping" } | { type: "text-delta"; id: string; delta: string }> }>;
}

describe("the port, by type", () => {
  test("takes model objects of each version, and providers' own", () => {
    expectTypeOf<LanguageModelV2>().toExtend<LanguageModel>();
    expectTypeOf<LanguageModelV3>().toExtend<LanguageModel>();
    expectTypeOf<LanguageModelV4>().toExtend<LanguageModel>();
    expectTypeOf<MockLanguageModelV3>().toExtend<LanguageModel>();
    expectTypeOf<ReturnType<ReturnType<typeof createOpenAICompatible>>>().toExtend<LanguageModel>();
  });

  test("takes nothing else", () => {
    // @ts-expect-error a model's name is no model
    const named: LanguageModel = "openai/gpt-5";
    // @ts-expect-error a specification that we do not know
    const old: LanguageModel = { ...modelOf([]), specificationVersion: "v1" };
    expect([named, old]).toHaveLength(2);
  });

  test("sends messages that V2 and V3 declare", () => {
    const providerOptions = { acme: { signature: "s" } };
    const call = { toolCallId: "c", toolName: "t" };
    const sample = [
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Hi", providerOptions }] },
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "", providerOptions },
          { type: "text", text: "Hi", providerOptions },
          { type: "tool-call", ...call, input: { a: [null] }, providerOptions },
        ],
      },
      {
        role: "tool",
        content: [
          { type: "tool-result", ...call, output: { type: "json", value: { a: [1] } } },
          { type: "tool-result", ...call, output: { type: "text", value: "" } },
          { type: "tool-result", ...call, output: { type: "error-text", value: "" } },
        ],
      },
    ] satisfies LanguageModelV2Message[] satisfies LanguageModelV3Message[] satisfies PromptMessage[];
    expect(
      nativeOptions({ model: modelOf([]), prompt: sample, tools: [], signal: AbortSignal.abort() }).prompt,
    ).toEqual(sample);
  });

  test("takes the scripted model as any provider's, and so does the AI SDK", () => {
    expectTypeOf(scriptedModel([])).toExtend<LanguageModel>();
    expectTypeOf(scriptedModel([])).toExtend<LanguageModelV3>();
  });
});

describe("a request", () => {
  const signal = new AbortController().signal;
  const prompt: Prompt = [
    { role: "system", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "text", text: "see" },
        { type: "file", mediaType: "image/png", data: { type: "data", data: "AQID" } },
        { type: "file", mediaType: "image/*", data: { type: "url", url: "https://a.example/i" } },
      ],
    },
  ];
  const files = (version: LanguageModel["specificationVersion"]) => {
    const [, user] = nativeOptions({ model: modelOf([], version), prompt, tools: [], signal }).prompt;
    return user;
  };

  test.each(["v2", "v3"] as const)("of %s holds files as base64 or URL", (version) => {
    expect(files(version)).toEqual({
      role: "user",
      content: [
        { type: "text", text: "see" },
        { type: "file", mediaType: "image/png", data: "AQID" },
        { type: "file", mediaType: "image/*", data: new URL("https://a.example/i") },
      ],
    });
  });

  test("of v4 names what a file's data is", () => {
    expect(files("v4")).toMatchObject({
      content: [
        {},
        { data: { type: "data", data: "AQID" } },
        { data: { type: "url", url: new URL("https://a.example/i") } },
      ],
    });
  });

  test("offers tools as functions, none at all when there are none, and carries settings and signal", () => {
    const tool = { name: "t", description: "T.", inputSchema: { type: "object" } };
    const model = modelOf([]);
    expect(nativeOptions({ model, prompt: [], tools: [tool], settings: { temperature: 0 }, signal })).toEqual({
      prompt: [],
      temperature: 0,
      tools: [{ type: "function", ...tool }],
      abortSignal: signal,
    });
    expect(nativeOptions({ model, prompt: [], tools: [], signal })).not.toHaveProperty("tools");
  });
});

test("what cannot be a model is told what to give instead", () => {
  expect(modelProblem(new MockLanguageModelV3())).toBe(undefined);
  expect(modelProblem(modelOf([], "v4"))).toBe(undefined);
  expect(modelProblem("gpt-5")).toContain('openai("gpt-5")');
  expect(modelProblem(null)).toContain("is null");
  expect(modelProblem({ specificationVersion: "v3" })).toContain("no doStream");
  expect(modelProblem({ ...modelOf([]), specificationVersion: "v1" })).toContain('"v1"');
});
