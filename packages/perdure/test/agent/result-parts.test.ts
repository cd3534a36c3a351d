import { describe, expect, it } from "vitest";
import { nativeOptions } from "../../src/agent/model-port.ts";
import { toPrompt } from "../../src/agent/prompt.ts";
import { resultParts } from "../../src/agent/result-parts.ts";
import type { Json } from "../../src/protocol/json.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";

const picture = { type: "image", data: "iVBORw0=", mimeType: "image/png" };
const sound = { type: "audio", data: "UklGRg==", mimeType: "audio/wav" };

describe("the parts of a result", () => {
  it("are what a model can see or hear; text, links and resources stand beside them as text", () => {
    const link = { type: "resource_link", uri: "file:///a", name: "a" };
    const resource = { type: "resource", resource: { uri: "file:///b", text: "b" } };
    expect(resultParts({ content: [{ type: "text", text: "Look:" }, picture, sound, link, resource] })).toEqual([
      { type: "text", text: "Look:" },
      { type: "file-data", data: "iVBORw0=", mediaType: "image/png" },
      { type: "file-data", data: "UklGRg==", mediaType: "audio/wav" },
      { type: "text", text: JSON.stringify(link) },
      { type: "text", text: JSON.stringify(resource.resource) },
    ]);
  });

  it.each<[string, Json]>([
    ["text alone", { content: [{ type: "text", text: "x" }] }],
    ["a tool's own output that is called content", { content: ["a"], pages: 3 }],
    ["a part that nobody knows", { content: [picture, { type: "smell" }] }],
    ["no object", [picture]],
  ])("are left as JSON: %s", (_, output) => {
    expect(resultParts(output)).toBeUndefined();
  });

  it.each([
    ["v2", { type: "content", value: [{ type: "media", data: "iVBORw0=", mediaType: "image/png" }] }],
    ["v3", { type: "content", value: [{ type: "image-data", data: "iVBORw0=", mediaType: "image/png" }] }],
    ["v4", { type: "json", value: { content: [{ type: "file-data", data: "iVBORw0=", mediaType: "image/png" }] } }],
  ] as const)("are said in the words of specification %s", (specificationVersion, output) => {
    const call = { id: "c", providerId: "p", name: "draw", input: {} };
    const prompt = toPrompt({
      turns: [
        {
          kind: "model",
          output: {
            ...{ messageId: "m", text: "", reasoning: [], calls: [call], content: [], order: ["call"] },
            finishReason: "tool-calls",
          },
        },
        { kind: "results", results: [{ callId: "c", name: "draw", output: { content: [picture] } }] },
      ],
    });
    const model = { ...scriptedModel([]), specificationVersion } as never;
    const native = nativeOptions({ model, prompt, tools: [], signal: new AbortController().signal });
    expect(native.prompt.at(-1)).toMatchObject({ role: "tool", content: [{ output }] });
  });
});
