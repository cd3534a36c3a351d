import type { AGUIEventOf, Message } from "./events.ts";
import { Ledger } from "./ledger.ts";
import { type KnownCall, type KnownMessage, kindOf, type Open, type Wire } from "./wire.ts";

/** What exists after a MESSAGES_SNAPSHOT (V3 of `verify.ts`). */
export function applySnapshot(w: Wire, event: AGUIEventOf<"MESSAGES_SNAPSHOT">): Wire {
  const messages = knownMessages(w, event);
  const calls = knownCalls(w, event.messages);
  const waiting = new Set([...w.waiting].filter((id) => isUnanswered(calls.get(id))));
  for (const [id, call] of calls) if (call.begunIn === w.run && isUnanswered(call)) waiting.add(id);
  const reown = <T extends Open>(item: T): T => {
    const message = messages.get(item.id);
    return message === undefined ? item : { ...item, owner: message.owner, gone: message.gone };
  };
  return {
    ...w,
    messages: Ledger.of(messages),
    known: Ledger.of(calls),
    waiting,
    texts: mapValues(w.texts, reown),
    reasonings: mapValues(w.reasonings, reown),
    // Nothing in a snapshot stands for a span: it stays what it was, under the owner of its message.
    spans: mapValues(w.spans, (item) => ({ ...reown(item), gone: false })),
    calls: mapValues(w.calls, (item) => {
      const call = calls.get(item.id);
      if (call === undefined) return item;
      return { ...item, owner: call.owner, gone: call.gone, args: call.gone ? item.args : (call.args ?? item.args) };
    }),
    messagesShown: true,
  };
}

function isUnanswered(call: KnownCall | undefined): boolean {
  return call !== undefined && !call.gone && !call.answered;
}

function knownMessages(w: Wire, event: AGUIEventOf<"MESSAGES_SNAPSHOT">): Map<string, KnownMessage> {
  const carries = { reasoning: false, activity: false };
  for (const { role } of event.messages) if (role === "reasoning" || role === "activity") carries[role] = true;
  const authoritative = authoritativeActivityTypes(event);
  const stays = ({ kind, activityType = "" }: KnownMessage): boolean => {
    if (kind === "reasoning") return !carries.reasoning;
    if (kind !== "activity" || authoritative === "all") return false;
    return authoritative === undefined ? !carries.activity : !authoritative.includes(activityType);
  };
  const messages = w.messages.toMap();
  for (const [id, message] of messages)
    if (!message.gone && !stays(message)) messages.set(id, { ...message, gone: true });
  for (const message of event.messages) {
    messages.set(message.id, {
      kind: kindOf(message),
      ...(message.role === "activity" ? { activityType: message.activityType } : {}),
      owner: message.subagentRunId,
      ownedIn: w.run,
      form: messages.get(message.id)?.form,
      gone: false,
    });
  }
  return messages;
}

function knownCalls(w: Wire, messages: readonly Message[]): Map<string, KnownCall> {
  const calls = w.known.toMap();
  const before = new Map(calls);
  for (const [id, call] of calls) if (!call.gone) calls.set(id, { ...call, gone: true });
  for (const message of messages) {
    if (message.role !== "assistant") continue;
    for (const { id, function: made } of message.toolCalls ?? []) {
      const known = before.get(id);
      calls.set(id, {
        name: made.name,
        owner: message.subagentRunId,
        ownedIn: w.run,
        begunIn: known === undefined || known.gone ? 0 : known.begunIn,
        args: made.arguments,
        answered: false,
        form: known?.form,
        gone: false,
      });
    }
  }
  for (const message of messages) {
    const call = message.role === "tool" ? calls.get(message.toolCallId) : undefined;
    if (message.role === "tool" && call !== undefined) calls.set(message.toolCallId, { ...call, answered: true });
  }
  return calls;
}

/** Metadata of the official client narrows which activities a snapshot decides about: all, those of some types, or undefined. */
function authoritativeActivityTypes(event: AGUIEventOf<"MESSAGES_SNAPSHOT">): "all" | readonly unknown[] | undefined {
  const own: unknown = event.metadata?.["@ag-ui/client"];
  if (own === undefined || own === null) return own === null ? [] : undefined;
  if (typeof own !== "object" || Array.isArray(own)) return [];
  if (!("authoritativeActivityTypes" in own)) return undefined;
  const types = own.authoritativeActivityTypes;
  if (types === null) return "all";
  return Array.isArray(types) && types.every((type) => typeof type === "string") ? types : [];
}

function mapValues<T>(items: ReadonlyMap<string, T>, change: (item: T) => T): ReadonlyMap<string, T> {
  return items.size === 0 ? items : new Map([...items].map(([id, item]) => [id, change(item)]));
}
