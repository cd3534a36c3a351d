import type { AGUIEvent } from "./events.ts";
import { ProtocolError, type Rule } from "./rules.ts";
import type { KnownMessage, Open, Wire } from "./wire.ts";

export function refuse(rule: Rule, event: AGUIEvent, id: string | undefined, why: string): never {
  throw new ProtocolError(rule, event, id, why);
}

export function known(kind: KnownMessage["kind"], owner: string | undefined, run: number): KnownMessage {
  return { kind, owner, ownedIn: run, form: undefined, gone: false };
}

export function newItem(
  w: Wire,
  kind: Open["kind"],
  id: string,
  owner: string | undefined,
  lane: string | undefined,
): Open {
  return { kind, id, owner, lane, order: w.opened, gone: false };
}

export function put<T extends Open>(items: ReadonlyMap<string, T>, item: T): ReadonlyMap<string, T> {
  return new Map(items).set(item.id, item);
}

export function without<T>(items: ReadonlyMap<string, T>, id: string): ReadonlyMap<string, T> {
  const rest = new Map(items);
  rest.delete(id);
  return rest;
}

/** The end of something that a snapshot has left out changes nothing in what the client holds. */
export function shownAfter(w: Wire, items: ReadonlyMap<string, Open>, id: string): boolean {
  return w.messagesShown && items.get(id)?.gone === true;
}

type MessageKind = "text" | "reasoning" | "reasoning-message";

/** A message or span begins, by START or by its first chunk. */
export function openMessage(
  w: Wire,
  event: AGUIEvent & { readonly subagentRunId?: string },
  kind: MessageKind,
  id: string,
  isOpen: Open | undefined,
): { readonly wire: Wire; readonly owner: string | undefined } {
  if (isOpen !== undefined) refuse(`${kind}-already-open`, event, id, `${kind} "${id}" is open; end it first`);
  const before = w.messages.get(id);
  const messageKind = kind === "text" ? "text" : "reasoning";
  checkKind(before, messageKind, event, id);
  checkOwner(w, before, event, id);
  // A span has no content, so it is in neither form.
  const form = kind === "reasoning" ? (before?.gone ? undefined : before?.form) : formOf(event);
  if (kind !== "reasoning") checkForm(before, form, event, id);
  const owned = before !== undefined && before.ownedIn === w.run ? before.owner : event.subagentRunId;
  if (before !== undefined && !before.gone && before.form === form && before.ownedIn === w.run) {
    return { wire: w, owner: owned };
  }
  return { wire: { ...w, messages: w.messages.set(id, { ...known(messageKind, owned, w.run), form }) }, owner: owned };
}

function formOf(event: AGUIEvent): "triad" | "chunk" {
  return event.type.endsWith("_CHUNK") ? "chunk" : "triad";
}

export function checkForm(
  before: { readonly form: "triad" | "chunk" | undefined; readonly gone: boolean } | undefined,
  form: "triad" | "chunk" | undefined,
  event: AGUIEvent,
  id: string,
): void {
  if (before?.form === undefined || before.gone || before.form === form) return;
  refuse("mixed-forms", event, id, `"${id}" came as ${before.form === "chunk" ? "chunks" : "START, CONTENT and END"}`);
}

/** One id names one kind of thing: the client would append a text to a reasoning bubble of its id. */
export function checkKind(
  before: KnownMessage | undefined,
  kind: KnownMessage["kind"],
  event: AGUIEvent,
  id: string,
): void {
  if (before === undefined || before.kind === kind) return;
  refuse(
    "id-kind",
    event,
    id,
    `"${id}" is the id of ${before.kind === "activity" ? "an" : "a"} ${before.kind} message`,
  );
}

export function checkOwner(
  w: Wire,
  item: { readonly owner: string | undefined; readonly ownedIn: number } | undefined,
  event: AGUIEvent & { readonly subagentRunId?: string },
  id: string,
): void {
  if (item?.ownedIn === w.run) checkSameOwner(item.owner, event, id);
}

function checkSameOwner(owner: string | undefined, event: AGUIEvent & { subagentRunId?: string }, id: string): void {
  const claimed = event.subagentRunId;
  if (claimed === undefined || claimed === owner) return;
  refuse("owner", event, id, `"${id}" belongs to ${whose(owner)}, not to ${whose(claimed)}`);
}

export function whose(owner: string | undefined): string {
  return owner === undefined ? "the parent agent" : `subagent "${owner}"`;
}

export function checkOpen<T extends Open>(
  w: Wire,
  item: T | undefined,
  kind: Exclude<Open["kind"], "step" | "subagent">,
  id: string,
  event: AGUIEvent & { readonly subagentRunId?: string },
): asserts item is T {
  if (item === undefined) {
    if (kind !== "reasoning") {
      checkForm(kind === "tool-call" ? w.known.get(id) : w.messages.get(id), "triad", event, id);
    }
    refuse(`${kind}-not-open`, event, id, `no ${kind} "${id}" is open; begin it first`);
  }
  if (event.subagentRunId !== undefined) checkSameOwner(item.owner, event, id);
  if (w.strict && item.gone && !event.type.endsWith("_END")) {
    refuse("withdrawn", event, id, `a MESSAGES_SNAPSHOT left "${id}" out; end it, then begin it again`);
  }
}
