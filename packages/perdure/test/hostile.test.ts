/**
 * Hostile input, from clients over HTTP and from agent code over the API. Each is a typed error whose message names the object and what to do;
 * nothing is lost by it, and the server goes on serving.
 */

import {
  agent,
  createRuntime,
  erase,
  InvalidInput,
  InvalidOutput,
  NotJsonError,
  PerdureError,
  type RunContext,
  type Served,
  serve,
  streamRun,
  tool,
} from "perdure";
import { ProtocolError } from "perdure/protocol";
import { runContext, toolContext } from "perdure/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { ask, eventsOf, run } from "./http/rig.ts";

const LONE = "\ud800";
const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
const cyclic = (): Record<string, unknown> => {
  const value: Record<string, unknown> = { inner: {} };
  (value.inner as Record<string, unknown>).back = value;
  return value;
};
/** As `JSON.parse` makes it: an own member, which a literal would not. */
const polluted = (): unknown => JSON.parse('{"a":{"__proto__":{"admin":true}}}');

describe("over HTTP", () => {
  let server: Served;
  let ran = 0;
  const reported: unknown[] = [];
  beforeAll(async () => {
    const Board = z.object({ tasks: z.array(z.string()) });
    const agents = [
      agent({ name: "echo", run: async (ctx) => void ctx.say(`run ${++ran}`) }),
      agent({ name: "board", state: { schema: Board, initial: () => ({ tasks: [] }) }, run: async () => void ran++ }),
    ];
    server = await serve(createRuntime({ agents, onError: (error) => reported.push(error) }), { port: 0 });
  });
  afterAll(() => server.close());

  /** Sends it, expects the refusal, and then that the next request is served as if nothing had been. */
  async function refused(body: string, name = "echo"): Promise<{ code: string; message: string; details: unknown }> {
    const before = ran;
    const answer = await ask(`${server.url}/agents/${name}`, { body });
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.status).toBeLessThan(500);
    expect(ran).toBe(before);
    const next = await ask(`${server.url}/agents/echo`);
    expect(eventsOf(next.text).map(({ type }) => type)).toEqual([
      "RUN_STARTED",
      "TEXT_MESSAGE_START",
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
      "RUN_FINISHED",
    ]);
    expect(reported).toEqual([]);
    return (JSON.parse(answer.text) as { error: { code: string; message: string; details: unknown } }).error;
  }

  it.each([
    ["nothing", ""],
    ["half an object", '{"threadId":"t"'],
    ["two objects", "{}{}"],
    ["NaN", '{"threadId":NaN}'],
    ["a raw newline in a string", '{"threadId":"a\nb"}'],
    ["a comment", '{/* hi */"threadId":"t"}'],
    ["brackets without end", "[".repeat(1_000_000)],
  ])("%s is INVALID_JSON", async (_, body) => {
    expect(await refused(body)).toMatchObject({ code: "INVALID_JSON", message: expect.stringContaining("body") });
  });

  it.each([
    ["null", "null"],
    ["a string", '"run"'],
    ["a list", "[]"],
    ["a number", "1e999"],
  ])("%s instead of an object is INPUT_INVALID", async (_, body) => {
    expect((await refused(body)).code).toBe("INPUT_INVALID");
  });

  it.each([
    ["state", `{"threadId":"t","runId":"r","messages":[],"state":${nested(100_000)}}`],
    ["messages", `{"threadId":"t","runId":"r","messages":${nested(100_000)}}`],
    ["forwardedProps", `{"threadId":"t","runId":"r","messages":[],"forwardedProps":${nested(600)}}`],
  ])("%s nested too deep is INPUT_INVALID, and no stack overflows", async (member, body) => {
    const { code, message } = await refused(body);
    expect(code).toBe("INPUT_INVALID");
    expect(message).toContain(`/${member}`);
    expect(message).toContain("512 levels");
  });

  const wrong: readonly unknown[] = [null, 7, true, "x", [], {}, [7], { x: 7 }];
  const fields: Readonly<Record<string, (value: unknown) => boolean>> = {
    threadId: (v) => typeof v === "string",
    runId: (v) => typeof v === "string",
    parentRunId: (v) => typeof v === "string" || v === null,
    messages: (v) => Array.isArray(v) && v.length === 0,
    tools: (v) => v === null || (Array.isArray(v) && v.length === 0),
    context: (v) => v === null || (Array.isArray(v) && v.length === 0),
    resume: (v) => v === null || (Array.isArray(v) && v.length === 0),
    protocolVersion: (v) => typeof v === "string" || v === null,
  };
  it.each(Object.keys(fields))("%s of a wrong type is INPUT_INVALID and says where", async (field) => {
    for (const value of wrong) {
      if (fields[field]?.(value)) continue;
      const { code, details } = await refused(JSON.stringify({ ...run, [field]: value }));
      expect(code).toBe("INPUT_INVALID");
      expect((details as { path: string }[])[0]?.path).toMatch(new RegExp(`^/${field}`));
    }
  });

  const user = { id: "u", role: "user", content: "hi" };
  const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } };
  it.each([
    ["/messages/0/role", { messages: [{ ...user, role: "boss" }] }],
    ["/messages/0/content", { messages: [{ ...user, content: 7 }] }],
    ["/messages/0/id", { messages: [{ ...user, id: 7 }] }],
    ["/messages/1/id", { messages: [user, { ...user, content: "other" }] }],
    ["/messages/0/toolCalls/0/function/arguments", bodyWithCall({ function: { name: "f", arguments: {} } })],
    ["/messages/0/toolCalls/0/id", bodyWithCall({ id: null })],
    ["/messages/0/toolCallId", { messages: [{ id: "x", role: "tool", content: "y" }] }],
    ["/tools/0/name", { tools: [{ name: 7, description: "" }] }],
    ["/context/0/value", { context: [{ description: "d", value: {} }] }],
    ["/resume/0/status", { resume: [{ interruptId: "i", status: "maybe" }] }],
    ["/resume/0/interruptId", { resume: [{ interruptId: "", status: "resolved" }] }],
  ])("a wrong value at %s is named by its place", async (path, more) => {
    const { code, details } = await refused(JSON.stringify({ ...run, ...more }));
    expect(code).toBe("INPUT_INVALID");
    expect((details as { path: string }[]).map((issue) => issue.path)).toContain(path);
  });
  function bodyWithCall(more: object) {
    return { messages: [{ id: "a", role: "assistant", toolCalls: [{ ...call, ...more }] }] };
  }

  it.each([
    ["huge", "x".repeat(1025), "1024"],
    ["with a newline", "a\ndata: {}", "control"],
    ["with NUL", "a\u0000b", "control"],
    ["with a lone surrogate", `a${LONE}`, "lone surrogate"],
    ["empty", "", "empty"],
  ])("an id that is %s is refused wherever it stands", async (_, id, why) => {
    for (const [path, body] of [
      ["/threadId", { ...run, threadId: id }],
      ["/runId", { ...run, runId: id }],
      ["/parentRunId", { ...run, parentRunId: id }],
      ["/messages/0/id", { ...run, messages: [{ ...user, id }] }],
      ["/messages/0/toolCalls/0/id", { ...run, ...bodyWithCall({ id }) }],
      ["/messages/0/toolCallId", { ...run, messages: [{ id: "x", role: "tool", content: "y", toolCallId: id }] }],
      ["/resume/0/interruptId", { ...run, resume: [{ interruptId: id, status: "cancelled" }] }],
    ] as const) {
      const { code, message } = await refused(JSON.stringify(body));
      expect(code).toBe("INPUT_INVALID");
      expect(message).toContain(`${path}: must not`);
      expect(message).toContain(why);
    }
  });

  it("__proto__ is refused wherever the application's own JSON is taken, and nobody is polluted", async () => {
    for (const member of ["state", "forwardedProps"]) {
      const { code, message } = await refused(
        `{"threadId":"t","runId":"r","messages":[],"${member}":{"a":{"__proto__":{"admin":true}}}}`,
      );
      expect(code).toBe("INPUT_INVALID");
      expect(message).toContain(`/${member}/a/__proto__`);
    }
    expect("admin" in {}).toBe(false);
  });

  it("a state that does not fit is STATE_INVALID, naming agent and place", async () => {
    const { code, message } = await refused(JSON.stringify({ ...run, state: { tasks: "all" } }), "board");
    expect(code).toBe("STATE_INVALID");
    expect(message).toMatch(/"board".*\/tasks/);
  });

  it("a million faults are answered with a hundred of them", async () => {
    const messages = Array.from({ length: 100_000 }, () => 7);
    const { details } = await refused(JSON.stringify({ ...run, messages }));
    expect(details).toHaveLength(100);
  });
});

describe("over the API", () => {
  /** What JSON cannot hold, where that is, and how the message calls it. */
  const unJson: readonly [name: string, make: () => unknown, path: string, found: string][] = [
    ["a BigInt", () => ({ list: [1, 2n] }), "/list/1", "a BigInt"],
    ["a cycle", cyclic, "/inner/back", "one of its own parents"],
    ["a function", () => ({ f: () => 1 }), "/f", "a function"],
    ["NaN", () => ({ n: Number.NaN }), "/n", "NaN"],
    ["a Map", () => ({ m: new Map() }), "/m", "a Map"],
    ["__proto__", polluted, "/a/__proto__", '"__proto__"'],
    ["endless depth", () => JSON.parse(nested(600)) as unknown, "", "512 levels"],
  ];

  const takers: readonly [name: string, label: RegExp, give: (ctx: RunContext<never>, value: never) => unknown][] = [
    ["a call's result", /result of tool call `t`/, (ctx, value) => ctx.toolCall("t").resultJson(value)],
    ["a call's arguments", /arguments of tool call `t`/, (ctx, value) => ctx.toolCall("t").argsJson(value)],
    ["a late result", /result of tool call old/, (ctx, value) => ctx.toolResultJson("old", value)],
    ["a custom event's value", /value of custom event "app.x"/, (ctx, value) => ctx.custom("app.x", value)],
    ["a raw event", /raw event/, (ctx, value) => ctx.raw(value)],
    ["an activity's content", /content of activity "PLAN"/, (ctx, value) => ctx.activity("PLAN", { value })],
    ["the state", /state/, (ctx, value) => ctx.setState({ value } as never)],
  ];

  describe.each(unJson)("%s", (_, make, path, found) => {
    it.each(takers)("as %s is NOT_JSON, says what, where and what to do, and sends nothing", (_name, label, give) => {
      const old = { id: "old", type: "function", function: { name: "f", arguments: "{}" } } as const;
      const { ctx, events } = runContext<never>({ messages: [{ id: "a", role: "assistant", toolCalls: [old] }] });
      const error = thrownBy(() => give(ctx, make() as never));
      expect(error).toBeInstanceOf(NotJsonError);
      const { code, message, path: at } = error as NotJsonError;
      expect(code).toBe("NOT_JSON");
      expect(message).toMatch(label);
      expect(message).toContain(found);
      expect(message).toContain("convert it first");
      if (path !== "") expect(at.endsWith(path)).toBe(true);
      expect(events.drain().filter(({ type }) => type !== "TOOL_CALL_START")).toEqual([]);
    });

    it("put into the state's draft is NOT_JSON at the publish, which sends nothing and keeps the rest", () => {
      const { ctx, events } = runContext<{ ok: number; bad?: unknown }>({}, { state: { ok: 0 } });
      ctx.state.ok = 1;
      ctx.state.bad = make();
      const error = thrownBy(() => ctx.publishState());
      expect(error).toBeInstanceOf(NotJsonError);
      expect((error as NotJsonError).path).toContain("/bad");
      expect(events.drain()).toEqual([]);
      delete ctx.state.bad;
      ctx.publishState();
      expect(ctx.state).toEqual({ ok: 1 });
      expect(events.drain()).toHaveLength(1);
    });

    it("as a run's result is RUN_ERROR NOT_JSON, after what was said", async () => {
      const reported: unknown[] = [];
      const subject = agent({
        name: "subject",
        run: async (ctx) => {
          ctx.say("said");
          return make();
        },
      });
      const types: string[] = [];
      let last: unknown;
      const input = { threadId: "t", runId: "r", messages: [], tools: [], context: [] };
      for await (const event of streamRun(subject, input, { onError: (error) => reported.push(error) })) {
        types.push(event.type);
        last = event;
      }
      expect(types).toContain("TEXT_MESSAGE_END");
      expect(last).toMatchObject({ type: "RUN_ERROR", code: "NOT_JSON" });
      expect(String(reported[0])).toContain('result of agent "subject"');
    });

    it("as a tool's output is OUTPUT_INVALID: done, not to be repeated", async () => {
      const write = tool({
        name: "w",
        description: "Writes.",
        effect: "write",
        input: z.object({}),
        call: () => make(),
      });
      const error = await erase(write)
        .callJson({}, toolContext({ idempotencyKey: "k" }))
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(InvalidOutput);
      expect(error).toMatchObject({ code: "OUTPUT_INVALID", applied: "yes" });
      expect((error as Error).message).toMatch(/tool `w`.*must not be repeated/);
    });

    it("as a tool's input is INVALID_INPUT, and the handler is not called", async () => {
      let called = false;
      const read = tool({
        name: "r",
        description: "Reads.",
        effect: "read",
        input: z.any(),
        call: () => {
          called = true;
        },
      });
      const error = await erase(read)
        .callJson(make() as never, toolContext())
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(InvalidInput);
      expect(called).toBe(false);
    });
  });

  it.each([
    ["huge", "x".repeat(1025)],
    ["with a newline", "a\nb"],
    ["with a lone surrogate", `a${LONE}`],
    ["empty", ""],
  ])("an id that is %s is refused at its line, and the lane is free again", (_, id) => {
    const { ctx, events } = runContext();
    for (const attempt of [
      () => ctx.toolCall("t", { id }),
      () => ctx.toolCall("t", { parentMessageId: id }),
      () => ctx.toolResult(id, "x"),
      () => ctx.interrupt({ id, message: "?" }),
      () => ctx.emit({ type: "TEXT_MESSAGE_START", messageId: id, role: "assistant" }),
    ]) {
      const error = thrownBy(attempt);
      expect(error).toBeInstanceOf(ProtocolError);
      expect(error).toMatchObject({ code: "PROTOCOL_VIOLATION", rule: "shape" });
      expect((error as Error).message).toMatch(
        /\/(toolCallId|parentMessageId|messageId|outcome\/interrupts\/0\/id) is an/,
      );
    }
    expect(events.drain()).toEqual([]);
    expect(() => ctx.say("free")).not.toThrow();
  });

  it("what is not an event is refused, whatever it is", () => {
    const { ctx, events } = runContext();
    for (const event of [
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m" },
      { type: "NOT_AN_EVENT" },
      { type: "CUSTOM", name: "x", value: 1n },
      { type: "CUSTOM", name: "x", value: cyclic() },
      { type: "STATE_SNAPSHOT", snapshot: cyclic() },
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/nowhere", value: 1 }] },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/__proto__/admin", value: true }] },
      { type: "CUSTOM", name: "x", value: 1, timestamp: 1.5 },
      { type: "CUSTOM", name: "x", value: 1, mood: "good" },
      { type: "RUN_FINISHED", threadId: "t", runId: "r" },
    ]) {
      expect(thrownBy(() => ctx.emit(event as never))).toBeInstanceOf(PerdureError);
    }
    expect("admin" in {}).toBe(false);
    expect(events.drain()).toEqual([]);
    expect(() => ctx.say("still fine")).not.toThrow();
  });
});

function thrownBy(attempt: () => unknown): unknown {
  try {
    attempt();
  } catch (error) {
    return error;
  }
  throw new Error("nothing was thrown");
}
