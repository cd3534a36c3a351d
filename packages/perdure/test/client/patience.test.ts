/** What is tried again, when, and for how long. The server is real where one answers; what stands before it is written out here. */
import { agent, createRuntime } from "perdure";
import { ConnectionLostError, PerdureError, RequestError } from "perdure/client";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { quietClient } from "../protocol/published-client.ts";
import { resumable, user, watching } from "./rig.ts";

quietClient();
// The published agent prints each error that it rejects with.
beforeEach(() => void vi.spyOn(console, "error").mockImplementation(() => {}));

type Answer = Response | Error;

/** A runtime without a socket, behind something that answers the first requests in its place. */
function behind(...answers: readonly Answer[]) {
  const left = [...answers];
  const asked: { readonly url: string; readonly method: string; readonly body: string }[] = [];
  const { fetch: serve } = createRuntime({
    agents: [agent({ name: "greeter", run: async (ctx) => void ctx.say("Hello.") })],
    onError: () => {},
  });
  return {
    asked,
    fetch: async (url: string, init: RequestInit): Promise<Response> => {
      asked.push({ url, method: init.method ?? "GET", body: typeof init.body === "string" ? init.body : "" });
      const answer = left.shift();
      if (answer instanceof Error) throw answer;
      return answer ?? (await serve(new Request(url, init)));
    },
  };
}

const unreachable = () => new TypeError("fetch failed");
const status = (code: number, headers: Record<string, string> = {}) => new Response("no", { status: code, headers });
const stream = (text: string, headers: Record<string, string> = { "perdure-run": "u" }) =>
  new Response(text, { headers: { "content-type": "text/event-stream", ...headers } });
const frame = (event: object, id?: string) =>
  `${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(event)}\n\n`;
const started = { type: "RUN_STARTED", threadId: "t", runId: "r" };

/** Waits for nothing, and says how long it would have. */
function waiting() {
  const waited: number[] = [];
  return { waited, sleep: async (ms: number) => void waited.push(ms) };
}

const URL = "http://localhost/agents/greeter";

describe("a request that gets no answer", () => {
  it.each([
    ["when the network fails", unreachable()],
    ["502", status(502)],
    ["503", status(503)],
    ["504", status(504)],
  ])("is made again, the same one: %s", async (_, answer) => {
    const server = behind(answer, answer.constructor === Response ? status(answer.status) : answer);
    const reader = resumable(URL, { fetch: server.fetch, initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r" });
    expect(reader.messages.at(-1)).toMatchObject({ content: "Hello." });
    expect(server.asked).toHaveLength(3);
    expect(new Set(server.asked.map((request) => JSON.stringify(request))).size).toBe(1);
  });

  it("also when the server has begun the run and only its answer was lost: the run id says that it is the same one", async () => {
    let runs = 0;
    const { fetch: serve } = createRuntime({
      agents: [
        agent({
          name: "greeter",
          async run(ctx) {
            runs++;
            ctx.say("Hello.");
          },
        }),
      ],
    });
    let requests = 0;
    const reader = resumable(URL, {
      initialMessages: [user("u", "x")],
      async fetch(url, init) {
        const response = await serve(new Request(url, init));
        if (++requests > 2) return response;
        await response.text();
        throw unreachable();
      },
    });
    await reader.runAgent({ runId: "r" });
    expect(runs).toBe(1);
    expect(reader.messages.map((message) => message.content)).toEqual(["x", "Hello."]);
  });

  it.each([400, 401, 403, 404, 409, 413, 422, 429, 500])(
    "is not made again when it is refused with %i",
    async (code) => {
      const server = behind(status(code));
      const running = resumable(URL, { fetch: server.fetch }).runAgent({ runId: "r" });
      await expect(running).rejects.toMatchObject({
        name: "RequestError",
        status: code,
        code: "HTTP_ERROR",
        payload: "no",
      });
      expect(server.asked).toHaveLength(1);
    },
  );

  it("a refusal of the server's has its code and details, and the members that the published agent's errors have", async () => {
    const { fetch } = behind();
    const reader = resumable(URL, { fetch, threadId: "t", initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r" });
    reader.addMessage(user("u2", "y"));
    const again = reader.runAgent({ runId: "r" });
    await expect(again).rejects.toThrow(RequestError);
    await expect(again).rejects.toMatchObject({
      code: "RUN_ID_REUSED",
      status: 409,
      details: { runId: "r" },
      payload: { error: { code: "RUN_ID_REUSED" } },
      message: expect.stringMatching(/^HTTP 409 RUN_ID_REUSED: this run id stands for another request/),
    });
  });

  it("an answer that is no event stream is an error that says so, not an empty run", async () => {
    const server = behind(new Response("<html>", { headers: { "content-type": "text/html" } }));
    const running = resumable(URL, { fetch: server.fetch }).runAgent({ runId: "r" });
    await expect(running).rejects.toMatchObject({
      code: "NOT_AN_EVENT_STREAM",
      message: expect.stringContaining("text/html"),
    });
  });
});

describe("the time between", () => {
  it("doubles from the first delay up to the longest, less up to a half at random", async () => {
    for (const [random, expected] of [
      [0, [50, 100, 200, 250, 250]],
      [0.501, [75, 150, 300, 375, 375]],
    ] as const) {
      const { waited, sleep } = waiting();
      const { fetch } = behind(...Array.from({ length: 5 }, unreachable));
      const reconnect = { maxAttempts: 5, initialDelayMs: 100, maxDelayMs: 500 };
      await resumable(URL, {
        fetch,
        reconnect,
        sleep,
        random: () => random,
        initialMessages: [user("u", "x")],
      }).runAgent();
      expect(waited).toEqual(expected);
    }
  });

  it("is what Retry-After says where that is longer, in seconds or as a date", async () => {
    const { waited, sleep } = waiting();
    const inAnHour = new Date(Date.now() + 3_600_000).toUTCString();
    const { fetch } = behind(
      status(503, { "retry-after": "7" }),
      status(503, { "retry-after": "0" }),
      status(503, { "retry-after": inAnHour }),
      status(503, { "retry-after": "soon" }),
    );
    const reconnect = { initialDelayMs: 100, maxDelayMs: 500 };
    await resumable(URL, { fetch, reconnect, sleep, random: () => 0, initialMessages: [user("u", "x")] }).runAgent();
    expect(waited).toEqual([7_000, 100, expect.closeTo(3_600_000, -5), 250]);
  });

  it("begins again when something new has come, and not for the same over and over", async () => {
    const attempts: number[] = [];
    const half = (delta: string, id: string) =>
      stream(frame({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta }, id));
    const reader = resumable(URL, {
      fetch: behind(
        unreachable(),
        unreachable(),
        stream(frame(started, "c0") + frame({ type: "TEXT_MESSAGE_START", messageId: "m" }, "c1")),
        unreachable(),
        half("a", "c2"),
        stream(""),
        stream(": keep-alive\n\n"),
        stream(
          frame({ type: "TEXT_MESSAGE_END", messageId: "m" }, "c3") +
            frame({ type: "RUN_FINISHED", threadId: "t", runId: "r" }, "c4"),
        ),
      ).fetch,
      onReconnect: ({ attempt }) => void attempts.push(attempt),
    });
    await reader.runAgent({ runId: "r" });
    expect(attempts).toEqual([1, 2, 1, 2, 1, 2, 3]);
    expect(reader.messages).toMatchObject([{ id: "m", content: "a" }]);
  });
});

describe("giving up", () => {
  it("is an error that says how often it was tried, why, and what can be done", async () => {
    const told: unknown[] = [];
    const { fetch, asked } = behind(...Array.from({ length: 10 }, unreachable));
    const reader = resumable(URL, {
      ...{ fetch, reconnect: { maxAttempts: 3 }, onReconnect: (info) => void told.push(info) },
    });
    const running = reader.runAgent({ runId: "r" });
    await expect(running).rejects.toThrow(ConnectionLostError);
    await expect(running).rejects.toMatchObject({
      code: "CONNECTION_LOST",
      attempts: 3,
      message: `POST ${URL} has got no answer, and it was tried 3 times more. What runs goes on at the server; try again later, a run by connectAgent()`,
      cause: { cause: unreachable() },
    });
    expect(asked).toHaveLength(4);
    expect(told).toMatchObject([
      { attempt: 1 },
      { attempt: 2 },
      { attempt: 3, delayMs: expect.any(Number), cause: expect.any(Error) },
    ]);
  });

  it("with no attempts allowed, a stream that breaks off is an error at once, where the published agent sees a success", async () => {
    const reader = resumable(URL, {
      fetch: behind(stream(frame(started, "c0"))).fetch,
      reconnect: { maxAttempts: 0 },
    });
    await expect(reader.runAgent({ runId: "r" })).rejects.toMatchObject({ code: "CONNECTION_LOST", attempts: 0 });
  });

  it("a stream of a server that is not Perdure's is not asked for again: its run would begin once more", async () => {
    const server = behind(stream(frame(started), {}));
    const running = resumable(URL, { fetch: server.fetch }).runAgent({ runId: "r" });
    await expect(running).rejects.toThrow(PerdureError);
    await expect(running).rejects.toMatchObject({ code: "NOT_RESUMABLE" });
    expect(server.asked).toHaveLength(1);
  });

  it("a whole stream of such a server is read like any other", async () => {
    const reader = resumable(URL, {
      fetch: behind(stream(frame(started) + frame({ type: "RUN_FINISHED", threadId: "t", runId: "r", result: 1 }), {}))
        .fetch,
    });
    expect(await reader.runAgent({ runId: "r" })).toMatchObject({ result: 1 });
  });
});

describe("a connection that has died without a word", () => {
  it("is taken for lost after a minute of silence, and keep-alives are no silence", async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const bytes = (text: string) => new TextEncoder().encode(text);
    let line: ReadableStreamDefaultController<Uint8Array> | undefined;
    let isLeft = false;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        line = controller;
      },
      cancel() {
        isLeft = true;
      },
    });
    const lost: string[] = [];
    const reader = resumable(URL, {
      fetch: behind(
        new Response(body, { headers: { "content-type": "text/event-stream", "perdure-run": "u" } }),
        stream(frame({ type: "RUN_FINISHED", threadId: "t", runId: "r" }, "c1")),
      ).fetch,
      onReconnect: ({ cause }) => void lost.push(cause.message),
    });
    const { subscriber, types } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    for (const text of [frame(started, "c0"), ": keep-alive\n\n", ": keep-alive\n\n"]) {
      await vi.advanceTimersByTimeAsync(1);
      line?.enqueue(bytes(text));
      await vi.advanceTimersByTimeAsync(59_000);
    }
    expect(lost).toEqual([]);
    await vi.advanceTimersByTimeAsync(1_010);
    await running;
    expect(lost).toEqual(["the stream was silent for 60000 ms"]);
    expect(isLeft).toBe(true);
    expect(types()).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
  });
});

describe("a listener that throws", () => {
  it("costs the run nothing", async () => {
    const { fetch } = behind(unreachable());
    const fail = () => {
      throw new Error("mine");
    };
    const reader = resumable(URL, { fetch, onReconnect: fail, onReconnected: fail, initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r" });
    expect(reader.messages.at(-1)).toMatchObject({ content: "Hello." });
    expect(console.error).toHaveBeenCalledTimes(2);
  });
});
