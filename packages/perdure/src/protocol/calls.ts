import { isWholeJson } from "./closing.ts";
import type { AGUIEvent, AGUIEventOf } from "./events.ts";
import { checkForm, checkKind, checkOpen, checkOwner, known, put, refuse, whose, without } from "./items.ts";
import type { KnownCall, OpenCall, Wire } from "./wire.ts";

/** A call begins, by START or by its first chunk. */
export function beginCall(
  w: Wire,
  event: AGUIEventOf<"TOOL_CALL_START"> | AGUIEventOf<"TOOL_CALL_CHUNK">,
  { id, name, form }: { readonly id: string; readonly name: string; readonly form: "triad" | "chunk" },
): { readonly wire: Wire; readonly owner: string | undefined; readonly args: string } {
  const { parentMessageId, subagentRunId } = event;
  if (w.calls.has(id)) {
    if (form === "chunk") checkForm(w.known.get(id), form, event, id);
    refuse("tool-call-already-open", event, id, `tool call "${id}" is open; end it first`);
  }
  const before = w.known.get(id);
  if (before !== undefined && !before.gone) {
    checkForm(before, form, event, id);
    // Clients would append to the arguments they have, or show the call twice: an answer goes to the old id, alone.
    if (before.answered) refuse("call-reopened", event, id, "it has its result already");
    if (before.begunIn !== w.run) refuse("call-reopened", event, id, "an earlier run made it; send only its result");
    if (before.name !== name) refuse("call-reopened", event, id, `this id is a call of "${before.name}"`);
  }
  // A client puts a call without a parent into a message of the call's own id.
  const carrierId = parentMessageId ?? id;
  const carrier = w.messages.get(carrierId);
  checkKind(carrier, "text", event, carrierId);
  const parent = parentMessageId !== undefined && carrier?.ownedIn === w.run ? carrier : undefined;
  if (parent !== undefined && subagentRunId !== undefined && subagentRunId !== parent.owner) {
    refuse("call-owner", event, id, `its message "${carrierId}" belongs to ${whose(parent.owner)}`);
  }
  checkOwner(w, before, event, id);
  if (
    before?.ownedIn === w.run &&
    subagentRunId === undefined &&
    parent !== undefined &&
    parent.owner !== before.owner
  ) {
    refuse("call-owner", event, id, `it belongs to ${whose(before.owner)}, its message to ${whose(parent.owner)}`);
  }
  const owner = before?.ownedIn === w.run ? before.owner : (subagentRunId ?? parent?.owner);
  const goesOn = before !== undefined && !before.gone;
  const call = { name, owner, ownedIn: w.run, begunIn: w.run, args: undefined, answered: false, form, gone: false };
  return {
    wire: {
      ...w,
      known: w.known.set(id, call),
      waiting: w.waiting.has(id) ? w.waiting : new Set(w.waiting).add(id),
      messages:
        carrier === undefined || carrier.gone
          ? w.messages.set(carrierId, { ...known("text", carrier?.owner, carrier?.ownedIn ?? -1) })
          : w.messages,
    },
    owner,
    args: goesOn ? (before.args ?? "") : "",
  };
}

export function appendArgs(w: Wire, event: AGUIEventOf<"TOOL_CALL_ARGS">): Wire {
  const item = w.calls.get(event.toolCallId);
  checkOpen<OpenCall>(w, item, "tool-call", event.toolCallId, event);
  return event.delta === "" ? w : { ...w, calls: put(w.calls, { ...item, args: item.args + event.delta }) };
}

export function endCall(w: Wire, event: AGUIEventOf<"TOOL_CALL_END">): Wire {
  const id = event.toolCallId;
  const item = w.calls.get(id);
  checkOpen<OpenCall>(w, item, "tool-call", id, event);
  const calls = without(w.calls, id);
  const call = w.known.get(id);
  if (item.gone || call === undefined) return { ...w, calls };
  if (w.strict && !isWholeJson(item.args)) {
    // A front end that runs a call at its END would run it with {}.
    refuse("args-partial", event, id, "its arguments are not whole JSON; take it back with a MESSAGES_SNAPSHOT first");
  }
  return { ...w, calls, known: w.known.set(id, { ...call, args: item.args }), messagesShown: false };
}

export function answerCall(w: Wire, event: AGUIEventOf<"TOOL_CALL_RESULT">): Wire {
  const { toolCallId: id, messageId } = event;
  const call = w.known.get(id);
  if (call === undefined || call.gone) refuse("result-without-call", event, id, `no call "${id}" was made`);
  if (call.answered) refuse("result-repeated", event, id, "it has its result already");
  if (w.calls.has(id)) refuse("result-before-end", event, id, "send its TOOL_CALL_END first");
  if (isClients(w, id, call)) {
    refuse("client-call-result", event, id, `the client runs "${call.name}" and brings the result itself`);
  }
  checkWhole(call.args, event, id, "answered");
  const taken = w.messages.get(messageId);
  if (taken !== undefined && !(taken.gone && taken.kind === "result")) {
    refuse("result-id", event, messageId, "a result is a message of its own and needs a fresh id");
  }
  const waiting = new Set(w.waiting);
  waiting.delete(id);
  return {
    ...w,
    known: w.known.set(id, { ...call, answered: true, args: undefined }),
    messages: w.messages.set(messageId, known("result", event.subagentRunId, w.run)),
    waiting,
    messagesShown: false,
  };
}

/** Whether a result of the server's may follow: the call is shown, and the client does not run it in this leg itself. */
export function mayAnswer(w: Wire, id: string): boolean {
  const call = w.known.get(id);
  return call !== undefined && !call.gone && !isClients(w, id, call);
}

function isClients(w: Wire, id: string, { name, begunIn }: KnownCall): boolean {
  return w.clientTools?.has(name) === true && begunIn === w.run && !w.served.has(id);
}

export function checkWhole(args: string | undefined, event: AGUIEvent, id: string, when: string): void {
  if (args !== undefined && !isWholeJson(args)) {
    refuse("args-not-json", event, id, `call "${id}" is ${when}, but its arguments are not JSON`);
  }
}
