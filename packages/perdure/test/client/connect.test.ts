/** `connectAgent()`: whatever a thread is at, whoever comes is shown it, and nothing is begun by that. */
import { join } from "node:path";
import type { AgentSubscriber } from "@ag-ui/client";
import { agent, createRuntime, type RunContext, serve, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { desk } from "../http/desk.ts";
import { ask, deferred, get, type ListedRun, served, serving } from "../http/rig.ts";
import { quietClient } from "../protocol/published-client.ts";
import { folder } from "../store/folder.ts";
import { cutting, resumable, user, watching } from "./rig.ts";

quietClient();

const contents = ({ messages }: { messages: readonly { content?: unknown }[] }) =>
  messages.map(({ content }) => content);

describe("connectAgent()", () => {
  it("to a thread that rests shows what it has come to, and resolves", async () => {
    const { agent: asked } = desk();
    const { url } = await serving([asked]);
    const first = resumable(`${url}/agents/desk`, { initialMessages: [user("u1", "500")] });
    await first.runAgent({ runId: "r" });
    const late = resumable(`${url}/agents/desk`);
    const { subscriber, types, events } = watching();
    await late.connectAgent({ runId: "late" }, subscriber);
    expect(late.messages).toEqual(first.messages);
    expect(types()).toEqual(["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    expect(events.at(-1)).toMatchObject({ runId: "late", outcome: { type: "success" } });
    expect((await get<{ runs: ListedRun[] }>(`${url}/runs`)).runs).toHaveLength(1);
  });

  it("to one that nobody has written to shows nothing, and is no failure", async () => {
    const { url } = await served({ say: async (ctx) => void ctx.say("Hello.") });
    const reader = resumable(`${url}/agents/say`);
    const failed: unknown[] = [];
    const subscriber: AgentSubscriber = { onRunFailed: ({ error }) => void failed.push(error) };
    expect(await reader.connectAgent({}, subscriber)).toEqual({ result: undefined, newMessages: [] });
    expect(failed).toEqual([]);
    // What is not there at all is one, and the published agent prints it.
    vi.spyOn(console, "error").mockImplementation(() => {});
    const other = resumable(`${url}/agents/nobody`, { runtimeUrl: `${url}/elsewhere`, agentName: "nobody" });
    await expect(other.connectAgent({}, subscriber)).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  it("to a live run shows what there is, and then what comes, over connections that are cut", async () => {
    const gate = deferred();
    const server = await served({
      async live(ctx: RunContext) {
        using message = ctx.message();
        message.delta("one ");
        await ctx.flushed();
        await gate.promise;
        for (const word of ["two ", "three ", "four"]) {
          message.delta(word);
          await ctx.flushed();
        }
      },
    });
    const poster = resumable(`${server.url}/agents/live`, { initialMessages: [user("u1", "x")] });
    const posted = watching();
    const running = poster.runAgent({ runId: "r" }, posted.subscriber);
    await posted.seen("TEXT_MESSAGE_CONTENT");
    const cut = await cutting(server, [300, 900, 700, 350]);
    const reader = resumable(`${cut.url}/agents/live`);
    const { subscriber, types, seen } = watching();
    const connected = reader.connectAgent({}, subscriber);
    await seen("TEXT_MESSAGE_START");
    gate.resolve();
    await Promise.all([running, connected]);
    expect(contents(reader)).toEqual(["x", "one two three four"]);
    expect(cut.cuts()).toBeGreaterThan(1);
    expect(types().filter((type) => type === "TEXT_MESSAGE_START" || type === "TEXT_MESSAGE_END")).toHaveLength(2);
  });

  it("to one that waits for a human shows the question, as the published agent's pending one", async () => {
    const { agent: asked } = desk();
    const { url } = await serving([asked]);
    const first = resumable(`${url}/agents/desk`, { initialMessages: [user("u1", "9000")] });
    await first.runAgent({ runId: "r" });
    const late = resumable(`${url}/agents/desk`);
    await late.connectAgent();
    expect(late.pendingInterrupts).toMatchObject([{ reason: "tool_call", message: "Refund 9000 cents?" }]);
    expect(late.pendingInterrupts).toEqual(first.pendingInterrupts);
    expect(late.openInterrupts).toEqual(first.pendingInterrupts);
    // The published agent would refuse to connect once more before they are answered.
    await late.connectAgent();
    expect(late.pendingInterrupts).toEqual(first.pendingInterrupts);
    // And to begin a run, it still does.
    await expect(late.runAgent()).rejects.toThrow(/pending interrupt/);
  });

  it("to a leg that nobody's request has begun, after an answer in the inbox, shows it to its end", async () => {
    const { agent: asked, ledger } = desk({ delayMs: 1 });
    const { url } = await serving([asked]);
    const reader = resumable(`${url}/agents/desk`, { initialMessages: [user("u1", "9000")] });
    await reader.runAgent({ runId: "r" });
    const [question] = reader.pendingInterrupts;
    await reader.answer(question?.id ?? "", { status: "resolved", payload: { approved: true } });
    const { subscriber, events } = watching();
    await reader.connectAgent({ runId: "mine" }, subscriber);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "mine", outcome: { type: "success" } });
    expect(reader.messages.at(-1)).toMatchObject({ content: "Done with 9000 cents." });
    expect(reader.pendingInterrupts).toEqual([]);
    expect(ledger).toEqual([9000]);
  });

  it("to a run that waits for its back-off stays with it until it is over", async () => {
    let tries = 0;
    const flaky = tool({
      name: "flaky",
      description: "Fails at first.",
      effect: "idempotent",
      input: z.object({}),
      call() {
        if (++tries === 1) throw Object.assign(new Error("later"), { retryAfter: 1_200, retryable: true });
        return "done";
      },
    });
    const model = scriptedModel([{ calls: [{ name: "flaky", input: {} }] }, { text: "All done." }]);
    const { url } = await serving([agent({ name: "patient", model, tools: [flaky] })]);
    const poster = resumable(`${url}/agents/patient`, { initialMessages: [user("u1", "x")] });
    const posted = watching();
    const running = poster.runAgent({ runId: "r" }, posted.subscriber);
    await posted.seen("TOOL_CALL_END");
    await poster.detach();
    await running;
    await poster.connectAgent();
    expect(poster.messages.at(-1)).toMatchObject({ content: "All done." });
    expect(tries).toBe(2);
  });

  it("with follow stays behind the end of a leg: what another tab begins is shown too, and a new server goes on with it", async () => {
    const { dir, remove } = await folder();
    onTestFinished(remove);
    const echo = agent({ name: "echo", run: async (ctx) => void ctx.say(ctx.lastUserText()) });
    const start = (port: number) =>
      serve(createRuntime({ agents: [echo], store: sqlite(join(dir, "runs.db")), onError: () => {} }), {
        port,
        drainOn: [],
      });
    let server = await start(0);
    onTestFinished(() => server.close());
    const at = `${server.url}/agents/echo`;
    const writer = resumable(at, { initialMessages: [user("u1", "one")] });
    await writer.runAgent({ runId: "r1" });
    const cut = await cutting(server, [1_200, 400, 600, 500]);
    const follower = resumable(`${cut.url}/agents/echo`);
    const { subscriber, seen, events } = watching();
    const following = follower.connectAgent({ follow: true }, subscriber);
    await seen("RUN_FINISHED");
    for (const [i, word] of ["two", "three", "four"].entries()) {
      writer.addMessage(user(`u${i + 2}`, word));
      await writer.runAgent({ runId: `r${i + 2}` });
      await seen("RUN_FINISHED", i + 2);
      await server.close();
      server = await start(server.port);
    }
    expect(contents(follower)).toEqual(contents(writer));
    expect(events.flatMap((event) => (event.type === "RUN_FINISHED" ? [event.runId] : [])).slice(1)).toEqual([
      "r2",
      "r3",
      "r4",
    ]);
    // Which run it is now is the server's to say.
    expect(await follower.cancel()).toMatchObject({ uid: writer.runUid, state: "success" });
    await follower.detach();
    await following;
    expect(events.filter(({ type }) => type === "RUN_ERROR")).toEqual([]);
  });

  it("with follow, aborted while the thread rests, resolves without an error", async () => {
    const { url } = await served({ say: async (ctx) => void ctx.say("Hello.") });
    const reader = resumable(`${url}/agents/say`, { initialMessages: [user("u", "x")] });
    await reader.runAgent({ runId: "r" });
    const { subscriber, seen, types } = watching();
    const following = reader.connectAgent({ follow: true }, subscriber);
    await seen("RUN_FINISHED");
    reader.abortRun();
    await following;
    expect(types()).not.toContain("RUN_ERROR");
    expect((await ask(`${url}/healthz`, { method: "GET" })).status).toBe(200);
  });
});
