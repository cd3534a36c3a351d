import { describe, expect, test } from "vitest";
import { type AGUIEvent, type EventFields, event, type Message } from "../../src/protocol/events.ts";
import type { Json } from "../../src/protocol/json.ts";
import { newTranscript, reduce, reduceMessages, type Transcript } from "../../src/protocol/reduce.ts";
import { appliedByClient, expandedByClient, quietClient } from "./published-client.ts";

quietClient();

/** `expected` is what the reducer holds after the events, and, lest it was written from wishful thinking, the published client too. */
async function expectHeld(
  events: AGUIEvent[],
  expected: { messages?: Message[]; state?: Json; interrupts?: unknown[] },
) {
  const { messages, state, interrupts } = events.reduce(reduce, newTranscript());
  const held = { messages: [], state: {}, interrupts: [], ...expected };
  expect({ messages, state, interrupts }).toStrictEqual(held);
  expect(await appliedByClient(await expandedByClient(events))).toEqual(held);
}

// Builders, so that each test says only what it is about
type Extra = { metadata?: Record<string, unknown>; subagentRunId?: string };
const textStart = (messageId: string, extra: Extra & { role?: "user" | "system"; name?: string } = {}) =>
  event("TEXT_MESSAGE_START", { messageId, ...extra });
const text = (messageId: string, delta: string, extra: Extra = {}) =>
  event("TEXT_MESSAGE_CONTENT", { messageId, delta, ...extra });
const textEnd = (messageId: string, extra: Extra = {}) => event("TEXT_MESSAGE_END", { messageId, ...extra });
const say = (id: string, ...deltas: string[]) => [
  textStart(id),
  ...deltas.map((delta) => text(id, delta)),
  textEnd(id),
];
const think = (messageId: string, ...deltas: string[]) => [
  event("REASONING_MESSAGE_START", { messageId, role: "reasoning" }),
  ...deltas.map((delta) => event("REASONING_MESSAGE_CONTENT", { messageId, delta })),
  event("REASONING_MESSAGE_END", { messageId }),
];
const callStart = (toolCallId: string, parentMessageId?: string, extra: Extra & { name?: string } = {}) => {
  const { name: toolCallName = "search", ...rest } = extra;
  return event("TOOL_CALL_START", { toolCallId, toolCallName, parentMessageId, ...rest });
};
const args = (toolCallId: string, delta: string, extra: Extra = {}) =>
  event("TOOL_CALL_ARGS", { toolCallId, delta, ...extra });
const callEnd = (toolCallId: string, extra: Extra = {}) => event("TOOL_CALL_END", { toolCallId, ...extra });
const result = (messageId: string, toolCallId: string, content = "found", extra: Extra = {}) =>
  event("TOOL_CALL_RESULT", { messageId, toolCallId, content, ...extra });
const activity = (
  messageId: string,
  content: Record<string, Json>,
  extra: Extra & { replace?: boolean; activityType?: string } = {},
) => event("ACTIVITY_SNAPSHOT", { messageId, activityType: "PLAN", content, ...extra });
const snapshot = (messages: Message[], metadata?: Record<string, unknown>) =>
  event("MESSAGES_SNAPSHOT", { messages, metadata });
const stateDelta = (...delta: EventFields<"STATE_DELTA">["delta"]) => event("STATE_DELTA", { delta });
const ended = (outcome?: EventFields<"RUN_FINISHED">["outcome"]) =>
  event("RUN_FINISHED", { threadId: "t", runId: "r", outcome });

const assistant = (id: string, content: string, more: object = {}): Message => ({
  id,
  role: "assistant",
  content,
  ...more,
});
const toolCall = (id: string, argumentText = "", more: object = {}) => ({
  id,
  type: "function" as const,
  function: { name: "search", arguments: argumentText },
  ...more,
});
const carrier = (id: string, ...toolCalls: ReturnType<typeof toolCall>[]): Message => ({
  id,
  role: "assistant",
  toolCalls,
});
const toolMessage = (id: string, toolCallId: string, content = "found"): Message => ({
  id,
  role: "tool",
  toolCallId,
  content,
});
const plan = (id: string, content: Record<string, unknown>, more: object = {}): Message => ({
  id,
  role: "activity",
  activityType: "PLAN",
  content,
  ...more,
});
const thought = (id: string, content: string): Message => ({ id, role: "reasoning", content });

describe("text and reasoning", () => {
  test("a text message grows by its deltas; END changes nothing", () =>
    expectHeld(say("m", "Hel", "lo"), { messages: [assistant("m", "Hello")] }));

  test("role and name are those of START", () =>
    expectHeld([textStart("m", { role: "user", name: "Ada" }), text("m", "hi")], {
      messages: [{ id: "m", role: "user", name: "Ada", content: "hi" }],
    }));

  test("a closed message that is opened again goes on, and stays in its place", () =>
    expectHeld([...say("a", "one"), ...say("b", "two"), ...say("a", " more")], {
      messages: [assistant("a", "one more"), assistant("b", "two")],
    }));

  test("START takes up any message of its id: text goes into a reasoning message", () =>
    expectHeld([...think("x", "hm"), ...say("x", " said")], { messages: [thought("x", "hm said")] }));

  test("and thoughts into a text message", () =>
    expectHeld([...say("x", "said"), ...think("x", " hm")], { messages: [assistant("x", "said hm")] }));

  test("what goes to the id of an activity is dropped", () =>
    expectHeld([activity("x", { n: 1 }), ...say("x", "lost"), ...think("x", "lost")], {
      messages: [plan("x", { n: 1 })],
    }));

  test("a message without content, as a call makes it, begins its text", () =>
    expectHeld([callStart("c", "m"), ...say("m", "Looking.")], {
      messages: [assistant("m", "Looking.", { toolCalls: [toolCall("c")] })],
    }));

  test("text for a result that is a list of parts replaces the parts", () =>
    expectHeld(
      [
        event("TOOL_CALL_RESULT", { messageId: "m", toolCallId: "c", content: [{ type: "text", text: "part" }] }),
        text("m", "x"),
      ],
      {
        messages: [toolMessage("m", "c", "x")],
      },
    ));

  test("deltas and ENDs of unknown messages change nothing", () =>
    expectHeld([text("m", "x"), textEnd("m"), args("c", "{}"), callEnd("c")], {}));
});

describe("tool calls", () => {
  test("a call with a known parent is attached to it", () =>
    expectHeld([...say("m", "Looking."), callStart("c", "m"), args("c", '{"q"'), args("c", ":1}"), callEnd("c")], {
      messages: [assistant("m", "Looking.", { toolCalls: [toolCall("c", '{"q":1}')] })],
    }));

  test("an unknown parent is made, and carries the next call too", () =>
    expectHeld([callStart("c1", "m"), callStart("c2", "m")], {
      messages: [carrier("m", toolCall("c1"), toolCall("c2"))],
    }));

  test("without a parent, or with an empty one, the message has the call's id", () =>
    expectHeld([callStart("c1"), callStart("c2", "")], {
      messages: [carrier("c1", toolCall("c1")), carrier("c2", toolCall("c2"))],
    }));

  test("a parent that is no assistant's message leaves the call on its own", () =>
    expectHeld([...think("r", "hm"), callStart("c", "r")], {
      messages: [thought("r", "hm"), carrier("c", toolCall("c"))],
    }));

  test("a call that is started again goes on, under the newer name", () =>
    expectHeld(
      [callStart("c"), args("c", "{"), callEnd("c"), callStart("c", "other", { name: "book" }), args("c", "}")],
      {
        messages: [carrier("c", toolCall("c", "{}", { function: { name: "book", arguments: "{}" } }))],
      },
    ));

  test("results stand behind the message that made the call, after its earlier results", () =>
    expectHeld(
      [callStart("c1", "m"), callStart("c2", "m"), ...say("later", "text"), result("r2", "c2"), result("r1", "c1")],
      {
        messages: [
          carrier("m", toolCall("c1"), toolCall("c2")),
          toolMessage("r2", "c2"),
          toolMessage("r1", "c1"),
          assistant("later", "text"),
        ],
      },
    ));

  test("a second result for a call is a second message, also under the same id", () =>
    expectHeld([callStart("c"), result("r", "c", "one"), result("r", "c", "two")], {
      messages: [carrier("c", toolCall("c")), toolMessage("r", "c", "one"), toolMessage("r", "c", "two")],
    }));

  test("a result for an unknown call comes last", () =>
    expectHeld([result("r", "nowhere"), ...say("m", "x")], {
      messages: [toolMessage("r", "nowhere"), assistant("m", "x")],
    }));
});

describe("state", () => {
  test.each<[string, Json]>([
    ["an object", { a: 1 }],
    ["zero", 0],
    ["null", null],
    ["false", false],
    ["a list", [1]],
  ])("a snapshot replaces the state whole: %s", (_name, value) =>
    expectHeld(
      [event("STATE_SNAPSHOT", { snapshot: { before: true } }), event("STATE_SNAPSHOT", { snapshot: value })],
      { state: value },
    ),
  );

  test("a delta before any snapshot applies to {}", () =>
    expectHeld([stateDelta({ op: "add", path: "/list", value: [] }, { op: "add", path: "/list/-", value: 1 })], {
      state: { list: [1] },
    }));

  test("a delta that fails at its last operation keeps the state whole", () =>
    expectHeld(
      [
        event("STATE_SNAPSHOT", { snapshot: { n: 1 } }),
        stateDelta({ op: "replace", path: "/n", value: 2 }, { op: "remove", path: "/gone" }),
        stateDelta({ op: "add", path: "/m", value: 3 }),
      ],
      { state: { n: 1, m: 3 } },
    ));

  test("members that the patch does not know are no obstacle", () => {
    const remove = { op: "remove", path: "/n", value: "was 1" } as const;
    return expectHeld([event("STATE_SNAPSHOT", { snapshot: { n: 1 } }), stateDelta(remove)], { state: {} });
  });
});

describe("MESSAGES_SNAPSHOT", () => {
  test("replaces what it has, drops what it leaves out, appends what is new, and keeps the client's order", () =>
    expectHeld(
      [
        ...say("a", "1"),
        ...say("b", "2"),
        ...say("c", "3"),
        snapshot([assistant("d", "4"), assistant("c", "3!"), assistant("a", "1")]),
      ],
      {
        messages: [assistant("a", "1"), assistant("c", "3!"), assistant("d", "4")],
      },
    ));

  test("that speaks of no reasoning and no activity keeps all of them", () =>
    expectHeld([...think("r", "hm"), activity("p", { n: 1 }), ...say("a", "1"), snapshot([])], {
      messages: [thought("r", "hm"), plan("p", { n: 1 })],
    }));

  test("that carries reasoning owns all of it, and no activity", () =>
    expectHeld([...think("r1", "hm"), ...think("r2", "so"), activity("p", {}), snapshot([thought("r2", "")])], {
      messages: [thought("r2", ""), plan("p", {})],
    }));

  test("that carries an activity owns all of them, and no reasoning", () =>
    expectHeld([...think("r", "hm"), activity("p", {}), activity("q", {}), snapshot([plan("q", { n: 2 })])], {
      messages: [thought("r", "hm"), plan("q", { n: 2 })],
    }));

  const chart = { activityType: "CHART" };
  test.each<[claim: string, note: unknown, kept: Message[]]>([
    ["a list owns the activities of its types", { authoritativeActivityTypes: ["PLAN"] }, [plan("q", {}, chart)]],
    ["an empty list owns none", { authoritativeActivityTypes: [] }, [plan("p", {}), plan("q", {}, chart)]],
    ["null owns all, though none is carried", { authoritativeActivityTypes: null }, []],
    [
      "a list of something else counts as empty",
      { authoritativeActivityTypes: [1] },
      [plan("p", {}), plan("q", {}, chart)],
    ],
    ["a note without the member says nothing", { other: 1 }, [plan("p", {}), plan("q", {}, chart)]],
    ["a note that is no object counts as an empty list", "note", [plan("p", {}), plan("q", {}, chart)]],
  ])("metadata of @ag-ui/client: %s", (_claim, note, kept) =>
    expectHeld([activity("p", {}), activity("q", {}, chart), snapshot([], { "@ag-ui/client": note })], {
      messages: kept,
    }),
  );

  test("takes a half-written message back: its END then changes nothing, and the id may begin again", () =>
    expectHeld([textStart("m"), text("m", "Hel"), snapshot([]), textEnd("m"), ...say("m", "Good morning")], {
      messages: [assistant("m", "Good morning")],
    }));

  test("takes an open call back without its message's text", () =>
    expectHeld(
      [
        ...say("m", "Looking."),
        callStart("c", "m"),
        args("c", '{"q":'),
        snapshot([assistant("m", "Looking.")]),
        callEnd("c"),
      ],
      {
        messages: [assistant("m", "Looking.")],
      },
    ));

  test("empties a reasoning message, which then begins again", () =>
    expectHeld([...think("r", "wrong"), snapshot([thought("r", "")]), ...think("r", "right")], {
      messages: [thought("r", "right")],
    }));
});

describe("activities", () => {
  test("a snapshot replaces content and type in place", () =>
    expectHeld([activity("p", { n: 1 }), ...say("m", "x"), activity("p", { n: 2 }, { activityType: "CHART" })], {
      messages: [plan("p", { n: 2 }, { activityType: "CHART" }), assistant("m", "x")],
    }));

  test("replace: false keeps all but adds metadata", () =>
    expectHeld(
      [
        activity("p", { n: 1 }, { metadata: { a: 1 } }),
        activity("p", { n: 2 }, { replace: false, activityType: "CHART", metadata: { b: 2 } }),
      ],
      { messages: [plan("p", { n: 1 }, { metadata: { a: 1, b: 2 } })] },
    ));

  test("a snapshot takes the place of a message of another role, unless it must not replace", () =>
    expectHeld(
      [...say("a", "1"), ...say("b", "2"), activity("a", { n: 1 }), activity("b", { n: 1 }, { replace: false })],
      {
        messages: [plan("a", { n: 1 }), assistant("b", "2")],
      },
    ));

  test("the owner is that of the last snapshot, if it has one", () =>
    expectHeld([activity("p", {}, { subagentRunId: "s" }), activity("p", { n: 1 })], {
      messages: [plan("p", { n: 1 })],
    }));

  const set = (n: number) => ({ op: "replace", path: "/n", value: n }) as const;
  const delta = (messageId: string, ...patch: EventFields<"ACTIVITY_DELTA">["patch"]) =>
    event("ACTIVITY_DELTA", { messageId, activityType: "CHART", patch, metadata: { seen: true } });

  test("a delta patches the content and sets the type", () =>
    expectHeld([activity("p", { n: 1 }), delta("p", set(2))], {
      messages: [plan("p", { n: 2 }, { activityType: "CHART", metadata: { seen: true } })],
    }));

  test("a delta that cannot be applied leaves content and type, but its metadata is merged", () =>
    expectHeld([activity("p", { n: 1 }), delta("p", set(2), { op: "remove", path: "/gone" })], {
      messages: [plan("p", { n: 1 }, { metadata: { seen: true } })],
    }));

  test("a delta for nothing, or for a message, changes nothing", () =>
    expectHeld([...say("m", "x"), delta("m", set(1)), delta("nowhere", set(1))], { messages: [assistant("m", "x")] }));
});

describe("runs and interrupts", () => {
  const started = (messages?: Message[]) =>
    event("RUN_STARTED", {
      threadId: "t",
      runId: "r",
      ...(messages && { input: { threadId: "t", runId: "r", messages, tools: [], context: [] } }),
    });
  const interrupt = (id: string) => ({ id, reason: "tool_call" });
  const interrupted = ended({ type: "interrupt", interrupts: [interrupt("i"), interrupt("j")] });

  test("the messages of a run's input are added where their ids are new", () =>
    expectHeld(
      [
        started([{ id: "u", role: "user", content: "hi" }]),
        ...say("m", "x"),
        ended(),
        started([assistant("m", "other"), { id: "v", role: "user", content: "more" }]),
      ],
      {
        messages: [
          { id: "u", role: "user", content: "hi" },
          assistant("m", "x"),
          { id: "v", role: "user", content: "more" },
        ],
      },
    ));

  test("an interrupting end leaves its interrupts pending, whatever starts or fails then", () =>
    expectHeld([interrupted, started(), event("RUN_ERROR", { message: "x" })], {
      interrupts: [interrupt("i"), interrupt("j")],
    }));

  test.each([
    ["success", { type: "success" } as const],
    ["cancelled", { type: "cancelled" } as const],
    ["no outcome", undefined],
  ])("the next end clears them: %s", (_name, outcome) => expectHeld([interrupted, ended(outcome)], {}));

  test("another interrupting end replaces them", () =>
    expectHeld([interrupted, ended({ type: "interrupt", interrupts: [interrupt("k")] })], {
      interrupts: [interrupt("k")],
    }));
});

describe("what every item may carry", () => {
  test("metadata is merged key by key, the last write wins, nothing is merged deeply", () =>
    expectHeld(
      [
        textStart("m", { metadata: { a: { x: 1 }, b: null } }),
        text("m", "", { metadata: { a: { y: 2 } } }),
        textEnd("m", { metadata: { c: 3 } }),
      ],
      {
        messages: [assistant("m", "", { metadata: { a: { y: 2 }, b: null, c: 3 } })],
      },
    ));

  test("a call's metadata lands on the call, a result's on the result", () =>
    expectHeld(
      [
        callStart("c", "m", { metadata: { a: 1 } }),
        args("c", "", { metadata: { b: 2 } }),
        callEnd("c", { metadata: { a: 3 } }),
        result("r", "c", "x", { metadata: { d: 4 } }),
      ],
      {
        messages: [
          carrier("m", toolCall("c", "", { metadata: { a: 3, b: 2 } })),
          { id: "r", role: "tool", toolCallId: "c", content: "x", metadata: { d: 4 } },
        ],
      },
    ));

  test("new messages of all kinds belong to the subagent that their first event names, and later events change nothing", () =>
    expectHeld(
      [
        textStart("m", { subagentRunId: "s" }),
        text("m", "x"),
        event("REASONING_MESSAGE_START", { messageId: "r", role: "reasoning", subagentRunId: "s" }),
        callStart("c", "made", { subagentRunId: "s" }),
        result("t", "c", "found", { subagentRunId: "s" }),
        activity("p", {}, { subagentRunId: "s" }),
        callStart("d", "m"),
      ],
      {
        messages: [
          assistant("m", "x", { subagentRunId: "s", toolCalls: [toolCall("d")] }),
          { ...thought("r", ""), subagentRunId: "s" },
          { ...carrier("made", toolCall("c")), subagentRunId: "s" },
          { ...toolMessage("t", "c"), subagentRunId: "s" },
          plan("p", {}, { subagentRunId: "s" }),
        ],
      },
    ));

  test("encrypted values land on the message or the call, not on an activity, and unknown ones nowhere", () => {
    const encrypted = (subtype: "message" | "tool-call", entityId: string) =>
      event("REASONING_ENCRYPTED_VALUE", { subtype, entityId, encryptedValue: "blob" });
    return expectHeld(
      [
        ...think("r", "hm"),
        callStart("c"),
        activity("p", {}),
        encrypted("message", "r"),
        encrypted("tool-call", "c"),
        encrypted("message", "p"),
        encrypted("message", "nowhere"),
      ],
      {
        messages: [
          { id: "r", role: "reasoning", content: "hm", encryptedValue: "blob" },
          carrier("c", toolCall("c", "", { encryptedValue: "blob" })),
          plan("p", {}),
        ],
      },
    );
  });

  test("RAW, CUSTOM, steps, spans and subagents leave no trace", () =>
    expectHeld(
      [
        event("RAW", { event: { a: 1 } }),
        event("CUSTOM", { name: "n", value: 1 }),
        event("STEP_STARTED", { stepName: "s" }),
        event("STEP_FINISHED", { stepName: "s" }),
        event("REASONING_START", { messageId: "r" }),
        event("REASONING_END", { messageId: "r" }),
        event("SUBAGENT_STARTED", { subagentRunId: "s", name: "helper" }),
        event("SUBAGENT_FINISHED", { subagentRunId: "s" }),
        event("SUBAGENT_ERROR", { subagentRunId: "s", message: "x" }),
      ],
      {},
    ));
});

describe("chunks", () => {
  test("of one message go on without an id", () =>
    expectHeld(
      [
        event("TEXT_MESSAGE_CHUNK", { messageId: "m", role: "user", delta: "Hel" }),
        event("RAW", { event: 1 }),
        event("TEXT_MESSAGE_CHUNK", { delta: "lo" }),
      ],
      { messages: [{ id: "m", role: "user", content: "Hello" }] },
    ));

  test("of a call name its tool and parent once", () =>
    expectHeld(
      [
        event("TOOL_CALL_CHUNK", { toolCallId: "c", toolCallName: "search", parentMessageId: "m", delta: "{" }),
        event("TOOL_CALL_CHUNK", { delta: "}" }),
      ],
      { messages: [carrier("m", toolCall("c", "{}"))] },
    ));

  test("of several lanes do not mix", () =>
    expectHeld(
      [
        event("REASONING_MESSAGE_CHUNK", { messageId: "a", delta: "1", subagentRunId: "s" }),
        event("REASONING_MESSAGE_CHUNK", { messageId: "b", delta: "2", subagentRunId: "t" }),
        event("REASONING_MESSAGE_CHUNK", { delta: "3", subagentRunId: "s" }),
        event("SUBAGENT_FINISHED", { subagentRunId: "s" }),
        event("REASONING_MESSAGE_CHUNK", { delta: "4" }),
      ],
      {
        messages: [
          { id: "a", role: "reasoning", content: "13", subagentRunId: "s" },
          { id: "b", role: "reasoning", content: "24", subagentRunId: "t" },
        ],
      },
    ));

  test("without an id are lost when something has closed the message", () => {
    const transcript = [
      event("TEXT_MESSAGE_CHUNK", { messageId: "m", delta: "Hel" }),
      event("CUSTOM", { name: "n", value: 1 }),
      event("TEXT_MESSAGE_CHUNK", { delta: "lo" }),
    ].reduce(reduce, newTranscript());
    expect(transcript.messages).toEqual([assistant("m", "Hel")]);
  });
});

test("a chunk without an id never goes on with another subagent's message", () => {
  const transcript = [
    event("TEXT_MESSAGE_CHUNK", { messageId: "m", delta: "mine", subagentRunId: "s" }),
    event("TEXT_MESSAGE_CHUNK", { delta: "not mine", subagentRunId: "t" }),
  ].reduce(reduce, newTranscript());
  expect(transcript.messages).toEqual([assistant("m", "mine", { subagentRunId: "s" })]);
});

describe("structure", () => {
  const start: Transcript = newTranscript({
    messages: [assistant("a", "1"), assistant("b", "2")],
    state: { x: { y: 1 } },
  });

  test("a transcript begins with the messages and state that it is given", () => {
    expect(start).toMatchObject({
      messages: [assistant("a", "1"), assistant("b", "2")],
      state: { x: { y: 1 } },
      interrupts: [],
    });
    expect(newTranscript()).toMatchObject({ messages: [], state: {}, interrupts: [] });
    expect(newTranscript({ state: null }).state).toBe(null);
  });

  test("what an event does not concern stays the same reference", () => {
    const after = reduce(start, text("b", "!"));
    expect(after.messages).not.toBe(start.messages);
    expect(after.messages[0]).toBe(start.messages[0]);
    expect(after.state).toBe(start.state);
    expect(reduce(start, stateDelta({ op: "add", path: "/n", value: 1 })).messages).toBe(start.messages);
  });

  test.each<[string, AGUIEvent]>([
    ["RAW", event("RAW", { event: 1 })],
    ["an END", textEnd("a")],
    ["START of a known message", textStart("a")],
    ["an empty delta", text("a", "")],
    ["a delta for nobody", text("nobody", "x")],
    ["a snapshot of what is there", snapshot(structuredClone([assistant("a", "1"), assistant("b", "2")]))],
    ["an empty patch", stateDelta()],
    ["a patch that fails", stateDelta({ op: "remove", path: "/gone" })],
    ["a patch that only tests", stateDelta({ op: "test", path: "/x/y", value: 1 })],
    ["an end without interrupts", ended()],
  ])("an event without effect returns the transcript itself: %s", (_name, quiet) => {
    expect(reduce(start, quiet)).toBe(start);
  });

  test("a snapshot keeps the references of what it only repeats", () => {
    const after = reduceMessages(start.messages, snapshot([{ ...assistant("a", "1") }, assistant("b", "2!")]));
    expect(after[0]).toBe(start.messages[0]);
    expect(after[1]).toEqual(assistant("b", "2!"));
  });

  test("nothing that is handed in is changed: frozen transcripts and events will do", () => {
    const freeze = <T>(value: T): T => {
      if (typeof value === "object" && value !== null && !Object.isFrozen(value))
        Object.values(Object.freeze(value)).forEach(freeze);
      return value;
    };
    const events = [
      ...say("m", "x"),
      callStart("c", "m", { metadata: { a: 1 } }),
      args("c", "{}"),
      result("r", "c"),
      activity("p", { list: [] }),
      event("ACTIVITY_DELTA", {
        messageId: "p",
        activityType: "PLAN",
        patch: [{ op: "add", path: "/list/-", value: 1 }],
      }),
      snapshot([assistant("m", "y")]),
      text("m", "z"),
      event("STATE_SNAPSHOT", { snapshot: { list: [1] } }),
      stateDelta({ op: "add", path: "/list/-", value: 2 }),
    ];
    const after = events.reduce((transcript, one) => freeze(reduce(transcript, freeze(one))), freeze(newTranscript()));
    expect(after.state).toEqual({ list: [1, 2] });
    expect(after.messages).toEqual([assistant("m", "yz"), plan("p", { list: [1] })]);
  });
});
