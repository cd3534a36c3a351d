/** How long a model may be silent. Time is the test's own. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { callModel } from "../../src/agent/model-call.ts";
import type { LanguageModel } from "../../src/agent/model-port.ts";
import { ModelError } from "../../src/runtime/model-error.ts";
import { finish, modelOf } from "./model-of.ts";
import { RecordingEmitter } from "./recording-emitter.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const timeouts = { firstToken: 60_000, betweenTokens: 30_000 };

/** A call of a model whose answer comes as the test lets it. */
function calling({ connects = true, emitter = new RecordingEmitter() } = {}) {
  let controller: ReadableStreamDefaultController<object> | undefined;
  let signal: AbortSignal | undefined;
  let isCancelled = false;
  const stream = new ReadableStream<object>({
    start: (made) => {
      controller = made;
    },
    cancel: () => {
      isCancelled = true;
    },
  });
  const model: LanguageModel = {
    ...modelOf([]),
    doStream: async (options) => {
      signal = options.abortSignal;
      return connects ? { stream } : await new Promise(() => undefined);
    },
  };
  let ended: unknown;
  const call = callModel({ model, prompt: [], tools: [], timeouts, signal: new AbortController().signal }, emitter);
  call.then(
    (answer) => {
      ended = answer;
    },
    (error: unknown) => {
      ended = error;
    },
  );
  const settled = async (): Promise<void> => {
    for (let i = 0; i < 50; i++) await Promise.resolve();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    send: async (...parts: readonly object[]) => {
      for (const part of parts) controller?.enqueue(part);
      await settled();
    },
    passes: async (ms: number) => {
      await settled();
      await vi.advanceTimersByTimeAsync(ms);
      await settled();
    },
    ended: () => ended,
    signal: () => signal,
    isCancelled: () => isCancelled,
    emitter,
  };
}

const text = (delta: string) => ({ type: "text-delta", id: "0", delta });
const timedOut = (limit: string) =>
  expect.objectContaining({ code: "MODEL_TIMEOUT", retryable: true, message: expect.stringContaining(limit) });

test("a provider that never answers the request is given up, and told so", async () => {
  const call = calling({ connects: false });
  await call.passes(59_999);
  expect(call.ended()).toBe(undefined);
  await call.passes(1);
  expect(call.ended()).toBeInstanceOf(ModelError);
  expect(call.ended()).toEqual(timedOut("timeouts.firstToken"));
  expect(call.signal()?.aborted).toBe(true);
});

test("what comes before the first token is none", async () => {
  const call = calling();
  await call.passes(30_000);
  await call.send({ type: "stream-start", warnings: [] }, { type: "response-metadata", id: "r", modelId: "m" });
  await call.passes(29_999);
  expect(call.ended()).toBe(undefined);
  await call.passes(1);
  expect(call.ended()).toEqual(timedOut("timeouts.firstToken"));
  expect(call.isCancelled()).toBe(true);
});

test("between tokens there is another limit, which begins anew with each of them", async () => {
  const call = calling();
  await call.passes(59_000);
  for (const word of ["Half ", "of ", "an "]) {
    await call.send(text(word));
    await call.passes(29_999);
  }
  expect(call.ended()).toBe(undefined);
  await call.passes(1);
  expect(call.ended()).toEqual(timedOut("timeouts.betweenTokens"));
  expect(call.isCancelled()).toBe(true);
  // Whoever drives takes it back, or closes it as incomplete.
  expect([...call.emitter.open]).toEqual(["text-0"]);
});

test("while the answer waits for its readers it is not the model that is silent", async () => {
  let go = (): void => {};
  const emitter = new RecordingEmitter();
  emitter.pumped = () => new Promise<void>((resolve) => (go = resolve));
  const call = calling({ emitter });
  await call.send(text("Hi"), finish());
  await call.passes(1_000_000);
  expect(call.ended()).toBe(undefined);
  go();
  await call.passes(0);
  expect(call.ended()).toMatchObject({ text: "Hi", finishReason: "stop" });
});

test("a whole answer leaves no timer behind", async () => {
  const call = calling();
  await call.send(text("Hi"), finish());
  expect(call.ended()).toMatchObject({ text: "Hi" });
  await call.passes(1_000_000);
  expect(call.signal()?.aborted).toBe(false);
});
