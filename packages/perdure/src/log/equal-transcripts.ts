import type { Message } from "../protocol/events.ts";
import { type Json, jsonEqual, toJson } from "../protocol/json.ts";

/** What a client holds. */
export interface HeldByClient {
  readonly messages: readonly Message[];
  readonly state: unknown;
}

/** Whether two clients hold the same conversation and the same state. */
export function equalTranscripts(a: HeldByClient, b: HeldByClient): boolean {
  return jsonEqual(normaliseTranscript(a), normaliseTranscript(b));
}

/**
 * A transcript without what may differ between two clients of the same story: ids are renamed in order of appearance, the results of one
 * turn stand behind its calls, in their order, and what shows nothing is left out: empty reasoning and activities, an assistant's empty text, and
 * a message that has nothing else. What several subagents say between two messages of their caller stands together, each by itself: they work
 * side by side.
 */
export function normaliseTranscript({ messages, state }: HeldByClient): Json {
  const names = new Map<string, string>();
  const rename = (id: string): string => {
    const name = names.get(id) ?? `#${names.size}`;
    names.set(id, name);
    return name;
  };
  const shown = messages.map(withoutEmptyText).filter(showsSomething);
  const renamed = bySubagent(inCallOrder(shown)).map((message) => ({
    ...message,
    id: rename(message.id),
    ...("toolCalls" in message && {
      toolCalls: message.toolCalls?.map((call) => ({ ...call, id: rename(call.id) })),
    }),
    ...("toolCallId" in message && { toolCallId: rename(message.toolCallId) }),
    ...(message.subagentRunId !== undefined && { subagentRunId: rename(message.subagentRunId) }),
  }));
  return { messages: toJson(renamed, "transcript"), state: toJson(state, "state") };
}

function withoutEmptyText(message: Message): Message {
  if (message.role !== "assistant") return message;
  const { content, toolCalls, ...rest } = message;
  return {
    ...rest,
    ...(content !== undefined && content !== "" && { content }),
    ...(toolCalls !== undefined && toolCalls.length > 0 && { toolCalls }),
  };
}

function showsSomething(message: Message): boolean {
  switch (message.role) {
    case "reasoning":
      return message.content !== "";
    case "activity":
      return Object.keys(message.content).length > 0;
    case "assistant":
      return message.content !== undefined || message.toolCalls !== undefined;
    default:
      return true;
  }
}

/** Subagents by what they say: which of them spoke first is chance. */
function bySubagent(messages: readonly Message[]): readonly Message[] {
  const ordered: Message[] = [];
  let block = new Map<string, Message[]>();
  const flush = (): void => {
    const groups = [...block.values()].map((said) => ({ said, text: JSON.stringify(said.map(withoutIds)) }));
    ordered.push(...groups.sort((a, b) => (a.text < b.text ? -1 : 1)).flatMap(({ said }) => said));
    block = new Map();
  };
  for (const message of messages) {
    const { subagentRunId } = message;
    if (subagentRunId === undefined) {
      flush();
      ordered.push(message);
    } else block.set(subagentRunId, [...(block.get(subagentRunId) ?? []), message]);
  }
  flush();
  return ordered;
}

function withoutIds({ id: _, subagentRunId: _by, ...message }: Message): object {
  const calls = "toolCalls" in message ? message.toolCalls?.map(({ function: called }) => called) : undefined;
  return { ...message, toolCallId: null, toolCalls: calls ?? null };
}

/** Each result behind the message that made its call, as a client of 1.0 has it; one of 0.0.45 has it where it came. */
function inCallOrder(messages: readonly Message[]): readonly Message[] {
  const calls = new Map<string, { owner: number; rank: number }>();
  messages.forEach((message, owner) => {
    if (message.role !== "assistant") return;
    message.toolCalls?.forEach(({ id }, i) => {
      calls.set(id, { owner, rank: i + 1 });
    });
  });
  return messages
    .map((message, i) => {
      const call = message.role === "tool" ? calls.get(message.toolCallId) : undefined;
      return { message, ...(call ?? { owner: i, rank: 0 }) };
    })
    .sort((a, b) => a.owner - b.owner || a.rank - b.rank)
    .map(({ message }) => message);
}
