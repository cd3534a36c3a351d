import type { Message } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import type { ProducerRuleId } from "./rules.ts";

export interface SnapshotFault {
  readonly rule: ProducerRuleId;
  readonly why: string;
}

/**
 * What a MESSAGES_SNAPSHOT does to what a client holds, and should not. It may leave messages out, to take them back or to forget them: that
 * is what it is for. A message that comes again under another id, though, is shown twice or jumps.
 */
export function snapshotFaults(held: readonly Message[], sent: readonly Message[]): SnapshotFault[] {
  const faults: SnapshotFault[] = [];
  const sentIds = new Set(sent.map(({ id }) => id));
  const heldIds = new Set(held.map(({ id }) => id));
  const strangers = sent.filter(({ id }) => !heldIds.has(id));
  for (const message of held) {
    if (sentIds.has(message.id)) continue;
    const at = strangers.findIndex((other) => saysTheSame(message, other));
    const [twin] = at < 0 ? [] : strangers.splice(at, 1);
    if (twin !== undefined)
      faults.push({ rule: "messages.ids", why: `the ${message.role} message "${message.id}" has become "${twin.id}"` });
  }
  for (const message of held) {
    if (message.role !== "user") continue;
    const again = strangers.find((other) => saysTheSame(message, other));
    if (again !== undefined && sentIds.has(message.id)) {
      faults.push({
        rule: "messages.ids",
        why: `the user message "${message.id}" is there a second time, as "${again.id}"`,
      });
    }
    const restated = sent.find(({ id }) => id === message.id);
    if (restated !== undefined && !saysTheSame(message, restated)) {
      faults.push({
        rule: "messages.user",
        why: `the user message "${message.id}" has become ${JSON.stringify(restated)}`,
      });
    }
  }
  const calls = new Set(
    sent.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []).map(({ id }) => id) : [])),
  );
  const results = new Set(sent.flatMap((message) => (message.role === "tool" ? [message.toolCallId] : [])));
  for (const message of held) {
    if (message.role !== "tool" || !calls.has(message.toolCallId) || results.has(message.toolCallId)) continue;
    faults.push({
      rule: "messages.results",
      why: `the result of call "${message.toolCallId}" is left out, the call is not`,
    });
  }
  for (const role of ["reasoning", "activity"] as const) {
    const lost = held.filter((message) => message.role === role && !sentIds.has(message.id) && !isEmpty(message));
    if (lost.length === 0 || !sent.some((message) => message.role === role)) continue;
    faults.push({
      rule: "messages.kept",
      why: `it has ${role} messages, but not "${lost.map(({ id }) => id).join('", "')}"`,
    });
  }
  return faults;
}

function isEmpty(message: Message): boolean {
  return message.role === "activity" ? Object.keys(message.content).length === 0 : message.content === "";
}

/** As far as a reader can tell: their ids aside, and those of their calls. */
function saysTheSame(one: Message, other: Message): boolean {
  if (one.role !== other.role) return false;
  const bare = (message: Message): Json => {
    const calls = message.role === "assistant" ? (message.toolCalls ?? []) : [];
    const content = message.content ?? "";
    return [content as Json, calls.map((call) => [call.function.name, call.function.arguments])];
  };
  const [content, calls] = bare(one) as [Json, readonly Json[]];
  return (content !== "" || calls.length > 0) && jsonEqual(bare(one), bare(other));
}
