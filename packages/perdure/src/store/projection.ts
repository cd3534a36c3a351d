import type { NewEntry } from "../log/entries.ts";
import type { Path } from "../protocol/words.ts";
import type { Appending, QuestionRow, RunChange } from "./rows.ts";
import type { Closed } from "./store.ts";
import { misused, Refused, type Tx } from "./tx.ts";

/**
 * What an entry does to the rows beside the log, in the same transaction: this is why no row can say anything else than the log.
 *
 * @returns what of the run's own row changes
 */
export function applyEntry(tx: Tx, run: Appending, entry: NewEntry, seq: number): RunChange {
  switch (entry.kind) {
    case "leg.started":
      nameLeg(tx, run, entry.leg, entry.runId, seq);
      if (run.threadId !== null && entry.request !== null) {
        const { messages, results } = entry.request;
        for (const message of [...messages, ...results]) tx.rows.addMessage(run.threadId, message.id);
      }
      return { leg: entry.leg, legOpen: true };
    case "leg.finished":
      return { legOpen: false };
    case "run.finished":
      return { outcome: entry.outcome };
    case "interrupt.opened":
      ask(tx, run, entry.interrupt);
      return {};
    case "step.started":
      if (entry.step === "client-tool") askClient(tx, run, entry.path, entry.name, entry.toolCallId);
      return {};
    case "interrupt.answered": {
      const question = tx.rows.question(entry.id);
      if (question === null || question.runId !== run.id) throw misused(`run ${run.uid} has no question ${entry.id}`);
      const { status, by } = entry;
      const closed = { status, by, at: tx.at, ...(entry.payload === undefined ? {} : { payload: entry.payload }) };
      close(tx, run, question, closed);
      return {};
    }
    case "step.finished": {
      const call = tx.rows.questionAt(run.id, entry.path);
      // The client's own result has closed it, but in a fork, whose history comes all at once.
      if (call !== null && (entry.via !== "client" || call.closed === null)) {
        close(tx, run, call, { status: entry.via === "client" ? "resolved" : "withdrawn", by: "", at: tx.at });
      }
      return {};
    }
    default:
      return {};
  }
}

/** The leg's run id becomes, or is already, a name of it in the thread. What its request added now stands in the log at `seq`. */
function nameLeg(tx: Tx, run: Appending, leg: number, runId: string, seq: number): void {
  if (run.threadId === null) return;
  const alias = tx.rows.alias(run.threadId, runId);
  if (alias !== null && alias.runId !== run.id) return;
  tx.rows.setAlias(run.threadId, runId, { runId: run.id, leg, added: null, seq });
}

function ask(tx: Tx, run: Appending, interrupt: QuestionRow["interrupt"]): void {
  if (tx.rows.question(interrupt.id) !== null) throw misused(`question ${interrupt.id} was asked before`);
  tx.rows.addQuestion({ runId: run.id, openedAt: tx.at, interrupt, closed: null, contested: [] });
}

/** A call that the client runs is a row like a question's. Its own id is unique in its thread alone, so the row's is another. */
function askClient(tx: Tx, run: Appending, path: Path, name: string, toolCallId: string | undefined): void {
  if (toolCallId === undefined) throw misused(`client tool ${name} at ${path} has no toolCallId`);
  ask(tx, run, {
    id: `${run.uid}:client:${path}`,
    path,
    kind: "client-tool",
    reason: "client-tool",
    message: name,
    toolCallId,
    schema: true,
    argsHash: null,
    audience: null,
    expiresAt: null,
  });
}

/**
 * Closes a question on the driver's word. If somebody has answered it meanwhile, and the driver does not know, that answer is still in the
 * inbox: it was accepted, so it counts, and the batch that would overrule it is refused.
 */
function close(tx: Tx, run: Appending, question: QuestionRow, closed: Closed): void {
  const { n, interrupt, closed: before } = question;
  if (before === null) {
    tx.rows.changeQuestion(n, { closed });
    return;
  }
  if (tx.rows.inbox(run.id).some((row) => isAnswerTo(row.text, interrupt.id))) throw new Refused({ is: "inbox" });
  if (interrupt.kind !== "client-tool" && before.status !== closed.status) {
    throw misused(`question ${interrupt.id} was ${before.status}, not ${closed.status}`);
  }
}

function isAnswerTo(text: string, interrupt: string): boolean {
  return text === JSON.stringify({ kind: "answer", interrupt });
}
