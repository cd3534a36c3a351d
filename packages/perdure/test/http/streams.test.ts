/** What the stream is on the wire, over real sockets: headers, bytes, silence, slow readers, and readers that leave. */
import { IncomingMessage, ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { agent, createRuntime, memory, type RunContext } from "perdure";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import {
  ask,
  deferred,
  ended,
  eventsOf,
  framesOf,
  fresh,
  json,
  open,
  readUntil,
  served,
  serving,
  textOf,
  types,
  withoutUids,
} from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

describe("a stream", () => {
  it("says what it is, and asks proxies to pass it on as it comes", async () => {
    const { url } = await served({ hi: async (ctx) => void ctx.say("hi") });
    const { status, headers } = await ask(`${url}/agents/hi`);
    expect(status).toBe(200);
    expect(headers["content-type"]).toBe("text/event-stream");
    expect(headers["cache-control"]).toContain("no-transform");
    expect(headers["x-accel-buffering"]).toBe("no");
  });

  it.each([undefined, "*/*", "text/*", "text/event-stream", "text/event-stream, */*;q=0.1"])(
    "is what its Content-Type says, whatever the client accepts: %s",
    async (accept) => {
      const { url } = await served({ hello: async (ctx) => void ctx.say("Hello") });
      const answer = await ask(`${url}/agents/hello`, {
        headers: { ...json, ...(accept !== undefined && { accept }) },
      });
      expect(answer.headers["content-type"]).toBe("text/event-stream");
      expect(types(answer.text).at(0)).toBe("RUN_STARTED");
      expect(types(answer.text).at(-1)).toBe("RUN_FINISHED");
    },
  );

  it("is LF alone, one event a frame, whatever the texts hold", async () => {
    const { url } = await served({ hi: async (ctx) => void ctx.say("a\r\nb\n\ndata: x\u2028y") });
    const { text } = await ask(`${url}/agents/hi`);
    expect(text).not.toContain("\r");
    expect(text.endsWith("\n\n")).toBe(true);
    const frames = text.slice(0, -2).split("\n\n");
    for (const frame of frames) expect(frame).toMatch(/^id: [\w.-]+\ndata: \{[^\n]*\}$/);
    expect(eventsOf(text)[2]).toMatchObject({ delta: "a\r\nb\n\ndata: x\u2028y" });
  });

  it("begins at once: head and first events are there while the body waits", async () => {
    const go = deferred();
    const { url } = await served({
      slow: async (ctx) => {
        await go.promise;
        ctx.say("at last");
      },
    });
    const { response } = await open(`${url}/agents/slow`);
    expect(eventsOf(await readUntil(response, "\n\n"))).toMatchObject([{ type: "RUN_STARTED", runId: "r" }]);
    go.resolve();
    expect(types(await textOf(response)).at(-1)).toBe("RUN_FINISHED");
  });

  it("two runs at once do not mix", async () => {
    const gates = { a: deferred(), b: deferred() };
    const meet = async (ctx: RunContext): Promise<void> => {
      using message = ctx.message();
      message.delta(`${ctx.runId} begins`);
      const mine = ctx.runId === "a" ? gates.a : gates.b;
      const other = ctx.runId === "a" ? gates.b : gates.a;
      mine.resolve();
      await other.promise;
      message.delta(`${ctx.runId} ends`);
    };
    const { url } = await served({ meet });
    const [a, b] = await Promise.all(
      ["a", "b"].map((runId) => ask(`${url}/agents/meet`, { body: JSON.stringify(fresh({ runId })) })),
    );
    for (const [id, answer] of [
      ["a", a],
      ["b", b],
    ] as const) {
      const said = eventsOf(answer?.text ?? "").flatMap((event) => ("delta" in event ? [event.delta] : []));
      expect(said).toEqual([`${id} begins`, `${id} ends`]);
    }
  });
});

/** Says something, and then nothing until it may go on. */
const quiet = () => {
  const go = deferred();
  const body = async (ctx: RunContext): Promise<void> => {
    using message = ctx.message();
    message.delta("one ");
    await go.promise;
    message.delta("two");
  };
  return { go, body };
};

describe("silence", () => {
  it("is broken by comments, so that nobody on the way takes the connection for dead", async () => {
    const { go, body } = quiet();
    const { url } = await served({ quiet: body }, { keepAlive: 5 });
    const { response } = await open(`${url}/agents/quiet`);
    const text = await readUntil(response, ": keep-alive\n\n: keep-alive\n\n");
    go.resolve();
    expect(types(text + (await textOf(response))).at(-1)).toBe("RUN_FINISHED");
  });

  it("is broken by a comment after 15 s, without being asked for it", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const { go, body } = quiet();
    const runtime = createRuntime({ agents: [agent({ name: "quiet", run: body })] });
    const request = new Request("http://localhost/agents/quiet", {
      ...{ method: "POST", headers: json, body: JSON.stringify(fresh()) },
    });
    const [response] = await Promise.all([runtime.fetch(request), vi.advanceTimersByTimeAsync(100)]);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    const read = async (ms: number): Promise<string> => {
      const [{ value }] = await Promise.all([reader?.read() ?? { value: "" }, vi.advanceTimersByTimeAsync(ms)]);
      return value ?? "";
    };
    let text = "";
    while (!text.includes("one ")) text += await read(100);
    expect(await read(15_000)).toBe(": keep-alive\n\n");
    expect(await read(15_000)).toBe(": keep-alive\n\n");
    const early = read(14_000);
    go.resolve();
    expect(await early).toContain("two");
    await reader?.cancel();
    await Promise.all([runtime.close(), vi.advanceTimersByTimeAsync(10_000)]);
  });

  it.each(versions)("the comments do not disturb the published client %s", async (version) => {
    const { go, body } = quiet();
    const { url } = await served({ quiet: body }, { keepAlive: 1 });
    const { response, abort } = await open(`${url}/agents/quiet`);
    const stock = stockClient(version, { url: `${url}/agents/quiet` });
    const done = stock.run({ runId: "r2" });
    // The other connection shows that comments are flowing.
    await readUntil(response, ": keep-alive\n\n: keep-alive\n\n: keep-alive\n\n");
    abort();
    go.resolve();
    await done;
    expect(withoutUids(stock.messages)).toEqual([{ id: "#1:m0", role: "assistant", content: "one two" }]);
  });
});

describe("a reader that does not read", () => {
  const PIECES = 640;
  /** 40 MiB: more than two sockets hold, and what may wait for a reader. */
  const flood = async (ctx: RunContext): Promise<void> => {
    for (let i = 0; i < PIECES; i++) {
      ctx.custom("piece", { i, filler: "x".repeat(64 * 1024) });
      await ctx.flushed();
    }
  };

  it("holds nobody back: the run ends; he is told to come back, and gets with his cursor exactly the rest", async () => {
    const { url } = await served({ flood });
    const body = fresh();
    const { response } = await open(`${url}/agents/flood`, { body: JSON.stringify(body) });
    await ended(url, body.threadId);
    const frames = framesOf(await textOf(response));
    expect(frames.at(-1)).toMatchObject({ cursor: undefined, event: { type: "RUN_ERROR", code: "RECONNECT" } });
    const cursor = frames.findLast((frame) => frame.cursor !== undefined)?.cursor;
    const rest = await ask(`${url}/threads/${body.threadId}/stream?after=${cursor}`, { method: "GET" });
    const pieces = [...frames, ...framesOf(rest.text)].flatMap(({ event }) =>
      event.type === "CUSTOM" ? [(event.value as { i: number }).i] : [],
    );
    expect(pieces).toEqual(Array.from({ length: PIECES }, (_, i) => i));
    expect(types(rest.text).at(-1)).toBe("RUN_FINISHED");
  });

  it("gets no comments on top of what waits for him, and again one when he has taken it", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval"] });
    onTestFinished(() => void vi.useRealTimers());
    const { go, body } = quiet();
    const runtime = createRuntime({ agents: [agent({ name: "quiet", run: body })] });
    let sent = "";
    let take = (): void => {};
    const socket = new Duplex({
      read: () => {},
      write(chunk, _, taken) {
        sent += String(chunk);
        take = taken;
      },
    });
    // All that there is of a socket's time-out.
    Object.assign(socket, { setTimeout: () => socket });
    const outgoing = new ServerResponse(new IncomingMessage(socket as Socket));
    outgoing.assignSocket(socket as Socket);
    const request = new Request("http://localhost/agents/quiet", {
      ...{ method: "POST", headers: json, body: JSON.stringify(fresh()) },
    });
    await Promise.all([runtime.fetch(request, { outgoing }), vi.advanceTimersByTimeAsync(100)]);
    await vi.advanceTimersByTimeAsync(150_000);
    expect(sent).not.toContain(": keep-alive\n");
    while (socket.writableLength > 0) {
      take();
      await vi.advanceTimersByTimeAsync(100);
    }
    expect(sent).toContain("one ");
    expect(sent).not.toContain(": keep-alive\n");
    await vi.advanceTimersByTimeAsync(45_000);
    expect(sent.split(": keep-alive\n")).toHaveLength(2);
    go.resolve();
    socket.destroy();
    await Promise.all([runtime.close(), vi.advanceTimersByTimeAsync(10_000)]);
  });

  it("may take a batch of any size while he keeps up", async () => {
    const { url } = await served({
      lump: async (ctx) => {
        for (let i = 0; i < 12_000; i++) ctx.custom("piece", i);
      },
    });
    const events = eventsOf((await ask(`${url}/agents/lump`)).text);
    expect(events.at(-1)?.type).toBe("RUN_FINISHED");
    expect(events.filter(({ type }) => type === "CUSTOM")).toHaveLength(12_000);
  });

  it("is cut off when the server closes, and those who read are not kept waiting for ever", async () => {
    // What one batch holds is on its way to the socket, and more than that takes.
    const lump = async (ctx: RunContext): Promise<void> => {
      for (let i = 0; i < 200; i++) ctx.custom("piece", "x".repeat(64 * 1024));
    };
    const server = await served({ lump }, { linger: 20 });
    const body = fresh();
    const { response } = await open(`${server.url}/agents/lump`, { body: JSON.stringify(body) });
    await ended(server.url, body.threadId);
    await server.close();
    await expect(textOf(response)).rejects.toMatchObject({ code: "ECONNRESET" });
  });
});

describe("the end of a connection", () => {
  /** Says one, waits, says two. */
  const halves = () => {
    const go = deferred();
    const signals: AbortSignal[] = [];
    const body = async (ctx: RunContext): Promise<void> => {
      signals.push(ctx.signal);
      using message = ctx.message();
      message.delta("one ");
      await go.promise;
      message.delta("two");
    };
    return { go, signals, body };
  };

  it("a reader that leaves leaves the run alone: the same request again begins with what there is, and goes on", async () => {
    const { go, signals, body } = halves();
    const { url } = await served({ halves: body });
    const request = JSON.stringify(fresh());
    const { response, abort } = await open(`${url}/agents/halves`, { body: request });
    await readUntil(response, "one ");
    abort();
    const again = await open(`${url}/agents/halves`, { body: request });
    const begun = await readUntil(again.response, "TEXT_MESSAGE_START");
    go.resolve();
    const events = eventsOf(begun + (await textOf(again.response)));
    const [id] = events.flatMap((event) => (event.type === "TEXT_MESSAGE_START" ? [event.messageId] : []));
    expect(events).toMatchObject([
      { type: "RUN_STARTED", runId: "r" },
      { type: "STATE_SNAPSHOT" },
      { type: "MESSAGES_SNAPSHOT", messages: [{ id, role: "assistant", content: "one " }] },
      { type: "TEXT_MESSAGE_START", messageId: id },
      { type: "TEXT_MESSAGE_CONTENT", messageId: id, delta: "two" },
      { type: "TEXT_MESSAGE_END", messageId: id },
      { type: "RUN_FINISHED", runId: "r", outcome: { type: "success" } },
    ]);
    expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
  });

  it("a reader that leaves disturbs nobody else, also on the same thread", async () => {
    const { go, body } = halves();
    const { url } = await served({ halves: body });
    const request = JSON.stringify(fresh());
    const leaver = await open(`${url}/agents/halves`, { body: request });
    await readUntil(leaver.response, "one ");
    const [same, other] = await Promise.all([
      open(`${url}/agents/halves`, { body: request }),
      open(`${url}/agents/halves`),
    ]);
    const begun = await Promise.all([same, other].map(({ response }) => readUntil(response, "one ")));
    leaver.abort();
    go.resolve();
    const rests = await Promise.all([same, other].map(({ response }) => textOf(response)));
    for (const [i, rest] of rests.entries()) expect(types((begun[i] ?? "") + rest).at(-1)).toBe("RUN_FINISHED");
  });

  describe("of an agent that says disconnect: cancel", () => {
    const leaving = async (disconnect: "cancel" | "detach") => {
      const { go, signals, body } = halves();
      const server = await serving([agent({ name: "halves", disconnect, run: body })], { disconnectGrace: 5 });
      const request = fresh();
      const read = async () => {
        const opened = await open(`${server.url}/agents/halves`, { body: JSON.stringify(request) });
        return { ...opened, begun: await readUntil(opened.response, "one ") };
      };
      return { server, request, go, signals, read };
    };

    it("the run is cancelled when its last reader has been gone for a while", async () => {
      const { server, request, signals, read } = await leaving("cancel");
      const [first, second] = [await read(), await read()];
      first.abort();
      second.abort();
      expect((await ended(server.url, request.threadId)).state).toBe("cancelled");
      expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    });

    it("a reader over a web stream, too, has gone when it cancels between two reads", async () => {
      const { signals, body } = halves();
      const perdure = createRuntime({
        agents: [agent({ name: "halves", disconnect: "cancel", run: body })],
        disconnectGrace: 5,
      });
      const headers = { "content-type": "application/json" };
      const url = "http://127.0.0.1/agents/halves";
      const { body: stream } = await perdure.fetch(
        new Request(url, { method: "POST", headers, body: JSON.stringify(fresh()) }),
      );
      const reader = stream?.getReader();
      await reader?.read();
      await reader?.cancel();
      await expect.poll(() => signals.map(({ aborted }) => aborted)).toEqual([true]);
      await perdure.close();
    });

    it.each([
      ["somebody still reads", "cancel"],
      ["the agent says nothing of the kind", "detach"],
    ] as const)("the run goes on while %s", async (_, disconnect) => {
      const { server, request, go, signals, read } = await leaving(disconnect);
      const [first, second] = [await read(), await read()];
      first.abort();
      if (disconnect === "detach") second.abort();
      // Several times the grace: a cancel that should not come would have come.
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(signals.map(({ aborted }) => aborted)).toEqual([false]);
      go.resolve();
      expect((await ended(server.url, request.threadId)).state).toBe("success");
      second.response.resume();
    });
  });

  it("close() tells readers to come back, and a body that ends in time is done when it returns", async () => {
    const { go, body } = halves();
    const store = memory();
    const server = await served({ halves: body }, { store });
    const request = fresh();
    const { response } = await open(`${server.url}/agents/halves`, { body: JSON.stringify(request) });
    const begun = await readUntil(response, "one ");
    const rest = textOf(response);
    const closed = server.close();
    const frames = framesOf(begun + (await rest));
    expect(frames.at(-1)).toMatchObject({ cursor: undefined, event: { type: "RUN_ERROR", code: "RECONNECT" } });
    go.resolve();
    await closed;
    await expect(ask(`${server.url}/agents/halves`)).rejects.toMatchObject({ code: "ECONNREFUSED" });
    const next = await served({ halves: body }, { store });
    const cursor = frames.findLast((frame) => frame.cursor !== undefined)?.cursor;
    const missed = await ask(`${next.url}/threads/${request.threadId}/stream?after=${cursor}`, { method: "GET" });
    expect(types(missed.text)).toEqual(["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]);
  });

  it("close() cuts a body that goes on: its signal fires, and whoever opens the store next runs it again and goes on", async () => {
    const { go, signals, body } = halves();
    const store = memory();
    const server = await served({ halves: body }, { store, drainGrace: 10 });
    const request = fresh();
    const { response } = await open(`${server.url}/agents/halves`, { body: JSON.stringify(request) });
    const frames = framesOf(await readUntil(response, "one "));
    response.resume();
    await server.close();
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    const next = await served({ halves: body }, { store });
    go.resolve();
    const cursor = frames.findLast((frame) => frame.cursor !== undefined)?.cursor;
    const { text } = await ask(`${next.url}/threads/${request.threadId}/stream?after=${cursor}`, { method: "GET" });
    expect(eventsOf(text)).toMatchObject([
      { type: "TEXT_MESSAGE_CONTENT", delta: "two" },
      { type: "TEXT_MESSAGE_END" },
      { type: "RUN_FINISHED", outcome: { type: "success" } },
    ]);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  });

  it("close() leaves no connection behind that was kept alive", async () => {
    const server = await served({ hi: async (ctx) => void ctx.say("hi") });
    const answers = await Promise.all(
      [1, 2, 3].map(() =>
        fetch(`${server.url}/agents/hi`, {
          method: "POST",
          headers: json,
          body: JSON.stringify(fresh()),
        }),
      ),
    );
    for (const answer of answers) await answer.text();
    await server.close();
    await expect(fetch(server.url)).rejects.toThrow();
  });

  it("close() does not wait for a connection that was opened ahead and never used", async () => {
    const server = await served({}, { linger: 60_000 });
    const socket = connect(server.port, "127.0.0.1");
    await new Promise((resolve) => socket.once("connect", resolve));
    // What comes next over another one shows that the server has seen the first.
    await ask(`${server.url}/healthz`, { method: "GET" });
    const gone = new Promise((resolve) => socket.once("close", resolve).resume());
    await server.close();
    await gone;
  });

  it("close() does not wait for the connection of a stream that it has just ended, though it would be kept alive", async () => {
    const server = await served({ long: async () => new Promise(() => {}) }, { linger: 60_000, drainGrace: 1 });
    const answer = await fetch(`${server.url}/agents/long`, {
      method: "POST",
      headers: json,
      body: JSON.stringify(fresh()),
    });
    const rest = answer.text();
    await server.close();
    expect(types(await rest)).toEqual(["RUN_STARTED", "RUN_ERROR"]);
    // Node itself gives up a connection that was kept alive after 5 s.
  }, 4_000);

  it.each(versions)(
    "a reader is told to come back in a way it survives, and then holds the whole: %s",
    async (version) => {
      const { go, body } = halves();
      const store = memory();
      const server = await served({ halves: body }, { store });
      const threadId = `drained-${version}`;
      const stock = stockClient(version, { url: `${server.url}/agents/halves`, threadId });
      const done = stock.run({ runId: "r" }).catch(() => {});
      // The stock client's own message says that its run has begun.
      while (stock.messages.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      const closed = server.close();
      await done;
      go.resolve();
      await closed;
      const next = await served({ halves: body }, { store });
      const again = stockClient(version, { url: `${next.url}/agents/halves`, threadId });
      await again.run({ runId: "r" });
      expect(withoutUids(again.messages)).toEqual([{ id: "#1:m0", role: "assistant", content: "one two" }]);
    },
  );
});
