import { type OpenChunk, withChunkId, withChunks } from "./chunk-lanes.ts";
import type { AGUIEvent, Message } from "./events.ts";
import { reduceMessages } from "./reduce.ts";

/** After so many events nobody asked about, they are reduced anyway, so that they can be let go. */
const LONGEST_WAIT = 1024;

type Reduced = { readonly messages: readonly Message[]; readonly chunks: readonly OpenChunk[] };
type Waiting = { readonly before: HeldMessages; readonly event: AGUIEvent; readonly length: number };

/**
 * The messages that a reader holds, as an immutable value. To take an event costs the same however many messages there are: they are
 * reduced when somebody asks. Deltas of one block that follow each other wait as one, so that a long text keeps one event alive, not
 * thousands, and the list is copied once per block.
 */
export class HeldMessages {
  /** Which of the two it is changes when somebody asks; what it stands for never does. */
  #content: Reduced | Waiting;

  private constructor(content: Reduced | Waiting) {
    this.#content = content;
  }

  static of(messages: readonly Message[]): HeldMessages {
    return new HeldMessages({ messages, chunks: [] });
  }

  after(event: AGUIEvent): HeldMessages {
    const last = "before" in this.#content ? this.#content : undefined;
    const both = last && join(last.event, event);
    if (last !== undefined && both !== undefined) return new HeldMessages({ ...last, event: both });
    let length = last === undefined ? 1 : last.length + 1;
    if (length > LONGEST_WAIT) {
      this.#reduced();
      length = 1;
    }
    return new HeldMessages({ before: this, event, length });
  }

  get messages(): readonly Message[] {
    return this.#reduced().messages;
  }

  #reduced(): Reduced {
    const events: AGUIEvent[] = [];
    let content = this.#content;
    while ("before" in content) {
      events.push(content.event);
      content = content.before.#content;
    }
    if (events.length > 0) content = reduceAll(content, events.reverse());
    this.#content = content;
    return content;
  }
}

function reduceAll({ messages, chunks }: Reduced, events: readonly AGUIEvent[]): Reduced {
  // Each event that changes a message copies the list it is in. What stands before all that is named is left out of that.
  const from = firstNamed(messages, events);
  let tail = from === 0 ? messages : messages.slice(from);
  const before = tail;
  let open = chunks;
  for (const event of events) {
    tail = reduceMessages(tail, withChunkId(open, event));
    open = withChunks(open, event);
  }
  if (tail === before) return { messages, chunks: open };
  return { messages: from === 0 ? tail : [...messages.slice(0, from), ...tail], chunks: open };
}

/** The index of the first message that one of the events may concern. */
function firstNamed(messages: readonly Message[], events: readonly AGUIEvent[]): number {
  const ids = new Set<string>();
  for (const event of events) {
    switch (event.type) {
      // These concern all, or what only the chunk before them names.
      case "RUN_STARTED":
      case "MESSAGES_SNAPSHOT":
      case "TEXT_MESSAGE_CHUNK":
      case "REASONING_MESSAGE_CHUNK":
      case "TOOL_CALL_CHUNK":
        return 0;
      default:
        if ("messageId" in event) ids.add(event.messageId);
        if ("toolCallId" in event) ids.add(event.toolCallId);
        if ("parentMessageId" in event && event.parentMessageId !== undefined) ids.add(event.parentMessageId);
        if ("entityId" in event) ids.add(event.entityId);
    }
  }
  const index = messages.findIndex(
    (message) =>
      ids.has(message.id) || (message.role === "assistant" && message.toolCalls?.some(({ id }) => ids.has(id))),
  );
  return index === -1 ? messages.length : index;
}

/** Two deltas of one block as one; undefined for anything else. */
function join(a: AGUIEvent, b: AGUIEvent): AGUIEvent | undefined {
  if (a.metadata !== undefined || b.metadata !== undefined) return undefined;
  switch (a.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return b.type === a.type && b.messageId === a.messageId ? { ...a, delta: a.delta + b.delta } : undefined;
    case "TOOL_CALL_ARGS":
      return b.type === a.type && b.toolCallId === a.toolCallId ? { ...a, delta: a.delta + b.delta } : undefined;
    default:
      return undefined;
  }
}
