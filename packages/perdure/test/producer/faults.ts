/** Faults that servers really have, each with the rules that it breaks and nothing else. */
import type { ProducerRuleId } from "perdure/testing";
import { type Event, type Fault, messagesOf, type Scene } from "./correct-server.ts";

interface Seeded {
  readonly name: string;
  readonly breaks: readonly ProducerRuleId[];
  /** A fault that remembers what happened is made anew for each check. */
  readonly fault: Fault | (() => Fault);
  /** What a fault has to do with, and is not the point. */
  readonly skip?: readonly ProducerRuleId[];
  /** Milliseconds. */
  readonly timeoutMs?: number;
}

type Edit = NonNullable<Fault["events"]>;

/** In one scene only, so that a fault shows where it belongs. */
const during =
  (scene: Scene, edit: Edit): Edit =>
  (events, at, input) =>
    at === scene ? edit(events, at, input) : events;

const without =
  (type: string): Edit =>
  (events) =>
    events.filter((event) => event.type !== type);

const changed =
  (type: string, change: (event: Event) => object): Edit =>
  (events) =>
    events.map((event) => (event.type === type ? ({ ...event, ...change(event) } as Event) : event));

/** Puts events before, or behind, the first of a type. */
const beside =
  (type: string, where: "before" | "behind", make: (event: Event) => readonly Event[]): Edit =>
  (events) => {
    const at = events.findIndex((event) => event.type === type);
    const found = events[at];
    return found === undefined ? events : events.toSpliced(where === "before" ? at : at + 1, 0, ...make(found));
  };

const seeded = (name: string, breaks: ProducerRuleId | readonly ProducerRuleId[], fault: Fault | Edit): Seeded => ({
  name,
  breaks: typeof breaks === "string" ? [breaks] : breaks,
  fault: typeof fault === "function" ? { events: fault } : fault,
});

const encoder = new TextEncoder();
const interrupts = (event: Event): readonly { readonly id: string }[] =>
  (event.outcome as { interrupts: readonly { readonly id: string }[] }).interrupts;

export const FAULTS: readonly Seeded[] = [
  // The run
  seeded("no terminal event", "run.ending", during("hello", without("RUN_FINISHED"))),
  seeded("an event before RUN_STARTED", "run.first", (events) => [{ type: "STATE_SNAPSHOT", snapshot: {} }, ...events]),
  seeded(
    "two runs at once",
    "run.one-at-a-time",
    beside("RUN_STARTED", "behind", (event) => [{ ...event, runId: "another" }]),
  ),
  seeded("an event behind RUN_FINISHED", "run.after-finished", (events) => [
    ...events,
    { type: "CUSTOM", name: "late", value: 1 },
  ]),
  seeded(
    "RUN_FINISHED behind RUN_ERROR",
    "run.after-error",
    during(
      "hello",
      beside("RUN_FINISHED", "before", () => [{ type: "RUN_ERROR", message: "out of luck" }]),
    ),
  ),
  seeded("a step that is left open", "run.closed", during("search", without("STEP_FINISHED"))),
  seeded("a text that is left open", "run.closed", during("hello", without("TEXT_MESSAGE_END"))),
  seeded("a run id of the server's own", "run.echo", (events) =>
    events.map((event) => ("runId" in event ? { ...event, runId: "mine" } : event)),
  ),
  seeded("another thread", "run.echo", (events) =>
    events.map((event) => ("threadId" in event ? { ...event, threadId: "mine" } : event)),
  ),
  seeded(
    "an end of another run",
    "run.boundary",
    changed("RUN_FINISHED", () => ({ runId: "mine" })),
  ),
  seeded(
    "no version",
    "run.version",
    changed("RUN_STARTED", () => ({ protocolVersion: undefined })),
  ),
  seeded("the client's version", "run.version", (events, _, { protocolVersion = "1.0" }) =>
    changed("RUN_STARTED", () => ({ protocolVersion }))(events, "hello", { threadId: "", runId: "", messages: [] }),
  ),
  seeded(
    "the error as a message, too",
    "run.error-once",
    during("hello", (events) => [
      ...events.slice(0, 1),
      { type: "TEXT_MESSAGE_START", messageId: "oops", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "oops", delta: "Sorry: the model is gone" },
      { type: "TEXT_MESSAGE_END", messageId: "oops" },
      { type: "RUN_ERROR", message: "the model is gone" },
    ]),
  ),

  // Shapes
  seeded(
    "null for an optional member",
    "event.nulls",
    changed("TOOL_CALL_START", () => ({ parentMessageId: null })),
  ),
  seeded(
    "an event of its own",
    "event.type",
    beside("RUN_STARTED", "behind", () => [{ type: "PROGRESS", percent: 3 }]),
  ),
  seeded(
    "a member of its own",
    "event.members",
    changed("TEXT_MESSAGE_CONTENT", () => ({ model: "script" })),
  ),
  seeded(
    "a timestamp that is a text",
    "event.shape",
    changed("RUN_FINISHED", () => ({ timestamp: "today" })),
  ),
  seeded(
    "what the provider sent",
    "event.raw",
    changed("TEXT_MESSAGE_END", () => ({ rawEvent: { prompt: "secret" } })),
  ),
  seeded(
    "a total of the provider's",
    "event.usage",
    changed("RUN_FINISHED", () => ({ usage: [{ inputTokens: 3, outputTokens: 4, totalTokens: 9 }] })),
  ),

  // Items
  seeded(
    "a delta behind its END",
    "text.order",
    during(
      "hello",
      beside("TEXT_MESSAGE_END", "behind", ({ messageId }) => [
        { type: "TEXT_MESSAGE_CONTENT", messageId, delta: "late" },
      ]),
    ),
  ),
  seeded(
    "a text that is begun twice",
    "text.order",
    during(
      "search",
      beside("TEXT_MESSAGE_START", "behind", (event) => [event]),
    ),
  ),
  seeded("an END missing before a result", "tools.order", during("search", without("TOOL_CALL_END"))),
  seeded(
    "END twice",
    "tools.order",
    beside("TOOL_CALL_END", "behind", (event) => [event]),
  ),
  seeded("reasoning without its START", "reasoning.order", without("REASONING_MESSAGE_START")),
  seeded(
    "a step that was not begun",
    "steps.order",
    beside("RUN_FINISHED", "before", () => [{ type: "STEP_FINISHED", stepName: "nowhere" }]),
  ),
  seeded(
    "a chunk without an id",
    "chunks.order",
    beside("RUN_STARTED", "behind", () => [{ type: "TEXT_MESSAGE_CHUNK", delta: "who?" }]),
  ),
  seeded(
    "chunks of a text that was begun",
    "chunks.forms",
    beside("TEXT_MESSAGE_END", "behind", ({ messageId }) => [{ type: "TEXT_MESSAGE_CHUNK", messageId, delta: "!" }]),
  ),
  seeded(
    "a text with the id of an activity",
    "ids.kind",
    during("search", (events) => {
      const id = events.find(({ type }) => type === "ACTIVITY_SNAPSHOT")?.messageId;
      return events.map((event) => (event.type.startsWith("TEXT") ? { ...event, messageId: id } : event));
    }),
  ),
  seeded("message ids that begin anew in each run", "ids.unique", (events, scene) =>
    events
      .map((event) => (event.type.startsWith("TEXT") ? { ...event, messageId: "message" } : event))
      .filter(({ type }) => scene !== "search" || type !== "MESSAGES_SNAPSHOT"),
  ),
  seeded(
    "a subagent that nobody started",
    "subagents.order",
    beside("RUN_FINISHED", "before", () => [{ type: "SUBAGENT_FINISHED", subagentRunId: "s" }]),
  ),
  seeded(
    "a text that changes hands",
    "subagents.owner",
    changed("TEXT_MESSAGE_END", () => ({ subagentRunId: "s" })),
  ),

  // Tools
  seeded(
    "a result without a call",
    "tools.result-call",
    beside("RUN_FINISHED", "before", () => [
      { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "none", content: "" },
    ]),
  ),
  seeded(
    "a result that comes twice",
    "tools.one-result",
    beside("TOOL_CALL_RESULT", "behind", (event) => [{ ...event, messageId: "again" }]),
  ),
  seeded(
    "a result with its call's message id",
    "tools.result-id",
    during("search", (events) =>
      changed("TOOL_CALL_RESULT", ({ toolCallId }) => ({ messageId: toolCallId }))(
        without("MESSAGES_SNAPSHOT")(events, "search", NOBODY),
        "search",
        NOBODY,
      ),
    ),
  ),
  seeded(
    "a call that is begun again behind its result",
    "tools.reopened",
    during(
      "search",
      beside("TOOL_CALL_RESULT", "behind", ({ toolCallId }) => call(String(toolCallId))),
    ),
  ),
  seeded(
    "arguments that are no JSON",
    "tools.arguments",
    during(
      "client",
      changed("TOOL_CALL_ARGS", () => ({ delta: "{" })),
    ),
  ),
  seeded(
    "a server's result for a client's call",
    "tools.client-result",
    during(
      "client",
      beside("TOOL_CALL_END", "behind", ({ toolCallId }) => [
        { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId, content: "" },
      ]),
    ),
  ),
  seeded(
    "no pendingToolCallIds",
    "tools.pending-listed",
    during(
      "client",
      changed("RUN_FINISHED", () => ({ outcome: { type: "success" } })),
    ),
  ),
  seeded(
    "pendingToolCallIds of other calls",
    "tools.pending-exact",
    during(
      "client",
      changed("RUN_FINISHED", () => ({ outcome: { type: "success", pendingToolCallIds: ["another"] } })),
    ),
  ),
  seeded(
    "a client's call as an interrupt",
    "tools.client-success",
    during("client", (events) => {
      const toolCallId = events.find(({ type }) => type === "TOOL_CALL_START")?.toolCallId;
      const ended = changed("RUN_FINISHED", () => ({
        outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "tool_call", toolCallId }] },
      }))(events, "client", NOBODY);
      return snapshots(ended);
    }),
  ),

  // State, activities, messages
  seeded(
    "a patch of another base",
    "state.baseline",
    during("search", (events) =>
      events.map((event) => {
        const isFirst = event === events.find(({ type }) => type === "STATE_DELTA");
        return isFirst ? { ...event, delta: [{ op: "replace", path: "/mine", value: 2 }] } : event;
      }),
    ),
  ),
  seeded("replace of a key that is not there", "state.patch", (events) => {
    const at = events.findLastIndex(({ type }) => type === "STATE_DELTA");
    return at < 0
      ? events
      : events.toSpliced(at, 1, { type: "STATE_DELTA", delta: [{ op: "replace", path: "/nowhere", value: 1 }] });
  }),
  seeded(
    "a delta without an operation",
    "state.noise",
    changed("STATE_DELTA", () => ({ delta: [] })),
  ),
  seeded(
    "the same snapshot again",
    "state.noise",
    beside("STATE_SNAPSHOT", "behind", (event) => [event]),
  ),
  seeded("an activity's delta without its snapshot", "activity.first", without("ACTIVITY_SNAPSHOT")),
  seeded(
    "an activity's delta that does not fit",
    "activity.patch",
    changed("ACTIVITY_DELTA", () => ({ patch: [{ op: "remove", path: "/nowhere" }] })),
  ),
  seeded(
    "a snapshot with other ids",
    "messages.ids",
    during(
      "search",
      changed("MESSAGES_SNAPSHOT", ({ messages }) => ({
        messages: (messages as readonly { id: string; role: string }[]).map((message, i) =>
          message.role === "tool" ? message : { ...message, id: `made-anew-${i}` },
        ),
      })),
    ),
  ),
  seeded(
    "a snapshot from before the result",
    // To a client that holds the call without its result it waits for one.
    ["tools.pending-listed", "messages.results"],
    during(
      "search",
      changed("MESSAGES_SNAPSHOT", ({ messages }) => ({
        messages: (messages as readonly { role: string }[]).filter(({ role }) => role !== "tool"),
      })),
    ),
  ),
  seeded(
    "a snapshot with some of the reasoning",
    "messages.kept",
    during("search", (events, _, { messages }) => {
      const thoughts = ["first", "second"].flatMap((thought) => think(`${thought}-${messages.length}`));
      const made = events.toSpliced(1, 0, ...thoughts);
      const kept = [...messages, ...messagesOf(made)].filter(({ id }) => !id.startsWith("second"));
      return changed("MESSAGES_SNAPSHOT", () => ({ messages: kept }))(made, "search", NOBODY);
    }),
  ),

  seeded(
    "a snapshot with the conversation twice",
    "messages.ids",
    during(
      "search",
      changed("MESSAGES_SNAPSHOT", ({ messages }) => {
        const all = messages as readonly { id: string; role: string }[];
        return {
          messages: [
            ...all.filter(({ role }) => role === "user").map((one) => ({ ...one, id: `${one.id}-b` })),
            ...all,
          ],
        };
      }),
    ),
  ),
  seeded("a snapshot without the user's document", "messages.user", (events, _, { messages }) => {
    if (!JSON.stringify(messages).includes('"document"')) return events;
    const snapshot = { type: "MESSAGES_SNAPSHOT", messages: messages.map((one) => ({ ...one, content: "Hello." })) };
    return events.toSpliced(1, 0, snapshot);
  }),

  // Interrupts
  seeded(
    "an interrupt of nothing",
    "interrupts.some",
    during(
      "approval",
      changed("RUN_FINISHED", () => ({ outcome: { type: "interrupt", interrupts: [] } })),
    ),
  ),
  seeded(
    "two interrupts of one id",
    "interrupts.ids",
    during(
      "approval",
      changed("RUN_FINISHED", (event) => ({
        outcome: {
          type: "interrupt",
          interrupts: interrupts(event).map((one) => ({ ...one, id: interrupts(event)[0]?.id })),
        },
      })),
    ),
  ),
  seeded(
    "another run behind an interrupt",
    "interrupts.last",
    during("approval", (events, _, { threadId }) => [
      ...events,
      { type: "RUN_STARTED", threadId, runId: "more", protocolVersion: "1.0" },
      { type: "RUN_FINISHED", threadId, runId: "more" },
    ]),
  ),
  seeded("an interrupt without snapshots", "interrupts.snapshots", during("approval", without("MESSAGES_SNAPSHOT"))),
  seeded(
    "an interrupt that has expired",
    "interrupts.expiry",
    during(
      "approval",
      changed("RUN_FINISHED", (event) => ({
        outcome: {
          type: "interrupt",
          interrupts: interrupts(event).map((one) => ({ ...one, expiresAt: "2020-01-01T00:00:00Z" })),
        },
      })),
    ),
  ),
  seeded(
    "START again on a resume",
    "resume.result-only",
    during("resumed", (events) =>
      events.flatMap((event) =>
        event.type === "TOOL_CALL_RESULT" ? [...call(String(event.toolCallId)), event] : [event],
      ),
    ),
  ),
  seeded("a failure over an unknown interrupt", "resume.unknown", { onUnknownInterrupt: "refuse" }),
  seeded("success over open interrupts", "resume.uncovered", { onUncovered: "ignore" }),
  seeded("interrupts that any thread can answer", "resume.thread", { interruptsOf: "everybody" }),
  seeded("an answer that breaks its schema", "resume.payload", { onWrongAnswer: "take" }),

  // Bytes
  seeded("CRLF", "sse.line-ends", { body: (text) => text.replaceAll("\n", "\r\n") }),
  seeded("[DONE]", "sse.sentinel", { body: (text) => `${text}data: [DONE]\n\n` }),
  seeded("an empty ping", "sse.sentinel", { body: (text) => `data:\n\n${text}` }),
  seeded("two events in a frame", "sse.frames", { body: (text) => `${text.replace(/\n\nid: 2\n/, "\n")}` }),
  seeded("an array in a frame", "sse.frames", { body: (text) => `data: []\n\n${text}` }),
  seeded("a frame over 10 MB", "sse.frame-size", {
    body: (text, scene) =>
      scene === "search"
        ? `data: {"type":"CUSTOM","name":"big","value":"${"x".repeat(10 * 1024 * 1024)}"}\n\n${text}`
        : text,
  }),
  seeded("bytes that are not UTF-8", "sse.utf8", {
    body: (text) => new Uint8Array([58, 255, 10, 10, ...encoder.encode(text)]),
  }),
  seeded("no blank line at the end", "sse.last-frame", { body: (text) => text.trimEnd() }),
  seeded("protobuf on the label, text in the body", "http.bytes", {
    headers: (request): Record<string, string> =>
      /proto(?!;q=0)|\*/.test(request.headers.get("accept") ?? "")
        ? { "content-type": "application/vnd.ag-ui.event+proto" }
        : {},
  }),
  seeded("protobuf for who does not want it", ["http.negotiation", "http.bytes"], {
    headers: (request): Record<string, string> =>
      request.headers.get("accept")?.includes("q=0") ? { "content-type": "application/vnd.ag-ui.event+proto" } : {},
  }),
  seeded("a content type with a charset", "http.content-type", {
    headers: (request): Record<string, string> =>
      request.headers.get("accept")?.includes("*")
        ? { "content-type": "application/vnd.ag-ui.event+proto; charset=utf-8" }
        : {},
  }),
  seeded("caches that may keep it", "http.cache", { headers: () => ({ "cache-control": "private" }) }),
  seeded("proxies that may gather it", "http.buffering", { headers: () => ({ "x-accel-buffering": "yes" }) }),

  // Requests
  seeded("200 for malformed input", "input.malformed", {
    onMalformed: (problem) =>
      /JSON/.test(problem)
        ? undefined
        : new Response("data: {}\n\n", { headers: { "content-type": "text/event-stream" } }),
  }),
  seeded("500 for malformed input", ["input.malformed", "input.tolerance"], {
    onMalformed: (problem) => (/JSON/.test(problem) ? undefined : new Response(problem, { status: 500 })),
  }),
  seeded("200 for what is no JSON", "input.not-json", {
    onMalformed: (problem) => (/JSON/.test(problem) ? new Response("{}") : undefined),
  }),
  seeded("a newer version refused", "input.newer-version", {
    respond: (respond, { protocolVersion }) =>
      protocolVersion !== undefined && protocolVersion !== "1.0" ? new Response("upgrade", { status: 426 }) : respond(),
  }),
  seeded("a request without a version refused", "input.no-version", {
    respond: (respond, { protocolVersion }) =>
      protocolVersion === undefined ? new Response("which version?", { status: 400 }) : respond(),
  }),
  seeded("no messages refused", "input.empty-messages", {
    respond: (respond, { messages }) =>
      messages.length === 0 ? new Response("say something", { status: 422 }) : respond(),
  }),
  seeded("a run that fails of a part", "input.parts", {
    events: (events, _, { messages }) =>
      JSON.stringify(messages).includes('"document"')
        ? [...events.slice(0, 1), { type: "RUN_ERROR", message: "no vision" }]
        : events,
  }),
  seeded("a server that breaks of an open call in the history", "input.dangling-call", {
    respond: (respond, { messages }) =>
      JSON.stringify(messages).includes('"look"')
        ? new Response("tool_use without tool_result", { status: 500 })
        : respond(),
  }),

  seeded("unknown members refused", "input.unknown-members", {
    respond: (respond, _, body) => (body.includes("fromTheFuture") ? refusal(400) : respond()),
  }),
  seeded("a request without tools refused", "input.absent-lists", {
    respond: (respond, _, body) => (body.includes('"tools"') ? respond() : refusal(400)),
  }),
  seeded("text/plain taken for JSON", "input.content-type", { onWrongType: "serve" }),
  seeded("500 for names in snake_case", "input.tolerance", {
    onMalformed: (_, body) => (body.includes("thread_id") ? refusal(500) : undefined),
  }),
  seeded("500 for a request with context", "http.status", {
    respond: (respond, _, body) => (body.includes("Ada") ? refusal(500) : respond()),
  }),
  {
    ...seeded("a server that is gone after malformed input", "input.serves-on", {}),
    fault: () => {
      let isGone = false;
      return {
        onMalformed(_, body) {
          isGone = body.includes("thread_id");
          return undefined;
        },
        respond: (respond) => (isGone ? refusal(503) : respond()),
      };
    },
  },
  {
    ...seeded("a server that is gone for one request after a cut", "http.serves-on", {}),
    skip: ["rejoin.same-run", "rejoin.cursor"],
    fault: () => {
      let isGone = false;
      return {
        async respond(respond) {
          if (isGone) {
            isGone = false;
            return refusal(503);
          }
          const { headers, body, status } = respond();
          const left = (): void => {
            isGone = true;
          };
          return new Response(body && slowly(await new Response(body).text(), left), { headers, status });
        },
      };
    },
  },
  {
    ...seeded("a body that is never closed", "sse.closes", {
      async respond(respond, _, body) {
        const response = respond();
        if (!body.includes("Ada")) return response;
        const text = await response.text();
        const open = new ReadableStream({ start: (controller) => controller.enqueue(encoder.encode(text)) });
        return new Response(open, { headers: response.headers });
      },
    }),
    timeoutMs: 500,
  },
  seeded("protobuf that ends in a frame", "protobuf.frames", {
    respond: (respond, _, __, request) =>
      /proto(?!;q=0)/.test(request.headers.get("accept") ?? "")
        ? new Response(new Uint8Array([0, 0, 0, 5, 1]), {
            headers: { "content-type": "application/vnd.ag-ui.event+proto" },
          })
        : respond(),
  }),
  seeded("capabilities of another shape", "capabilities.shape", { capabilities: { transport: { streaming: "yes" } } }),
  seeded(
    "a run id twice in a stream",
    "run.ids",
    during("search", (events, _, { threadId, runId }) => [
      ...events,
      { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" },
      { type: "RUN_FINISHED", threadId, runId },
    ]),
  ),
  seeded("a client's call begun again when its result has come", "tools.result-taken", (events, _, { messages }) => {
    const last = messages.at(-1);
    return last?.role === "tool" ? events.toSpliced(1, 0, ...call(String(last.toolCallId))) : events;
  }),
  seeded("answers refused", "resume.served", {
    respond: (respond, _, body) => (body.includes('"resume"') && !body.includes("Hello.") ? refusal(422) : respond()),
  }),

  // Coming back
  seeded("an answer that is taken anew each time", "resume.replay", { onRejoin: "answer-again" }),
  seeded("a rest without its text", "rejoin.cursor", { onRejoin: "lose-text" }),
  seeded("a replay of the run to who has a part of it", "rejoin.same-run", { onRejoin: "replay" }),
];

function refusal(status: number): Response {
  return new Response("no", { status });
}

/** A body that is read frame by frame, and knows when its reader has gone before the end. */
function slowly(text: string, left: () => void): ReadableStream<Uint8Array> {
  const frames = text.split(/(?<=\n\n)/);
  return new ReadableStream(
    {
      pull(controller) {
        const frame = frames.shift();
        if (frame === undefined) controller.close();
        else controller.enqueue(encoder.encode(frame));
      },
      cancel: left,
    },
    { highWaterMark: 0 },
  );
}

function think(messageId: string): readonly Event[] {
  return [
    { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    { type: "REASONING_MESSAGE_CONTENT", messageId, delta: "Hm." },
    { type: "REASONING_MESSAGE_END", messageId },
  ];
}

const NOBODY = { threadId: "", runId: "", messages: [] };

function call(toolCallId: string): readonly Event[] {
  return [
    { type: "TOOL_CALL_START", toolCallId, toolCallName: "search" },
    { type: "TOOL_CALL_ARGS", toolCallId, delta: "{}" },
    { type: "TOOL_CALL_END", toolCallId },
  ];
}

/** The snapshots that go before an interrupt. */
function snapshots(events: readonly Event[]): readonly Event[] {
  const made = [
    { type: "STATE_SNAPSHOT", snapshot: {} },
    { type: "MESSAGES_SNAPSHOT", messages: messagesOf(events) },
  ];
  return [...events.slice(0, -1), ...made, ...events.slice(-1)];
}
