import { describe, expect, expectTypeOf, test } from "vitest";
import { type AGUIEvent, event, PROTOCOL_VERSION } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";

describe("event", () => {
  test("leaves out optional members without a value, nested ones too", () => {
    const made = event("RUN_FINISHED", {
      threadId: "t",
      runId: "r",
      result: undefined,
      usage: [{ provider: "p", model: null, inputTokens: undefined }],
      outcome: {
        type: "interrupt",
        interrupts: [{ id: "i", reason: "tool_call", message: null, toolCallId: undefined, metadata: { trace: null } }],
      },
    });
    expect(made).toStrictEqual({
      type: "RUN_FINISHED",
      threadId: "t",
      runId: "r",
      usage: [{ provider: "p" }],
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "tool_call", metadata: { trace: null } }] },
    });
    checkShape(made);
  });

  test("leaves out null and undefined in messages, their calls and parts", () => {
    const made = event("MESSAGES_SNAPSHOT", {
      messages: [
        { id: "u", role: "user", name: null, content: [{ type: "text", text: "hi", id: undefined }] },
        {
          id: "a",
          role: "assistant",
          content: null,
          toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "" }, encryptedValue: undefined }],
        },
        { id: "x", role: "activity", activityType: "PLAN", content: { done: null } },
      ],
    });
    expect(made.messages).toStrictEqual([
      { id: "u", role: "user", content: [{ type: "text", text: "hi" }] },
      {
        id: "a",
        role: "assistant",
        toolCalls: [{ id: "c", type: "function", function: { name: "f", arguments: "" } }],
      },
      { id: "x", role: "activity", activityType: "PLAN", content: { done: null } },
    ]);
  });

  test("keeps null where it is a value", () => {
    expect(event("STATE_SNAPSHOT", { snapshot: null })).toStrictEqual({ type: "STATE_SNAPSHOT", snapshot: null });
    expect(event("RAW", { event: null, source: null })).toStrictEqual({ type: "RAW", event: null });
    expect(event("CUSTOM", { name: "n", value: null })).toStrictEqual({ type: "CUSTOM", name: "n", value: null });
    const delta = [{ op: "replace" as const, path: "/a", value: null }];
    expect(event("STATE_DELTA", { delta })).toStrictEqual({ type: "STATE_DELTA", delta });
  });

  test("does not walk or copy what belongs to the application", () => {
    const snapshot = { a: undefined, b: [undefined] };
    expect(event("STATE_SNAPSHOT", { snapshot }).snapshot).toBe(snapshot);
  });

  test("types its event, and refuses what the event does not have", () => {
    expectTypeOf(event("TEXT_MESSAGE_END", { messageId: "m" })).toExtend<AGUIEvent>();
    // @ts-expect-error a text message has no call id
    event("TEXT_MESSAGE_END", { messageId: "m", toolCallId: "c" });
    // @ts-expect-error the message id is required
    event("TEXT_MESSAGE_END", {});
    // @ts-expect-error a required member may not be null
    event("TEXT_MESSAGE_END", { messageId: null });
  });
});

test("the version that we declare is 1.0", () => {
  expect(PROTOCOL_VERSION).toBe("1.0");
});
