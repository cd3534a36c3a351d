/** What came into a run's inbox, as entries of one batch. */
import type { NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { interruptEvent, isOperators } from "../log/interrupts.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { hasRun } from "../protocol/verify.ts";
import type { Path } from "../protocol/words.ts";
import type { Closed, Inbox } from "../store/store.ts";
import { isAbandoning } from "./suspects.ts";

const ROOT = "" as Path;

/** Opens the leg that a request asked for, or a headless one where something has to be shown and none is open. */
export function intake(run: RunState, items: readonly Inbox[]): NewEntry[] {
  const request = items.find((item) => item.kind === "request")?.request ?? null;
  const entries: NewEntry[] = [];
  if (run.leg === null || request !== null) {
    const leg = run.legs + 1;
    entries.push(
      { kind: "leg.started", leg, runId: request?.runId ?? mintedRunId(run, leg), request },
      { kind: "frame", path: ROOT, ref: { of: "RUN_STARTED", leg } },
    );
    // The server's state wins in a later leg.
    if (request !== null && !jsonEqual(run.shown, request.state ?? {})) {
      entries.push({ kind: "frame", path: ROOT, ref: { of: "STATE_SNAPSHOT" } });
    }
  }
  const answered = new Set<string>();
  for (const item of items) {
    if (item.kind === "answer") {
      answered.add(item.interrupt);
      entries.push(...answerEntries(run, item));
      if (isAbandoning(run, item)) entries.push({ kind: "inbox.taken", item: "abandon", payload: null, by: item.by });
    } else if (item.kind !== "request") {
      const payload: Json = "payload" in item ? item.payload : null;
      entries.push({ kind: "inbox.taken", item: item.kind, payload, by: item.by });
    }
  }
  if (request?.messages.some(({ role }) => role === "user")) entries.push(...notAnsweredByClient(run, answered));
  // Behind what the request itself brings: the snapshot owns the client's list.
  if (request?.isBehind) entries.push({ kind: "frame", path: ROOT, ref: { of: "MESSAGES_SNAPSHOT" } });
  return entries;
}

/** A client may have called a leg of its own what this one would be called. */
function mintedRunId({ run: { uid }, wire }: RunState, leg: number): string {
  let id = `${uid}.${leg}`;
  for (let n = 2; hasRun(wire, id); n++) id = `${uid}.${leg}.${n}`;
  return id;
}

/** The end of a question and what clients are told of it. None when it is not open. */
export function closingEntries(run: RunState, id: string, closed: Omit<Closed, "at">): readonly NewEntry[] {
  const interrupt = run.interrupts.get(id);
  if (interrupt === undefined) return [];
  const { status, payload, by } = closed;
  const shown = status === "resolved" || status === "cancelled" ? "answered" : status;
  return [
    { kind: "interrupt.answered", id, status, by, ...(payload !== undefined && { payload }) },
    ...(isOperators(interrupt)
      ? []
      : [{ kind: "frame", path: ROOT, event: interruptEvent(interrupt, shown) } as const]),
  ];
}

/** Calls that wait for the client, in the order of their steps. */
export function openClientCalls(run: RunState): { readonly path: Path; readonly toolCallId: string }[] {
  return [...run.steps.values()].flatMap(({ started: { step, path, toolCallId }, finished }) =>
    step === "client-tool" && finished === undefined && toolCallId !== undefined ? [{ path, toolCallId }] : [],
  );
}

function answerEntries(run: RunState, item: Extract<Inbox, { kind: "answer" }>): readonly NewEntry[] {
  const call = openClientCalls(run).find(({ toolCallId }) => toolCallId === item.interrupt);
  if (call === undefined) return closingEntries(run, item.interrupt, item);
  return [
    { kind: "step.finished", path: call.path, via: "client", status: "ok", output: item.payload ?? null, patch: [] },
  ];
}

/** A user went on without answering the calls that the client should have run. */
function notAnsweredByClient(run: RunState, answered: ReadonlySet<string>): readonly NewEntry[] {
  const error = { code: "NOT_ANSWERED", message: "not answered by the client" };
  return openClientCalls(run).flatMap(({ path, toolCallId }): readonly NewEntry[] =>
    answered.has(toolCallId)
      ? []
      : [
          { kind: "step.finished", path, via: "answer", status: "error", error, applied: "no" },
          { kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } },
        ],
  );
}
