/** Subagents over real HTTP: what the published clients hold, also when they come back in the middle. */
import { agent, type RunContext } from "perdure";
import { normaliseTranscript } from "perdure/log";
import type { AGUIEvent } from "perdure/protocol";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ask, deferred, eventsOf, fresh, says, serving, withoutUids } from "./rig.ts";
import { type StockClient, stockClient, type Version, versions } from "./stock-clients.ts";

type Pause = () => Promise<void>;
interface Board {
  found: string[];
}

/** A lead with two researchers side by side, who think, speak, call and show what they do. */
async function research(ctx: RunContext<Board>, pause: Pause): Promise<void> {
  using call = ctx.toolCall("research");
  call.argsJson({ topic: "x" });
  await pause();
  const found = await ctx.subagent({ name: "lead", parentToolCallId: call.id }, async (lead) => {
    await lead.step("split", { metadata: { icon: "fork" } }, pause);
    using _step = lead.step("gather");
    await lead.parallel(
      ["ada", "bob"].map((name) => (lane) => lane.subagent({ name }, (sub) => researcher(sub, name, pause))),
    );
    lead.say("Both are back.");
    await pause();
    return { pages: 2 };
  });
  call.resultJson(found);
  ctx.say("Done.");
}

async function researcher(sub: RunContext<Board>, name: string, pause: Pause): Promise<void> {
  await sub.reasoning(async (reasoning) => {
    reasoning.delta("Hm, ");
    await pause();
    reasoning.delta(name);
  });
  await sub.message({ name, metadata: { by: name } }, async (message) => {
    message.delta("I am ");
    await pause();
    message.delta(name);
  });
  {
    using look = sub.toolCall("look", { metadata: { by: name } });
    look.args('{"who":');
    await pause();
    look.args(`"${name}"}`);
    look.resultJson({ seen: name });
  }
  using plan = sub.activity("PLAN", { steps: ["look"], filler: "f".repeat(100) });
  await pause();
  plan.update((draft) => draft.steps.push("tell"));
  sub.updateState((state) => state.found.push(name));
}

/** One run with a pause at the `n`-th place, where it waits until it is told to go on; later pauses, and earlier ones, are short. */
function paused(n: number) {
  const [arrived, go] = [deferred(), deferred()];
  let places = 0;
  const pause: Pause = async () => {
    if (places++ !== n) return await Promise.resolve();
    arrived.resolve();
    await go.promise;
  };
  return { pause, arrived: arrived.promise, go: go.resolve, places: () => places };
}

async function rejoining(version: Version, at: number) {
  const { pause, arrived, go } = paused(at);
  const ready = deferred();
  const desk = agent<Board>({
    name: "desk",
    state: { initial: () => ({ found: [] }) },
    async run(ctx) {
      await ready.promise;
      await research(ctx, pause);
    },
  });
  const { url } = await serving([desk]);
  const client = () => {
    const stock = stockClient(version, { url: `${url}/agents/desk`, threadId: "t" });
    stock.add({ id: "u1", role: "user", content: "go" });
    return stock;
  };
  /** A request that is there from the first event on, and one that is cut where the run pauses. */
  const [whole, cut, reloaded] = [client(), client(), client()];
  const stop = new AbortController();
  const both = [deferred(), deferred()];
  const runs = [
    whole.run({ runId: "r", onType: () => both[0]?.resolve() }),
    cut.run({ runId: "r", signal: stop.signal, onType: () => both[1]?.resolve() }),
  ] as const;
  await Promise.all(both.map(({ promise }) => promise));
  ready.resolve();
  await arrived;
  stop.abort();
  await runs[1].catch(() => {});
  const back = [deferred(), deferred()];
  const again = [reloaded, cut].map((stock, i) => stock.run({ runId: "r", onType: () => back[i]?.resolve() }));
  await Promise.all(back.map(({ promise }) => promise));
  go();
  const [, types] = await Promise.all([runs[0], ...again.map(async (run) => (await run).types)]);
  return { whole, cut, reloaded, types };
}

/**
 * What a client holds. One of 0.0.45 takes names, metadata and a call's place among the messages from snapshots alone: a call that is not its last
 * message's it puts last. So of it, only which messages it holds.
 */
function held({ messages, state }: StockClient, version: Version) {
  if (version !== "0.0.45") return normaliseTranscript({ messages, state });
  const known = structuredClone(messages).toSorted((a, b) => (a.id < b.id ? -1 : 1));
  for (const message of known) for (const member of ["name", "metadata"]) Reflect.deleteProperty(message, member);
  return normaliseTranscript({ messages: known, state });
}

const PLACES = 11;

describe.each(versions)("the published client %s", (version) => {
  it.each(Array.from({ length: PLACES }, (_, i) => i))(
    "that comes back at place %i of nested subagents, reloaded or with what it had seen, ends as one that was always there",
    async (place) => {
      const { whole, cut, reloaded } = await rejoining(version, place);
      expect(whole.messages.length).toBeGreaterThan(8);
      expect(held(reloaded, version)).toEqual(held(whole, version));
      expect(held(cut, version)).toEqual(held(whole, version));
      expect(whole.state).toEqual({ found: expect.arrayContaining(["ada", "bob"]) });
    },
  );

  it("shows whose each message is, where it knows of subagents, and the messages themselves everywhere", async () => {
    const { url } = await serving([
      agent<Board>({
        name: "desk",
        state: { initial: () => ({ found: [] }) },
        run: (ctx) =>
          ctx.subagent({ name: "ada" }, async (sub) => {
            await researcher(sub, "ada", async () => {});
          }),
      }),
    ]);
    const stock = stockClient(version, { url: `${url}/agents/desk`, threadId: "t" });
    const { types } = await stock.run({ runId: "r" });
    const own = version === "1.0.0" ? { subagentRunId: "#1:s0" } : {};
    const isOld = version === "0.0.45";
    const [metadata, name] = isOld ? [{}, {}] : [{ metadata: { by: "ada" } }, { name: "ada" }];
    const called = { type: "function", function: { name: "look", arguments: '{"who":"ada"}' } };
    expect(withoutUids(stock.messages)).toEqual([
      { id: "#1:s0:r0", role: "reasoning", content: "Hm, ada", ...own },
      { id: "#1:s0:m0", role: "assistant", ...name, content: "I am ada", ...metadata, ...own },
      { id: "#1:s0:c0", role: "assistant", toolCalls: [{ id: "#1:s0:c0", ...called, ...metadata }], ...own },
      { id: "#1:s0:t0", role: "tool", toolCallId: "#1:s0:c0", content: '{"seen":"ada"}', ...own },
      {
        ...{ id: "#1:s0:a0", role: "activity", activityType: "PLAN", ...own },
        content: { steps: ["look", "tell"], filler: "f".repeat(100) },
      },
    ]);
    expect(types.filter((type) => type.startsWith("SUBAGENT"))).toEqual(
      version === "1.0.0" ? ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"] : [],
    );
  });

  it("is asked by a subagent, and its answer goes on with it", async () => {
    const { url } = await serving([
      agent({
        name: "desk",
        run: (ctx) =>
          ctx.subagent({ name: "clerk", id: "clerk" }, async (sub) => {
            const answer = sub.resumeFor("sure", z.boolean());
            if (answer === undefined) return await sub.interrupt({ id: "sure", message: "Sure?", schema: z.boolean() });
            sub.say(answer.payload ? "Done." : "Left.");
            return answer.payload;
          }),
      }),
    ]);
    const stock = stockClient(version, { url: `${url}/agents/desk`, threadId: "t" });
    const { asked } = await stock.run({ runId: "r1" });
    expect(asked).toMatchObject([version === "1.0.0" ? { subagentRunId: "clerk" } : { reason: "confirmation" }]);
    const resume = asked.map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload: true }));
    await stock.run({ runId: "r2", resume });
    expect(stock.messages).toMatchObject([{ content: "Done." }]);
  });
});

function interruptsOf(events: readonly AGUIEvent[]) {
  const last = events.at(-1);
  return last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
}

describe("on the wire", () => {
  const steps = agent({
    name: "steps",
    run: (ctx) =>
      ctx.step("plan", () =>
        ctx.subagent({ name: "a" }, async (sub) => {
          sub.emit({ type: "STEP_STARTED", stepName: "plan" });
          sub.emit({ type: "STEP_FINISHED", stepName: "plan" });
          return 1;
        }),
      ),
  });

  it("a reader before 1.0 gets no subagent, no attribution, and steps that it can tell apart", async () => {
    const { url } = await serving([steps]);
    const { protocolVersion: _, ...old } = fresh({ messages: [says("u", "go")] });
    const events = eventsOf((await ask(`${url}/agents/steps`, { body: JSON.stringify(old) })).text);
    expect(JSON.stringify(events)).not.toMatch(/SUBAGENT|subagentRunId/);
    expect(withoutUids(events.flatMap((event) => ("stepName" in event ? [event.stepName] : [])))).toEqual([
      ...["plan", "plan##1:s0", "plan##1:s0", "plan"],
    ]);
  });

  it("the run that goes on begins a subagent anew, under a new id, but for one that was named", async () => {
    const { url } = await serving([
      agent({
        name: "asks",
        async run(ctx) {
          ctx.subagent({ name: "a" }).end();
          using _b = ctx.subagent({ name: "b", id: "b" });
          if (!ctx.isResume) await ctx.interrupt({ id: "q", message: "?" });
          return "done";
        },
      }),
    ]);
    const body = fresh({ messages: [says("u", "go")] });
    const legs = [eventsOf((await ask(`${url}/agents/asks`, { body: JSON.stringify(body) })).text)];
    const resume = interruptsOf(legs[0] ?? []).map(({ id }) => ({ interruptId: id, status: "resolved" }));
    const again = { ...body, runId: "r2", messages: [], resume };
    legs.push(eventsOf((await ask(`${url}/agents/asks`, { body: JSON.stringify(again) })).text));
    const begun = legs.map((events) =>
      events.flatMap((event) => (event.type === "SUBAGENT_STARTED" ? [event.subagentRunId] : [])),
    );
    expect(withoutUids(begun)).toEqual([
      ["#1:s0", "b"],
      ["#1:s1", "b"],
    ]);
  });

  it("an open question of a subagent names it, in the prelude and in the inbox's stream", async () => {
    const { url } = await serving([
      agent({
        name: "asks",
        run: (ctx) => ctx.subagent({ name: "a", id: "a" }, (sub) => sub.interrupt({ id: "q", message: "?" })),
      }),
    ]);
    const body = fresh({ messages: [says("u", "go")] });
    const first = eventsOf((await ask(`${url}/agents/asks`, { body: JSON.stringify(body) })).text);
    const again = eventsOf((await ask(`${url}/threads/${body.threadId}/stream`, { method: "GET" })).text);
    expect(interruptsOf(first)).toMatchObject([{ subagentRunId: "a" }]);
    expect(interruptsOf(again)).toEqual(interruptsOf(first));
    expect(again).toContainEqual(
      expect.objectContaining({ name: "perdure.interrupt", value: expect.objectContaining({ subagentRunId: "a" }) }),
    );
    expect(again.filter(({ type }) => type.startsWith("SUBAGENT"))).toEqual([
      { type: "SUBAGENT_STARTED", subagentRunId: "a", name: "a" },
      {
        type: "SUBAGENT_FINISHED",
        subagentRunId: "a",
        outcome: { type: "suspended", interruptIds: interruptsOf(first).map(({ id }) => id) },
      },
    ]);
  });
});
