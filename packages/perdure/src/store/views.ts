import { type Added, type Interrupt, parseAdded, parseRequest } from "../log/entries.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Uid } from "../protocol/words.ts";
import { StoreDamagedError } from "./errors.ts";
import { readEntry } from "./log-rows.ts";
import type { AliasRow, InboxRow, QuestionRow, Rows, RunRow } from "./rows.ts";
import type { Inbox, Question, Queued, Run, ThreadView } from "./store.ts";

/** The run without what only the store needs to know. */
export function publicRun(row: RunRow): Run {
  const { id: _id, threadId: _threadId, until: _until, ...run } = row;
  return run;
}

export function publicQuestion({ interrupt, openedAt, closed, contested }: QuestionRow, uid: Uid): Question {
  return { uid, interrupt, openedAt, closed, contested };
}

/** The thread as a POST finds it. */
export function viewOf(
  { rows, at }: { readonly rows: Rows; readonly at: number },
  threadId: number | null,
  newest: RunRow | null,
  runId: string,
): ThreadView {
  const alias = threadId === null ? null : rows.alias(threadId, runId);
  return {
    run: newest === null ? null : { ...publicRun(newest), ...restOf(rows, at, newest) },
    open: newest === null ? [] : openQuestions(rows, newest),
    queued: threadId === null ? [] : queuedOf(rows, threadId),
    known: alias === null ? null : knownLeg(rows, alias),
    hasMessage: (id) => threadId !== null && rows.hasMessage(threadId, id),
    closed(interrupt) {
      const question = threadId === null ? null : rows.question(interrupt);
      const run = question === null ? null : rows.runOf(question.runId);
      if (question === null || run === null || rootOf(rows, run)?.threadId !== threadId) return null;
      return question.closed;
    },
  };
}

/** @throws {@link StoreDamagedError} */
export function queuedOf(rows: Rows, threadId: number): readonly Queued[] {
  return rows.queued(threadId).map(({ n, cancels, text }) => {
    const request = parseJson(text);
    if (!isJsonObject(request)) throw new StoreDamagedError(`queue row ${n} cannot be read`);
    return { n, cancels, request: parseRequest(request, { run: null, seq: null }) };
  });
}

/** Those of a run, and of all below it. What its children left to their clients is nobody's to answer here. */
function openQuestions(rows: Rows, run: RunRow): Interrupt[] {
  const own = rows.openQuestions(run.id).map(({ interrupt }) => interrupt);
  const childrens = rows
    .childrenOf(run.uid)
    .flatMap((child) => openQuestions(rows, child).map((asked) => ({ ...asked, subagentRunId: askedBy(asked, child) })))
    .filter(({ kind }) => kind !== "client-tool");
  return [...own, ...childrens];
}

/** The innermost run that asks. A subagent of a body of the user's own is not a run. */
function askedBy({ id, subagentRunId }: Interrupt, child: RunRow): string {
  return subagentRunId !== undefined && !id.startsWith(`${child.uid}:`) ? subagentRunId : child.uid;
}

/** The run of a thread that a child belongs to, however deep. */
function rootOf(rows: Rows, run: RunRow): RunRow | null {
  let root: RunRow | null = run;
  while (root?.parent) root = rows.run(root.parent.uid);
  return root;
}

/** A run is at rest when nothing of it goes on without something from outside, and nothing has come in. */
function restOf(rows: Rows, at: number, run: RunRow): { atRest: boolean; legDue: boolean } {
  const inbox = rows.inbox(run.id);
  const ready = run.readyAt !== null && run.readyAt <= at;
  return {
    atRest: !run.legOpen && inbox.length === 0 && run.owner === null && !ready,
    // What comes in while no leg is open opens one, without a request too.
    legDue: inbox.some((row) => isRequest(row)) || (run.outcome === null && !run.legOpen && inbox.length > 0),
  };
}

export function isRequest(row: InboxRow): boolean {
  return row.text.startsWith('{"kind":"request"');
}

function knownLeg(rows: Rows, alias: AliasRow): NonNullable<ThreadView["known"]> {
  const run = rows.runOf(alias.runId);
  if (run === null) throw new StoreDamagedError(`the run of an AG-UI run id is missing (row ${alias.runId})`);
  return { uid: run.uid, leg: alias.leg, added: addedBy(rows, alias, run) };
}

function addedBy(rows: Rows, alias: AliasRow, run: RunRow): Added {
  if (alias.added !== null) return parseAdded(parseJson(alias.added), { run: run.uid, seq: alias.seq });
  const seq = alias.seq ?? -1;
  const [row] = rows.entries(run.id, seq - 1, 1);
  const entry = row?.seq === seq ? readEntry(rows, run.uid, row) : null;
  if (entry?.kind !== "leg.started") throw new StoreDamagedError(`entry ${seq} of run ${run.uid} is not a leg.started`);
  const { messages, results, resume } = entry.request ?? { messages: [], results: [], resume: [] };
  return { messages, results, resume };
}

/** The inbox as the driver gets it: an answer with the reply that its question's row holds. */
export function inboxOf(rows: Rows, run: RunRow): readonly Inbox[] {
  return rows.inbox(run.id).map((row) => {
    const { row: n, at, by } = row;
    const item = parseJson(row.text);
    const damaged = () => new StoreDamagedError(`inbox row ${n} of run ${run.uid} cannot be read`);
    if (!isJsonObject(item)) throw damaged();
    const place = { run: run.uid, seq: null };
    switch (item.kind) {
      case "request":
        return { row: n, at, by, kind: item.kind, request: parseRequest(item.request, place) };
      case "answer": {
        const question = typeof item.interrupt === "string" ? rows.question(item.interrupt) : null;
        if (question === null || question.closed === null) throw damaged();
        const { closed, interrupt } = question;
        if (closed.status !== "resolved" && closed.status !== "cancelled") throw damaged();
        const payload = closed.payload === undefined ? {} : { payload: closed.payload };
        const id = interrupt.kind === "client-tool" ? (interrupt.toolCallId ?? interrupt.id) : interrupt.id;
        return { row: n, at, by, kind: item.kind, interrupt: id, status: closed.status, ...payload };
      }
      case "cancel":
      case "abandon":
        return { row: n, at, by, kind: item.kind };
      case "message":
      case "signal":
      case "raise":
      case "accept":
        if (item.payload === undefined) throw damaged();
        return { row: n, at, by, kind: item.kind, payload: item.payload };
      default:
        throw damaged();
    }
  });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // whoever asked for it says what it was to be
  }
}
