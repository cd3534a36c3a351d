import type { Message } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";

/**
 * Whether a client's messages are those that its thread shows. Of some turns it may have seen nothing: they were driven by an answer from the
 * inbox, or ended while it was away. Reasoning and activities do not count, since not every client sends them back; nor do messages that a
 * front end has made for itself, such as a greeting, which a snapshot would take off its screen.
 */
export function isTranscript(messages: readonly Message[], shown: readonly Message[]): boolean {
  const held = new Map(messages.filter(isSaid).map((message) => [message.id, message]));
  const said = new Map(shown.filter(isSaid).map((message) => [message.id, message]));
  const isStale = [...held.keys()].some((id) => isServerMade(id) && !said.has(id));
  return !isStale && [...said.values()].every((message) => isSame(held.get(message.id), message));
}

/** Ids of ours begin with their run's uid. */
function isServerMade(id: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:/.test(id);
}

function isSaid({ role }: Message): boolean {
  return role === "user" || role === "assistant" || role === "tool";
}

function isSame(held: Message | undefined, shown: Message): boolean {
  return held !== undefined && jsonEqual(contentOf(held), contentOf(shown));
}

function contentOf(message: Message): Json {
  const calls = message.role === "assistant" ? message.toolCalls : undefined;
  return {
    role: message.role,
    content: (message.content || null) as Json,
    calls: (calls ?? []).map(({ id, function: { name, arguments: args } }) => ({ id, name, args })),
    of: message.role === "tool" ? message.toolCallId : null,
  };
}
