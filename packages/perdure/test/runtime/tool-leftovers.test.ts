/** What a tool's body has opened on the stream and left open: closed when its attempt ends, so that the run goes on. */
import { agent, HandlerError, suspend, tool } from "perdure";
import { type AGUIEvent, newTranscript, reduce } from "perdure/protocol";
import { scriptedModel } from "perdure/testing";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ask, eventsOf, fresh, says, serving } from "../http/rig.ts";

type Emit = (event: Parameters<Parameters<ReturnType<typeof looking>["call"]>[1]["emit"]>[0]) => void;

function looking(end: () => unknown) {
  return tool({
    name: "look",
    description: "Looks.",
    effect: "read",
    retry: { attempts: 2 },
    input: z.object({}),
    answer: z.string(),
    call(_input, ctx) {
      const emit: Emit = (event) => ctx.emit(event);
      const subagentRunId = `scout-${ctx.attempt}`;
      emit({ type: "SUBAGENT_STARTED", subagentRunId, name: "scout" });
      emit({ type: "STEP_STARTED", stepName: "plan", subagentRunId });
      emit({ type: "TEXT_MESSAGE_START", messageId: `m-${ctx.attempt}`, subagentRunId });
      emit({ type: "TOOL_CALL_START", toolCallId: `c-${ctx.attempt}`, toolCallName: "peek", subagentRunId });
      emit({ type: "TOOL_CALL_ARGS", toolCallId: `c-${ctx.attempt}`, delta: '{"half":', subagentRunId });
      emit({ type: "TOOL_CALL_START", toolCallId: `d-${ctx.attempt}`, toolCallName: "peek", subagentRunId });
      emit({ type: "TOOL_CALL_END", toolCallId: `d-${ctx.attempt}`, subagentRunId });
      return end() as never;
    },
  });
}

async function run(end: () => unknown): Promise<AGUIEvent[]> {
  const model = scriptedModel([{ calls: [{ name: "look", input: {} }] }, { text: "Done." }]);
  const { url } = await serving([agent({ name: "desk", model, tools: [looking(end)] })]);
  const body = fresh({ messages: [says("u", "go")] });
  return eventsOf((await ask(`${url}/agents/desk`, { body: JSON.stringify(body) })).text);
}

const own = (events: readonly AGUIEvent[]) =>
  events.filter(({ type }) => /^(SUBAGENT|STEP|MESSAGES)/.test(type)).map(({ type }) => type);

describe("what a tool's body leaves open", () => {
  it("is closed when it returns; half a call, and one without a result, are taken back", async () => {
    const events = await run(() => ({ ok: true }));
    expect(own(events)).toEqual([
      ...["SUBAGENT_STARTED", "STEP_STARTED", "MESSAGES_SNAPSHOT", "STEP_FINISHED", "SUBAGENT_FINISHED"],
      "MESSAGES_SNAPSHOT",
    ]);
    const { messages } = events.reduce(reduce, newTranscript());
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant", "assistant"]);
    expect(JSON.stringify(messages)).not.toContain("peek");
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("is closed when it fails for good, its subagents with the failure", async () => {
    const events = await run(() => {
      throw new HandlerError("No luck.", { applied: "no", code: "NO_LUCK" });
    });
    expect(events).toContainEqual(
      expect.objectContaining({ type: "SUBAGENT_ERROR", subagentRunId: "scout-1", code: "NO_LUCK" }),
    );
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("is taken back when it will be tried again, its subagents with an error", async () => {
    let tries = 0;
    const events = await run(() => {
      if (++tries === 1) throw new HandlerError("Again.", { applied: "no", retryable: true });
      return { ok: true };
    });
    expect(own(events)).toEqual([
      ...["SUBAGENT_STARTED", "STEP_STARTED", "MESSAGES_SNAPSHOT", "STEP_FINISHED", "SUBAGENT_ERROR"],
      ...["SUBAGENT_STARTED", "STEP_STARTED", "MESSAGES_SNAPSHOT", "STEP_FINISHED", "SUBAGENT_FINISHED"],
      "MESSAGES_SNAPSHOT",
    ]);
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "success" } });
  });

  it("is closed when it waits for a human, its subagents suspended", async () => {
    const events = await run(() => suspend({ message: "Which way?" }));
    expect(events).toContainEqual({
      type: "SUBAGENT_FINISHED",
      subagentRunId: "scout-1",
      outcome: { type: "suspended" },
    });
    expect(events.at(-1)).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "interrupt" } });
  });
});
