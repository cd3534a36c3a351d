import { inspect } from "node:util";
import {
  ArgumentsIncompleteError,
  ArgumentsInvalidError,
  BlockOpenError,
  HandleClosedError,
  NotJsonError,
  type RunContext,
} from "perdure";
import { runContext } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";

const Query = z.object({ city: z.string() });

describe("one open tool call", () => {
  it("START goes out when the call is made, and leaving the scope emits END", () => {
    const { ctx, events } = runContext();
    let id: string;
    {
      using call = ctx.toolCall("get_weather");
      id = call.id;
      expect(events.drain()).toEqual([{ type: "TOOL_CALL_START", toolCallId: id, toolCallName: "get_weather" }]);
    }
    expect(events.drain()).toEqual([{ type: "TOOL_CALL_END", toolCallId: id }]);
  });

  it("the callback form ends the call when its body returns, and when it throws", async () => {
    const { ctx, events } = runContext();
    expect(await ctx.toolCall("a", (call) => call.id)).toEqual(expect.any(String));
    await expect(ctx.toolCall("b", { id: "call-b" }, () => Promise.reject(new Error("no")))).rejects.toThrow("no");
    expect(events.drain().map(({ type }) => type)).toEqual([
      "TOOL_CALL_START",
      "TOOL_CALL_END",
      "TOOL_CALL_START",
      "TOOL_CALL_END",
    ]);
  });

  it("arguments stream as text, and the handle keeps what it emitted", () => {
    const { ctx, events } = runContext();
    using call = ctx.toolCall("get_weather");
    events.drain();
    call.args('{"city":');
    call.args('"Seoul"}');
    expect(call.rawArgs).toBe('{"city":"Seoul"}');
    expect(events.drain()).toEqual([
      { type: "TOOL_CALL_ARGS", toolCallId: call.id, delta: '{"city":' },
      { type: "TOOL_CALL_ARGS", toolCallId: call.id, delta: '"Seoul"}' },
    ]);
  });

  it("parsing the arguments fails while they are partial, and gives the typed value when they are whole", () => {
    const { ctx } = runContext();
    using call = ctx.toolCall("get_weather");
    call.args('{"city":');
    expect(() => call.parseArgs(Query)).toThrow(ArgumentsIncompleteError);
    call.args('"Seoul"}');
    const query = call.parseArgs(Query);
    expect(query.city satisfies string).toBe("Seoul");
    expect(call.parseArgs()).toEqual({ city: "Seoul" });
  });

  it("whole arguments that do not fit the schema are ArgumentsInvalidError with the place of each issue", () => {
    const { ctx } = runContext();
    using call = ctx.toolCall("get_weather");
    call.argsJson({ city: 7 });
    const error = thrownBy(() => call.parseArgs(Query));
    expect(error).toBeInstanceOf(ArgumentsInvalidError);
    expect((error as ArgumentsInvalidError).issues).toEqual([{ path: "/city", message: expect.any(String) }]);
    expect((error as ArgumentsInvalidError).message).toContain("`get_weather`");
  });

  it("no arguments at all read as an empty object", () => {
    const { ctx } = runContext();
    using call = ctx.toolCall("now");
    expect(call.parseArgs()).toEqual({});
  });

  it("argsJson emits a value as one delta", () => {
    const { ctx, events } = runContext();
    using call = ctx.toolCall("add_task");
    events.drain();
    call.argsJson({ title: "ship it", due: new Date(0) });
    expect(events.drain()).toEqual([
      { type: "TOOL_CALL_ARGS", toolCallId: call.id, delta: '{"title":"ship it","due":"1970-01-01T00:00:00.000Z"}' },
    ]);
  });

  it("what JSON cannot hold is an error that names the path, for arguments and for results", () => {
    const { ctx, events } = runContext();
    using call = ctx.toolCall("add_task");
    events.drain();
    const cyclic: Record<string, unknown> = {};
    cyclic.self = { back: cyclic };
    for (const [value, path] of [
      [{ list: [1, 2n] }, "/list/1"],
      [cyclic, "/self/back"],
      [{ f: () => 1 }, "/f"],
      [{ n: Number.NaN }, "/n"],
      [{ m: new Map([[1, 2]]) }, "/m"],
    ] as const) {
      for (const attempt of [() => call.argsJson(value), () => call.resultJson(value)]) {
        const error = thrownBy(attempt);
        expect(error).toBeInstanceOf(NotJsonError);
        expect((error as NotJsonError).path).toBe(path);
      }
    }
    expect(events.drain()).toEqual([]);
  });

  it("state changes published inside the open call go out between its START and its END, so a client watches the call land", () => {
    const { ctx, events } = runContext(undefined, { state: { tasks: [] as string[], filler: "x".repeat(200) } });
    const call = ctx.toolCall("add_task");
    call.argsJson({ title: "ship it" });
    call.state.tasks.push("ship it");
    call.publishState();
    call.resultJson({ ok: true });
    expect(ctx.state.tasks).toEqual(["ship it"]);
    expect(events.drain()).toEqual([
      { type: "TOOL_CALL_START", toolCallId: call.id, toolCallName: "add_task" },
      { type: "TOOL_CALL_ARGS", toolCallId: call.id, delta: '{"title":"ship it"}' },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/tasks/0", value: "ship it" }] },
      { type: "TOOL_CALL_END", toolCallId: call.id },
      {
        type: "TOOL_CALL_RESULT",
        messageId: call.resultMessageId,
        toolCallId: call.id,
        content: '{"ok":true}',
        role: "tool",
      },
    ]);
  });

  it("publishing when nothing changed sends nothing, also after a change was taken back", () => {
    const { ctx, events } = runContext(undefined, { state: { n: 1 } });
    using call = ctx.toolCall("count");
    events.drain();
    call.publishState();
    call.state.n = 2;
    call.state.n = 1;
    call.publishState();
    expect(events.drain()).toEqual([]);
  });

  it("a second message, reasoning block or tool call in the lane is BlockOpenError at the line that tries, naming both", () => {
    const { ctx } = runContext();
    using call = ctx.toolCall("get_weather");
    for (const open of [() => ctx.message(), () => ctx.reasoning(), () => ctx.toolCall("other"), () => ctx.say("hi")]) {
      const error = thrownBy(open);
      expect(error).toBeInstanceOf(BlockOpenError);
      expect((error as Error).message).toContain(call.id);
    }
    expect(thrownBy(() => ctx.toolCall("other"))).toMatchObject({ wanted: expect.stringContaining("other") });
    expect("message" in call || "toolCall" in call || "reasoning" in call).toBe(false);
  });

  it("the lane is free again after the call's end", () => {
    const { ctx } = runContext();
    ctx.toolCall("a").result("done");
    expect(() => ctx.say("hi")).not.toThrow();
  });

  it("parallel lanes each have a block of their own", async () => {
    const { ctx, events } = runContext();
    await ctx.parallel(
      ["a", "b"].map((name) => async (lane: RunContext) => {
        using call = lane.toolCall(name);
        await Promise.resolve();
        call.result(name);
      }),
    );
    expect(events.drain().map((e) => e.type)).toEqual([
      "TOOL_CALL_START",
      "TOOL_CALL_START",
      "TOOL_CALL_END",
      "TOOL_CALL_RESULT",
      "TOOL_CALL_END",
      "TOOL_CALL_RESULT",
    ]);
  });

  it("id and resultMessageId are the ids that the events carry", () => {
    const { ctx, events } = runContext();
    const call = ctx.toolCall("get_weather", { parentMessageId: ctx.say("Looking.") });
    const returned = call.result("sunny");
    const result = events.drain().at(-1);
    expect(result).toMatchObject({ toolCallId: call.id, messageId: call.resultMessageId });
    expect(returned).toBe(call.resultMessageId);
    expect(call.resultMessageId).not.toBe(call.id);
  });

  it("the provider's signature for this call is REASONING_ENCRYPTED_VALUE of subtype tool-call", () => {
    const { ctx, events } = runContext();
    using call = ctx.toolCall("get_weather");
    events.drain();
    call.encryptedValue("c2ln");
    expect(events.drain()).toEqual([
      { type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: call.id, encryptedValue: "c2ln" },
    ]);
  });

  it("an unrelated event goes out without closing the call, still transformed and verified", () => {
    const upper = {
      name: "upper",
      initial: null,
      step: (memo: null, event: import("perdure").EmittableEvent | { type: string }) => ({
        memo,
        events: [event.type === "CUSTOM" ? { type: "CUSTOM", name: "seen", value: null } : event] as never,
      }),
    };
    const { ctx, events } = runContext(undefined, { transformers: [upper] });
    using call = ctx.toolCall("get_weather");
    events.drain();
    call.emit({ type: "CUSTOM", name: "app.progress", value: 1 });
    expect(events.drain()).toEqual([{ type: "CUSTOM", name: "seen", value: null }]);
    expect(() => call.emit({ type: "TEXT_MESSAGE_END", messageId: "nobody" })).toThrow(/nobody/);
    call.args("{}");
    expect(events.drain()).toHaveLength(1);
  });

  it("end() leaves the call unanswered, for the client, whose result is a message of the next request", () => {
    const { ctx, events } = runContext();
    const call = ctx.toolCall("pick_color");
    call.argsJson({});
    call.end();
    expect(events.drain().at(-1)).toEqual({ type: "TOOL_CALL_END", toolCallId: call.id });
    const made = { id: call.id, type: "function", function: { name: "pick_color", arguments: "{}" } } as const;
    const next = runContext({
      runId: "run-2",
      messages: [
        { id: "a", role: "assistant", toolCalls: [made] },
        { id: "b", role: "tool", toolCallId: call.id, content: "blue" },
      ],
    });
    expect(next.ctx.messages.at(-1)).toMatchObject({ toolCallId: call.id, content: "blue" });
    expect(() => next.ctx.toolResult(call.id, "red")).toThrow(/result-repeated/);
  });

  it("end() twice is fine, and anything else after it is HandleClosedError", () => {
    const { ctx, events } = runContext();
    const call = ctx.toolCall("pick_color");
    call.end();
    events.drain();
    call.end();
    call[Symbol.dispose]();
    for (const late of [
      () => call.args("{}"),
      () => call.result("x"),
      () => call.publishState(),
      () => call.custom("a", 1),
    ]) {
      expect(late).toThrow(HandleClosedError);
    }
    expect(events.drain()).toEqual([]);
  });

  it("result() takes content parts too", () => {
    const { ctx, events } = runContext();
    ctx.toolCall("draw").result([{ type: "text", text: "a circle" }]);
    expect(events.drain().at(-1)).toMatchObject({ content: [{ type: "text", text: "a circle" }] });
  });

  it("a call is never shown ended with partial arguments: end and result refuse, and leaving the scope withdraws it first", () => {
    const { ctx, events } = runContext({ messages: [{ id: "u1", role: "user", content: "go" }] });
    const said = ctx.say("Looking.");
    {
      using call = ctx.toolCall("get_weather", { parentMessageId: said });
      call.args('{"city":');
      expect(() => call.end()).toThrow(ArgumentsIncompleteError);
      expect(() => call.result("x")).toThrow(ArgumentsIncompleteError);
      events.drain();
    }
    const [snapshot, end, ...rest] = events.drain();
    expect(snapshot).toEqual({
      type: "MESSAGES_SNAPSHOT",
      messages: [
        { id: "u1", role: "user", content: "go" },
        { id: said, role: "assistant", content: "Looking." },
      ],
    });
    expect(end).toMatchObject({ type: "TOOL_CALL_END" });
    expect(rest).toEqual([]);
  });

  it("can be printed: kind, id, state and bytes of arguments, no secrets", () => {
    const { ctx } = runContext();
    using call = ctx.toolCall("login");
    call.argsJson({ password: "hünter2" });
    const printed = inspect(call);
    expect(printed).toContain(call.id);
    expect(printed).toContain("open");
    expect(printed).toContain("23 bytes");
    expect(printed).not.toContain("nter2");
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
