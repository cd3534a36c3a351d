import * as fc from "fast-check";
import {
  type AGUIEvent,
  type AGUIEventType,
  type EventFields,
  event,
  type Message,
} from "../../src/protocol/events.ts";
import { isJsonObject, type Json, toJson } from "../../src/protocol/json.ts";

/**
 * Random legal AG-UI streams. A random script of moves is played by a small author who knows what is open, so any part of the script may
 * be left out and the rest is still legal: that is what makes the failures shrink. Ids are unique, except where an item is opened again.
 *
 * The author's `#messages` is what a snapshot would carry. It is deliberately not our reducer: the oracle for that is the real client.
 */
export interface LegalStreamOptions {
  /** Runs in one stream, at most; 3 unless told. */
  readonly maxRuns?: number;
  /** Moves in one run, at most; 30 unless told. A move makes up to five events. */
  readonly maxMoves?: number;
  /** Also `*_CHUNK` events; not unless told. */
  readonly chunks?: boolean;
  /** Only what the verifier's strict mode accepts. */
  readonly strict?: boolean;
}

/** The tools that run in the client, by name. */
export const CLIENT_TOOLS: readonly string[] = ["pick_color", "confirm"];

const MOVES = {
  startText: 6,
  reopenText: 1,
  delta: 10,
  startCall: 4,
  startClientCall: 2,
  reopenCall: 1,
  args: 6,
  result: 5,
  startReasoning: 2,
  startReasoningMessage: 3,
  encryptedValue: 1,
  startStep: 2,
  startSubagent: 2,
  end: 8,
  activitySnapshot: 2,
  activityDelta: 2,
  stateSnapshot: 1,
  stateDelta: 4,
  messagesSnapshot: 1,
  takeBack: 1,
  raw: 1,
  custom: 1,
} as const;
const CHUNK_MOVES = { textChunks: 3, callChunks: 3, reasoningChunks: 2 } as const;

type MoveName = keyof typeof MOVES | keyof typeof CHUNK_MOVES;
const ENDINGS = ["success", "plain", "cancelled", "interrupt", "error", "late error"] as const;

interface Move {
  readonly name: MoveName;
  /** Decides among what the move could be made on. */
  readonly pick: number;
  readonly text: string;
  readonly value: Json;
}
interface RunScript {
  readonly moves: readonly Move[];
  readonly ending: (typeof ENDINGS)[number];
  readonly pick: number;
}

/** Random legal streams, as {@link LegalStreamOptions} says. */
export function legalStream(options: LegalStreamOptions = {}): fc.Arbitrary<AGUIEvent[]> {
  const weights = Object.entries({ ...MOVES, ...(options.chunks ? CHUNK_MOVES : {}) }) as [MoveName, number][];
  const move: fc.Arbitrary<Move> = fc.record({
    name: fc.oneof(...weights.map(([name, weight]) => ({ arbitrary: fc.constant(name), weight }))),
    pick: fc.nat(10_000),
    text: fc.string({ unit: "grapheme", maxLength: 12 }),
    value: fc
      .json({ maxDepth: 2 })
      .filter((text) => !text.includes('"__proto__"'))
      .map((text) => toJson(JSON.parse(text))),
  });
  const run: fc.Arbitrary<RunScript> = fc.record({
    moves: fc.array(move, { maxLength: options.maxMoves ?? 30, size: "max" }),
    ending: fc.constantFrom(...ENDINGS.filter((ending) => !options.strict || ending !== "late error")),
    pick: fc.nat(10_000),
  });
  return fc
    .array(run, { minLength: 1, maxLength: options.maxRuns ?? 3, size: "max" })
    .map((scripts) => new Author(options.strict === true).play(scripts));
}

interface Open {
  readonly kind: "text" | "call" | "reasoning" | "span" | "step" | "subagent";
  readonly id: string;
  readonly owner: string | undefined;
  /** Arguments that are still to be streamed. */
  rest: string[];
}
interface Call {
  readonly id: string;
  readonly name: string;
  readonly client: boolean;
  readonly run: number;
  readonly owner: string | undefined;
  readonly parent: string | undefined;
}

class Author {
  readonly #events: AGUIEvent[] = [];
  readonly #strict: boolean;
  #ids = 0;
  #run = 0;
  #open: Open[] = [];
  /** Closed and without a result; they may be answered. */
  #waiting: Call[] = [];
  /** Closed text messages of this run, with their owners. */
  #closedTexts: { id: string; owner: string | undefined }[] = [];
  /** Closed calls of this run with empty arguments: opening them again leaves whole JSON. */
  #closedEmptyCalls: Call[] = [];
  readonly #calls = new Map<string, Call>();
  /** Taken back in this run: the same id may be started again. */
  #takenBack: Open[] = [];
  #subagents: string[] = [];
  #activities: { id: string; type: string; owner: string | undefined }[] = [];
  /** Members of the state, or undefined when the state is not an object. */
  #state: Map<string, Json> | undefined = new Map();
  #messages: Message[] = [];

  constructor(strict: boolean) {
    this.#strict = strict;
  }

  play(scripts: readonly RunScript[]): AGUIEvent[] {
    for (const script of scripts) {
      this.#begin(script);
      for (const move of script.moves) this.#make(move);
      this.#finish(script);
    }
    return this.#events;
  }

  #emit<T extends AGUIEventType>(type: T, fields: EventFields<T>): void {
    this.#events.push(event(type, fields));
  }

  #id(prefix: string): string {
    this.#ids += 1;
    return `${prefix}${this.#ids}`;
  }

  #begin({ pick }: RunScript): void {
    this.#run += 1;
    this.#closedTexts = [];
    this.#closedEmptyCalls = [];
    this.#takenBack = [];
    this.#subagents = [];
    const runId = `run${this.#run}`;
    const protocolVersion = this.#strict || pick % 3 > 0 ? "1.0" : undefined;
    if (pick % 2 === 0) {
      this.#emit("RUN_STARTED", { threadId: "thread", runId, protocolVersion });
      return;
    }
    // The request adds a user message and answers what earlier runs left to the client.
    const answered = this.#waiting.filter((call) => call.client);
    const added: Message[] = [
      { id: this.#id("user"), role: "user", content: "hello" },
      ...answered.map(
        (call): Message => ({
          id: this.#id("answer"),
          role: "tool",
          toolCallId: call.id,
          content: "from the client",
        }),
      ),
    ];
    this.#waiting = this.#waiting.filter((call) => !call.client);
    this.#messages.push(...added);
    this.#emit("RUN_STARTED", {
      threadId: "thread",
      runId,
      protocolVersion,
      input: { threadId: "thread", runId, messages: added, tools: [], context: [] },
    });
  }

  #finish({ ending, pick }: RunScript): void {
    if (ending === "error" && !this.#strict && pick % 2 === 0) {
      // A run that broke: what was open is neither closed nor ever answered.
      this.#open = [];
      this.#emit("RUN_ERROR", { message: "broken", code: pick % 3 === 0 ? "BROKEN" : undefined });
      return;
    }
    while (this.#open.length > 0) this.#close(this.#open.length - 1);
    const runId = `run${this.#run}`;
    const usage = pick % 5 === 0 ? [{ provider: "p", model: "m", inputTokens: pick }] : undefined;
    switch (ending) {
      case "error":
        this.#emit("RUN_ERROR", { message: "failed", usage });
        return;
      case "cancelled":
        this.#emit("RUN_FINISHED", { threadId: "thread", runId, outcome: { type: "cancelled" }, usage });
        return;
      case "interrupt": {
        this.#emit("STATE_SNAPSHOT", { snapshot: this.#state === undefined ? null : Object.fromEntries(this.#state) });
        this.#snapshot(pick);
        const call = at(this.#waiting, pick);
        const interrupts = [
          { id: this.#id("interrupt"), reason: "tool_call", toolCallId: call?.id, message: "May I?" },
          { id: this.#id("interrupt"), reason: "input_required", responseSchema: { type: "boolean" } },
        ];
        const listed = pick % 2 === 0 ? interrupts : interrupts.slice(0, 1);
        this.#emit("RUN_FINISHED", { threadId: "thread", runId, outcome: { type: "interrupt", interrupts: listed } });
        return;
      }
      default:
        if (this.#strict) this.#answerAll();
        this.#emit("RUN_FINISHED", {
          threadId: "thread",
          runId,
          result: pick % 4 === 0 ? { pick } : undefined,
          outcome: this.#strict || ending === "success" ? this.#success() : undefined,
          usage,
        });
        if (ending === "late error") this.#emit("RUN_ERROR", { message: "late" });
    }
  }

  #success() {
    const pending = this.#waiting.filter((call) => call.client && call.run === this.#run).map((call) => call.id);
    return { type: "success" as const, pendingToolCallIds: pending.length > 0 ? pending : undefined };
  }

  #answerAll(): void {
    for (const call of this.#waiting.filter((waiting) => waiting.run === this.#run && !waiting.client)) {
      this.#answer(call, 0, "ok");
    }
  }

  #make(move: Move): void {
    const { pick, text, value } = move;
    switch (move.name) {
      case "startText":
        this.#startText(pick);
        return;
      case "reopenText": {
        const closed = at(this.#closedTexts, pick);
        if (closed === undefined || this.#isOpen("text", closed.id)) return;
        this.#emit("TEXT_MESSAGE_START", { messageId: closed.id, role: "assistant" });
        this.#open.push({ kind: "text", ...closed, rest: [] });
        return;
      }
      case "delta":
        this.#delta(pick, text);
        return;
      case "startCall":
        this.#startCall(at(["search", "book"], pick) ?? "search", false, pick, value);
        return;
      case "startClientCall":
        this.#startCall(at(CLIENT_TOOLS, pick) ?? "confirm", true, pick, value);
        return;
      case "reopenCall": {
        const call = at(this.#closedEmptyCalls, pick);
        if (call === undefined || this.#isOpen("call", call.id) || !this.#waiting.includes(call)) return;
        this.#waiting = this.#waiting.filter((waiting) => waiting !== call);
        this.#closedEmptyCalls = this.#closedEmptyCalls.filter((closed) => closed !== call);
        this.#emit("TOOL_CALL_START", { toolCallId: call.id, toolCallName: call.name, parentMessageId: call.parent });
        this.#open.push({ kind: "call", id: call.id, owner: call.owner, rest: [JSON.stringify({ value })] });
        return;
      }
      case "args": {
        const call = at(
          this.#open.filter((item) => item.kind === "call" && item.rest.length > 0),
          pick,
        );
        if (call !== undefined) this.#args(call, pick);
        return;
      }
      case "result": {
        const call = at(
          this.#waiting.filter((waiting) => !waiting.client || waiting.run < this.#run),
          pick,
        );
        if (call !== undefined) this.#answer(call, pick, text);
        return;
      }
      case "startReasoning": {
        const item: Open = { kind: "span", id: this.#id("reasoning"), owner: this.#owner(pick), rest: [] };
        this.#emit("REASONING_START", { messageId: item.id, subagentRunId: item.owner });
        this.#open.push(item);
        return;
      }
      case "startReasoningMessage":
        this.#startReasoningMessage(pick);
        return;
      case "encryptedValue": {
        const item = at(
          this.#open.filter((open) => open.kind === "reasoning" || open.kind === "call"),
          pick,
        );
        if (item === undefined) return;
        const subtype = item.kind === "call" ? "tool-call" : "message";
        this.#emit("REASONING_ENCRYPTED_VALUE", { subtype, entityId: item.id, encryptedValue: text });
        return;
      }
      case "startStep": {
        const owner = this.#owner(pick);
        const id = pick % 2 === 0 ? this.#id("step") : "plan";
        if (this.#open.some((item) => item.kind === "step" && item.id === id && item.owner === owner)) return;
        this.#emit("STEP_STARTED", { stepName: id, subagentRunId: owner });
        this.#open.push({ kind: "step", id, owner, rest: [] });
        return;
      }
      case "startSubagent": {
        const id = this.#id("subagent");
        const parentSubagentRunId = pick % 2 === 0 ? at(this.#subagents, pick) : undefined;
        const announced = {
          description: pick % 3 === 0 ? "helps" : undefined,
          parentToolCallId: pick % 5 === 0 ? at([...this.#calls.keys()], pick) : undefined,
          metadata: pick % 7 === 0 ? { pick } : undefined,
        };
        this.#emit("SUBAGENT_STARTED", { subagentRunId: id, name: "helper", parentSubagentRunId, ...announced });
        this.#subagents.push(id);
        this.#open.push({ kind: "subagent", id, owner: undefined, rest: [] });
        return;
      }
      case "end":
        if (this.#open.length > 0) this.#close(pick % this.#open.length);
        return;
      case "activitySnapshot":
        this.#activitySnapshot(pick, value);
        return;
      case "activityDelta": {
        const activity = at(this.#activities, pick);
        if (activity === undefined) return;
        this.#emit("ACTIVITY_DELTA", {
          messageId: activity.id,
          activityType: activity.type,
          patch: [
            { op: "add", path: "/items/-", value },
            { op: "replace", path: "/last", value: pick },
          ],
          subagentRunId: activity.owner,
        });
        return;
      }
      case "stateSnapshot": {
        this.#state = isJsonObject(value) ? new Map(Object.entries(value)) : undefined;
        this.#emit("STATE_SNAPSHOT", { snapshot: value, subagentRunId: this.#owner(pick) });
        return;
      }
      case "stateDelta":
        this.#stateDelta(pick, value);
        return;
      case "messagesSnapshot":
        this.#snapshot(pick);
        return;
      case "takeBack":
        this.#takeBack(pick);
        return;
      case "raw":
        this.#emit("RAW", { event: value, source: pick % 2 === 0 ? "provider" : undefined });
        return;
      case "custom":
        this.#emit("CUSTOM", { name: "perdure.test", value, subagentRunId: this.#owner(pick) });
        return;
      case "textChunks": {
        const [messageId, subagentRunId] = [this.#id("chunked"), this.#owner(pick)];
        const role = pick % 3 === 0 ? ("assistant" as const) : undefined;
        this.#emit("TEXT_MESSAGE_CHUNK", { messageId, role, delta: text, subagentRunId });
        if (pick % 2 === 0) this.#emit("TEXT_MESSAGE_CHUNK", { delta: text, subagentRunId });
        if (pick % 4 === 0) this.#emit("TEXT_MESSAGE_CHUNK", { messageId, delta: text });
        this.#messages.push({
          id: messageId,
          role: "assistant",
          content: text.repeat(pick % 4 === 0 ? 3 : pick % 2 === 0 ? 2 : 1),
          ...owned(subagentRunId),
        });
        return;
      }
      case "callChunks": {
        const [toolCallId, subagentRunId] = [this.#id("chunkedCall"), this.#owner(pick)];
        const pieces = cut(JSON.stringify({ value }), pick);
        const call: Call = {
          id: toolCallId,
          name: "search",
          client: false,
          run: this.#run,
          owner: subagentRunId,
          parent: undefined,
        };
        for (const [i, delta] of pieces.entries()) {
          const fields = i === 0 ? { toolCallId, toolCallName: "search", delta } : { delta };
          this.#emit("TOOL_CALL_CHUNK", { ...fields, subagentRunId });
        }
        this.#attach(call);
        for (const delta of pieces) this.#appendArgs(toolCallId, delta);
        this.#waiting.push(call);
        return;
      }
      case "reasoningChunks": {
        const [messageId, subagentRunId] = [this.#id("chunkedReasoning"), this.#owner(pick)];
        this.#emit("REASONING_MESSAGE_CHUNK", { messageId, delta: text, subagentRunId });
        if (pick % 2 === 0) this.#emit("REASONING_MESSAGE_CHUNK", { delta: text, subagentRunId });
        this.#messages.push({
          id: messageId,
          role: "reasoning",
          content: text.repeat(pick % 2 === 0 ? 2 : 1),
          ...owned(subagentRunId),
        });
        return;
      }
      default:
        move.name satisfies never;
    }
  }

  /** Whose work the next item is: the parent agent's, an open subagent's, or one's that was never announced. */
  #owner(pick: number): string | undefined {
    if (pick % 3 > 0) return undefined;
    if (pick % 7 === 0) return "unannounced";
    return at(
      this.#open.filter((item) => item.kind === "subagent"),
      pick,
    )?.id;
  }

  /** An item's later events may repeat its owner, or leave it out. */
  #repeat(item: { owner: string | undefined }, pick: number): string | undefined {
    return pick % 2 === 0 ? item.owner : undefined;
  }

  #isOpen(kind: Open["kind"], id: string): boolean {
    return this.#open.some((item) => item.kind === kind && item.id === id);
  }

  #startText(pick: number): void {
    const again = pick % 2 === 0 ? this.#again("text", pick) : undefined;
    const item = again ?? { kind: "text" as const, id: this.#id("text"), owner: this.#owner(pick), rest: [] };
    const role = at([undefined, "assistant", "assistant", "system", "user"] as const, pick);
    const name = pick % 5 === 0 ? "narrator" : undefined;
    this.#emit("TEXT_MESSAGE_START", { messageId: item.id, role, name, subagentRunId: item.owner });
    this.#open.push({ ...item });
    this.#messages.push({
      id: item.id,
      role: role ?? "assistant",
      content: "",
      ...(name === undefined ? {} : { name }),
      ...owned(item.owner),
    });
  }

  #startReasoningMessage(pick: number): void {
    // Often inside a span, and then often under the span's own id, as producers do.
    const span = at(
      this.#open.filter((item) => item.kind === "span"),
      pick,
    );
    const shared = span !== undefined && pick % 2 === 0 && !this.#isOpen("reasoning", span.id) ? span : undefined;
    const item: Open = {
      kind: "reasoning",
      id: shared?.id ?? this.#id("reasoning"),
      owner: shared === undefined ? this.#owner(pick) : shared.owner,
      rest: [],
    };
    this.#emit("REASONING_MESSAGE_START", { messageId: item.id, role: "reasoning", subagentRunId: item.owner });
    this.#open.push(item);
    if (!this.#messages.some((message) => message.id === item.id)) {
      this.#messages.push({ id: item.id, role: "reasoning", content: "", ...owned(item.owner) });
    }
  }

  #again(kind: Open["kind"], pick: number): Open | undefined {
    const item = at(
      this.#takenBack.filter((taken) => taken.kind === kind),
      pick,
    );
    if (item !== undefined) this.#takenBack = this.#takenBack.filter((taken) => taken !== item);
    return item;
  }

  #delta(pick: number, text: string): void {
    const item = at(
      this.#open.filter((open) => open.kind === "text" || open.kind === "reasoning"),
      pick,
    );
    if (item === undefined) return;
    const type = item.kind === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT";
    this.#emit(type, { messageId: item.id, delta: text, subagentRunId: this.#repeat(item, pick) });
    this.#messages = this.#messages.map((message) =>
      message.id === item.id && typeof message.content === "string"
        ? ({ ...message, content: message.content + text } as Message)
        : message,
    );
  }

  #startCall(name: string, client: boolean, pick: number, value: Json): void {
    const again = pick % 2 === 0 ? this.#again("call", pick) : undefined;
    const known = again === undefined ? undefined : this.#calls.get(again.id);
    // A call belongs to the message that carries it: under an owned parent it has the parent's owner.
    const texts = this.#open.filter((item) => item.kind === "text");
    const parent =
      pick % 3 === 0
        ? at(
            texts.filter((item) => this.#roleOf(item.id) === "assistant"),
            pick,
          )
        : undefined;
    const owner = parent === undefined ? this.#owner(pick) : parent.owner;
    const call: Call =
      known !== undefined && known.parent === undefined
        ? { ...known, run: this.#run }
        : {
            id: this.#id("call"),
            name,
            client,
            run: this.#run,
            owner,
            parent: parent?.id ?? (pick % 5 === 0 ? this.#id("carrier") : undefined),
          };
    this.#emit("TOOL_CALL_START", {
      toolCallId: call.id,
      toolCallName: call.name,
      parentMessageId: call.parent,
      subagentRunId: parent === undefined ? call.owner : this.#repeat(call, pick),
    });
    this.#attach(call);
    const rest = pick % 6 === 0 ? [] : cut(JSON.stringify({ value }), pick);
    this.#open.push({ kind: "call", id: call.id, owner: call.owner, rest });
  }

  #roleOf(id: string): string | undefined {
    return this.#messages.find((message) => message.id === id)?.role;
  }

  #attach(call: Call): void {
    this.#calls.set(call.id, call);
    const carrier = call.parent ?? call.id;
    const toolCall = { id: call.id, type: "function" as const, function: { name: call.name, arguments: "" } };
    if (!this.#messages.some((message) => message.id === carrier)) {
      this.#messages.push({ id: carrier, role: "assistant", toolCalls: [toolCall], ...owned(call.owner) });
      return;
    }
    this.#messages = this.#messages.map((message) =>
      message.id === carrier && message.role === "assistant"
        ? { ...message, toolCalls: [...(message.toolCalls ?? []), toolCall] }
        : message,
    );
  }

  #appendArgs(id: string, delta: string): void {
    this.#messages = this.#messages.map((message) => {
      if (message.role !== "assistant" || !message.toolCalls?.some((call) => call.id === id)) return message;
      const toolCalls = message.toolCalls.map((call) =>
        call.id === id ? { ...call, function: { ...call.function, arguments: call.function.arguments + delta } } : call,
      );
      return { ...message, toolCalls };
    });
  }

  #args(item: Open, pick: number): void {
    const delta = item.rest.shift() ?? "";
    this.#emit("TOOL_CALL_ARGS", { toolCallId: item.id, delta, subagentRunId: this.#repeat(item, pick) });
    this.#appendArgs(item.id, delta);
  }

  #answer(call: Call, pick: number, text: string): void {
    this.#waiting = this.#waiting.filter((waiting) => waiting !== call);
    const messageId = this.#id("result");
    const content =
      pick % 3 === 0
        ? [
            { type: "text" as const, text },
            { type: "image" as const, source: { type: "url" as const, value: "https://example.test/a.png" } },
          ]
        : text;
    const role = pick % 2 === 0 ? ("tool" as const) : undefined;
    this.#emit("TOOL_CALL_RESULT", { messageId, toolCallId: call.id, content, role });
    this.#messages.push({ id: messageId, role: "tool", toolCallId: call.id, content });
  }

  #close(index: number): void {
    const item = this.#open[index];
    if (item === undefined) return;
    if (item.kind === "call") while (item.rest.length > 0) this.#args(item, index);
    this.#open.splice(index, 1);
    const subagentRunId = this.#repeat(item, index);
    switch (item.kind) {
      case "text":
        this.#closedTexts.push({ id: item.id, owner: item.owner });
        this.#emit("TEXT_MESSAGE_END", { messageId: item.id, subagentRunId });
        return;
      case "call": {
        this.#emit("TOOL_CALL_END", { toolCallId: item.id, subagentRunId });
        const call = this.#calls.get(item.id);
        if (call === undefined) return;
        this.#waiting.push(call);
        const isEmpty = this.#messages.some(
          (message) =>
            message.role === "assistant" &&
            message.toolCalls?.some((made) => made.id === call.id && made.function.arguments === ""),
        );
        if (isEmpty) this.#closedEmptyCalls.push(call);
        return;
      }
      case "reasoning":
        this.#emit("REASONING_MESSAGE_END", { messageId: item.id, subagentRunId });
        return;
      case "span":
        this.#emit("REASONING_END", { messageId: item.id, subagentRunId });
        return;
      case "step":
        this.#emit("STEP_FINISHED", { stepName: item.id, subagentRunId: item.owner });
        return;
      case "subagent":
        if (index % 4 === 0) this.#emit("SUBAGENT_FINISHED", { subagentRunId: item.id });
        else if (index % 4 === 2) {
          const outcome = { type: index % 8 === 2 ? ("success" as const) : ("suspended" as const) };
          this.#emit("SUBAGENT_FINISHED", { subagentRunId: item.id, result: { index }, outcome });
        } else this.#emit("SUBAGENT_ERROR", { subagentRunId: item.id, message: "failed" });
        return;
      default:
        item.kind satisfies never;
    }
  }

  #activitySnapshot(pick: number, value: Json): void {
    const known = pick % 2 === 0 ? at(this.#activities, pick) : undefined;
    const activity = known ?? { id: this.#id("activity"), type: "PLAN", owner: this.#owner(pick) };
    const content = { items: [value], last: pick };
    const replace = pick % 3 === 0 ? pick % 2 === 1 : undefined;
    this.#emit("ACTIVITY_SNAPSHOT", {
      messageId: activity.id,
      activityType: activity.type,
      content,
      replace,
      subagentRunId: activity.owner,
    });
    if (known === undefined) this.#activities.push(activity);
    const message: Message = {
      id: activity.id,
      role: "activity",
      activityType: activity.type,
      content,
      ...owned(activity.owner),
    };
    this.#messages = [...this.#messages.filter((other) => other.id !== activity.id), message];
  }

  #stateDelta(pick: number, value: Json): void {
    if (this.#state === undefined) {
      this.#state = new Map([["fresh", value]]);
      this.#emit("STATE_DELTA", { delta: [{ op: "replace", path: "", value: { fresh: value } }] });
      return;
    }
    const state = this.#state;
    const key = at([...state.keys()], pick);
    const added = at(["a", "b", "a/b", "m~n", ""], pick) ?? "a";
    state.set(added, value);
    const delta: EventFields<"STATE_DELTA">["delta"][number][] = [{ op: "add", path: pointer(added), value }];
    if (key !== undefined && key !== added) {
      if (pick % 3 === 0) {
        delta.push({ op: "replace", path: pointer(key), value: pick });
        state.set(key, pick);
      } else if (pick % 3 === 1) {
        delta.push({ op: "test", path: pointer(added), value }, { op: "remove", path: pointer(key) });
        state.delete(key);
      } else {
        delta.push({ op: "copy", from: pointer(added), path: pointer(key) });
        state.set(key, value);
      }
    }
    this.#emit("STATE_DELTA", { delta });
  }

  /** A snapshot of everything; at times without reasoning and activities, which clients then keep as they are. */
  #snapshot(pick: number): void {
    const bare = pick % 3 === 0;
    const messages = this.#messages.filter(
      (message) => !bare || (message.role !== "reasoning" && message.role !== "activity"),
    );
    this.#emit("MESSAGES_SNAPSHOT", { messages });
  }

  /** Takes back an open text or call as an interrupted attempt does: a snapshot without it, then its END, whatever it holds. */
  #takeBack(pick: number): void {
    const item = at(
      this.#open.filter((open) => open.kind === "text" || open.kind === "call"),
      pick,
    );
    if (item === undefined) return;
    const call = this.#calls.get(item.id);
    const carries = (id: string) =>
      [...this.#calls.values()].some(
        (other) => other.parent === id && (this.#isOpen("call", other.id) || this.#waiting.includes(other)),
      );
    // A message that carries calls stays, or its calls would go with it.
    if (item.kind === "text" && carries(item.id)) return;
    this.#messages = this.#messages.flatMap((message): Message[] => {
      if (item.kind === "text") return message.id === item.id ? [] : [message];
      if (message.role !== "assistant" || !message.toolCalls?.some((made) => made.id === item.id)) return [message];
      const { toolCalls, ...rest } = message;
      const kept = toolCalls.filter((made) => made.id !== item.id);
      if (kept.length > 0) return [{ ...rest, toolCalls: kept }];
      return message.content === undefined ? [] : [rest];
    });
    this.#snapshot(pick * 3 + 1);
    this.#open = this.#open.filter((open) => open !== item);
    this.#closedTexts = this.#closedTexts.filter((closed) => closed.id !== item.id);
    if (item.kind === "text") this.#emit("TEXT_MESSAGE_END", { messageId: item.id });
    else this.#emit("TOOL_CALL_END", { toolCallId: item.id });
    if (item.kind === "text" || call?.parent === undefined) this.#takenBack.push({ ...item, rest: [] });
  }
}

function at<T>(items: readonly T[], pick: number): T | undefined {
  return items[pick % items.length];
}

function owned(subagentRunId: string | undefined): { subagentRunId?: string } {
  return subagentRunId === undefined ? {} : { subagentRunId };
}

function pointer(key: string): string {
  return `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** The text in one to three pieces. */
function cut(text: string, pick: number): string[] {
  const middle = pick % text.length;
  return [text.slice(0, middle), text.slice(middle, middle + 2), text.slice(middle + 2)].filter(
    (piece) => piece !== "",
  );
}
