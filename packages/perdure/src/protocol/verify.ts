/**
 * The one verifier of the order of AG-UI events: a pure reducer, keyed by id. It owns what may come after what; the shape of an event is
 * `checkShape`'s, whether a patch applies is the patch code's.
 *
 * V1. A Wire never changes. An event that teaches nothing, as every text delta, gives the same object back.
 * V2. What this accepts, the verifier of `@ag-ui/client` 1.0.0 accepts too, after its chunk expansion. It refuses more: what the
 *     protocol says and that client does not check yet.
 * V3. A MESSAGES_SNAPSHOT says what exists. What it leaves out is *gone*: it can still be ended, and begun again from nothing under
 *     the same id. Reasoning and activities are gone only when the snapshot carries others of their kind, as clients have it.
 * V4. Arguments are judged when somebody has to act on them: the call is answered, or left to the client. A call that was taken back
 *     may end in the middle of its JSON.
 * V5. Strict mode only adds rules.
 *
 * Deliberately no rules: that a SUBAGENT_STARTED precedes its attribution, or a message its calls (the client makes one); that a
 * subagent's items end before it; that ids are not opened again (a closed message goes on, a call only in its run and unanswered);
 * that nobody but the client answers its call in a *later* run (the server does, when the user went on without).
 */
import { answerCall, appendArgs, beginCall, checkWhole, endCall } from "./calls.ts";
import { closeChunkedCall, closeChunks, verifyChunk } from "./chunks.ts";
import type { AGUIEvent, AGUIEventOf } from "./events.ts";
import { PROTOCOL_VERSION } from "./events.ts";
import {
  checkKind,
  checkOpen,
  checkOwner,
  known,
  newItem,
  openMessage,
  put,
  refuse,
  shownAfter,
  without,
} from "./items.ts";
import { ProtocolError } from "./rules.ts";
import { applySnapshot } from "./snapshot.ts";
import { finishStep, startSubagent } from "./steps.ts";
import { open, type Wire, withHistory } from "./wire.ts";

export { mayAnswer } from "./calls.ts";
export { ProtocolError, type Rule } from "./rules.ts";
export {
  closingEvent,
  hasCall,
  hasMessage,
  hasRun,
  hasSubagent,
  isAnswered,
  newWire,
  type OpenItem,
  openItems,
  pendingToolCalls,
  rested,
  type Wire,
  type WireOptions,
  withClientTools,
  withHistory,
  withServerCall,
} from "./wire.ts";

/**
 * Takes one event.
 *
 * @param wire - what came before
 * @param event - an event whose shape was checked
 * @param lane - the strand of program order that made it: then steps have to end in the reverse order of their beginning within it
 * @returns the wire after it; the same object when nothing has to be remembered
 * @throws {@link ProtocolError} when the event may not come here
 */
export function verify(wire: Wire, event: AGUIEvent, lane?: string): Wire {
  checkRun(wire, event);
  const w = wire.chunks === undefined ? wire : closeChunks(wire, event);
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT": {
      checkOpen(w, w.texts.get(event.messageId), "text", event.messageId, event);
      return w;
    }
    case "REASONING_MESSAGE_CONTENT": {
      checkOpen(w, w.reasonings.get(event.messageId), "reasoning-message", event.messageId, event);
      return w;
    }
    case "TOOL_CALL_ARGS":
      return appendArgs(w, event);
    case "TEXT_MESSAGE_START": {
      const opened = openMessage(w, event, "text", event.messageId, w.texts.get(event.messageId));
      const item = newItem(w, "text", event.messageId, opened.owner, lane);
      return { ...opened.wire, texts: put(w.texts, item), opened: w.opened + 1, messagesShown: false };
    }
    case "TEXT_MESSAGE_END": {
      checkOpen(w, w.texts.get(event.messageId), "text", event.messageId, event);
      return { ...w, texts: without(w.texts, event.messageId), messagesShown: shownAfter(w, w.texts, event.messageId) };
    }
    case "REASONING_START": {
      const opened = openMessage(w, event, "reasoning", event.messageId, w.spans.get(event.messageId));
      const item = newItem(w, "reasoning", event.messageId, opened.owner, lane);
      return { ...opened.wire, spans: put(w.spans, item), opened: w.opened + 1 };
    }
    case "REASONING_END": {
      checkOpen(w, w.spans.get(event.messageId), "reasoning", event.messageId, event);
      return { ...w, spans: without(w.spans, event.messageId) };
    }
    case "REASONING_MESSAGE_START": {
      const { messageId } = event;
      const opened = openMessage(w, event, "reasoning-message", messageId, w.reasonings.get(messageId));
      const item = newItem(w, "reasoning-message", messageId, opened.owner, lane);
      return { ...opened.wire, reasonings: put(w.reasonings, item), opened: w.opened + 1, messagesShown: false };
    }
    case "REASONING_MESSAGE_END": {
      const { messageId } = event;
      checkOpen(w, w.reasonings.get(messageId), "reasoning-message", messageId, event);
      const messagesShown = shownAfter(w, w.reasonings, messageId);
      return { ...w, reasonings: without(w.reasonings, messageId), messagesShown };
    }
    case "TOOL_CALL_START": {
      const begun = beginCall(w, event, { id: event.toolCallId, name: event.toolCallName, form: "triad" });
      const item = { ...newItem(w, "tool-call", event.toolCallId, begun.owner, lane), args: begun.args };
      return { ...begun.wire, calls: put(w.calls, item), opened: w.opened + 1, messagesShown: false };
    }
    case "TOOL_CALL_END":
      return endCall(w, event);
    case "TOOL_CALL_RESULT":
      return answerCall(closeChunkedCall(w, event.toolCallId), event);
    case "TEXT_MESSAGE_CHUNK":
    case "TOOL_CALL_CHUNK":
    case "REASONING_MESSAGE_CHUNK":
      return verifyChunk(w, event);
    case "STEP_STARTED": {
      const same = w.steps.find((step) => step.id === event.stepName && step.owner === event.subagentRunId);
      if (same !== undefined) refuse("step-already-open", event, event.stepName, "finish it first");
      const begun = newItem(w, "step", event.stepName, event.subagentRunId, lane);
      const step = event.metadata === undefined ? begun : { ...begun, metadata: event.metadata };
      return { ...w, steps: [...w.steps, step], opened: w.opened + 1 };
    }
    case "STEP_FINISHED":
      return finishStep(w, event, lane);
    case "SUBAGENT_STARTED":
      return startSubagent(w, event, lane);
    case "SUBAGENT_FINISHED":
    case "SUBAGENT_ERROR": {
      const id = event.subagentRunId;
      if (!w.subagents.has(id)) refuse("subagent-not-open", event, id, `send SUBAGENT_STARTED for "${id}" first`);
      return { ...w, subagents: without(w.subagents, id), done: w.done.set(id, w.run) };
    }
    case "ACTIVITY_SNAPSHOT": {
      const before = w.messages.get(event.messageId);
      checkKind(before, "activity", event, event.messageId);
      const keeps = before !== undefined && !before.gone && event.replace === false;
      if (keeps && before.ownedIn === w.run) return w;
      const activityType = (keeps ? before.activityType : undefined) ?? event.activityType;
      const after = { ...known("activity", event.subagentRunId, w.run), activityType };
      return { ...w, messages: w.messages.set(event.messageId, after) };
    }
    case "ACTIVITY_DELTA": {
      const before = w.messages.get(event.messageId);
      if (before?.kind !== "activity" || before.gone) {
        refuse("activity-without-snapshot", event, event.messageId, "send an ACTIVITY_SNAPSHOT first");
      }
      checkOwner(w, before, event, event.messageId);
      return w;
    }
    case "REASONING_ENCRYPTED_VALUE": {
      const entity = event.subtype === "tool-call" ? w.known.get(event.entityId) : w.messages.get(event.entityId);
      checkOwner(w, entity, event, event.entityId);
      return w;
    }
    case "STATE_SNAPSHOT":
      return w.stateShown ? w : { ...w, stateShown: true };
    case "STATE_DELTA":
      return w.stateShown ? { ...w, stateShown: false } : w;
    case "MESSAGES_SNAPSHOT":
      return applySnapshot(w, event);
    case "RAW":
    case "CUSTOM":
      return w;
    case "RUN_STARTED":
      return startRun(w, event);
    case "RUN_FINISHED":
      return finishRun(w, event);
    case "RUN_ERROR": {
      if (w.strict) checkAllClosed(w, event);
      return { ...closeAll(w), phase: "errored" };
    }
    default:
      return event satisfies never;
  }
}

/**
 * The stream is over.
 *
 * @throws {@link ProtocolError} rule `run-unfinished` unless its last run reached RUN_FINISHED or RUN_ERROR
 */
export function verifyEnd(wire: Wire): void {
  if (wire.phase === "finished" || wire.phase === "errored") return;
  const why =
    wire.phase === "new" ? "no run was started" : `run "${wire.runId}" has neither RUN_FINISHED nor RUN_ERROR`;
  throw new ProtocolError("run-unfinished", undefined, wire.runId, `it ended, but ${why}`);
}

// ── The run

function checkRun(wire: Wire, event: AGUIEvent): void {
  const { type } = event;
  switch (wire.phase) {
    case "running":
      if (type === "RUN_STARTED") refuse("run-active", event, event.runId, `finish run "${wire.runId}" first`);
      return;
    case "new":
      // The protocol lets a run fail before it starts; ours have started by then.
      if (type === "RUN_STARTED" || (type === "RUN_ERROR" && !wire.strict)) return;
      refuse("first-event", event, undefined, "a stream begins with RUN_STARTED");
      break;
    case "finished":
      if (type === "RUN_STARTED") return;
      if (type !== "RUN_ERROR")
        refuse("run-over", event, wire.runId, `run "${wire.runId}" has finished; start another`);
      if (wire.strict) refuse("second-ending", event, wire.runId, `run "${wire.runId}" has its ending already`);
      return;
    case "errored":
      if (type === "RUN_STARTED") return;
      refuse("run-errored", event, wire.runId, "the run has failed; only RUN_STARTED can follow");
      break;
    default:
      wire.phase satisfies never;
  }
}

function startRun(w: Wire, event: AGUIEventOf<"RUN_STARTED">): Wire {
  const { threadId, runId } = event;
  if (w.threadId !== undefined && threadId !== w.threadId) {
    refuse("thread-id", event, threadId, `this stream is thread "${w.threadId}"'s`);
  }
  if (w.runIds.has(runId)) refuse("run-id-reused", event, runId, "each run of a thread has an id of its own");
  if (w.strict && event.protocolVersion !== PROTOCOL_VERSION) {
    refuse("version", event, runId, `state protocolVersion "${PROTOCOL_VERSION}"`);
  }
  const begun: Wire = {
    ...closeAll(w),
    threadId,
    phase: "running",
    run: w.run + 1,
    runId,
    runIds: w.runIds.set(runId, true),
    waiting: new Set(),
    stateShown: false,
    messagesShown: false,
  };
  return event.input === undefined ? begun : withHistory(begun, event.input.messages);
}

function finishRun(w: Wire, event: AGUIEventOf<"RUN_FINISHED">): Wire {
  if (event.threadId !== w.threadId) refuse("thread-id", event, event.threadId, `the run is thread "${w.threadId}"'s`);
  if (event.runId !== w.runId) refuse("run-id", event, event.runId, `the run that is open is "${w.runId}"`);
  checkAllClosed(w, event);
  const { outcome } = event;
  if (outcome?.type === "interrupt") {
    const ids = new Set<string>();
    for (const { id } of outcome.interrupts) {
      if (ids.has(id)) refuse("interrupt-id", event, id, "two interrupts have this id");
      ids.add(id);
    }
    if (w.strict && !(w.stateShown && w.messagesShown)) {
      // A client that comes back with the answer has to know all that the run has done so far (AG-UI 1.1, interrupts).
      const missing = w.stateShown ? "MESSAGES_SNAPSHOT" : "STATE_SNAPSHOT";
      refuse("interrupt-unprepared", event, w.runId, `send a ${missing} of what there is now before it`);
    }
  } else if (outcome?.type !== "cancelled") {
    for (const id of w.waiting) checkWhole(w.known.get(id)?.args, event, id, "left to the client");
    if (w.strict) checkPending(w, event, outcome?.pendingToolCallIds ?? []);
  }
  return { ...w, phase: "finished" };
}

/** The pending calls are this run's calls without a result, and any of an earlier run that still waits for the client. */
function checkPending(w: Wire, event: AGUIEvent, listed: readonly string[]): void {
  const ids = new Set(listed);
  if (ids.size < listed.length) refuse("pending-calls", event, w.runId, "a pending call is listed twice");
  for (const id of w.waiting) {
    if (!ids.has(id)) refuse("pending-calls", event, id, "it has no result and is not listed as pending");
  }
  for (const id of ids) {
    const call = w.known.get(id);
    if (call === undefined || call.gone || call.answered) {
      refuse("pending-calls", event, id, "it is listed as pending, but no such call waits for a result");
    }
  }
}

function checkAllClosed(w: Wire, event: AGUIEvent): void {
  const items = open(w);
  const [first] = items;
  if (first === undefined) return;
  refuse("open-at-end", event, first.id, `close ${items.map(({ kind, id }) => `${kind} "${id}"`).join(", ")} first`);
}

/** After a failed run nothing is open any more; what its calls had got is remembered as it was. */
function closeAll(w: Wire): Wire {
  let { known: calls } = w;
  for (const { id, args, gone } of w.calls.values()) {
    const call = calls.get(id);
    if (call !== undefined && !gone) calls = calls.set(id, { ...call, args });
  }
  const none = new Map<string, never>();
  return { ...w, known: calls, texts: none, calls: none, reasonings: none, spans: none, subagents: none, steps: [] };
}
