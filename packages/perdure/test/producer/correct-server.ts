/**
 * A small AG-UI server that is right, written by hand and without anything of Perdure's, so that each fault can be put into it alone. It has a
 * script in place of a model: what the user says last decides.
 */
import { RunAgentInputSchema } from "@ag-ui/core/schemas";

export interface Event {
  readonly type: string;
  readonly [member: string]: unknown;
}
interface Message {
  readonly id: string;
  readonly role: string;
  readonly [member: string]: unknown;
}
export interface Input {
  readonly threadId: string;
  readonly runId: string;
  readonly messages: readonly Message[];
  readonly tools?: readonly { readonly name: string }[];
  readonly state?: unknown;
  readonly protocolVersion?: string;
  readonly resume?: readonly { readonly interruptId: string; readonly status: string; readonly payload?: unknown }[];
}

/** Which way the script has gone. */
export type Scene = "hello" | "search" | "client" | "approval" | "resumed" | "refused";

/** A place where a server can be wrong. What is left out is right. */
export interface Fault {
  readonly events?: (events: readonly Event[], scene: Scene, input: Input) => readonly Event[];
  readonly body?: (text: string, scene: Scene, input: Input) => string | Uint8Array<ArrayBuffer>;
  readonly headers?: (request: Request) => Readonly<Record<string, string>>;
  /** In place of refusing what is malformed. */
  readonly onMalformed?: (problem: string, body: string) => Response | undefined;
  readonly onWrongType?: "serve";
  readonly capabilities?: object;
  /** In place of what is open in the thread. */
  readonly onUncovered?: "ignore";
  readonly onUnknownInterrupt?: "refuse";
  readonly onWrongAnswer?: "take";
  /** To who comes back: all of it again; for one who answers again, another run; of what is left, no text. */
  readonly onRejoin?: "replay" | "answer-again" | "lose-text";
  readonly interruptsOf?: "everybody";
  readonly respond?: (
    respond: () => Response,
    input: Input,
    body: string,
    request: Request,
  ) => Response | Promise<Response>;
}

interface Call {
  readonly id: string;
  readonly interrupt: string;
}

const HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};
const SCHEMA = { type: "object", properties: { approved: { type: "boolean" } }, required: ["approved"] };

/** Makes a server with one fault, or with none. */
export function smallServer(fault: Fault = {}): (request: Request) => Promise<Response> {
  /** Open questions, by thread. */
  const open = new Map<string, readonly Call[]>();
  /** What a run has sent, by thread and run. */
  const runs = new Map<string, { readonly input: Input; readonly events: readonly Event[] }>();
  let ids = 0;
  const id = (kind: string): string => `${kind}-${++ids}`;

  return async (request) => {
    if (request.method === "GET")
      return Response.json(fault.capabilities ?? { transport: { streaming: true, resumable: true } });
    if (fault.onWrongType !== "serve" && !/^application\/json/.test(request.headers.get("content-type") ?? "")) {
      return new Response("send application/json", { status: 415 });
    }
    const body = await request.text();
    const input = parse(body);
    if (typeof input === "string") return fault.onMalformed?.(input, body) ?? new Response(input, { status: 400 });
    const respond = (): Response => answer(input, request);
    return fault.respond?.(respond, input, body, request) ?? respond();
  };

  function answer(input: Input, request: Request): Response {
    const key = `${input.threadId} ${input.runId}`;
    const before = runs.get(key);
    const isForgotten = fault.onRejoin === "answer-again" && input.resume !== undefined;
    if (before !== undefined && !isForgotten) {
      const cursor = Number(request.headers.get("last-event-id") ?? 0);
      const rest = before.events.slice(cursor);
      const left = fault.onRejoin === "lose-text" ? rest.filter(({ type }) => type !== "TEXT_MESSAGE_CONTENT") : rest;
      if (cursor > 0) return send(left, "hello", input, request, cursor);
      return send(fault.onRejoin === "replay" ? before.events : shown(before), "hello", input, request);
    }
    const { threadId } = input;
    const own = open.get(threadId) ?? [];
    const questions = fault.interruptsOf === "everybody" ? [...open.values()].flat() : own;
    const resume = input.resume ?? [];
    const answered = questions.filter(({ interrupt }) => resume.some(({ interruptId }) => interruptId === interrupt));
    if (fault.onUnknownInterrupt === "refuse" && resume.length > answered.length)
      return new Response("no such interrupt", { status: 404 });
    if (own.some((call) => !answered.includes(call)) && fault.onUncovered !== "ignore") {
      return new Response("interrupts are open", { status: 409 });
    }
    const wrong = resume.some(
      ({ payload, status }) =>
        status === "resolved" && typeof (payload as { approved?: unknown })?.approved !== "boolean",
    );
    if (answered.length > 0 && wrong && fault.onWrongAnswer !== "take")
      return new Response("the answer breaks its schema", { status: 422 });
    const [scene, made] = play(input, answered);
    const events = fault.events?.(made, scene, input) ?? made;
    runs.set(key, { input, events });
    return send(events, scene, input, request);
  }

  function send(events: readonly Event[], scene: Scene, input: Input, request: Request, from = 0): Response {
    const frames = events.map((event, i) => `id: ${from + i + 1}\ndata: ${JSON.stringify(event)}\n\n`);
    const text = `: hello\n\n${frames.join("")}`;
    return new Response(fault.body?.(text, scene, input) ?? text, {
      headers: { ...HEADERS, ...fault.headers?.(request) },
    });
  }

  /** A run that was sent, for whoever has a part of it or nothing: as snapshots. */
  function shown({ input, events }: { readonly input: Input; readonly events: readonly Event[] }): readonly Event[] {
    const begin = events.find(({ type }) => type === "RUN_STARTED");
    const end = events.find(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
    const rest = events.filter((event) => event !== begin && event !== end);
    if (begin === undefined) return [];
    const messages = input.messages.concat(messagesOf(rest));
    const snapshot = stateOf(rest);
    return [begin, { type: "MESSAGES_SNAPSHOT", messages }, ...[snapshot, end].flatMap((event) => event ?? [])];
  }

  function play(input: Input, answered: readonly Call[]): [Scene, readonly Event[]] {
    const { threadId, runId, messages, tools = [] } = input;
    const last = messages.at(-1);
    const text = JSON.stringify(last?.content ?? "");
    const run = (events: readonly Event[], outcome: object = { type: "success" }): readonly Event[] => [
      { type: "RUN_STARTED", threadId, runId, protocolVersion: "1.0" },
      ...events,
      {
        type: "RUN_FINISHED",
        threadId,
        runId,
        outcome,
        usage: [{ model: "script", inputTokens: 3, outputTokens: 4, totalTokens: 7 }],
      },
    ];
    if (answered.length > 0) {
      open.delete(threadId);
      const results = answered.map((call) => ({
        type: "TOOL_CALL_RESULT",
        messageId: id("result"),
        toolCallId: call.id,
        content: "paid",
      }));
      return ["resumed", run([...results, ...say("Paid.")])];
    }
    const isUsers = last?.role === "user";
    if (isUsers && text.includes("get_location") && tools.some(({ name }) => name === "get_location")) {
      const call = id("call");
      return ["client", run(makeCall(call, "get_location", "{}"), { type: "success", pendingToolCallIds: [call] })];
    }
    if (isUsers && text.includes("search")) return ["search", run(search(input))];
    if (isUsers && text.includes("pay")) return ["approval", approval(input, run)];
    return ["hello", run([...think("Who is this?"), ...say("Hello to you.")])];
  }

  function say(text: string): readonly Event[] {
    const messageId = id("message");
    return [
      { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
      ...[text.slice(0, 4), text.slice(4)].map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
      { type: "TEXT_MESSAGE_END", messageId },
    ];
  }

  function think(delta: string): readonly Event[] {
    const messageId = id("reasoning");
    return [
      { type: "REASONING_START", messageId },
      { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId, delta },
      { type: "REASONING_MESSAGE_END", messageId },
      { type: "REASONING_END", messageId },
    ];
  }

  function search({ messages, state }: Input): readonly Event[] {
    const call = id("call");
    const activity = id("activity");
    const found = typeof state === "object" && state !== null && "found" in state;
    const events = [
      { type: "STEP_STARTED", stepName: "search" },
      { type: "STATE_DELTA", delta: [{ op: found ? "replace" : "add", path: "/found", value: 0 }] },
      { type: "ACTIVITY_SNAPSHOT", messageId: activity, activityType: "progress", content: { done: 0 } },
      ...makeCall(call, "search", '{"for":"it"}'),
      {
        type: "ACTIVITY_DELTA",
        messageId: activity,
        activityType: "progress",
        patch: [{ op: "replace", path: "/done", value: 1 }],
      },
      { type: "TOOL_CALL_RESULT", messageId: id("result"), toolCallId: call, content: '{"hits":1}' },
      { type: "STATE_SNAPSHOT", snapshot: { found: 1, list: ["a"] } },
      { type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: "b" }] },
      ...say("One."),
      { type: "STEP_FINISHED", stepName: "search" },
    ];
    // The activities of earlier turns are the client's alone, so the snapshot says nothing of any.
    const own = messagesOf(events).filter(({ role }) => role !== "activity");
    return [...events, { type: "MESSAGES_SNAPSHOT", messages: [...messages, ...own] }];
  }

  function approval(
    input: Input,
    run: (events: readonly Event[], outcome: object) => readonly Event[],
  ): readonly Event[] {
    const calls = ["a", "b"].map(() => ({ id: id("call"), interrupt: id("interrupt") }));
    open.set(input.threadId, calls);
    const events = calls.flatMap((call) => makeCall(call.id, "pay", '{"cents":5}'));
    const interrupts = calls.map((call) => ({
      id: call.interrupt,
      reason: "tool_call",
      toolCallId: call.id,
      responseSchema: SCHEMA,
    }));
    return run(
      [
        ...events,
        { type: "STATE_SNAPSHOT", snapshot: input.state ?? {} },
        { type: "MESSAGES_SNAPSHOT", messages: [...input.messages, ...messagesOf(events)] },
      ],
      { type: "interrupt", interrupts },
    );
  }
}

function makeCall(toolCallId: string, toolCallName: string, args: string): readonly Event[] {
  return [
    { type: "TOOL_CALL_START", toolCallId, toolCallName },
    ...[args.slice(0, 1), args.slice(1)].map((delta) => ({ type: "TOOL_CALL_ARGS", toolCallId, delta })),
    { type: "TOOL_CALL_END", toolCallId },
  ];
}

/** The messages that events make, whole ones only. */
export function messagesOf(events: readonly Event[]): readonly Message[] {
  const deltas = (name: string, of: unknown): string =>
    events.flatMap((event) => (event[name] === of && typeof event.delta === "string" ? [event.delta] : [])).join("");
  return events.flatMap((event): Message[] => {
    const { messageId, toolCallId } = event;
    switch (event.type) {
      case "TEXT_MESSAGE_START":
        return [{ id: String(messageId), role: "assistant", content: deltas("messageId", messageId) }];
      case "REASONING_MESSAGE_START":
        return [{ id: String(messageId), role: "reasoning", content: deltas("messageId", messageId) }];
      case "TOOL_CALL_START": {
        const made = { name: event.toolCallName, arguments: deltas("toolCallId", toolCallId) };
        return [
          {
            id: String(toolCallId),
            role: "assistant",
            toolCalls: [{ id: toolCallId, type: "function", function: made }],
          },
        ];
      }
      case "TOOL_CALL_RESULT":
        return [{ id: String(messageId), role: "tool", toolCallId, content: event.content }];
      case "ACTIVITY_SNAPSHOT": {
        const isDone = events.some(({ type }) => type === "ACTIVITY_DELTA");
        const content = isDone ? { done: 1 } : event.content;
        return [{ id: String(messageId), role: "activity", activityType: event.activityType, content }];
      }
      default:
        return [];
    }
  });
}

/** The last snapshot, with what was added to it; undefined where there is none. */
function stateOf(events: readonly Event[]): Event | undefined {
  const at = events.findLastIndex(({ type }) => type === "STATE_SNAPSHOT");
  const snapshot = events[at];
  if (snapshot === undefined) return undefined;
  const added = events
    .slice(at)
    .flatMap(({ delta }) => (Array.isArray(delta) ? (delta as readonly { readonly value: unknown }[]) : []));
  if (added.length === 0) return snapshot;
  const { list, ...rest } = snapshot.snapshot as { readonly list: readonly unknown[] };
  return { ...snapshot, snapshot: { ...rest, list: [...list, ...added.map(({ value }) => value)] } };
}

/** A request's input, or what is wrong with it. */
function parse(text: string): Input | string {
  try {
    const read = RunAgentInputSchema.safeParse(JSON.parse(text));
    return read.success ? (read.data as unknown as Input) : (read.error.issues[0]?.message ?? "malformed");
  } catch (error) {
    return String(error);
  }
}
