/** Tools that run in the client, called by the code of custom loops and by its models. */
import { type Agent, agent, agentTool, createRuntime, type LoopContext, memory, StepFailed, tool } from "perdure";
import type { AGUIEvent, Json } from "perdure/protocol";
import { crashMatrix, cutHere, scriptedModel } from "perdure/testing";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { asking } from "../runtime/asking.ts";

const place = { name: "place", description: "Where the user is", parameters: { type: "object" } };
const pick = { name: "pick", description: "Has the user pick one", parameters: { type: "object" } };
const look = tool({
  ...{ name: "look", description: "Looks", effect: "read", input: z.object({ at: z.string() }) },
  call: ({ at }) => `all about ${at}`,
});

type Message = Record<"id" | "role" | "content", string> & { readonly toolCallId?: string; readonly error?: string };

/** One thread of one agent, with a front end that has tools. */
function clientOf(code: (ctx: LoopContext) => Promise<unknown>, agents: readonly Agent[] = []) {
  const store = memory();
  const loop: Agent = agent<Json>({ name: "loop", run: code, agents });
  const start = () => createRuntime({ agents: [loop], store, onError: () => {} });
  let runtime = start();
  onTestFinished(() => runtime.close());
  const messages: Message[] = [];
  let runs = 0;
  return {
    async restart() {
      await runtime.close();
      runtime = start();
      await runtime.open();
    },
    async send(said: readonly Message[], tools: readonly object[] = [place, pick]): Promise<readonly AGUIEvent[]> {
      messages.push(...said);
      const body = { threadId: "t", runId: `r${++runs}`, messages, tools, context: [], protocolVersion: "1.0" };
      const { status, text } = await asking(runtime)("/agents/loop", body);
      expect(status).toBe(200);
      return text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6))] : []));
    },
  };
}

function offered(ctx: LoopContext, name: string) {
  const found = ctx.clientTool(name);
  if (found === undefined) throw new Error(`the client has no ${name}`);
  return found;
}

const go: Message = { id: "u", role: "user", content: "go" };
/** Under a name that is made of the call's, as front ends do. */
const result = (toolCallId: string, content: string): Message => ({
  ...{ id: `${toolCallId}-done`, role: "tool", toolCallId, content },
});
const pending = (events: readonly AGUIEvent[]): readonly string[] => {
  const last = events.at(-1);
  const outcome = last?.type === "RUN_FINISHED" ? last.outcome : undefined;
  return outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
};
const callsIn = (events: readonly AGUIEvent[]) =>
  events.flatMap((event) => (event.type === "TOOL_CALL_START" ? [event.toolCallName] : []));
const resultIn = (events: readonly AGUIEvent[]): unknown => {
  const last = events.at(-1);
  return last?.type === "RUN_FINISHED" ? last.result : last;
};

it("a model is offered them, and its calls wait for the client, beside one of the server's", async () => {
  const names: unknown[] = [];
  const model = scriptedModel(({ tools, messages }) => {
    names.push(tools);
    if (messages.at(-1)?.role === "tool") return { text: messages.flatMap(textsOf).join(" and ") };
    const calls = [
      { name: "place", input: {} },
      { name: "look", input: { at: "home" } },
      { name: "pick", input: { of: 2 } },
    ];
    return { calls };
  });
  const client = clientOf(async (ctx) => {
    const first = await ctx.model({ model, tools: [look], clientTools: ctx.clientTools, messages: ctx.messages });
    const results = await ctx.parallel(first.calls.map((call) => (lane) => lane.call(call)));
    return (await ctx.model({ model, messages: [...ctx.messages, first, ...results] })).text;
  });
  const first = await client.send([go]);
  expect(callsIn(first)).toEqual(["place", "look", "pick"]);
  const [one, two, ...others] = pending(first);
  expect(others).toEqual([]);
  const second = await client.send([result(one ?? "", "Lisbon")]);
  expect(pending(second)).toEqual([two]);
  await client.restart();
  const third = await client.send([result(two ?? "", "the second")]);
  expect(resultIn(third)).toBe("Lisbon and all about home and the second");
  expect(names).toEqual([["look", "place", "pick"], []]);
});

const textsOf = ({ role, content }: { readonly role: string; readonly content: unknown }): readonly string[] =>
  role === "tool" && Array.isArray(content) ? content.map((part) => String(part.output.value)) : [];

it("one that is named as one of the server's is not offered, and the server's is run", async () => {
  const names: unknown[] = [];
  const model = scriptedModel(({ tools }) => {
    names.push(tools);
    return { calls: [{ name: "look", input: { at: "home" } }] };
  });
  const client = clientOf(async (ctx) => {
    const { calls } = await ctx.model({ model, tools: [look], clientTools: ctx.clientTools, prompt: "go" });
    return await ctx.parallel(calls.map((call) => (lane) => lane.call(call)));
  });
  const events = await client.send([go], [{ ...place, name: "look" }, place, place]);
  expect(names).toEqual([["look", "place"]]);
  expect(resultIn(events)).toMatchObject([{ name: "look", output: "all about home" }]);
});

const helper = agent({ name: "helper", model: scriptedModel([{ text: "helped" }]) });
const clients = (...names: readonly string[]) => names.map((name) => ({ ...place, name }));

it("code runs its own tools and agents, whatever tools the client says are its own", async () => {
  const pay = tool({
    ...{ name: "pay", description: "Pays", effect: "write", input: z.object({ cents: z.number() }) },
    call: ({ cents }) => `paid ${cents}`,
  });
  const calls = [
    { name: "pay", input: { cents: 5 } },
    { name: "helper", input: { task: "help" } },
    { name: "nothing", input: {} },
  ];
  const model = scriptedModel([{ calls }]);
  const client = clientOf(
    async (ctx) => {
      const made = await ctx.model({ model, tools: [pay, agentTool(helper, { description: "Helps" })], prompt: "go" });
      const results = await ctx.parallel(made.calls.map((call) => (lane) => lane.call(call)));
      return [...results, await ctx.call(pay, { cents: 6 })];
    },
    [helper],
  );
  const offers = clients("pay", "helper", "nothing");
  const [call] = pending(await client.send([go], offers));
  expect(resultIn(await client.send([result(call ?? "", "nothing to do")], offers))).toMatchObject([
    { name: "pay", output: "paid 5" },
    { name: "helper", output: "helped" },
    { name: "nothing", output: "nothing to do" },
    "paid 6",
  ]);
});

it("a tool that a deployment adds is the server's, although the client that waits has offered one of that name", async () => {
  const done: string[] = [];
  const named = (name: string, approval: boolean) =>
    tool({
      ...{ name, description: name, effect: "write", approval, input: z.object({}) },
      call: () => `${name} ${done.push(name)}`,
    });
  const offered: unknown[] = [];
  const model = scriptedModel(({ messages, tools }) => {
    offered.push(tools);
    const results = messages.filter(({ role }) => role === "tool").length;
    return (
      [{ calls: [{ name: "first", input: {} }] }, { calls: [{ name: "second", input: {} }] }, { text: "Done." }][
        results
      ] ?? {}
    );
  });
  const store = memory();
  const before = createRuntime({ agents: [agent({ name: "loop", model, tools: [named("first", true)] })], store });
  const body = { threadId: "t", messages: [go], tools: clients("second"), context: [], protocolVersion: "1.0" };
  const { text } = await asking(before)("/agents/loop", { ...body, runId: "r" });
  const interrupt = /"interrupts":\[\{"id":"([^"]+)"/.exec(text)?.[1];
  await before.close();
  const tools = [named("first", true), named("second", false)];
  const after = createRuntime({ agents: [agent({ name: "loop", model, tools })], store });
  onTestFinished(() => after.close());
  await asking(after)(`/inbox/${interrupt}`, { status: "resolved", payload: { approved: true } });
  await expect.poll(async () => (await asking(after)("/runs")).text).toContain('"outcome":"success"');
  expect(done).toEqual(["first", "second"]);
  expect(offered).toEqual([
    ["first", "second"],
    ["first", "second"],
    ["first", "second"],
  ]);
});

it("code calls one itself: it is shown, and the code goes on with what the client sends, whatever its next request offers", async () => {
  const client = clientOf(async (ctx) => {
    ctx.say("Where are you?");
    return `in ${await ctx.call(offered(ctx, "place"), { exact: true })}`;
  });
  const first = await client.send([go]);
  const [call] = pending(first);
  expect(callsIn(first)).toEqual(["place"]);
  expect(first).toContainEqual(expect.objectContaining({ type: "TOOL_CALL_ARGS", delta: '{"exact":true}' }));
  await client.restart();
  const second = await client.send([result(call ?? "", "Lisbon")], []);
  expect(callsIn(second)).toEqual([]);
  expect(resultIn(second)).toBe("in Lisbon");
});

it("what was offered when the code began is asked for, also when a later request offers nothing", async () => {
  const client = clientOf(async (ctx) => [
    await ctx.call(offered(ctx, "place"), {}),
    await ctx.call(offered(ctx, "pick"), {}),
  ]);
  const [first] = pending(await client.send([go]));
  const [second] = pending(await client.send([result(first ?? "", "Lisbon")], []));
  expect(resultIn(await client.send([result(second ?? "", "the first")], []))).toEqual(["Lisbon", "the first"]);
});

it("what the client says of its failure is a failure: for code, and for a model", async () => {
  const model = scriptedModel([{ calls: [{ name: "pick", input: {} }] }]);
  const client = clientOf(async (ctx) => {
    const error = await ctx.call(offered(ctx, "place"), {}).catch((thrown: unknown) => thrown);
    const { calls } = await ctx.model({ model, clientTools: ctx.clientTools, prompt: "go" });
    const [picked] = await ctx.parallel(calls.map((call) => (lane) => lane.call(call)));
    return [error instanceof StepFailed && [error.code, error.told, error.applied], picked];
  });
  const [one] = pending(await client.send([go]));
  const [two] = pending(await client.send([{ ...result(one ?? "", "no signal"), error: "no place" }]));
  expect(resultIn(await client.send([{ ...result(two ?? "", ""), error: "closed" }]))).toMatchObject([
    ["CLIENT_FAILED", "no place\nno signal", "unknown"],
    { name: "pick", error: { code: "CLIENT_FAILED", message: "closed" } },
  ]);
});

it("a user who goes on without an answer ends the wait", async () => {
  const client = clientOf(async (ctx) => {
    const error = await ctx.call(offered(ctx, "place"), {}).catch((thrown: unknown) => thrown);
    return error instanceof StepFailed ? error.code : error;
  });
  await client.send([go]);
  expect(resultIn(await client.send([{ id: "u2", role: "user", content: "never mind" }]))).toBe("NOT_ANSWERED");
});

it("a lane that loses its race waits no longer, and what the client sends afterwards is nobody's", async () => {
  const client = clientOf(async (ctx) => {
    const winner = await ctx.race([
      (lane) => lane.call(offered(lane, "place"), {}),
      (lane) => lane.call(offered(lane, "pick"), {}),
    ]);
    return [winner, await ctx.call(offered(ctx, "place"), {})];
  });
  const [one, two] = pending(await client.send([go]));
  const second = await client.send([result(two ?? "", "second")]);
  const [three, ...others] = pending(second);
  expect(others).toEqual([]);
  expect(three).not.toBe(one);
  expect(resultIn(await client.send([result(one ?? "", "first"), result(three ?? "", "third")]))).toEqual([
    "second",
    "third",
  ]);
});

it("one that the client does not have is refused where it is called, and a model that makes it up is told", async () => {
  const model = scriptedModel([{ calls: [{ name: "nobodys", input: {} }] }]);
  const client = clientOf(async (ctx) => {
    const thrown = await Promise.resolve()
      .then(() => ctx.call({ ...place, name: "nobodys" }, {}))
      .catch((error: unknown) => String(error));
    const { calls } = await ctx.model({ model, clientTools: ctx.clientTools, prompt: "go" });
    return [thrown, ...(await ctx.parallel(calls.map((call) => (lane) => lane.call(call))))];
  });
  expect(resultIn(await client.send([go]))).toEqual([
    expect.stringMatching(/"nobodys" is neither .* \(place, pick\); look with ctx\.clientTool/),
    expect.objectContaining({ error: expect.objectContaining({ code: "UNKNOWN_TOOL" }) }),
  ]);
});

it("a model's call of one whose arguments are no JSON is refused, also when the code is run again", async () => {
  const model = scriptedModel([{ calls: [{ name: "place", input: '{"torn":' as never }] }, { text: "I see." }]);
  const client = clientOf(async (ctx) => {
    const turn = await ctx.model({ model, clientTools: ctx.clientTools, prompt: "go" });
    const [refused] = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
    await ctx.call(offered(ctx, "pick"), {});
    return refused;
  });
  const [call] = pending(await client.send([go]));
  await client.restart();
  expect(resultIn(await client.send([result(call ?? "", "ok")]))).toMatchObject({
    error: { code: "INVALID_ARGUMENTS" },
  });
});

it("killed anywhere, each is asked of the client once, and everything else is done once", async () => {
  const report = await crashMatrix(
    (done: string[]) =>
      agent<Json>({
        name: "loop",
        async run(ctx) {
          const model = scriptedModel([
            {
              text: "Let me see.",
              calls: [
                { name: "place", input: {} },
                { name: "look", input: { at: "x" } },
              ],
            },
            { text: "Fine." },
          ]);
          const turn = await ctx.model({ model, tools: [look], clientTools: ctx.clientTools, messages: ctx.messages });
          const results = await ctx.parallel(turn.calls.map((call) => (lane) => lane.call(call)));
          await ctx.once(
            "note",
            {
              settle: 0,
              reconcile: async () => (done.includes("note") ? { applied: "yes", output: null } : { applied: "no" }),
            },
            async () => {
              await cutHere();
              done.push("note");
              await cutHere();
              return null;
            },
          );
          const [picked] = await ctx.parallel([(lane) => lane.call(offered(lane, "pick"), { of: results.length })]);
          return picked;
        },
      }),
    {
      world: () => [] as string[],
      effects: (done) => done,
      script: { tools: [place, pick], results: { place: "here", pick: "the first" } },
    },
  );
  report.assertNoFindings();
  expect(report.plays).toBeGreaterThan(40);
});
