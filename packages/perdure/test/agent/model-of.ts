import { callModel } from "../../src/agent/model-call.ts";
import type { LanguageModel, ModelRequest } from "../../src/agent/model-port.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

/** A model that streams these parts, whatever it is asked. */
export function modelOf(
  parts: readonly object[],
  specificationVersion: LanguageModel["specificationVersion"] = "v3",
): LanguageModel {
  return {
    specificationVersion,
    provider: "acme",
    modelId: "m-1",
    doStream: async () => ({
      stream: new ReadableStream({
        start(controller) {
          for (const part of parts) controller.enqueue(part);
          controller.close();
        },
      }),
    }),
  };
}

export async function run(model: LanguageModel, request: Partial<ModelRequest> = {}) {
  const emitter = new RecordingEmitter();
  const signal = new AbortController().signal;
  const output = await callModel({ model, prompt: [], tools: [], signal, ...request }, emitter);
  return { output, emitter };
}

/** How V3 and V4 end a stream. */
export function finish(unified = "stop", raw?: string) {
  return {
    type: "finish",
    finishReason: { unified, raw },
    usage: {
      inputTokens: { total: 10, noCache: 6, cacheRead: 4, cacheWrite: undefined },
      outputTokens: { total: 5, text: 3, reasoning: 2 },
    },
  };
}
