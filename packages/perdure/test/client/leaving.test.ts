/** Cancelling, detaching and aborting are three things. */
import { agent, type RunContext } from "perdure";
import { ResumableHttpAgent } from "perdure/client";
import { describe, expect, expectTypeOf, it, vi } from "vitest";
import { ask, deferred, ended, get, type ListedRun, served, serving } from "../http/rig.ts";
import { quietClient } from "../protocol/published-client.ts";
import { cutting, resumable, user, watching } from "./rig.ts";

quietClient();

/** Says one half, and the other when it may; a cancel ends it in between. */
async function halves() {
  const gate = deferred();
  const server = await served({
    async halves(ctx: RunContext) {
      using message = ctx.message();
      message.delta("one ");
      const cancelled = new Promise<void>((resolve) => ctx.signal.addEventListener("abort", () => resolve()));
      await Promise.race([gate.promise, cancelled]);
      ctx.signal.throwIfAborted();
      message.delta("two");
    },
  });
  const at = `${server.url}/agents/halves`;
  const reader = resumable(at, { initialMessages: [user("u", "x")] });
  const watched = watching();
  const running = reader.runAgent({ runId: "r" }, watched.subscriber);
  await watched.seen("TEXT_MESSAGE_CONTENT");
  return { ...{ gate, server, at, reader, running }, ...watched };
}

describe("cancel()", () => {
  it("cancels the run that is read, and its reader sees it end", async () => {
    const { server, reader, running, events } = await halves();
    const { uid } = await ended(server.url, "t", ["running"]);
    expect(reader.runUid).toBe(uid);
    expect(await reader.cancel()).toMatchObject({ uid });
    await running;
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } });
    expect(await ended(server.url, "t")).toMatchObject({ uid, state: "cancelled" });
    // Once more it says what has become of it.
    expect(await reader.cancel()).toEqual({ uid, state: "cancelled" });
  });

  it("after a reload it is the thread's newest run; where there is none, it says so", async () => {
    const { server, at, running } = await halves();
    const reloaded = resumable(at);
    expect(reloaded.runUid).toBeUndefined();
    expect(await reloaded.cancel()).toMatchObject({ uid: (await ended(server.url, "t")).uid });
    await running;
    await expect(resumable(at, { threadId: "other" }).cancel()).rejects.toMatchObject({
      ...{ name: "RequestError", code: "RUN_NOT_FOUND", status: 404 },
    });
  });

  it("is asked again while nothing answers, and can be given up", async () => {
    const { server, running } = await halves();
    const lost: number[] = [];
    const cut = await cutting(server, [0, 0, 0]);
    const reloaded = resumable(`${cut.url}/agents/halves`, { onReconnect: ({ attempt }) => void lost.push(attempt) });
    expect(await reloaded.cancel()).toMatchObject({ state: expect.any(String) });
    expect(lost).toEqual([1, 2, 3]);
    await running;
    const controller = new AbortController();
    const given = resumable("http://127.0.0.1:9/agents/halves", { onReconnect: () => controller.abort() });
    await expect(given.cancel({ signal: controller.signal })).rejects.toMatchObject({ name: "AbortError" });
  });
});

describe("detach()", () => {
  it("ends the reading and its connection; the run goes on, and connectAgent() comes back to it", async () => {
    const { gate, server, reader, running, types } = await halves();
    await reader.detach();
    await running;
    expect(types()).not.toContain("RUN_ERROR");
    expect(reader.messages.at(-1)).toMatchObject({ content: "one " });
    expect(await ended(server.url, "t", ["running"])).toMatchObject({ state: "running" });
    const again = watching();
    const connected = reader.connectAgent({}, again.subscriber);
    await again.seen("TEXT_MESSAGE_START");
    gate.resolve();
    await connected;
    expect(reader.messages.map(({ content }) => content)).toEqual(["x", "one two"]);
  });

  it("lets go of the socket, which a detached published agent does not", async () => {
    const left = vi.fn();
    const gate = deferred();
    const { url } = await served({
      async quiet(ctx) {
        ctx.say("one");
        await gate.promise;
      },
    });
    const reader = resumable(`${url}/agents/quiet`, {
      initialMessages: [user("u", "x")],
      fetch(to, init) {
        init.signal?.addEventListener("abort", left);
        return fetch(to, init);
      },
    });
    const { subscriber, seen } = watching();
    const running = reader.runAgent({ runId: "r" }, subscriber);
    await seen("TEXT_MESSAGE_END");
    await reader.detach();
    await running;
    expect(left).toHaveBeenCalledTimes(1);
    gate.resolve();
  });
});

describe("abortRun()", () => {
  it("does what the published agent's does: RUN_ERROR `abort`, and the run's promise resolves", async () => {
    const { gate, server, reader, running, events } = await halves();
    reader.abortRun();
    await running;
    expect(events.at(-1)).toMatchObject({ type: "RUN_ERROR", code: "abort" });
    // To the server it is a reader less.
    gate.resolve();
    expect(await ended(server.url, "t")).toMatchObject({ state: "success" });
  });

  it("ends a wait for a server that is gone", async () => {
    const failed = vi.fn();
    const reader = resumable("http://127.0.0.1:9/agents/nobody", {
      sleep: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
      onReconnect: () => void setTimeout(() => reader.abortRun()),
    });
    await reader.runAgent({ runId: "r" }, { onRunFailed: ({ error }) => failed(error.name) });
    expect(failed).toHaveBeenCalledWith("AbortError");
  });

  it("an abort controller of the caller's does the same", async () => {
    const { url } = await served({ say: async (ctx) => void ctx.say("Hello.") });
    const abortController = new AbortController();
    abortController.abort();
    const reader = resumable(`${url}/agents/say`, { initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r", abortController });
    expect(await get<{ runs: ListedRun[] }>(`${url}/runs`)).toEqual({ runs: [] });
  });
});

describe("a clone", () => {
  it("is an agent of its own with the same options, state and questions", async () => {
    const told = vi.fn();
    const { url } = await served({ say: async (ctx) => void ctx.say("Hello.") });
    const reader = resumable<{ count: number }>("http://127.0.0.1:9/agents/say", {
      initialState: { count: 1 },
      headers: { "x-a": "b" },
      reconnect: { maxAttempts: 1 },
      onReconnect: told,
    });
    const clone = reader.clone();
    expect(clone).toBeInstanceOf(ResumableHttpAgent);
    expect(clone).not.toBe(reader);
    expect(clone.state).toEqual({ count: 1 });
    vi.spyOn(console, "error").mockImplementation(() => {});
    await expect(clone.runAgent()).rejects.toMatchObject({ code: "CONNECTION_LOST", attempts: 1 });
    expect(told).toHaveBeenCalledTimes(1);
    clone.url = `${url}/agents/say`;
    clone.addMessage(user("u", "x"));
    await clone.runAgent();
    expect(clone.messages.at(-1)).toMatchObject({ content: "Hello." });
    expect(clone.runUid).toBeDefined();
    expect([reader.messages, reader.runUid, reader.openInterrupts]).toEqual([[], undefined, []]);
  });
});

describe("what an agent is told at first", () => {
  it("its state has the type that it was given", () => {
    const reader = resumable<{ count: number }>("http://x/agents/a", { initialState: { count: 1 } });
    expectTypeOf(reader.state).toEqualTypeOf<{ count: number }>();
    expectTypeOf<Parameters<(typeof reader)["setState"]>[0]>().toEqualTypeOf<{ count: number }>();
    expectTypeOf(reader.clone().state).toEqualTypeOf<{ count: number }>();
    // @ts-expect-error -- not that state
    reader.setState({ count: "1" });
  });

  it("an address that is not a runtime's needs the runtime's, and the agent's name", async () => {
    const made = () => new ResumableHttpAgent({ url: "/api/chat" });
    expect(made).toThrow(
      expect.objectContaining({ code: "RUNTIME_URL_UNKNOWN", message: expect.stringContaining('"/api/chat"') }),
    );
    const asking = agent({ name: "named", run: async (ctx) => void ctx.say("Hello.") });
    const { url } = await serving([asking]);
    const reader = resumable(`${url}/agents/named`, { initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r" });
    const through = resumable("http://proxy.test/api/chat", {
      ...{ runtimeUrl: `${url}/`, agentName: "named" },
      fetch: (to, init) => fetch(to.replace("http://proxy.test/api/chat", `${url}/agents/named`), init),
    });
    await through.connectAgent();
    expect(through.messages).toEqual(reader.messages);
    expect((await ask(`${url}/healthz`, { method: "GET" })).status).toBe(200);
  });

  it("credentials and headers of requestInit go with every request, a body only with those that have one", async () => {
    class Signed extends ResumableHttpAgent {
      protected override requestInit(input: Parameters<ResumableHttpAgent["run"]>[0]): RequestInit {
        return {
          ...super.requestInit(input),
          credentials: "include",
          headers: { ...this.headers, "Content-Type": "application/json", "X-Signed": "yes" },
        };
      }
    }
    const server = await served({ say: async (ctx) => void ctx.say("Hello.") });
    const cut = await cutting(server, [1_000]);
    const asked: { method: string; headers: Headers; credentials: unknown; hasBody: boolean }[] = [];
    const reader = new Signed({
      url: `${cut.url}/agents/say`,
      initialMessages: [user("u", "x")],
      sleep: async () => {},
      fetch(to, init) {
        const { method = "GET", headers, credentials, body } = init;
        asked.push({ method, headers: new Headers(headers), credentials, hasBody: body !== undefined });
        return fetch(to, init);
      },
    });
    await reader.runAgent();
    await reader.cancel();
    expect(asked.map(({ method }) => method)).toEqual(["POST", "GET", "POST"]);
    for (const { method, headers, credentials, hasBody } of asked) {
      expect([headers.get("x-signed"), credentials, hasBody]).toEqual(["yes", "include", method === "POST"]);
      expect(headers.get("content-type")).toBe(method === "POST" ? "application/json" : null);
    }
  });
});
