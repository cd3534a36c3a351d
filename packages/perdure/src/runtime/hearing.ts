/**
 * What the messages of a request mean beside what the thread holds. A client sends all that it has, each time: news, and its copy of the rest,
 * which may be stale, half-written, under other ids or made up.
 *
 * H1. News is what the thread does not hold by its id: user messages; system messages where the agent allows them; and, where it imports
 *     history, assistant messages with the results of their calls, in the client's order.
 * H2. What the thread holds stays as it is recorded. An id that comes with another text is no edit: clients of other versions, and the layers
 *     between, send the same message in other forms, and nothing tells those from an edit.
 * H3. A message under an id that the thread never gave out is a copy when it says what a message of the thread says that the client does not
 *     hold, and something was said after it. What was said last is news: people say the same thing twice.
 * H4. What we have made ourselves is never imported: such an id that is not held was taken back, or is another thread's.
 * H5. Nor may what a client says have such an id: a run that came to make it would find it taken, and could not record what it has done.
 */
import type { Heard } from "../log/entries.ts";
import type { AssistantMessage, Message } from "../protocol/events.ts";
import { isRunMade } from "../protocol/ids.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";

/** The thread as far as a request may repeat it. */
export interface HeardThread {
  /** What it shows. */
  readonly shown: readonly Message[];
  /** Whether a request has brought a message of this id. */
  holds(id: string): boolean;
  /** Whether a run of the thread has made this id, or may come to make it. */
  isOurs(id: string): boolean;
}

export interface Hearing {
  /** In the client's order. */
  readonly news: readonly Heard[];
  /** Ids of system and developer messages that are news, where the agent allows none. */
  readonly refused: readonly string[];
  /** Ids of messages that are news, and are called what only a run may call something (H5). */
  readonly misnamed: readonly string[];
  /** What was odd and put right. */
  readonly notes: readonly string[];
}

/** What an agent takes from its clients beside user messages. */
export interface HearingPolicy {
  readonly importHistory: boolean;
  readonly systemMessages: "refuse" | "allow";
}

export function hear(messages: readonly Message[], thread: HeardThread, policy: HearingPolicy): Hearing {
  const shown = new Map(thread.shown.map((message) => [message.id, message]));
  const held = new Set(messages.map(({ id }) => id));
  const copied = thread.shown.filter(({ id }) => !held.has(id));
  const lastSaid = messages.findLastIndex(isSaid);
  const news: Heard[] = [];
  const refused: string[] = [];
  const misnamed: string[] = [];
  const notes: string[] = [];
  /** Calls of what is imported here, by id; `true` once they have their result. */
  const calls = new Map<string, boolean>();
  const results = new Map(thread.shown.flatMap((one) => (one.role === "tool" ? [[one.toolCallId, one] as const] : [])));

  /** H3. */
  const isCopy = (message: Message, isFollowed: boolean): boolean => {
    const at = isFollowed ? copied.findIndex((other) => saysTheSame(other, message)) : -1;
    if (at === -1) return false;
    const [original] = copied.splice(at, 1);
    notes.push(`message "${message.id}" is "${original?.id}" of its thread under another id; it counts once`);
    return true;
  };

  const isMadeHere = ({ id, toolCalls = [] }: AssistantMessage): boolean =>
    [id, ...toolCalls.map((call) => call.id)].some((one) => thread.isOurs(one));

  for (const [i, message] of messages.entries()) {
    const { id } = message;
    const known = shown.get(id);
    if (known !== undefined || thread.holds(id)) {
      if (known !== undefined && isRewritten(known, message)) {
        notes.push(`message "${id}" was sent with another text; the thread keeps the first (an edit needs a new id)`);
      }
      continue;
    }
    switch (message.role) {
      case "user":
        if (isCopy(message, i < lastSaid)) break;
        if (isRunMade(id)) misnamed.push(id);
        else news.push(message);
        break;
      case "system":
      case "developer":
        // Front ends make them anew for each request.
        if (isCopy(message, true)) break;
        if (policy.systemMessages !== "allow") refused.push(id);
        else if (isRunMade(id)) misnamed.push(id);
        else news.push(message);
        break;
      case "assistant":
        if (!policy.importHistory || isMadeHere(message) || isCopy(message, true)) break;
        for (const call of message.toolCalls ?? []) calls.set(call.id, false);
        news.push(message);
        break;
      case "tool":
        // A result of a call that is not imported answers a call of ours, which has one by now or waits for it, or none at all.
        if (isRunMade(id)) break;
        if (calls.get(message.toolCallId) === false) {
          calls.set(message.toolCallId, true);
          news.push(message);
        } else if (!jsonEqual(said(results.get(message.toolCallId) ?? message), said(message)))
          notes.push(`tool message "${id}" is a second result of call "${message.toolCallId}"; the first one counts`);
        break;
      case "reasoning":
      case "activity":
        break;
      default:
        message satisfies never;
    }
  }
  return { news, refused, misnamed, notes };
}

function isSaid({ role }: Message): boolean {
  return role === "user" || role === "assistant" || role === "tool";
}

function saysTheSame(a: Message, b: Message): boolean {
  return a.role === b.role && jsonEqual(said(a), said(b));
}

/** Without ids: those are what may differ. */
function said(message: Message): Json {
  const calls = message.role === "assistant" ? (message.toolCalls ?? []) : [];
  return {
    content: (message.content || null) as Json,
    calls: calls.map(({ function: { name, arguments: args } }) => ({ name, args })),
  };
}

/** Of plain texts alone: other content travels in more than one form. */
function isRewritten(known: Message, sent: Message): boolean {
  if (known.role !== "user" || sent.role !== "user") return false;
  return typeof known.content === "string" && typeof sent.content === "string" && known.content !== sent.content;
}
