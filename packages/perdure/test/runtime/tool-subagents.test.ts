/** Subagents that a tool's body shows under its own call, on the wire, to the published clients, and cut in the middle. */
import { agent, HandlerError, suspend, type ToolContext, tool } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { crashMatrix, cutHere, scriptedModel, toolContext } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ask, deferred, eventsOf, fresh, says, serving, withoutUids } from "../http/rig.ts";
import { stockClient, versions } from "../http/stock-clients.ts";

interface Board {
  found: string[];
}
type Context = ToolContext<Board>;
type Pause = (where: string) => Promise<void>;

const board = { initial: (): Board => ({ found: [] }) };

/** A lead with two scouts side by side: they think, speak, call, show a step and an activity, and change the state. */
async function research(ctx: Context, pause: Pause): Promise<{ pages: number }> {
  return await ctx.subagent({ name: "lead" }, async (lead) => {
    using message = lead.message();
    message.delta("Two of us ");
    await pause("lead speaks");
    message.delta("look.");
    message.end();
    await lead.parallel(
      ["ada", "bob"].map(
        (name) => (lane) =>
          lane.subagent({ name }, async (scout) => {
            scout.think(`Where would ${name} look?`);
            using _step = scout.step("look");
            using call = scout.toolCall("peek");
            call.args('{"who":');
            await pause(`${name} calls`);
            call.args(`"${name}"}`);
            call.resultJson({ seen: name });
            using plan = scout.activity("PLAN", { seen: 0 });
            plan.update((draft) => draft.seen++);
            await pause(`${name} is done`);
            return name;
          }),
      ),
    );
    lead.updateState((state) => state.found.push("page"));
    lead.say("Both are back.");
    return { pages: 2 };
  });
}

function researching(effect: "read" | "idempotent", pause: Pause, before: (ctx: Context) => unknown = () => {}) {
  return tool({
    name: "research",
    description: "Finds pages.",
    effect,
    retry: { attempts: 3 },
    input: z.object({}),
    state: z.custom<Board>(),
    async call(_input, ctx) {
      await before(ctx);
      return await research(ctx, pause);
    },
  });
}

const model = () => scriptedModel([{ text: "Looking.", calls: [{ name: "research", input: {} }] }, { text: "Done." }]);
const still: Pause = async () => {};

async function run(name: string, url: string, more: object = {}): Promise<AGUIEvent[]> {
  const body = fresh({ messages: [says("u", "go")], ...more });
  return eventsOf((await ask(`${url}/agents/${name}`, { body: JSON.stringify(body) })).text);
}

const subagents = (events: readonly AGUIEvent[]) => events.filter(({ type }) => type.startsWith("SUBAGENT"));

describe("a subagent in a tool's body", () => {
  it("is shown under its call, with its result, and those inside it as its own", async () => {
    const desk = agent<Board>({ name: "desk", model: model(), tools: [researching("read", still)], state: board });
    const { url } = await serving([desk]);
    const events = await run("desk", url);
    const call = events.find((event) => event.type === "TOOL_CALL_START" && event.toolCallName === "research");
    if (call?.type !== "TOOL_CALL_START") throw new Error("no call");
    const lead = events.find((event) => event.type === "SUBAGENT_STARTED" && event.name === "lead");
    expect(lead).toMatchObject({ parentToolCallId: call.toolCallId, parentMessageId: call.parentMessageId });
    expect(withoutUids(subagents(events))).toMatchObject([
      { type: "SUBAGENT_STARTED", name: "lead", subagentRunId: "#1:1.0:s0" },
      { type: "SUBAGENT_STARTED", name: "ada", parentSubagentRunId: "#1:1.0:s0" },
      { type: "SUBAGENT_STARTED", name: "bob", parentSubagentRunId: "#1:1.0:s0" },
      { type: "SUBAGENT_FINISHED", result: "ada" },
      { type: "SUBAGENT_FINISHED", result: "bob" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "#1:1.0:s0", result: { pages: 2 } },
    ]);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("that throws is a SUBAGENT_ERROR, and what it threw is the body's to handle", async () => {
    const handles = tool({
      ...{ name: "research", description: "Finds.", effect: "read", input: z.object({}) },
      async call(_input, ctx) {
        const lost = ctx.subagent({ name: "lost" }, () => {
          throw new HandlerError("No map.", { applied: "no", code: "NO_MAP" });
        });
        await expect(lost).rejects.toThrow("No map.");
        using second = ctx.subagent({ name: "second", parentToolCallId: "another" });
        second.fail(new Error("secret"));
        expect(() => second.say("more")).toThrow(/has ended/);
        return "fine";
      },
    });
    const { url } = await serving([agent({ name: "desk", model: model(), tools: [handles] })]);
    const events = await run("desk", url);
    expect(subagents(events)).toMatchObject([
      { type: "SUBAGENT_STARTED", name: "lost" },
      { type: "SUBAGENT_ERROR", code: "NO_MAP", message: "No map." },
      { type: "SUBAGENT_STARTED", name: "second", parentToolCallId: "another" },
      { type: "SUBAGENT_ERROR" },
    ]);
    expect(JSON.stringify(events)).not.toContain("secret");
    expect(events.at(-1)).toMatchObject({ outcome: { type: "success" } });
  });

  it("of an attempt that is tried again is taken back, and the next one has ids that this run has not seen", async () => {
    let tries = 0;
    const flaky: Pause = async (where) => {
      if (where === "bob calls" && ++tries === 1) {
        throw new HandlerError("Again.", { applied: "no", retryable: true });
      }
    };
    const { url } = await serving([
      agent<Board>({ name: "desk", model: model(), tools: [researching("read", flaky)], state: board }),
      agent<Board>({ name: "calm", model: model(), tools: [researching("read", still)], state: board }),
    ]);
    const [events, calm] = [await run("desk", url), await run("calm", url)];
    const ids = (all: readonly AGUIEvent[], type: AGUIEvent["type"]) =>
      all.flatMap((event) => (event.type === type && "subagentRunId" in event ? [event.subagentRunId] : []));
    expect(ids(events, "SUBAGENT_STARTED")).toHaveLength(6);
    expect(new Set(ids(events, "SUBAGENT_STARTED")).size).toBe(6);
    // The other scout was at its end already when the attempt failed.
    expect(ids(events, "SUBAGENT_ERROR")).toHaveLength(2);
    expect(ids(events, "SUBAGENT_FINISHED")).toHaveLength(ids(calm, "SUBAGENT_FINISHED").length + 1);
    const started = events.flatMap((event) => (event.type === "TEXT_MESSAGE_START" ? [event.messageId] : []));
    expect(new Set(started).size).toBe(started.length);
  });

  it("that is named keeps its name in the next leg, and says there what is new under new ids", async () => {
    const asks = tool({
      ...{ name: "research", description: "Finds.", effect: "read", input: z.object({}), answer: z.string() },
      async call(_input, ctx) {
        ctx.subagent({ name: "scout", id: "scout" }).say("Which way?");
        return suspend({ message: "Which way?" });
      },
      async resume(answer, _input, ctx) {
        await ctx.subagent({ name: "scout", id: "scout" }, (scout) => scout.say(`To the ${answer}.`));
        return answer;
      },
    });
    const { url } = await serving([agent({ name: "desk", model: model(), tools: [asks] })]);
    for (const version of versions) {
      const client = stockClient(version, { url: `${url}/agents/desk`, threadId: version });
      client.add({ id: "u", role: "user", content: "go" });
      const { asked } = await client.run({ runId: "r1" });
      const resume = asked.map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: "left" }));
      await client.run({ runId: "r2", resume });
      expect(client.messages.map(({ content }) => content)).toEqual(
        expect.arrayContaining(["Which way?", "To the left.", "Done."]),
      );
    }
  });

  it("shows nothing of a body that goes on after its attempt has ended, nor stops it", async () => {
    const [gone, over] = [deferred(), deferred()];
    const late = { shown: "not yet" };
    let tries = 0;
    const sleepy = tool({
      ...{ name: "research", description: "Finds.", effect: "read", input: z.object({}), timeout: "50ms" },
      async call(_input, ctx) {
        if (++tries > 1) {
          const sub = ctx.subagent({ name: "awake" });
          sub.say("Here.");
          gone.resolve();
          await over.promise;
          sub.say("Still here.");
          return "ok";
        }
        const sub = ctx.subagent({ name: "asleep" });
        const message = sub.message();
        await gone.promise;
        message.delta("Too late.");
        message.end();
        sub.end();
        ctx.progress("late");
        late.shown = "dropped";
        over.resolve();
        return "late";
      },
    });
    const { url } = await serving([agent({ name: "desk", model: model(), tools: [sleepy] })]);
    const events = await run("desk", url);
    expect(late.shown).toBe("dropped");
    expect(JSON.stringify(events)).not.toMatch(/late/i);
    expect(JSON.stringify(events)).toContain("Still here.");
    expect(subagents(events).map(({ type }) => type)).toEqual([
      ...["SUBAGENT_STARTED", "SUBAGENT_ERROR", "SUBAGENT_STARTED", "SUBAGENT_FINISHED"],
    ]);
  });
});

describe.each(versions)("the published client %s", (version) => {
  it.each(["whole", "tried again"])("holds what subagents of a tool have said: %s", async (how) => {
    let tries = 0;
    const pause: Pause = async (where) => {
      if (how === "whole" || where !== "ada is done" || ++tries > 1) return;
      throw new HandlerError("Again.", { applied: "no", retryable: true });
    };
    const desk = agent<Board>({ name: "desk", model: model(), tools: [researching("read", pause)], state: board });
    const { url } = await serving([desk]);
    const client = stockClient(version, { url: `${url}/agents/desk`, threadId: "t" });
    client.add({ id: "u", role: "user", content: "go" });
    const { types } = await client.run({ runId: "r" });
    expect(types.includes("SUBAGENT_STARTED")).toBe(version === "1.0.0");
    const text = client.messages.flatMap(({ role, content }) => (role === "assistant" && content ? [content] : []));
    expect(text).toEqual(["Looking.", "Two of us look.", "Both are back.", "Done."]);
    expect(client.state).toEqual({ found: ["page"] });
    const calls = client.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
    expect(calls.map((call) => call.function.name).toSorted()).toEqual(["peek", "peek", "research"]);
    const own = client.messages.filter((message) => "subagentRunId" in message);
    expect(own.length > 0).toBe(version === "1.0.0");
  });
});

describe("a process that dies in a subagent of a tool", () => {
  it.each(["read", "idempotent"] as const)("leaves the screen of one that did not: %s", async (effect) => {
    const report = await crashMatrix(
      (outside: { done: string[] }) =>
        agent<Board>({
          name: "desk",
          model: model(),
          state: board,
          tools: [
            researching(effect, cutHere, ({ idempotencyKey }) => {
              if (!outside.done.includes(`${idempotencyKey}`)) outside.done.push(`${idempotencyKey}`);
            }),
          ],
        }) as never,
      { world: () => ({ done: [] as string[] }), effects: ({ done }) => done.map(() => "research") },
    );
    report.assertNoFindings();
    expect(report.effects).toEqual(["research"]);
    expect(report.cuts).toBeGreaterThan(20);
    expect(report.table()).toMatch(/1\.0 +research +\d+ ok.* 5 ok /);
  });
});

describe("toolContext", () => {
  it("keeps what subagents show, with the ids of the call", async () => {
    const ctx = toolContext<Board>({ state: { found: [] }, toolCallId: "c1" });
    expect(await research(ctx, still)).toEqual({ pages: 2 });
    expect(subagents(ctx.events as AGUIEvent[])).toMatchObject([
      { type: "SUBAGENT_STARTED", name: "lead", subagentRunId: "c1:s0", parentToolCallId: "c1" },
      { type: "SUBAGENT_STARTED", name: "ada", parentSubagentRunId: "c1:s0" },
      { type: "SUBAGENT_STARTED", name: "bob", parentSubagentRunId: "c1:s0" },
      { type: "SUBAGENT_FINISHED", result: "ada" },
      { type: "SUBAGENT_FINISHED", result: "bob" },
      { type: "SUBAGENT_FINISHED", subagentRunId: "c1:s0", result: { pages: 2 } },
    ]);
    expect(ctx.events).toContainEqual(
      expect.objectContaining({ type: "STATE_SNAPSHOT", snapshot: { found: ["page"] }, subagentRunId: "c1:s0" }),
    );
    expect(ctx.state).toEqual({ found: ["page"] });
  });

  it("refuses what a run would refuse", () => {
    const ctx = toolContext();
    expect(() => ctx.emit({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" })).toThrow(
      /TEXT_MESSAGE_CONTENT/,
    );
    using sub = ctx.subagent({ name: "a" });
    using _message = sub.message();
    expect(() => sub.message()).toThrow(/has to wait/);
  });
});
