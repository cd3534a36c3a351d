import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { AGUIEvent, Message } from "../../src/protocol/events.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { cases } from "../random-cases.ts";
import { legalStream } from "./legal-streams.ts";
import { appliedByClient, expandedByClient, heldByClient, overTheWire, quietClient } from "./published-client.ts";

quietClient();

function heldByUs(events: readonly AGUIEvent[]) {
  const { messages, state, interrupts } = overTheWire(events).reduce(reduce, newTranscript());
  return { messages, state, interrupts };
}

test("messages, state and interrupts are those of the published client after random legal streams", async () => {
  let events = 0;
  await fc.assert(
    fc.asyncProperty(legalStream({ chunks: true }), async (stream) => {
      events += stream.length;
      expect(heldByUs(stream)).toStrictEqual(await heldByClient(stream));
    }),
    { numRuns: cases(800, 2_000) },
  );
  expect(events).toBeGreaterThan(cases(8_000, 20_000));
}, 120_000);

test("so they are after lawless streams, in which few ids stand for messages, calls, results and activities alike", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(lawlessEvent(), { maxLength: 40, size: "max" }).map(withoutAliases), async (stream) => {
      expect(heldByUs(stream)).toStrictEqual(await appliedByClient(stream));
    }),
    { numRuns: cases(1_200, 3_000) },
  );
}, 120_000);

test("chunks with and without ids, in several lanes, make the messages that the client makes of them", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(chunkOrCloser(), { maxLength: 12, size: "max" }), async (events) => {
      const stream: AGUIEvent[] = [];
      for (const event of events) if (await isExpandable([...stream, event])) stream.push(event);
      expect(heldByUs(stream)).toStrictEqual(await appliedByClient(await expandedByClient(stream)));
    }),
    { numRuns: cases(500, 1_000) },
  );
}, 120_000);

function isExpandable(events: readonly AGUIEvent[]): Promise<boolean> {
  return expandedByClient(events).then(
    () => true,
    () => false,
  );
}

function chunkOrCloser(): fc.Arbitrary<AGUIEvent> {
  const messageId = fc.constantFrom("a", "b");
  const subagentRunId = fc.constantFrom("s1", "s2");
  const delta = fc.constantFrom("", "x", "yz");
  const metadata = fc.dictionary(fc.constantFrom("k", "l"), fc.nat(3), { maxKeys: 2 });
  const required = { requiredKeys: ["type"] as ["type"] };
  const lane = fc.record({ subagentRunId }, { requiredKeys: [] });
  const chunk = fc.oneof(
    fc.record(
      { type: fc.constant("TEXT_MESSAGE_CHUNK" as const), messageId, delta, metadata, subagentRunId },
      required,
    ),
    fc.record(
      { type: fc.constant("REASONING_MESSAGE_CHUNK" as const), messageId, delta, metadata, subagentRunId },
      required,
    ),
    fc.record(
      {
        type: fc.constant("TOOL_CALL_CHUNK" as const),
        toolCallId: fc.constantFrom("c", "d"),
        toolCallName: fc.constantFrom("search"),
        parentMessageId: fc.constant("parent"),
        delta,
        metadata,
        subagentRunId,
      },
      required,
    ),
  );
  const closer = fc.oneof(
    lane.map((owner): AGUIEvent => ({ type: "CUSTOM", name: "n", value: null, ...owner })),
    lane.map((owner): AGUIEvent => ({ type: "RAW", event: null, ...owner })),
    subagentRunId.map((id): AGUIEvent => ({ type: "SUBAGENT_FINISHED", subagentRunId: id })),
    fc.constant<AGUIEvent>({ type: "MESSAGES_SNAPSHOT", messages: [] }),
  );
  return fc.oneof({ weight: 4, arbitrary: chunk as fc.Arbitrary<AGUIEvent> }, { weight: 1, arbitrary: closer });
}

/**
 * Leaves out snapshots of a message whose id the client holds twice: it then puts one object in both places and changes both at once. That is
 * an accident of changing in place, and a stream whose ids are unique never comes there.
 */
function withoutAliases(stream: readonly AGUIEvent[]): AGUIEvent[] {
  let held = newTranscript();
  return stream.filter((event) => {
    const ids = held.messages.map((message) => message.id);
    const isTwice = (id: string) => ids.indexOf(id) !== ids.lastIndexOf(id);
    if (event.type === "MESSAGES_SNAPSHOT" && event.messages.some((message) => isTwice(message.id))) return false;
    held = reduce(held, event);
    return true;
  });
}

/** Any event that a merge rule looks at, whether or not it makes sense where it stands. */
function lawlessEvent(): fc.Arbitrary<AGUIEvent> {
  const id = fc.constantFrom("a", "b", "c", "d");
  const text = fc.constantFrom("", "x", "yz");
  const type = fc.constantFrom("PLAN", "CHART");
  const metadata = fc.dictionary(fc.constantFrom("k", "l"), fc.constantFrom<unknown>(1, null, { deep: 1 }), {
    maxKeys: 2,
  });
  const content = fc.dictionary(fc.constantFrom("p", "q"), fc.nat(3), { maxKeys: 2 });
  const op = fc.oneof(
    fc.record({
      op: fc.constantFrom("add" as const, "replace" as const, "test" as const),
      path: fc.constantFrom("/p", "/q", "/p/r"),
      value: fc.nat(2),
    }),
    fc.record({ op: fc.constant("remove" as const), path: fc.constantFrom("/p", "/q") }),
  );
  const toolCall = fc.record({
    id,
    type: fc.constant("function" as const),
    function: fc.record({ name: fc.constantFrom("search", "book"), arguments: text }),
  });
  const owner = fc.constantFrom("s1", "s2");
  const may = { requiredKeys: ["id", "role"] as ["id", "role"] };
  const message: fc.Arbitrary<Message> = fc.oneof(
    fc.record(
      { id, role: fc.constantFrom("user" as const, "system" as const), content: text, subagentRunId: owner },
      { requiredKeys: ["id", "role", "content"] },
    ),
    fc.record(
      {
        id,
        role: fc.constant("assistant" as const),
        content: text,
        toolCalls: fc.array(toolCall, { maxLength: 2 }),
        metadata,
      },
      may,
    ),
    fc.record({ id, role: fc.constant("tool" as const), content: text, toolCallId: id }),
    fc.record({ id, role: fc.constant("reasoning" as const), content: text }),
    fc.record({ id, role: fc.constant("activity" as const), activityType: type, content }),
  );
  const messages = fc.array(message, { maxLength: 4 });
  const clientNote = fc.oneof(
    fc.constantFrom<unknown>(
      null,
      [],
      "no object",
      {},
      { authoritativeActivityTypes: null },
      { authoritativeActivityTypes: [1] },
    ),
    fc.record({ authoritativeActivityTypes: fc.subarray(["PLAN", "CHART"]) }),
  );
  const of = <const T extends string, F extends object, R extends keyof F>(
    type: T,
    fields: { [K in keyof F]: fc.Arbitrary<F[K]> },
    required: readonly R[],
  ) =>
    fc.record(
      { type: fc.constant(type), metadata, subagentRunId: owner, ...fields },
      { requiredKeys: ["type", ...required] as never },
    ) as unknown as fc.Arbitrary<AGUIEvent>;
  const snapshot = of("MESSAGES_SNAPSHOT", { messages, metadata: fc.record({ "@ag-ui/client": clientNote }) }, [
    "messages",
  ]);
  return fc.oneof(
    of("TEXT_MESSAGE_START", { messageId: id, role: fc.constantFrom("user", "assistant", "developer"), name: text }, [
      "messageId",
    ]),
    of("TEXT_MESSAGE_CONTENT", { messageId: id, delta: text }, ["messageId", "delta"]),
    of("TEXT_MESSAGE_END", { messageId: id }, ["messageId"]),
    of(
      "TOOL_CALL_START",
      {
        toolCallId: id,
        toolCallName: fc.constantFrom("search", "book"),
        parentMessageId: fc.oneof(id, fc.constant("")),
      },
      ["toolCallId", "toolCallName"],
    ),
    of("TOOL_CALL_ARGS", { toolCallId: id, delta: text }, ["toolCallId", "delta"]),
    of("TOOL_CALL_END", { toolCallId: id }, ["toolCallId"]),
    of("TOOL_CALL_RESULT", { messageId: id, toolCallId: id, content: text, role: fc.constant("tool") }, [
      "messageId",
      "toolCallId",
      "content",
    ]),
    of("STATE_SNAPSHOT", { snapshot: fc.constantFrom<unknown>(null, 0, {}, { p: 1 }, { p: { r: 1 }, q: 2 }) }, [
      "snapshot",
    ]),
    of("STATE_DELTA", { delta: fc.array(op, { maxLength: 3 }) }, ["delta"]),
    snapshot,
    snapshot,
    of("ACTIVITY_SNAPSHOT", { messageId: id, activityType: type, content, replace: fc.boolean() }, [
      "messageId",
      "activityType",
      "content",
    ]),
    of("ACTIVITY_DELTA", { messageId: id, activityType: type, patch: fc.array(op, { maxLength: 3 }) }, [
      "messageId",
      "activityType",
      "patch",
    ]),
    of("REASONING_MESSAGE_START", { messageId: id, role: fc.constant("reasoning") }, ["messageId", "role"]),
    of("REASONING_MESSAGE_CONTENT", { messageId: id, delta: text }, ["messageId", "delta"]),
    of("REASONING_MESSAGE_END", { messageId: id }, ["messageId"]),
    of(
      "REASONING_ENCRYPTED_VALUE",
      { subtype: fc.constantFrom("tool-call", "message"), entityId: id, encryptedValue: text },
      ["subtype", "entityId", "encryptedValue"],
    ),
    of("RUN_STARTED", { threadId: text, runId: text, input: fc.record({ messages }) }, ["threadId", "runId"]),
    of(
      "RUN_FINISHED",
      {
        threadId: text,
        runId: text,
        outcome: fc.constantFrom(
          { type: "success" },
          { type: "cancelled" },
          { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
        ),
      },
      ["threadId", "runId"],
    ),
    of("RUN_ERROR", { message: text }, ["message"]),
  );
}
