/** What a thread remembers of an agent with a body of its own: questions, answers, client calls, and what a crash has cut. */
import { agent, createRuntime, memory, type RunContext } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { desk } from "./desk.ts";
import {
  type Answer,
  ask,
  deferred,
  ended,
  eventsOf,
  framesOf,
  fresh,
  open,
  readUntil,
  says,
  served,
  serving,
  withoutUids,
} from "./rig.ts";

const codeOf = ({ status, text }: Answer) => ({
  status,
  ...(JSON.parse(text) as { error: { code: string; details?: unknown } }).error,
});

/** A front end on a thread of its own, as raw as can be. */
function frontEnd(at: string) {
  const base = fresh({});
  let runs = 0;
  return {
    threadId: base.threadId,
    async post(more: object = {}): Promise<Answer> {
      return await ask(at, { body: JSON.stringify({ ...base, runId: `r${++runs}`, ...more }) });
    },
  };
}

function asked(answer: Answer): string[] {
  const last = eventsOf(answer.text).at(-1);
  return last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt"
    ? last.outcome.interrupts.map(({ id }) => id)
    : [];
}

const resolved = (ids: readonly string[], payload: unknown) => ({
  resume: ids.map((interruptId) => ({ interruptId, status: "resolved", payload })),
});

describe("questions of a body", () => {
  const Name = z.string();
  const quiz = async (ctx: RunContext): Promise<unknown> => {
    const name = ctx.resumeFor("name", Name);
    if (name === undefined) return ctx.interrupt({ id: "name", message: "Your name?", schema: Name });
    const age = ctx.resumeFor("age", z.number());
    if (age === undefined)
      return ctx.interrupt({ id: "age", message: `How old are you, ${name.payload}?`, schema: z.number() });
    return `${name.payload} is ${age.payload}`;
  };

  it("one after another: each leg sees all the answers that the run has got", async () => {
    const { url } = await served({ quiz });
    const user = frontEnd(`${url}/agents/quiz`);
    const first = asked(await user.post());
    const second = await user.post(resolved(first, "Ada"));
    expect(eventsOf(second.text).at(-1)).toMatchObject({
      outcome: { interrupts: [{ message: "How old are you, Ada?" }] },
    });
    const third = await user.post(resolved(asked(second), 36));
    expect(eventsOf(third.text).at(-1)).toMatchObject({ type: "RUN_FINISHED", runId: "r3", result: "Ada is 36" });
    expect(withoutUids([...first, ...asked(second)])).toEqual(["#1:q:0:name", "#1:q:0:age"]);
  });

  it("the same question again is another question: its answer is the newest", async () => {
    const { url } = await served({
      stubborn: async (ctx) => {
        const answer = ctx.resumeFor("sure", z.boolean());
        if (answer?.payload !== true) return ctx.interrupt({ id: "sure", message: "Sure?", schema: z.boolean() });
        return "sure";
      },
    });
    const user = frontEnd(`${url}/agents/stubborn`);
    const first = asked(await user.post());
    const second = asked(await user.post(resolved(first, false)));
    expect(withoutUids([first, second])).toEqual([["#1:q:0:sure"], ["#1:q:1:sure"]]);
    const end = await user.post(resolved(second, true));
    expect(eventsOf(end.text).at(-1)).toMatchObject({ outcome: { type: "success" }, result: "sure" });
  });

  it("refuse what cannot be taken, and stay open: a message instead, a wrong payload, an unknown id, another answer later", async () => {
    const { url } = await served({ quiz });
    const user = frontEnd(`${url}/agents/quiz`);
    const first = asked(await user.post());
    expect(codeOf(await user.post({ messages: [says("u1", "What?")] }))).toMatchObject({
      status: 409,
      code: "INTERRUPTS_OPEN",
      details: { interrupts: first },
    });
    expect(codeOf(await user.post(resolved(first, 7)))).toMatchObject({ status: 422, code: "ANSWER_INVALID" });
    expect(codeOf(await user.post(resolved(["nothing"], 7)))).toMatchObject({
      status: 409,
      code: "INTERRUPT_NOT_FOUND",
    });
    const twice = resolved([...first, ...first], "Ada");
    expect(codeOf(await user.post(twice))).toMatchObject({ status: 422, code: "ANSWER_INVALID" });
    const second = asked(await user.post(resolved(first, "Ada")));
    expect(codeOf(await user.post(resolved(first, "Bob")))).toMatchObject({ status: 409, code: "INTERRUPT_ANSWERED" });
    // The same answer again starts nothing, and is told what is open.
    expect(asked(await user.post(resolved(first, "Ada")))).toEqual(second);
  });

  it("of another thread are unknown", async () => {
    const { url } = await served({ quiz });
    const [one, other] = [frontEnd(`${url}/agents/quiz`), frontEnd(`${url}/agents/quiz`)];
    const first = asked(await one.post());
    await other.post();
    expect(codeOf(await other.post(resolved(first, "Ada")))).toMatchObject({
      status: 409,
      code: "INTERRUPT_NOT_FOUND",
    });
    expect(asked(await one.post(resolved(first, "Ada")))).toHaveLength(1);
  });
});

describe("a client's tool", () => {
  const tools = [{ name: "pick_colour", description: "Lets the user pick", parameters: { type: "object" } }];
  const picks = async (ctx: RunContext): Promise<unknown> => {
    const answer = ctx.messages.findLast(({ role }) => role === "tool");
    if (answer !== undefined) return answer.content;
    const call = ctx.toolCall("pick_colour", { id: "pick" });
    call.argsJson({});
    return call.end();
  };
  const result = (id: string, content: string) => ({ messages: [{ id, role: "tool", toolCallId: "pick", content }] });

  it("answers in the next request; the first answer counts, another one is ignored", async () => {
    const { url } = await served({ picks });
    const user = frontEnd(`${url}/agents/picks`);
    const pending = eventsOf((await user.post({ tools })).text).at(-1);
    expect(pending).toMatchObject({ outcome: { type: "success", pendingToolCallIds: ["pick"] } });
    const both = [...result("t1", "blue").messages, ...result("t2", "red").messages];
    const end = eventsOf((await user.post({ tools, messages: both })).text);
    expect(end.map(({ type }) => type)).toEqual(["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    expect(end.at(-1)).toMatchObject({ result: "blue" });
    const late = eventsOf((await user.post({ tools, ...result("t3", "red") })).text);
    expect(late.at(-1)).toMatchObject({ type: "RUN_FINISHED", result: "blue" });
  });

  it("that nobody answers has a result that says so, when the user goes on instead", async () => {
    const { url } = await served({ picks });
    const user = frontEnd(`${url}/agents/picks`);
    await user.post({ tools });
    const next = eventsOf((await user.post({ tools, messages: [says("u1", "never mind")] })).text);
    expect(next.find(({ type }) => type === "TOOL_CALL_RESULT")).toMatchObject({
      toolCallId: "pick",
      content: expect.stringContaining("not answered by the client"),
    });
    expect(next.at(-1)).toMatchObject({ type: "RUN_FINISHED" });
  });

  it("with the name of one of the server's is 422 TOOL_NAME_TAKEN, and nothing is begun", async () => {
    const { agent: asking } = desk();
    const { url } = await serving([asking]);
    const user = frontEnd(`${url}/agents/desk`);
    const clash = [{ name: "refund", description: "", parameters: { type: "object" } }];
    expect(codeOf(await user.post({ tools: clash, messages: [says("u1", "5")] }))).toMatchObject({
      status: 422,
      code: "TOOL_NAME_TAKEN",
    });
    expect((await ask(`${url}/threads/${user.threadId}/stream`, { method: "GET" })).status).toBe(404);
  });
});

describe("a request that was made before", () => {
  let ran = 0;
  const echo = async (ctx: RunContext): Promise<unknown> => {
    ran++;
    ctx.say(`You said ${ctx.lastUserText()}.`);
    return ctx.lastUserText();
  };

  it("is answered with what came of it, under whatever run id it comes, and runs nothing", async () => {
    const { url } = await served({ echo });
    const user = frontEnd(`${url}/agents/echo`);
    const messages = [says("u1", "hi")];
    await user.post({ messages });
    const before = ran;
    for (const runId of ["r1", "another"]) {
      expect(eventsOf((await user.post({ messages, runId })).text)).toMatchObject([
        { type: "RUN_STARTED", runId },
        { type: "STATE_SNAPSHOT" },
        { type: "MESSAGES_SNAPSHOT", messages: [{ id: "u1" }, { content: "You said hi." }] },
        { type: "RUN_FINISHED", runId, result: "hi" },
      ]);
    }
    expect(ran).toBe(before);
    expect(codeOf(await user.post({ runId: "r1", messages: [says("u2", "ho")] }))).toMatchObject({
      status: 409,
      code: "RUN_ID_REUSED",
    });
  });

  it("is refused while a run is active, if it says something new", async () => {
    const go = deferred();
    const { url } = await served({ wait: () => go.promise });
    const user = frontEnd(`${url}/agents/wait`);
    const first = user.post({ messages: [says("u1", "one")] });
    await ended(url, user.threadId, ["running"]);
    expect(codeOf(await user.post({ messages: [says("u1", "one"), says("u2", "two")] }))).toMatchObject({
      status: 409,
      code: "RUN_ACTIVE",
    });
    go.resolve();
    expect(eventsOf((await first).text).at(-1)).toMatchObject({ type: "RUN_FINISHED" });
  });
});

describe("a failure", () => {
  it("is reported with the run that it belongs to, whether anybody is connected or not", async () => {
    const reported: unknown[] = [];
    const { url } = await served(
      {
        broken: async () => {
          throw new Error("the cause");
        },
      },
      { onError: (error, run) => reported.push([String(error), run]) },
    );
    const user = frontEnd(`${url}/agents/broken`);
    const events = eventsOf((await user.post()).text);
    expect(events.at(-1)).toEqual({
      type: "RUN_ERROR",
      code: "INTERNAL",
      message: expect.not.stringContaining("cause"),
    });
    const { uid } = await ended(url, user.threadId);
    expect(reported).toEqual([["Error: the cause", { agent: "broken", threadId: user.threadId, runId: uid }]]);
  });
});

describe("a snapshot of the conversation", () => {
  it("is a reference in the log while it says what clients hold, and an event where it says something else", async () => {
    const { url } = await served({
      tidy: async (ctx) => {
        ctx.say("One.");
        ctx.messagesSnapshot();
        ctx.messagesSnapshot((messages) => messages.slice(1));
        await ctx.subagent({ name: "a" }, (sub) => {
          sub.emit({ type: "STATE_SNAPSHOT", snapshot: { by: "a" } });
          sub.messagesSnapshot();
        });
      },
    });
    const request = fresh({ messages: [says("u1", "go")] });
    const sent = eventsOf((await ask(`${url}/agents/tidy`, { body: JSON.stringify(request) })).text);
    const { uid } = await ended(url, request.threadId);
    const { text } = await ask(`${url}/runs/${uid}/log`, { method: "GET" });
    const frames = text.split("\n").flatMap((line) => {
      const entry = line === "" ? {} : (JSON.parse(line) as { event?: AGUIEvent; ref?: { of: string } });
      if (entry.ref?.of === "MESSAGES_SNAPSHOT") return ["reference"];
      const { event } = entry;
      if (event?.type === "MESSAGES_SNAPSHOT") return [`${event.messages.length} of 2`];
      return event?.type === "STATE_SNAPSHOT" ? [`state of ${event.subagentRunId}`] : [];
    });
    expect(withoutUids(frames)).toEqual(["reference", "1 of 2", "state of #1:s0", "reference"]);
    const snapshots = sent.flatMap((event) => (event.type === "MESSAGES_SNAPSHOT" ? [event.messages] : []));
    expect(snapshots.map(({ length }) => length)).toEqual([2, 1, 1]);
  });
});

describe("a crash", () => {
  it("runs a body again, from the top: what it has shown is not shown again, and it goes on in the middle of what is open", async () => {
    const store = memory();
    const go = deferred();
    const wait = agent({
      name: "wait",
      async run(ctx) {
        ctx.step("work");
        const outer = ctx.subagent({ name: "outer" });
        const call = outer.toolCall("look");
        call.args('{"half":');
        const message = outer.subagent({ name: "inner" }).message();
        message.delta("half a sen");
        await go.promise;
        message.delta("tence");
        call.args("1}");
        return "done";
      },
    });
    const dying = await serving([wait], { store, drainGrace: 1 });
    const request = fresh({ messages: [says("u1", "go")] });
    const { response, abort } = await open(`${dying.url}/agents/wait`, { body: JSON.stringify(request) });
    const begun = framesOf(await readUntil(response, "half a sen"));
    abort();
    // Nothing of the first driver reaches the store any more, as after a crash.
    await store.close();
    const next = createRuntime({ agents: [wait], store, onError: () => {} });
    onTestFinished(() => next.close());
    await next.open();
    go.resolve();
    const at = `http://localhost/threads/${request.threadId}/stream?after=${begun.at(-1)?.cursor}`;
    expect(eventsOf(await (await next.fetch(new Request(at))).text())).toMatchObject([
      { type: "TEXT_MESSAGE_CONTENT", delta: "tence" },
      { type: "TOOL_CALL_ARGS", delta: "1}" },
      { type: "TEXT_MESSAGE_END" },
      { type: "SUBAGENT_FINISHED" },
      { type: "TOOL_CALL_END" },
      { type: "SUBAGENT_FINISHED" },
      { type: "STEP_FINISHED", stepName: "work" },
      { type: "RUN_FINISHED", result: "done" },
    ]);
  });
});

it("a body is given the whole request, and what the thread holds beside it", async () => {
  const seen: unknown[] = [];
  const { url } = await served<{ n: number }>({
    async reads(ctx) {
      const { parentRunId, forwardedProps, context, clientTools, state, messages } = ctx;
      seen.push({
        input: ctx.input,
        own: { parentRunId, forwardedProps, context, clientTools, state: { ...state }, messages },
      });
    },
  });
  for (const [i, forwardedProps] of [{ theme: "dark", deep: [{ a: null }] }, ["a", 1], "text", 0].entries()) {
    const request = fresh({
      ...{ runId: `r${i}`, parentRunId: "r-before", protocolVersion: "1.0", forwardedProps, state: { n: i } },
      messages: [
        {
          ...{ id: "u", role: "user", name: "Ada", metadata: { at: 1 } },
          content: [
            { type: "text", text: "Look", id: "part-1" },
            { type: "image", source: { type: "data", value: "aGk=", mimeType: "image/png" }, metadata: { alt: "hi" } },
            { type: "document", source: { type: "file", value: "file-7", provider: "acme" } },
          ],
        },
      ],
      tools: [{ name: "pick", description: "Picks", parameters: { type: "object" }, metadata: { icon: "p" } }],
      context: [{ description: "who", value: "Ann" }],
    });
    const { text } = await ask(`${url}/agents/reads`, { body: JSON.stringify(request) });
    const { threadId, runId, messages, tools, context, state, parentRunId, protocolVersion } = request;
    expect(seen.at(-1)).toEqual({
      input: { threadId, runId, messages, tools, context, state, parentRunId, protocolVersion, forwardedProps },
      own: { parentRunId, forwardedProps, context, clientTools: tools, state, messages },
    });
    expect(eventsOf(text)[0]).toMatchObject({ type: "RUN_STARTED", threadId, runId, parentRunId });
  }
});

describe("a state event that a body makes by itself", () => {
  it.each([
    ["append to a list that is not there", { op: "add", path: "/list/-", value: 1 }],
    ["replace what is not there", { op: "replace", path: "/document", value: "x" }],
    ["remove what is not there", { op: "remove", path: "/gone" }],
  ] as const)(
    "is checked against what clients hold: to %s is refused at its line, and nothing is sent",
    async (_, operation) => {
      const codes: unknown[] = [];
      const { url } = await served({
        async patches(ctx) {
          try {
            ctx.emit({ type: "STATE_DELTA", delta: [{ op: "add", path: "/n", value: 1 }, operation] });
          } catch (error) {
            codes.push((error as { code?: string }).code);
          }
          ctx.emit({ type: "STATE_DELTA", delta: [{ op: "add", path: "/n", value: 2 }] });
        },
      });
      const { text } = await ask(`${url}/agents/patches`, { body: JSON.stringify(fresh()) });
      expect(codes).toEqual(["PATCH_FAILED"]);
      expect(eventsOf(text).filter(({ type }) => type.startsWith("STATE_"))).toEqual([
        { type: "STATE_DELTA", delta: [{ op: "add", path: "/n", value: 2 }] },
      ]);
    },
  );

  it.each(["snapshot", "delta"])("is refused at its line without its %s, and nothing is sent", async (member) => {
    const codes: unknown[] = [];
    const type = `STATE_${member.toUpperCase()}`;
    const { url } = await served({
      async patches(ctx) {
        for (const event of [{ type }, { type, [member]: undefined }, { type: "STATE_SNAPSHOT", snapshot: null }]) {
          try {
            ctx.emit(event as Parameters<typeof ctx.emit>[0]);
          } catch (error) {
            codes.push((error as { code?: string }).code);
          }
        }
      },
    });
    const { text } = await ask(`${url}/agents/patches`, { body: JSON.stringify(fresh()) });
    expect(codes).toHaveLength(2);
    expect(codes.every((code) => typeof code === "string")).toBe(true);
    expect(eventsOf(text).filter((event) => event.type.startsWith("STATE_"))).toEqual([
      { type: "STATE_SNAPSHOT", snapshot: null },
    ]);
  });
});
