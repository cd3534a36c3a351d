/**
 * What a client holds after an event: messages, state, open interrupts. It follows the merge rules of `@ag-ui/client` 1.0.0
 * (`defaultApplyEvents`), also where they are odd, because snapshots, preludes and expected transcripts are only right if they are what a
 * client will really have. Whether an event may come at all is the verifier's business: an event that names nothing known changes nothing.
 *
 * 1. Pure: what is handed in is never changed, what is not concerned stays the same reference, and an event without effect returns its input.
 * 2. A delta costs a concatenation and a copy of the list of messages, never of their text.
 * 3. Ids are not unique in a client's list (a result may repeat an id): the first one counts.
 */
import { type OpenChunk, spelledOut, withChunkId, withChunks } from "./chunk-lanes.ts";
import type {
  ActivityMessage,
  AGUIEvent,
  AGUIEventOf,
  AssistantMessage,
  Interrupt,
  Message,
  Metadata,
  ToolCall,
  ToolMessage,
} from "./events.ts";
import { isJsonObject, type Json, jsonEqual } from "./json.ts";
import { apply, type Patch, PatchError } from "./patch.ts";

/** What a client has been shown. */
export interface Transcript {
  readonly messages: readonly Message[];
  readonly state: Json;
  /** Pending at the client: it starts no run before its user has answered them. */
  readonly interrupts: readonly Interrupt[];
  /** Messages and calls that a chunk without an id would go on with. */
  readonly chunks: readonly OpenChunk[];
}

/** The transcript that a client starts with: no messages, state `{}`, unless it brings its own. */
export function newTranscript(initial: { messages?: readonly Message[]; state?: Json } = {}): Transcript {
  const { messages = [], state = {} } = initial;
  return { messages, state, interrupts: [], chunks: [] };
}

/**
 * The transcript after `event`; `transcript` itself if it changes nothing.
 *
 * A STATE_DELTA that cannot be applied leaves the state as it is, as the client does (it only prints a warning).
 */
export function reduce(transcript: Transcript, event: AGUIEvent): Transcript {
  const messages = reduceMessages(transcript.messages, withChunkId(transcript.chunks, event));
  const state = reduceState(transcript.state, event);
  const interrupts = reduceInterrupts(transcript.interrupts, event);
  const chunks = withChunks(transcript.chunks, event);
  return messages === transcript.messages &&
    state === transcript.state &&
    interrupts === transcript.interrupts &&
    chunks === transcript.chunks
    ? transcript
    : { messages, state, interrupts, chunks };
}

/**
 * The messages after `event`; `messages` itself if it changes nothing.
 *
 * A chunk without an id changes nothing here: only a {@link Transcript} knows what it goes on with.
 */
export function reduceMessages(messages: readonly Message[], event: AGUIEvent): readonly Message[] {
  switch (event.type) {
    case "RUN_STARTED":
      return withUnseen(messages, event.input?.messages ?? []);
    case "MESSAGES_SNAPSHOT":
      return merged(messages, event);

    case "TEXT_MESSAGE_START": {
      const { messageId: id, role = "assistant", name } = event;
      return opened(messages, id, event, { id, role, content: "", ...(name !== undefined && { name }) });
    }
    case "REASONING_MESSAGE_START": {
      const id = event.messageId;
      return opened(messages, id, event, { id, role: "reasoning", content: "" });
    }
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return changed(messages, event.messageId, (message) => withText(withMetadata(message, event), event.delta));
    case "TEXT_MESSAGE_END":
    case "REASONING_MESSAGE_END":
      return changed(messages, event.messageId, (message) => withMetadata(message, event));

    case "TOOL_CALL_START":
      return withCall(messages, event);
    case "TOOL_CALL_ARGS":
      return changedCall(messages, event.toolCallId, (call) => withMetadata(withArguments(call, event.delta), event));
    case "TOOL_CALL_END":
      return changedCall(messages, event.toolCallId, (call) => withMetadata(call, event));
    case "TOOL_CALL_RESULT":
      return withResult(messages, event);

    case "TEXT_MESSAGE_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
    case "TOOL_CALL_CHUNK":
      return spelledOut(event).reduce(reduceMessages, messages);

    case "REASONING_ENCRYPTED_VALUE": {
      const { entityId, encryptedValue } = event;
      return event.subtype === "tool-call"
        ? changedCall(messages, entityId, (call) => withEncrypted(call, encryptedValue))
        : changed(messages, entityId, (message) => withEncrypted(message, encryptedValue));
    }

    case "ACTIVITY_SNAPSHOT":
      return withActivity(messages, event);
    case "ACTIVITY_DELTA":
      return replaced(messages, event.messageId, (message) =>
        message.role === "activity" ? withActivityPatch(withMetadata(message, event), event) : message,
      );

    case "RUN_FINISHED":
    case "RUN_ERROR":
    case "STEP_STARTED":
    case "STEP_FINISHED":
    case "STATE_SNAPSHOT":
    case "STATE_DELTA":
    case "REASONING_START":
    case "REASONING_END":
    case "SUBAGENT_STARTED":
    case "SUBAGENT_FINISHED":
    case "SUBAGENT_ERROR":
    case "RAW":
    case "CUSTOM":
      return messages;
    default:
      event satisfies never;
      return messages;
  }
}

function reduceState(state: Json, event: AGUIEvent): Json {
  if (event.type === "STATE_SNAPSHOT") return event.snapshot;
  return event.type === "STATE_DELTA" ? patched(state, event.delta) : state;
}

function reduceInterrupts(interrupts: readonly Interrupt[], event: AGUIEvent): readonly Interrupt[] {
  if (event.type !== "RUN_FINISHED") return interrupts;
  if (event.outcome?.type === "interrupt") return event.outcome.interrupts;
  return interrupts.length === 0 ? interrupts : [];
}

function patched(document: Json, patch: Patch): Json {
  try {
    return apply(document, patch);
  } catch (error) {
    // The client warns and goes on with what it has. Whoever sent the patch has applied it first and knows.
    if (error instanceof PatchError) return document;
    throw error;
  }
}

// Whole list

function withUnseen(messages: readonly Message[], more: readonly Message[]): readonly Message[] {
  const seen = new Set(messages.map((message) => message.id));
  const unseen = more.filter(({ id }) => !seen.has(id) && seen.add(id));
  return unseen.length === 0 ? messages : [...messages, ...unseen];
}

/**
 * A snapshot says which messages there are, but the client keeps its order, and what a snapshot without any activity or any reasoning does
 * not speak of.
 */
function merged(messages: readonly Message[], event: AGUIEventOf<"MESSAGES_SNAPSHOT">): readonly Message[] {
  const sent = new Map(event.messages.map((message) => [message.id, message]));
  const owned = ownedActivities(event);
  const sendsReasoning = event.messages.some((message) => message.role === "reasoning");
  const survives = (message: Message) =>
    (message.role === "activity" && owned !== "all" && !owned.includes(message.activityType)) ||
    (message.role === "reasoning" && !sendsReasoning);

  const result = messages
    .filter((message) => sent.has(message.id) || survives(message))
    .map((message) => {
      const next = sent.get(message.id);
      return next === undefined || jsonEqual(next as Json, message as Json) ? message : next;
    });
  const held = new Set(result.map((message) => message.id));
  result.push(...event.messages.filter((message) => !held.has(message.id)));
  const isSame = result.length === messages.length && result.every((message, i) => message === messages[i]);
  return isSame ? messages : result;
}

/** The activity types that a snapshot speaks for: those its metadata lists, else all if it carries any activity, else none. */
function ownedActivities(event: AGUIEventOf<"MESSAGES_SNAPSHOT">): "all" | readonly string[] {
  const note: unknown = event.metadata?.["@ag-ui/client"];
  const owned = isJsonObject(note) ? note.authoritativeActivityTypes : note === undefined ? undefined : [];
  if (owned === undefined) return event.messages.some((message) => message.role === "activity") ? "all" : [];
  if (owned === null) return "all";
  // A list that is not one of strings counts as an empty one.
  return Array.isArray(owned) && owned.every((type) => typeof type === "string") ? owned : [];
}

// One message

type Conversational = Exclude<Message, ActivityMessage>;

/** The first message of that id with `change` made to it; the same list if there is none or it stays as it is. */
function replaced(messages: readonly Message[], id: string, change: (message: Message) => Message): readonly Message[] {
  const at = messages.findIndex((message) => message.id === id);
  const before = messages[at];
  if (before === undefined) return messages;
  const after = change(before);
  return after === before ? messages : messages.with(at, after);
}

/** As {@link replaced}, but an activity that has the id of a message is left alone. */
function changed(
  messages: readonly Message[],
  id: string,
  change: (message: Conversational) => Message,
): readonly Message[] {
  return replaced(messages, id, (message) => (message.role === "activity" ? message : change(message)));
}

/** Goes on with whatever message has the id, of whatever role: only an unknown id makes a new one. */
function opened(messages: readonly Message[], id: string, event: Tagged, fresh: Message): readonly Message[] {
  return messages.some((message) => message.id === id)
    ? changed(messages, id, (message) => withMetadata(message, event))
    : [...messages, withMetadata(withOwner(fresh, event), event)];
}

function withText(message: Conversational, delta: string): Message {
  const before = typeof message.content === "string" ? message.content : "";
  return message.content === before && delta === "" ? message : { ...message, content: before + delta };
}

function withActivity(messages: readonly Message[], event: AGUIEventOf<"ACTIVITY_SNAPSHOT">): readonly Message[] {
  const { messageId: id, activityType, content, replace = true } = event;
  const fresh = withOwner<ActivityMessage>({ id, role: "activity", activityType, content }, event);
  if (!messages.some((message) => message.id === id)) return [...messages, withMetadata(fresh, event)];
  return replaced(messages, id, (message) => {
    if (message.role !== "activity") return replace ? withMetadata(fresh, event) : message;
    // The metadata stays and is added to, whether or not the rest is replaced.
    const kept = message.metadata === undefined ? {} : { metadata: message.metadata };
    return withMetadata(replace ? { ...fresh, ...kept } : message, event);
  });
}

function withActivityPatch(message: ActivityMessage, event: AGUIEventOf<"ACTIVITY_DELTA">): ActivityMessage {
  try {
    // A patch may make of it what it likes, and the client holds that too.
    const content = apply(message.content, event.patch) as ActivityMessage["content"];
    const isSame = content === message.content && event.activityType === message.activityType;
    return isSame ? message : { ...message, activityType: event.activityType, content };
  } catch (error) {
    if (error instanceof PatchError) return message;
    throw error;
  }
}

// Tool calls and their results

function withCall(messages: readonly Message[], event: AGUIEventOf<"TOOL_CALL_START">): readonly Message[] {
  const { toolCallId: id, toolCallName: name, parentMessageId } = event;
  if (messages.some(holdsCall(id))) {
    return changedCall(messages, id, (call) =>
      withMetadata(call.function.name === name ? call : { ...call, function: { ...call.function, name } }, event),
    );
  }
  const call = withMetadata<ToolCall>({ id, type: "function", function: { name, arguments: "" } }, event);
  const parent = parentMessageId ? messages.find((message) => message.id === parentMessageId) : undefined;
  if (parent?.role === "assistant") {
    return messages.with(messages.indexOf(parent), { ...parent, toolCalls: [...(parent.toolCalls ?? []), call] });
  }
  // The message that is to carry it is unknown, or its id is another role's: then the call's own id has to do.
  const message: AssistantMessage = { id: (!parent && parentMessageId) || id, role: "assistant", toolCalls: [call] };
  const isNew = !messages.some((other) => other.id === message.id);
  return [...messages, isNew ? withOwner(message, event) : message];
}

function changedCall(
  messages: readonly Message[],
  id: string,
  change: (call: ToolCall) => ToolCall,
): readonly Message[] {
  const at = messages.findIndex(holdsCall(id));
  const message = messages[at];
  if (message?.role !== "assistant" || message.toolCalls === undefined) return messages;
  const index = message.toolCalls.findIndex((call) => call.id === id);
  const before = message.toolCalls[index];
  if (before === undefined) return messages;
  const after = change(before);
  return after === before
    ? messages
    : messages.with(at, { ...message, toolCalls: message.toolCalls.with(index, after) });
}

function holdsCall(id: string): (message: Message) => boolean {
  return (message) => message.role === "assistant" && (message.toolCalls?.some((call) => call.id === id) ?? false);
}

function withArguments(call: ToolCall, delta: string): ToolCall {
  return delta === "" ? call : { ...call, function: { ...call.function, arguments: call.function.arguments + delta } };
}

/** A result stands behind the message that made the call and the results that are there already; a second one for a call is a second message. */
function withResult(messages: readonly Message[], event: AGUIEventOf<"TOOL_CALL_RESULT">): readonly Message[] {
  const { messageId: id, toolCallId, content, role = "tool" } = event;
  const result = withMetadata(withOwner<ToolMessage>({ id, role, toolCallId, content }, event), event);
  const owner = messages.findIndex(holdsCall(toolCallId));
  if (owner === -1) return [...messages, result];
  let at = owner + 1;
  while (messages[at]?.role === "tool") at++;
  return messages.toSpliced(at, 0, result);
}

// What all of them may carry

interface Tagged {
  readonly metadata?: Metadata;
  readonly subagentRunId?: string;
}

/** Merged key by key, not deeply: the last write wins. */
function withMetadata<T extends { metadata?: Metadata }>(item: T, event: Tagged): T {
  return event.metadata === undefined ? item : { ...item, metadata: { ...item.metadata, ...event.metadata } };
}

function withOwner<T extends { subagentRunId?: string }>(message: T, event: Tagged): T {
  return event.subagentRunId === undefined ? message : { ...message, subagentRunId: event.subagentRunId };
}

function withEncrypted<T extends { encryptedValue?: string }>(item: T, encryptedValue: string): T {
  return item.encryptedValue === encryptedValue ? item : { ...item, encryptedValue };
}
