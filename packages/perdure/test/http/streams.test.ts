/** What the stream is on the wire, over real sockets: headers, bytes, silence, slow readers, and readers that leave. */
import type { IncomingMessage } from "node:http";
import type { RunContext } from "perdure";
import { RunInterrupted } from "perdure";
import { describe, expect, it } from "vitest";
import { ask, deferred, eventsOf, json, open, run, served, textOf } from "./rig.ts";
import { stockClient, versions } from "./stock-clients.ts";

/** Reads until `wanted` has been seen. */
async function readUntil(response: IncomingMessage, wanted: string): Promise<string> {
  let text = "";
  while (!text.includes(wanted)) {
    const chunk: unknown = response.read();
    if (chunk === null) await new Promise((more) => response.once("readable", more));
    else text += (chunk as Buffer).toString();
  }
  return text;
}

const types = (text: string): string[] => eventsOf(text).map(({ type }) => type);

describe("a stream", () => {
  it("says what it is, and asks proxies to pass it on as it comes", async () => {
    const { url } = await served({ hi: async (ctx) => void ctx.say("hi") });
    const { status, headers } = await ask(`${url}/agents/hi`);
    expect(status).toBe(200);
    expect(headers["content-type"]).toBe("text/event-stream");
    expect(headers["cache-control"]).toContain("no-transform");
    expect(headers["x-accel-buffering"]).toBe("no");
  });

  it("is LF alone, one event a frame, whatever the texts hold", async () => {
    const { url } = await served({ hi: async (ctx) => void ctx.say("a\r\nb\n\ndata: x\u2028y") });
    const { text } = await ask(`${url}/agents/hi`);
    expect(text).not.toContain("\r");
    expect(text.endsWith("\n\n")).toBe(true);
    const frames = text.slice(0, -2).split("\n\n");
    for (const frame of frames) expect(frame).toMatch(/^data: \{[^\n]*\}$/);
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
      ["a", "b"].map((runId) => ask(`${url}/agents/meet`, { body: JSON.stringify({ ...run, runId }) })),
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

describe("silence", () => {
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

  it("is broken by comments, so that nobody on the way takes the connection for dead", async () => {
    const { go, body } = quiet();
    const { url } = await served({ quiet: body }, { keepAlive: 5 });
    const { response } = await open(`${url}/agents/quiet`);
    const text = await readUntil(response, ": keep-alive\n\n: keep-alive\n\n");
    go.resolve();
    expect(types(text + (await textOf(response))).at(-1)).toBe("RUN_FINISHED");
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
    expect(stock.messages).toEqual([{ id: "r2:m0", role: "assistant", content: "one two" }]);
  });
});

describe("a reader that does not read", () => {
  const PIECE = 64 * 1024;

  /** A body that would pipe for ever, and how many pieces it got rid of. */
  function flood() {
    const stats = { pieces: 0 };
    const left = deferred<unknown>();
    async function* pieces() {
      for (;;) {
        stats.pieces++;
        yield "x".repeat(PIECE);
      }
    }
    const body = async (ctx: RunContext): Promise<void> => {
      using message = ctx.message();
      await message.pipe(pieces()).catch((error: unknown) => {
        left.resolve(error);
        throw error;
      });
    };
    return { stats, body, left: left.promise };
  }

  /** Resolves when the count has stopped growing for a hundred turns of the event loop. */
  async function standstill(stats: { readonly pieces: number }): Promise<number> {
    for (let last = -1, turns = 0; turns < 100; turns++) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (stats.pieces !== last) turns = 0;
      last = stats.pieces;
    }
    return stats.pieces;
  }

  it("holds message.pipe back: what waits stays small, and goes on when he reads", async () => {
    const { stats, body, left } = flood();
    const { url } = await served({ flood: body });
    const { response, abort } = await open(`${url}/agents/flood`);
    const stoppedAt = await standstill(stats);
    // 1 MiB of ours, and what the two sockets hold.
    expect(stoppedAt * PIECE).toBeLessThan(32 * 1024 * 1024);
    for (let read = 0; read < 2 * stoppedAt * PIECE; ) {
      const chunk: unknown = response.read();
      if (chunk === null) await new Promise((more) => response.once("readable", more));
      else read += (chunk as Buffer).length;
    }
    expect(stats.pieces).toBeGreaterThan(stoppedAt);
    abort();
    expect(await left).toBeInstanceOf(RunInterrupted);
  });

  it("is cut off when the server closes, and those who read are not kept waiting for ever", async () => {
    const { stats, body, left } = flood();
    const server = await served({ flood: body }, { linger: 20 });
    const { response } = await open(`${server.url}/agents/flood`);
    await standstill(stats);
    await server.close();
    expect(await left).toBeInstanceOf(RunInterrupted);
    await expect(textOf(response)).rejects.toMatchObject({ code: "ECONNRESET" });
  });
});

describe("the end of a connection", () => {
  it("a reader that leaves aborts ctx.signal, and the body can send nothing more", async () => {
    const ended = deferred<{ aborted: boolean; late: unknown }>();
    const { url } = await served({
      wait: async (ctx) => {
        ctx.say("waiting");
        await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
        let late: unknown;
        try {
          ctx.say("too late");
        } catch (error) {
          late = error;
        }
        ended.resolve({ aborted: ctx.signal.aborted, late });
      },
    });
    const { response, abort } = await open(`${url}/agents/wait`);
    await readUntil(response, "TEXT_MESSAGE_END");
    abort();
    expect(await ended.promise).toMatchObject({
      aborted: true,
      late: { code: "RUN_INTERRUPTED", because: "cancelled" },
    });
  });

  it("a reader that leaves disturbs nobody else", async () => {
    const go = deferred();
    const { url } = await served({
      wait: async (ctx) => {
        ctx.say("waiting");
        await go.promise;
      },
    });
    const [leaver, stayer] = await Promise.all([open(`${url}/agents/wait`), open(`${url}/agents/wait`)]);
    await readUntil(leaver.response, "TEXT_MESSAGE_END");
    leaver.abort();
    go.resolve();
    expect(types(await textOf(stayer.response)).at(-1)).toBe("RUN_FINISHED");
  });

  it("close() ends running streams with the outcome cancelled, and cuts no socket", async () => {
    const server = await served({
      long: async (ctx) => {
        const message = ctx.message();
        message.delta("half a sen");
        await new Promise(() => {});
      },
    });
    const { response } = await open(`${server.url}/agents/long`);
    const begun = await readUntil(response, "half a sen");
    const rest = textOf(response);
    await server.close();
    const events = eventsOf(begun + (await rest));
    expect(events.at(-1)).toEqual({ type: "RUN_FINISHED", threadId: "t", runId: "r", outcome: { type: "cancelled" } });
    expect(events.at(-2)).toMatchObject({ type: "TEXT_MESSAGE_END", metadata: { perdure: { incomplete: true } } });
    await expect(ask(`${server.url}/agents/long`)).rejects.toMatchObject({ code: "ECONNREFUSED" });
  });

  it("close() leaves no connection behind that was kept alive", async () => {
    const server = await served({ hi: async (ctx) => void ctx.say("hi") });
    const answers = await Promise.all(
      [1, 2, 3].map(() =>
        fetch(`${server.url}/agents/hi`, {
          method: "POST",
          headers: json,
          body: JSON.stringify(run),
        }),
      ),
    );
    for (const answer of answers) await answer.text();
    await server.close();
    await expect(fetch(server.url)).rejects.toThrow();
  });

  it("close() does not wait for the connection of a stream that it has just ended, though it would be kept alive", async () => {
    const server = await served({ long: async () => new Promise(() => {}) }, { linger: 60_000 });
    const answer = await fetch(`${server.url}/agents/long`, {
      method: "POST",
      headers: json,
      body: JSON.stringify(run),
    });
    const rest = answer.text();
    await server.close();
    expect(types(await rest)).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
    // Node itself gives up a connection that was kept alive after 5 s.
  }, 4_000);

  it.each(versions)("an older reader is told of a cancelled run in a way it survives: %s", async (version) => {
    const server = await served({
      long: async (ctx) => {
        ctx.say("half");
        await new Promise(() => {});
      },
    });
    const { response } = await open(`${server.url}/agents/long`);
    const stock = stockClient(version, { url: `${server.url}/agents/long` });
    const done = stock.run({ runId: "r2" });
    await readUntil(response, "TEXT_MESSAGE_END");
    const rest = textOf(response);
    // The stock client's own message says that its run has begun.
    while (stock.messages.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    await server.close();
    expect((await done).types.at(-1)).toBe("RUN_FINISHED");
    await rest;
  });
});
