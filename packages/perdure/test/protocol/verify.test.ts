import { transformChunks, verifyEvents } from "@ag-ui/client";
import * as fc from "fast-check";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, test } from "vitest";
import { type AGUIEvent, type EventFields, event, type Message } from "../../src/protocol/events.ts";
import {
  closingEvent,
  newWire,
  openItems,
  ProtocolError,
  pendingToolCalls,
  type Rule,
  verify,
  verifyEnd,
  type Wire,
  type WireOptions,
} from "../../src/protocol/verify.ts";
import { CLIENT_TOOLS, legalStream } from "./legal-streams.ts";

// ── Short names for events

const started = (more: Partial<EventFields<"RUN_STARTED">> = {}) =>
  event("RUN_STARTED", { threadId: "t", runId: "r", protocolVersion: "1.0", ...more });
const finished = (more: Partial<EventFields<"RUN_FINISHED">> = {}) =>
  event("RUN_FINISHED", { threadId: "t", runId: "r", ...more });
const pending = (...ids: string[]) => finished({ outcome: { type: "success", pendingToolCallIds: ids } });
const interrupt = (...ids: string[]) =>
  finished({ outcome: { type: "interrupt", interrupts: ids.map((id) => ({ id, reason: "tool_call" })) } });
const failed = event("RUN_ERROR", { message: "broken" });
const by = (subagentRunId?: string) => ({ subagentRunId });
const text = (id = "m", owner?: string) => event("TEXT_MESSAGE_START", { messageId: id, ...by(owner) });
const say = (id = "m", owner?: string) => event("TEXT_MESSAGE_CONTENT", { messageId: id, delta: "x", ...by(owner) });
const textEnd = (id = "m", owner?: string) => event("TEXT_MESSAGE_END", { messageId: id, ...by(owner) });
const call = (id = "c", more: Partial<EventFields<"TOOL_CALL_START">> = {}) =>
  event("TOOL_CALL_START", { toolCallId: id, toolCallName: "search", ...more });
const args = (delta: string, id = "c", owner?: string) =>
  event("TOOL_CALL_ARGS", { toolCallId: id, delta, ...by(owner) });
const callEnd = (id = "c", owner?: string) => event("TOOL_CALL_END", { toolCallId: id, ...by(owner) });
const result = (id = "c", messageId = `result-${id}`) =>
  event("TOOL_CALL_RESULT", { toolCallId: id, messageId, content: "ok" });
const span = (id = "g", owner?: string) => event("REASONING_START", { messageId: id, ...by(owner) });
const spanEnd = (id = "g", owner?: string) => event("REASONING_END", { messageId: id, ...by(owner) });
const thought = (id = "g", owner?: string) =>
  event("REASONING_MESSAGE_START", { messageId: id, role: "reasoning", ...by(owner) });
const think = (id = "g", owner?: string) =>
  event("REASONING_MESSAGE_CONTENT", { messageId: id, delta: "x", ...by(owner) });
const thoughtEnd = (id = "g", owner?: string) => event("REASONING_MESSAGE_END", { messageId: id, ...by(owner) });
const step = (name = "s", owner?: string) => event("STEP_STARTED", { stepName: name, ...by(owner) });
const stepEnd = (name = "s", owner?: string) => event("STEP_FINISHED", { stepName: name, ...by(owner) });
const subagent = (id = "sub", parentSubagentRunId?: string) =>
  event("SUBAGENT_STARTED", { subagentRunId: id, name: "n", parentSubagentRunId });
const subagentEnd = (id = "sub") => event("SUBAGENT_FINISHED", { subagentRunId: id });
const activity = (id = "a", more: Partial<EventFields<"ACTIVITY_SNAPSHOT">> = {}) =>
  event("ACTIVITY_SNAPSHOT", { messageId: id, activityType: "PLAN", content: {}, ...more });
const activityDelta = (id = "a", owner?: string) =>
  event("ACTIVITY_DELTA", { messageId: id, activityType: "PLAN", patch: [], ...by(owner) });
const messages = (...list: Message[]) => event("MESSAGES_SNAPSHOT", { messages: list });
const state = event("STATE_SNAPSHOT", { snapshot: {} });
const textChunk = (fields: EventFields<"TEXT_MESSAGE_CHUNK">) => event("TEXT_MESSAGE_CHUNK", fields);
const callChunk = (fields: EventFields<"TOOL_CALL_CHUNK">) => event("TOOL_CALL_CHUNK", fields);
const thoughtChunk = (fields: EventFields<"REASONING_MESSAGE_CHUNK">) => event("REASONING_MESSAGE_CHUNK", fields);
const custom = event("CUSTOM", { name: "n", value: 1 });

const user: Message = { id: "u", role: "user", content: "hi" };
const calling = (id = "c", carrier = "m", argumentsText = "{}"): Message => ({
  id: carrier,
  role: "assistant",
  toolCalls: [{ id, type: "function", function: { name: "search", arguments: argumentsText } }],
});
const answer = (id = "c"): Message => ({ id: `result-${id}`, role: "tool", toolCallId: id, content: "ok" });

// ── Assertions

function play(events: readonly AGUIEvent[], options?: WireOptions): Wire {
  return events.reduce((wire, next) => verify(wire, next), newWire(options));
}

/** Everything but the last event is legal; the last breaks the rule. */
function refuses(rule: Rule, events: readonly AGUIEvent[], options?: WireOptions): ProtocolError {
  const wire = play(events.slice(0, -1), options);
  const last = events.at(-1);
  if (last === undefined) throw new Error("no event");
  try {
    verify(wire, last);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    expect(error.rule).toBe(rule);
    expect(error.event).toBe(last);
    expect(error.message).toContain(last.type);
    return error;
  }
  throw new Error(`accepted: ${JSON.stringify(last)}`);
}

function accepts(events: readonly AGUIEvent[], options?: WireOptions): void {
  verifyEnd(play(events, options));
}

const STRICT: WireOptions = { strict: true };

// ── The rules

describe("a run", () => {
  test("begins with RUN_STARTED, or fails before", () => {
    refuses("first-event", [text()]);
    accepts([failed]);
  });
  test("is the only one at a time", () => void refuses("run-active", [started(), started({ runId: "r2" })]));
  test("is followed by a late RUN_ERROR or another run, nothing else", () => {
    refuses("run-over", [started(), finished(), custom]);
    refuses("run-over", [started(), finished(), finished()]);
    accepts([started(), finished(), failed]);
    accepts([started(), finished(), started({ runId: "r2" }), finished({ runId: "r2" })]);
  });
  test("that failed is followed by another run only", () => {
    refuses("run-errored", [started(), failed, failed]);
    refuses("run-errored", [started(), finished(), failed, custom]);
    accepts([started(), failed, started({ runId: "r2" }), finished({ runId: "r2" })]);
  });
  test("finishes under the ids it started with", () => {
    refuses("run-id", [started(), finished({ runId: "other" })]);
    refuses("thread-id", [started(), finished({ threadId: "other" })]);
  });
  test("stays on the stream's thread", () => {
    refuses("thread-id", [started(), finished(), started({ threadId: "other", runId: "r2" })]);
    refuses("thread-id", [started()], { threadId: "other" });
  });
  test("has an id of its own", () => void refuses("run-id-reused", [started(), finished(), started()]));
  test("has to reach a terminal event before the stream ends", () => {
    expect(() => verifyEnd(newWire())).toThrow(expect.objectContaining({ rule: "run-unfinished", event: undefined }));
    expect(() => verifyEnd(play([started(), text()]))).toThrow(
      expect.objectContaining({ rule: "run-unfinished", id: "r" }),
    );
  });
  test.each([
    ["text", text(), textEnd(), "m"],
    ["call", call(), callEnd(), "c"],
    ["reasoning span", span(), spanEnd(), "g"],
    ["reasoning message", thought(), thoughtEnd(), "g"],
    ["step", step(), stepEnd(), "s"],
    ["subagent", subagent(), subagentEnd(), "sub"],
  ])("does not finish while a %s is open, whatever the outcome", (_, begin, end, id) => {
    for (const outcome of [undefined, { type: "success" as const }, { type: "cancelled" as const }]) {
      expect(refuses("open-at-end", [started(), begin, finished({ outcome })]).id).toBe(id);
      accepts([started(), begin, end, finished({ outcome })]);
    }
    refuses("open-at-end", [started(), begin, interrupt("i")]);
    accepts([started(), begin, failed]);
    // What a failed run left open is not open in the next.
    const next = started({ runId: "r2" });
    expect(openItems(play([started(), begin, failed, next]))).toEqual([]);
    accepts([started(), begin, failed, next, finished({ runId: "r2" })]);
  });
  test("lists each interrupt once", () => void refuses("interrupt-id", [started(), interrupt("i", "j", "i")]));
});

describe("an item", () => {
  test.each<[string, Rule, AGUIEvent]>([
    ["text", "text-already-open", text()],
    ["call", "tool-call-already-open", call()],
    ["reasoning span", "reasoning-already-open", span()],
    ["reasoning message", "reasoning-message-already-open", thought()],
    ["step", "step-already-open", step()],
    ["subagent", "subagent-already-open", subagent()],
  ])("that is open is not begun again: %s", (_, rule, begin) => void refuses(rule, [started(), begin, begin]));

  test.each<[Rule, AGUIEvent]>([
    ["text-not-open", say()],
    ["text-not-open", textEnd()],
    ["tool-call-not-open", args("x")],
    ["tool-call-not-open", callEnd()],
    ["reasoning-not-open", spanEnd()],
    ["reasoning-message-not-open", think()],
    ["reasoning-message-not-open", thoughtEnd()],
    ["step-not-open", stepEnd()],
    ["subagent-not-open", subagentEnd()],
    ["subagent-not-open", event("SUBAGENT_ERROR", { subagentRunId: "sub", message: "x" })],
  ])("that is not open has no more events (%s)", (rule, more) => void refuses(rule, [started(), more]));

  test("may be interleaved with others, and goes on under its id after its end", () => {
    accepts([
      started(),
      text(),
      text("m2"),
      say("m2"),
      say(),
      textEnd(),
      textEnd("m2"),
      text(),
      say(),
      textEnd(),
      finished(),
    ]);
    accepts([started(), thought(), thoughtEnd(), thought(), think(), thoughtEnd(), finished()]);
    accepts([
      started(),
      text(),
      textEnd(),
      finished(),
      started({ runId: "r2" }),
      text(),
      textEnd(),
      finished({ runId: "r2" }),
    ]);
  });

  test("belongs to whoever began it", () => {
    refuses("owner", [started(), text("m", "a"), say("m", "b")]);
    refuses("owner", [started(), text("m"), textEnd("m", "b")]);
    refuses("owner", [started(), text("m", "a"), textEnd(), text("m", "b")]);
    refuses("owner", [started(), call("c", by("a")), args("{}", "c", "b")]);
    refuses("owner", [started(), call("c", by("a")), callEnd("c", "b")]);
    refuses("owner", [started(), span("g", "a"), spanEnd("g", "b")]);
    refuses("owner", [started(), span("g", "a"), thought("g", "b")]);
    refuses("owner", [started(), thought("g", "a"), think("g", "b")]);
    refuses("owner", [started(), activity("a", by("a")), activityDelta("a", "b")]);
    const encrypted = { entityId: "m", subtype: "message" as const, encryptedValue: "x", ...by("b") };
    refuses("owner", [started(), text("m", "a"), event("REASONING_ENCRYPTED_VALUE", encrypted)]);
    refuses("owner", [started(), messages({ ...user, id: "m", subagentRunId: "a" }), text("m", "b")]);
    accepts([started(), text("m", "a"), say("m", "a"), say("m"), textEnd("m", "a"), finished()]);
  });

  test("has its owner only to the end of the run", () => {
    accepts([
      started(),
      text("m", "a"),
      textEnd(),
      finished(),
      started({ runId: "r2" }),
      text("m", "b"),
      textEnd("m", "b"),
      finished({ runId: "r2" }),
    ]);
  });

  test("of one kind does not take the id of another", () => {
    refuses("id-kind", [started(), text("x"), thought("x")]);
    refuses("id-kind", [started(), thought("x"), thoughtEnd("x"), text("x")]);
    refuses("id-kind", [started(), span("x"), spanEnd("x"), text("x")]);
    refuses("id-kind", [started(), activity("x"), text("x")]);
    refuses("id-kind", [started(), text("x"), activity("x")]);
    refuses("id-kind", [started(), thought("x"), call("c", { parentMessageId: "x" })]);
    refuses("id-kind", [started(), call(), callEnd(), result("c", "x"), text("x")]);
    refuses("id-kind", [started(), thought("u")], { messages: [user] });
    accepts([started(), span("x"), thought("x"), thoughtEnd("x"), spanEnd("x"), finished()]);
  });
});

describe("a tool call", () => {
  test("belongs to the message that carries it", () => {
    refuses("call-owner", [started(), text("m", "a"), call("c", { parentMessageId: "m", ...by("b") })]);
    refuses("call-owner", [
      started(),
      ...[text("m", "a"), text("n", "b"), call("c", { parentMessageId: "m" }), callEnd()],
      call("c", { parentMessageId: "n" }),
    ]);
    refuses("owner", [started(), text("m", "a"), call("c", { parentMessageId: "m" }), args("{}", "c", "b")]);
    accepts([started(), call("c", { parentMessageId: "never announced" }), callEnd(), finished()]);
  });
  test("has a result only if it was made", () => {
    refuses("result-without-call", [started(), result()]);
    accepts([started(), result(), finished()], { messages: [calling()] });
    accepts([
      started({ input: { threadId: "t", runId: "r", messages: [calling()], tools: [], context: [] } }),
      result(),
      finished(),
    ]);
  });
  test("has one result, also over runs, history and snapshots", () => {
    refuses("result-repeated", [started(), call(), callEnd(), result(), result("c", "second")]);
    refuses("result-repeated", [
      started(),
      call(),
      callEnd(),
      result(),
      finished(),
      started({ runId: "r2" }),
      result("c", "second"),
    ]);
    refuses("result-repeated", [started(), result("c", "second")], { messages: [calling(), answer()] });
    refuses("result-repeated", [started(), call(), callEnd(), messages(calling(), answer()), result("c", "second")]);
    const input = { threadId: "t", runId: "r2", messages: [answer()], tools: [], context: [] };
    refuses("result-repeated", [
      started(),
      call(),
      callEnd(),
      finished(),
      started({ runId: "r2", input }),
      result("c", "second"),
    ]);
  });
  test("is answered after its END", () => void refuses("result-before-end", [started(), call(), result()]));
  test("is answered by a message with an id of its own", () => {
    refuses("result-id", [started(), text("m"), call("c", { parentMessageId: "m" }), callEnd(), result("c", "m")]);
    refuses("result-id", [started(), call(), callEnd(), result("c", "c")]);
    refuses("result-id", [started(), call(), call("d"), callEnd(), callEnd("d"), result("c", "x"), result("d", "x")]);
  });
  test("of the client's is not answered by the server in its run, but may be later", () => {
    const options = { clientTools: ["search"] };
    refuses("client-call-result", [started(), call(), callEnd(), result()], options);
    accepts(
      [started(), call(), callEnd(), finished(), started({ runId: "r2" }), result(), finished({ runId: "r2" })],
      options,
    );
  });
  test("is answered, or left to the client, only with whole JSON as arguments", () => {
    for (const partial of ['{"a"', '{"a":1}}', "undefined", " "]) {
      refuses("args-not-json", [started(), call(), args(partial), callEnd(), result()]);
      refuses("args-not-json", [started(), call(), args(partial), callEnd(), finished()]);
      refuses("args-not-json", [
        started(),
        call(),
        args(partial),
        callEnd(),
        finished({ outcome: { type: "success" } }),
      ]);
      refuses("args-not-json", [started(), messages(calling("c", "m", partial)), result()]);
    }
    accepts([started(), call(), args('{"a'), args('":1}'), callEnd(), result(), finished()]);
    accepts([started(), call(), callEnd(), result(), finished()]);
    accepts([started(), call(), args('{"a"'), callEnd(), finished({ outcome: { type: "cancelled" } })]);
    accepts([started(), result(), finished()], { messages: [calling("c", "m", '{"a"')] });
  });
  test("that broke off with a failed run is never answered", () => {
    refuses("args-not-json", [started(), call(), args('{"a"'), failed, started({ runId: "r2" }), result()]);
  });
  test("goes on under its id while it has no result and its run lasts", () => {
    accepts([started(), call(), callEnd(), call(), args("{}"), callEnd(), result(), finished()]);
    refuses("args-not-json", [started(), call(), args("{}"), callEnd(), call(), args("{}"), callEnd(), result()]);
  });
  test("is not made again once it has its result, in a later run, or as a call of another tool", () => {
    refuses("call-reopened", [started(), call(), callEnd(), result(), call()]);
    refuses("call-reopened", [started(), call(), callEnd(), interrupt("i"), started({ runId: "r2" }), call()]);
    refuses("call-reopened", [started(), call()], { messages: [calling()] });
    refuses("call-reopened", [started(), messages(calling()), call()]);
    refuses("call-reopened", [started(), call(), callEnd(), call("c", { toolCallName: "book" })]);
  });
});

describe("a step", () => {
  test("is finished by whoever started it", () => {
    refuses("step-owner", [started(), step("s", "a"), stepEnd("s")]);
    refuses("step-owner", [started(), step("s"), stepEnd("s", "a")]);
  });
  test("may have the name of one of another owner", () => {
    accepts([started(), step("s"), step("s", "a"), stepEnd("s"), stepEnd("s", "a"), finished()]);
  });
  test("nests within its lane, and only there", () => {
    const open = (["s1 a", "s2 a", "s3 b"] as const).reduce(
      (wire, both) => {
        const [name = "", lane] = both.split(" ");
        return verify(wire, step(name), lane);
      },
      play([started()]),
    );
    const nesting = expect.objectContaining({ rule: "step-nesting" });
    expect(() => verify(open, stepEnd("s1"), "a")).toThrow(nesting);
    expect(() => verify(open, stepEnd("s2"), "b")).toThrow(nesting);
    expect(() => verify(open, stepEnd("s2"), "c")).toThrow(nesting);
    verify(open, stepEnd("s1"));
    verify(verify(verify(open, stepEnd("s2"), "a"), stepEnd("s1"), "a"), stepEnd("s3"), "b");
  });
  test("of one owner nests for itself, also where one lane passes on the work of several", () => {
    const open = [step("s", "x"), step("s", "y")].reduce((wire, one) => verify(wire, one, "a"), play([started()]));
    verify(verify(open, stepEnd("s", "x"), "a"), stepEnd("s", "y"), "a");
  });
});

describe("a subagent", () => {
  test("that has ended is not started again in its run, but may be in the next", () => {
    refuses("subagent-reused", [started(), subagent(), subagentEnd(), subagent()]);
    accepts([
      started(),
      subagent(),
      subagentEnd(),
      finished(),
      started({ runId: "r2" }),
      subagent(),
      subagentEnd(),
      finished({ runId: "r2" }),
    ]);
  });
  test("has a parent that was started in this run", () => {
    refuses("subagent-parent", [started(), subagent("sub", "nobody")]);
    accepts([started(), subagent("p"), subagentEnd("p"), subagent("sub", "p"), subagentEnd(), finished()]);
  });
  test("needs no announcement to own something", () =>
    accepts([started(), text("m", "a"), textEnd("m", "a"), finished()]));
});

describe("an activity", () => {
  const plan: Message = { id: "a", role: "activity", activityType: "PLAN", content: {} };
  test("is patched only after a snapshot", () => {
    refuses("activity-without-snapshot", [started(), activityDelta()]);
    refuses("activity-without-snapshot", [started(), text("a"), activityDelta("a")]);
    accepts([started(), activity(), activityDelta(), finished()]);
    accepts([started(), activityDelta(), finished()], { messages: [plan] });
    accepts([started(), messages(plan), activityDelta(), finished()]);
  });
  test("is forgotten with a snapshot that carries others, and kept by one that carries none", () => {
    refuses("activity-without-snapshot", [started(), activity(), messages({ ...plan, id: "b" }), activityDelta()]);
    accepts([started(), activity(), messages(user), activityDelta(), finished()]);
  });
  test("is forgotten as the official client's authoritativeActivityTypes say", () => {
    const snapshot = (types: unknown, ...list: Message[]) =>
      event("MESSAGES_SNAPSHOT", {
        messages: list,
        metadata: { "@ag-ui/client": { authoritativeActivityTypes: types } },
      });
    refuses("activity-without-snapshot", [started(), activity(), snapshot(["PLAN"]), activityDelta()]);
    refuses("activity-without-snapshot", [started(), activity(), snapshot(null), activityDelta()]);
    accepts([started(), activity(), snapshot(["OTHER"], { ...plan, id: "b" }), activityDelta(), finished()]);
  });
});

describe("a MESSAGES_SNAPSHOT", () => {
  test("withdraws a call, which may then end in the middle and be made again from nothing", () => {
    const retracted = [started(), call(), args('{"a"'), messages(user), callEnd()];
    accepts([...retracted, finished()]);
    accepts([...retracted, call(), args("{}"), callEnd(), result(), finished()]);
    accepts([...retracted, call("c", { toolCallName: "book" }), callEnd(), result(), finished()]);
    refuses("result-without-call", [...retracted, result()]);
    refuses("open-at-end", [...retracted.slice(0, -1), finished()]);
    refuses("tool-call-already-open", [...retracted.slice(0, -1), call()]);
    expect(pendingToolCalls(play(retracted))).toEqual([]);
  });
  test("withdraws a finished call, and a result", () => {
    refuses("result-without-call", [started(), call(), callEnd(), messages(user), result()]);
    accepts([started(), call(), callEnd(), result(), messages(calling()), result(), finished()]);
    accepts([started(), call(), callEnd(), result(), messages(user), call(), callEnd(), result(), finished()]);
  });
  test("withdraws a text, which may then end and begin again under its id", () => {
    accepts([started(), text(), say(), messages(user), textEnd(), text(), say(), textEnd(), finished()]);
  });
  test("keeps what it carries: an open call goes on", () => {
    accepts([
      started(),
      call(),
      args('{"a"'),
      messages(calling("c", "c", '{"a"')),
      args(":1}"),
      callEnd(),
      result(),
      finished(),
    ]);
  });
  test("states owners anew", () => {
    refuses("owner", [
      started(),
      text("m", "a"),
      messages({ id: "m", role: "assistant", content: "x" }),
      say("m", "a"),
    ]);
  });
});

describe("a chunk", () => {
  const first = textChunk({ messageId: "m", delta: "x" });
  const named = callChunk({ toolCallId: "c", toolCallName: "search", delta: "{" });
  test("that is a lane's first has its id, and a call's the tool's name", () => {
    refuses("chunk-without-id", [started(), textChunk({ delta: "x" })]);
    refuses("chunk-without-id", [started(), callChunk({ delta: "x" })]);
    refuses("chunk-without-id", [started(), thoughtChunk({ delta: "x" })]);
    refuses("chunk-without-name", [started(), callChunk({ toolCallId: "c" })]);
    refuses("chunk-without-name", [started(), named, callChunk({ toolCallId: "d", delta: "}" })]);
  });
  test("goes on without an id until something of its lane closes it", () => {
    accepts([started(), first, textChunk({ delta: "y" }), textChunk({ messageId: "m" }), finished()]);
    accepts([
      started(),
      activity("known"),
      first,
      event("RAW", { event: 1 }),
      event("REASONING_ENCRYPTED_VALUE", { subtype: "message", entityId: "m", encryptedValue: "x" }),
      activityDelta("known"),

      activity(),
      subagent(),
      textChunk({ delta: "y" }),
      subagentEnd(),
      finished(),
    ]);
    for (const closer of [
      custom,
      state,
      step(),
      span(),
      text("n"),
      messages(user),
      event("STATE_DELTA", { delta: [] }),
    ]) {
      refuses("chunk-without-id", [started(), first, closer, textChunk({ delta: "y" })]);
    }
    refuses("chunk-without-id", [started(), first, named, textChunk({ delta: "y" })]);
    accepts([
      started(),
      first,
      event("CUSTOM", { name: "n", value: 1, subagentRunId: "a" }),
      textChunk({ delta: "y" }),
      finished(),
    ]);
  });
  test("of a subagent is closed by its end", () => {
    const inside = textChunk({ messageId: "m", subagentRunId: "sub" });
    refuses("chunk-without-id", [started(), subagent(), inside, subagentEnd(), textChunk({ delta: "y" })]);
  });
  test("does not contradict the first", () => {
    refuses("chunk-conflict", [started(), first, textChunk({ messageId: "m", role: "user" })]);
    refuses("chunk-conflict", [started(), first, textChunk({ name: "n" })]);
    refuses("chunk-conflict", [started(), named, callChunk({ toolCallName: "book" })]);
    refuses("chunk-conflict", [started(), named, callChunk({ parentMessageId: "p" })]);
    refuses("owner", [started(), first, textChunk({ messageId: "m", subagentRunId: "a" })]);
    accepts([started(), first, textChunk({ messageId: "m", role: "assistant" }), finished()]);
  });
  test("without id or owner is not for one of two lanes", () => {
    const two = ["a", "b"].map((owner) => textChunk({ messageId: owner, subagentRunId: owner }));
    refuses("chunk-ambiguous", [started(), ...two, textChunk({ delta: "y" })]);
    accepts([started(), ...two.slice(1), textChunk({ delta: "y" }), finished()]);
  });
  test("is not mixed with START, CONTENT and END for one item", () => {
    refuses("mixed-forms", [started(), text(), textEnd(), first]);
    accepts([started(), text(), messages(user), textEnd(), first, finished()]);
    refuses("mixed-forms", [started(), first, text()]);
    refuses("mixed-forms", [started(), first, say()]);
    refuses("mixed-forms", [started(), first, textEnd()]);
    refuses("mixed-forms", [started(), call(), callEnd(), named]);
    refuses("mixed-forms", [started(), call(), named]);
    refuses("mixed-forms", [started(), named, call()]);
    refuses("mixed-forms", [started(), named, args("}")]);
    refuses("mixed-forms", [started(), thought(), thoughtEnd(), thoughtChunk({ messageId: "g" })]);
    accepts([started(), span(), thoughtChunk({ messageId: "g", delta: "x" }), spanEnd(), finished()]);
  });
  test("of a call counts as its arguments", () => {
    refuses("args-not-json", [started(), named, custom, result()]);
    refuses("args-not-json", [started(), named, result()]);
    refuses("args-not-json", [started(), named, finished()]);
    accepts([started(), named, callChunk({ delta: "}" }), result(), finished()]);
  });
});

describe("strict mode", () => {
  test("wants the version stated", () => {
    refuses("version", [started({ protocolVersion: undefined })], STRICT);
    refuses("version", [started({ protocolVersion: "1.1" })], STRICT);
  });
  test("wants RUN_STARTED first and exactly one ending, with nothing left open", () => {
    refuses("first-event", [failed], STRICT);
    refuses("second-ending", [started(), finished(), failed], STRICT);
    refuses("open-at-end", [started(), text(), failed], STRICT);
    accepts([started(), text(), textEnd(), failed], STRICT);
  });
  test("wants no call ended with partial arguments unless it was taken back", () => {
    refuses("args-partial", [started(), call(), args('{"a"'), callEnd()], STRICT);
    accepts([started(), call(), callEnd(), result(), finished()], STRICT);
    accepts([started(), call(), args('{"a"'), messages(user), callEnd(), finished()], STRICT);
    refuses("args-partial", [started(), call(), args('{"a"'), messages(calling("c", "c", '{"a"')), callEnd()], STRICT);
  });
  test("wants nothing more of what was taken back but its END", () => {
    refuses("withdrawn", [started(), call(), messages(user), args("{}")], STRICT);
    refuses("withdrawn", [started(), text(), messages(user), say()], STRICT);
  });
  test("wants the pending calls exact", () => {
    const made = [started(), call(), callEnd()];
    accepts([...made, pending("c")], { ...STRICT, clientTools: ["search"] });
    accepts([...made, pending("c")], STRICT);
    refuses("pending-calls", [...made, finished()], STRICT);
    refuses("pending-calls", [...made, pending("c", "c")], STRICT);
    refuses("pending-calls", [...made, pending("c", "d")], STRICT);
    refuses("pending-calls", [...made, result(), pending("c")], STRICT);
    // Agent code may leave any call to the client, also one that the request did not offer.
    accepts([...made, pending("c")], { ...STRICT, clientTools: [] });
    // A call of an earlier run may still wait for the client.
    accepts([started(), pending("c")], { ...STRICT, messages: [calling()] });
    accepts([started(), finished()], { ...STRICT, messages: [calling()] });
  });
  test("wants state and messages shown before an interrupt", () => {
    refuses("interrupt-unprepared", [started(), interrupt("i")], STRICT);
    refuses("interrupt-unprepared", [started(), state, interrupt("i")], STRICT);
    refuses("interrupt-unprepared", [started(), messages(user), interrupt("i")], STRICT);
    refuses("interrupt-unprepared", [started(), state, messages(user), text(), textEnd(), interrupt("i")], STRICT);
    refuses(
      "interrupt-unprepared",
      [started(), state, messages(user), event("STATE_DELTA", { delta: [] }), interrupt("i")],
      STRICT,
    );
    accepts([started(), state, messages(user), custom, interrupt("i")], STRICT);
    // What was taken back ends after the snapshot, and is in nobody's history.
    const other: Message = { id: "x", role: "reasoning", content: "" };
    const open = [started(), text(), thought(), call(), args("{")];
    accepts([...open, messages(other), state, textEnd(), thoughtEnd(), callEnd(), interrupt("i")], STRICT);
  });
  test("accepts the rejoin prelude: a snapshot, then START again for all that is open", () => {
    const prelude = [
      ...[started({ runId: "r2" }), state],
      messages(user, { id: "m", role: "assistant", content: "Hel" }, { id: "g", role: "reasoning", content: "thi" }),
      ...[event("CUSTOM", { name: "perdure.interrupt", value: {} }), subagent(), step(), span(), thought(), text()],
      ...[call("c", { parentMessageId: "m" }), args('{"a"')],
    ];
    const wire = play(prelude, STRICT);
    expect(openItems(wire).map(({ kind, id }) => `${kind} ${id}`)).toEqual([
      ...["tool-call c", "text m", "reasoning-message g", "reasoning g", "step s", "subagent sub"],
    ]);
    accepts(
      [
        ...prelude,
        args(":1}"),
        callEnd(),
        result(),
        say(),
        textEnd(),
        thoughtEnd(),
        spanEnd(),
        stepEnd(),
        subagentEnd(),
        finished({ runId: "r2" }),
      ],
      STRICT,
    );
  });
  test("accepts a retraction: snapshot, ENDs, the same ids again", () => {
    const shown = [
      started(),
      span(),
      thought(),
      think(),
      thoughtEnd(),
      spanEnd(),
      text(),
      say(),
      call("c", { parentMessageId: "m" }),
      args('{"a"'),
    ];
    const back = [messages(user, { id: "g", role: "reasoning", content: "" }), callEnd(), textEnd()];
    const again = [
      span(),
      thought(),
      think(),
      thoughtEnd(),
      spanEnd(),
      text(),
      textEnd(),
      call("c", { parentMessageId: "m" }),
      args("{}"),
      callEnd(),
      result(),
    ];
    accepts([...shown, ...back, ...again, finished()], STRICT);
  });
});

describe("a wire", () => {
  test("is the same object after every text and reasoning delta", () => {
    const wire = play([started(), text(), thought()]);
    expect(verify(wire, say())).toBe(wire);
    expect(verify(wire, think())).toBe(wire);
  });

  test("never changes: whoever holds one can go on from it again", () => {
    fc.assert(
      fc.property(legalStream({ chunks: true }), fc.nat(), (events, pick) => {
        const wires = [newWire({ clientTools: CLIENT_TOOLS })];
        for (const next of events) wires.push(verify(wires.at(-1) ?? newWire(), next));
        const from = pick % events.length;
        const first = wires[from] ?? newWire();
        const again = events.slice(from).reduce((wire, next) => verify(wire, next), first);
        expect(openItems(again)).toEqual(openItems(wires.at(-1) ?? newWire()));
        expect(pendingToolCalls(again)).toEqual(pendingToolCalls(wires.at(-1) ?? newWire()));
      }),
      { numRuns: 200 },
    );
  });

  test("can be closed from anywhere: closing what is open, in its order, lets the run finish", () => {
    fc.assert(
      fc.property(legalStream({ maxRuns: 1, chunks: true }), fc.nat(), (events, pick) => {
        const running = events.slice(0, 1 + (pick % Math.max(1, events.length - 2)));
        const wire = play(running, { clientTools: CLIENT_TOOLS });
        const closed = openItems(wire).reduce((next, item) => verify(next, closingEvent(item)), wire);
        verify(closed, event("RUN_FINISHED", { threadId: "thread", runId: "run1", outcome: { type: "cancelled" } }));
      }),
      { numRuns: 500 },
    );
  });

  test("remembers the owner and lane of what is open", () => {
    const wire = verify(play([started()]), text("m", "a"), "0.1");
    const item = { kind: "text", id: "m", subagentRunId: "a", lane: "0.1", gone: false } as const;
    expect(openItems(wire)).toEqual([item]);
    expect(closingEvent(item)).toEqual(textEnd("m", "a"));
  });

  test("knows the calls of this run without a result, in order", () => {
    const wire = play([started(), call("a"), call("b"), callEnd("b"), call("c"), callEnd("c"), result("c")], {
      messages: [calling("old")],
    });
    expect(pendingToolCalls(wire)).toEqual(["a", "b"]);
  });
});

test.each([{}, { chunks: true }, { strict: true }])(
  "random legal streams %j are accepted here and by the published verifier",
  async (options) => {
    await fc.assert(
      fc.asyncProperty(legalStream(options), async (events) => {
        verifyEnd(play(events, { clientTools: CLIENT_TOOLS, strict: options.strict === true }));
        await expect(published(events)).resolves.toBeDefined();
      }),
      { numRuns: 400 },
    );
  },
);

test("what is accepted here, the published verifier accepts too: random streams with events dropped, doubled, swapped and re-attributed", async () => {
  const damage = fc.array(fc.record({ at: fc.nat(), how: fc.nat(4), owner: fc.constantFrom("a", "b") }), {
    minLength: 1,
    maxLength: 3,
  });
  let accepted = 0;
  await fc.assert(
    fc.asyncProperty(legalStream({ chunks: true, maxMoves: 20 }), damage, async (events, faults) => {
      const stream = [...events];
      for (const { at, how, owner } of faults) {
        const i = at % stream.length;
        const next = stream[i];
        if (next === undefined) continue;
        if (how === 0) stream.splice(i, 1);
        else if (how === 1) stream.splice(i, 0, next);
        else if (how === 2) stream.splice((at * 7) % stream.length, 0, ...stream.splice(i, 1));
        else if ("subagentRunId" in next || next.type.startsWith("T"))
          stream[i] = { ...next, subagentRunId: owner } as AGUIEvent;
      }
      try {
        play(stream);
      } catch (error) {
        if (error instanceof ProtocolError) return;
        throw error;
      }
      accepted++;
      await expect(published(stream)).resolves.toBeDefined();
    }),
    { numRuns: 2_000 },
  );
  expect(accepted).toBeGreaterThan(200);
});

function published(events: readonly AGUIEvent[]): Promise<unknown> {
  return lastValueFrom(from(events as never[]).pipe(transformChunks(false), verifyEvents(false), toArray()));
}
