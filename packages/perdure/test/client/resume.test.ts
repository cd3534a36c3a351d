/** Connections that are lost, over real sockets. What a run shows and comes to is what it would have without. */
import { join } from "node:path";
import fc from "fast-check";
import { agent, createRuntime, memory, type RunContext, serve } from "perdure";
import { normaliseTranscript } from "perdure/log";
import { sqlite } from "perdure/sqlite";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { desk } from "../http/desk.ts";
import { deferred, served, serving } from "../http/rig.ts";
import { stockClient } from "../http/stock-clients.ts";
import { quietClient } from "../protocol/published-client.ts";
import { folder } from "../store/folder.ts";
import { cutting, logged, resumable, user, watching } from "./rig.ts";

quietClient();

const stores = {
  memory: async () => memory(),
  sqlite: async () => {
    const { dir, remove } = await folder();
    onTestFinished(remove);
    return sqlite(join(dir, "runs.db"));
  },
};

/** What each message and call has got in pieces. */
function deltasOf(events: readonly AGUIEvent[]): Record<string, string> {
  const joined: Record<string, string> = {};
  for (const event of events) {
    if (!("delta" in event) || typeof event.delta !== "string") continue;
    const id = "toolCallId" in event ? event.toolCallId : "messageId" in event ? event.messageId : undefined;
    if (id !== undefined) joined[id] = (joined[id] ?? "") + event.delta;
  }
  return joined;
}

/** Sizes of ten up to a few thousand bytes: heads are cut, first frames, and long streams. */
const budget = fc.tuple(fc.integer({ min: 100, max: 350 }), fc.integer({ min: 1, max: 10 })).map(([a, b]) => a * b);
const budgets = fc.array(budget, { minLength: 1, maxLength: 8 });

describe.each(Object.entries(stores))("over %s, with connections cut at any byte", (_, makeStore) => {
  it("what a reader with its cursor is shown is the log, each event once; and it holds what one holds who was never cut", async () => {
    const { agent: asked, ledger } = desk({ delayMs: 1 });
    const server = await serving([asked], { store: await makeStore() });
    const stock = stockClient("1.0.0", { url: `${server.url}/agents/desk`, threadId: "uncut" });
    stock.add(user("u1", "500"));
    await stock.run({ runId: "r" });
    const whole = normaliseTranscript({ messages: stock.messages, state: stock.state } as never);
    let runs = 0;
    let cuts = 0;
    let rejoined = 0;
    await fc.assert(
      fc.asyncProperty(budgets, async (sizes) => {
        const threadId = `t${runs++}`;
        const proxy = await cutting(server, sizes);
        const reader = resumable(`${proxy.url}/agents/desk`, { threadId, initialMessages: [user("u1", "500")] });
        const { subscriber, events, types } = watching();
        await reader.runAgent({ runId: "r" }, subscriber);
        cuts += proxy.cuts();
        expect(normaliseTranscript({ messages: reader.messages, state: reader.state } as never)).toEqual(whole);
        // Who was cut before a first frame came asks again, and is shown what there is.
        if (types().includes("MESSAGES_SNAPSHOT")) rejoined++;
        else expect(events).toEqual(await logged(server.url, threadId));
      }),
      { numRuns: 30 },
    );
    expect(cuts).toBeGreaterThan(30);
    expect(rejoined).toBeLessThan(20);
    expect(ledger).toHaveLength(runs + 1);
  });

  it("a reader whose every cursor is refused goes on from preludes, and holds the same", async () => {
    const { agent: asked, ledger } = desk({ delayMs: 1 });
    const server = await serving([asked], { store: await makeStore() });
    const stock = stockClient("1.0.0", { url: `${server.url}/agents/desk`, threadId: "uncut" });
    stock.add(user("u1", "500"));
    await stock.run({ runId: "r" });
    const whole = normaliseTranscript({ messages: stock.messages, state: stock.state } as never);
    let runs = 0;
    let splices = 0;
    await fc.assert(
      fc.asyncProperty(budgets, async (sizes) => {
        const proxy = await cutting(server, sizes);
        const reader = resumable(`${proxy.url}/agents/desk`, {
          threadId: `t${runs++}`,
          initialMessages: [user("u1", "500")],
          fetch: (url, init) => fetch(url.replace(/after=[^&]*/, "after=forgotten"), init),
        });
        const { subscriber, events, types } = watching();
        await reader.runAgent({ runId: "r" }, subscriber);
        expect(normaliseTranscript({ messages: reader.messages, state: reader.state } as never)).toEqual(whole);
        expect(types().filter((type) => type === "RUN_STARTED")).toHaveLength(1);
        expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "r" });
        if (types().slice(3).includes("MESSAGES_SNAPSHOT")) splices++;
      }),
      { numRuns: 30 },
    );
    expect(splices).toBeGreaterThan(20);
    expect(ledger).toHaveLength(runs + 1);
  });

  it("two readers of one run, each cut at places of its own, hold the same", async () => {
    const { agent: asked } = desk({ delayMs: 1 });
    const server = await serving([asked], { store: await makeStore() });
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(budgets, budgets, async (one, other) => {
        const threadId = `t${runs++}`;
        const [first, second] = await Promise.all([cutting(server, one), cutting(server, other)]);
        const poster = resumable(`${first.url}/agents/desk`, { threadId, initialMessages: [user("u1", "500")] });
        const onlooker = resumable(`${second.url}/agents/desk`, { threadId });
        const posted = watching();
        const running = poster.runAgent({ runId: "r" }, posted.subscriber);
        await posted.seen("RUN_STARTED");
        const looked = watching();
        await Promise.all([running, onlooker.connectAgent({ runId: "look" }, looked.subscriber)]);
        expect(onlooker.messages).toEqual(poster.messages);
        expect(looked.events.at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "look" });
        expect(looked.types().filter((type) => type === "RUN_STARTED")).toHaveLength(1);
      }),
      { numRuns: 20 },
    );
  });
});

describe("a server that goes away and comes back at the same address", () => {
  /** Says one half, waits, and says the other; in pieces. */
  const gated = () => {
    const gate = deferred();
    const body = async (ctx: RunContext): Promise<void> => {
      using message = ctx.message();
      for (const piece of ["a", "b", "c"]) message.delta(piece);
      await ctx.flushed();
      await gate.promise;
      for (const piece of ["d", "e", "f"]) message.delta(piece);
    };
    return { gate, body };
  };

  it("that drains tells its readers to come back, and they do: nobody is told, and a model's run goes on where it was", async () => {
    const { dir, remove } = await folder();
    onTestFinished(remove);
    const { agent: asked, ledger } = desk({ delayMs: 20 });
    const start = (port: number) =>
      serve(createRuntime({ agents: [asked], store: sqlite(join(dir, "runs.db")), onError: () => {}, drainGrace: 0 }), {
        port,
        drainOn: [],
      });
    let server = await start(0);
    onTestFinished(() => server.close());
    const reader = resumable(`${server.url}/agents/desk`, { initialMessages: [user("u1", "500")] });
    const { subscriber, types, seen } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    for (const at of ["REASONING_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "TOOL_CALL_ARGS"] as const) {
      await seen(at);
      await server.close();
      server = await start(server.port);
    }
    await running;
    expect(types()).not.toContain("RUN_ERROR");
    expect(types().filter((type) => type === "RUN_STARTED")).toHaveLength(1);
    expect(reader.messages.at(-1)).toMatchObject({ content: "Done with 500 cents." });
    expect(ledger).toEqual([500]);
  });

  it("that has forgotten the run, as one in memory has, ends it with what it says of it", async () => {
    const { gate, body } = gated();
    const start = (port: number) =>
      serve(createRuntime({ agents: [agent({ name: "gated", run: body })], onError: () => {}, drainGrace: 0 }), {
        port,
        drainOn: [],
      });
    let server = await start(0);
    onTestFinished(() => server.close());
    const reader = resumable(`${server.url}/agents/gated`, { initialMessages: [user("u1", "x")] });
    const { subscriber, seen } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    vi.spyOn(console, "error").mockImplementation(() => {});
    const failed = expect(running).rejects.toMatchObject({
      name: "RequestError",
      code: "THREAD_NOT_FOUND",
      status: 404,
    });
    await seen("TEXT_MESSAGE_CONTENT");
    await server.close();
    server = await start(server.port);
    await failed;
    gate.resolve();
  });

  it("a text that was begun goes on where it stood: each delta comes once", async () => {
    const { gate, body } = gated();
    const server = await served({ gated: body });
    const proxy = await cutting(server, [900, 400]);
    const reader = resumable(`${proxy.url}/agents/gated`, { initialMessages: [user("u1", "x")] });
    const { subscriber, events, seen } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    await seen("TEXT_MESSAGE_CONTENT");
    gate.resolve();
    await running;
    expect(Object.values(deltasOf(events))).toEqual(["abcdef"]);
    expect(proxy.cuts()).toBeGreaterThan(0);
  });
});
