import { inspect } from "node:util";
import { HandleClosedError } from "perdure";
import { runContext } from "perdure/testing";
import { describe, expect, it } from "vitest";

describe("one open reasoning block", () => {
  it("brackets four events: both STARTs on creation, both ENDs at scope exit", () => {
    const { ctx, events } = runContext();
    let id: string;
    {
      using reasoning = ctx.reasoning();
      id = reasoning.id;
      expect(events.drain()).toEqual([
        { type: "REASONING_START", messageId: id },
        { type: "REASONING_MESSAGE_START", messageId: id, role: "reasoning" },
      ]);
    }
    expect(events.drain()).toEqual([
      { type: "REASONING_MESSAGE_END", messageId: id },
      { type: "REASONING_END", messageId: id },
    ]);
  });

  it("end() sends both ENDs, once", () => {
    const { ctx, events } = runContext();
    const reasoning = ctx.reasoning();
    events.drain();
    reasoning.end();
    reasoning.end();
    expect(events.drain().map(({ type }) => type)).toEqual(["REASONING_MESSAGE_END", "REASONING_END"]);
  });

  it("both ENDs are attempted even if the first fails", () => {
    const { ctx, events } = runContext();
    {
      using reasoning = ctx.reasoning();
      ctx.emit({ type: "REASONING_MESSAGE_END", messageId: reasoning.id });
      events.drain();
    }
    expect(events.drain().map(({ type }) => type)).toEqual(["REASONING_END"]);
  });

  it("every event of the block carries its id, and it is never a text message's", () => {
    const { ctx, events } = runContext();
    const reasoning = ctx.reasoning();
    reasoning.delta("hmm");
    reasoning.end();
    const said = ctx.say("so");
    expect(said).not.toBe(reasoning.id);
    expect(
      events
        .drain()
        .slice(0, 5)
        .map((event) => "messageId" in event && event.messageId),
    ).toEqual(Array(5).fill(reasoning.id));
  });

  it("delta appends text", () => {
    const { ctx, events } = runContext();
    using reasoning = ctx.reasoning();
    events.drain();
    reasoning.delta("thi");
    reasoning.delta("nk");
    expect(events.drain()).toEqual([
      { type: "REASONING_MESSAGE_CONTENT", messageId: reasoning.id, delta: "thi" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: reasoning.id, delta: "nk" },
    ]);
  });

  it("a provider's opaque blob is REASONING_ENCRYPTED_VALUE of subtype message", () => {
    const { ctx, events } = runContext();
    using reasoning = ctx.reasoning();
    events.drain();
    reasoning.encryptedValue("YmxvYg==");
    expect(events.drain()).toEqual([
      { type: "REASONING_ENCRYPTED_VALUE", subtype: "message", entityId: reasoning.id, encryptedValue: "YmxvYg==" },
    ]);
  });

  it("state is reachable and publishable while the block is open", () => {
    const { ctx, events } = runContext(undefined, { state: { phase: "idle", notes: "n".repeat(100) } });
    using reasoning = ctx.reasoning();
    events.drain();
    reasoning.updateState((state) => {
      state.phase = "thinking";
    });
    expect(reasoning.state.phase).toBe("thinking");
    expect(events.drain()).toEqual([
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/phase", value: "thinking" }] },
    ]);
  });

  it("publishing inside the block sends nothing when nothing changed", () => {
    const { ctx, events } = runContext(undefined, { state: { phase: "idle" } });
    using reasoning = ctx.reasoning();
    events.drain();
    reasoning.state.phase = "busy";
    expect(events.drain()).toEqual([]);
    reasoning.state.phase = "idle";
    reasoning.publishState();
    expect(events.drain()).toEqual([]);
  });

  it("after its end the block takes nothing more", () => {
    const { ctx, events } = runContext();
    const reasoning = ctx.reasoning();
    reasoning.end();
    events.drain();
    for (const late of [
      () => reasoning.delta("x"),
      () => reasoning.encryptedValue("x"),
      () => reasoning.emit({ type: "CUSTOM", name: "app.x", value: 1 }),
      () => reasoning.publishState(),
    ]) {
      expect(late).toThrow(HandleClosedError);
    }
    expect(events.drain()).toEqual([]);
  });

  it("can be printed: kind, id and state, never its text", () => {
    const { ctx } = runContext();
    const reasoning = ctx.reasoning();
    reasoning.delta("the password is hunter2");
    expect(inspect(reasoning)).toBe(`<reasoning ${reasoning.id} open>`);
    reasoning.end();
    expect(inspect(reasoning)).toBe(`<reasoning ${reasoning.id} ended>`);
  });

  it("an unrelated event does not close the block", () => {
    const { ctx, events } = runContext();
    using reasoning = ctx.reasoning();
    reasoning.emit({ type: "CUSTOM", name: "app.tick", value: 1 });
    events.drain();
    reasoning.delta("still here");
    expect(events.drain()).toHaveLength(1);
  });

  it("think() is a whole block, and the callback form ends it", async () => {
    const { ctx, events } = runContext();
    ctx.think("whole");
    await ctx.reasoning((reasoning) => reasoning.delta("in a body"));
    expect(events.drain().map(({ type }) => type)).toEqual(
      Array(2)
        .fill([
          "REASONING_START",
          "REASONING_MESSAGE_START",
          "REASONING_MESSAGE_CONTENT",
          "REASONING_MESSAGE_END",
          "REASONING_END",
        ])
        .flat(),
    );
  });
});
