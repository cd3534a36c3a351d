/**
 * What an embedded store does, each in one transaction over its `Rows`. Memory and SQLite run these very functions, so they cannot differ in
 * a rule. A function that throws leaves nothing behind: the engine takes its changes back.
 *
 * The numbers cite the invariants of `store.ts`.
 */
import { checkRequest, type Fact, type NewEntry } from "../log/entries.ts";
import { toJson } from "../protocol/json.ts";
import { checkPayload } from "../protocol/payload.ts";
import type { Uid } from "../protocol/words.ts";
import { blobsOf } from "./blobs.ts";
import { changeClaim } from "./claims.ts";
import { addEntries, type Stored, stored } from "./log-rows.ts";
import { applyEntry } from "./projection.ts";
import type { Appending, RunChange, RunRow } from "./rows.ts";
import type {
  Answer,
  Answered,
  Appended,
  Batch,
  Claim,
  ClaimChange,
  Closed,
  InboxItem,
  Lease,
  Meaning,
  Outside,
  Posted,
  Pruned,
  ThreadKey,
  ThreadView,
} from "./store.ts";
import { covers } from "./store.ts";
import { misused, Refused, type Tx } from "./tx.ts";
import { isRequest, publicRun, viewOf } from "./views.ts";

export function append(tx: Tx, lease: Lease, batch: Batch): Appended {
  const entries = batch.entries.map(stored);
  const run = tx.rows.appending(lease.uid, lease.epoch);
  if (run === null) throw new Refused({ is: "fenced" });
  if (batch.behind !== undefined && batch.behind !== run.head) throw new Refused({ is: "fenced" });
  const requests = batch.taken === undefined ? 0 : takeInbox(tx, run, batch.taken);
  const change = record(tx, run, entries);
  if (requests > 0 || change.leg !== undefined) tx.rows.settleAliases(run.id, change.leg ?? run.leg);
  if (batch.claims !== undefined) for (const claim of batch.claims) moveClaim(tx, claim);
  if (batch.starts !== undefined) for (const first of batch.starts) beginChild(tx, run, first);
  if (batch.ends !== undefined) Object.assign(change, endLease(tx, run, batch.ends));
  if (Object.keys(change).length > 0) tx.rows.changeRun(run.id, change);
  if (change.outcome !== undefined) {
    wakeHeirs(tx, run.uid);
    if (run.threadId !== null && tx.rows.queued(run.threadId).length > 0) tx.news.push("claimable");
  }
  if (change.owner === null) tellParent(tx, run);
  if (entries.length > 0) tx.news.push({ appendedTo: run.uid, seq: run.head + 1, at: tx.at, entries });
  return { is: "appended", head: run.head + entries.length, at: tx.at };
}

/** Deletes the rows that become entries of this batch (3). @returns how many of them are requests */
function takeInbox(tx: Tx, run: Appending, taken: readonly number[]): number {
  const inbox = new Map(tx.rows.inbox(run.id).map((row) => [row.row, row]));
  let requests = 0;
  for (const row of taken) {
    const item = inbox.get(row);
    if (item === undefined) throw misused(`inbox row ${row} of run ${run.uid} is not there to be taken`);
    if (isRequest(item)) requests += 1;
    tx.rows.dropInbox(run.id, row);
  }
  return requests;
}

/** Appends to the log (1) and moves the rows that the entries speak of. */
function record(tx: Tx, run: Appending, entries: readonly Stored[]): RunChange {
  const first = run.head + 1;
  addEntries(tx.rows, run, tx.at, entries);
  const change: RunChange = {};
  entries.forEach(({ entry }, i) => {
    if (entry.kind !== "frame") Object.assign(change, applyEntry(tx, run, entry, first + i));
  });
  return change;
}

function endLease(tx: Tx, run: Appending, ends: NonNullable<Batch["ends"]>): RunChange {
  if (!ends.runnable && tx.rows.inbox(run.id).length > 0) throw new Refused({ is: "inbox" }); // (4)
  if (ends.children?.some((child) => hasMoved(tx, child))) throw new Refused({ is: "inbox" });
  // A key that was given back since the driver saw it held wakes nobody any more: such a run must not lie down.
  const waits = ends.waitsForKey !== null && isBusy(tx, tx.rows.claim(ends.waitsForKey)) ? ends.waitsForKey : null;
  const now = ends.runnable || (ends.waitsForKey !== null && waits === null);
  const readyAt = now ? tx.at : ends.wakeAt;
  if (readyAt !== null) tx.news.push("claimable");
  return { owner: null, until: 0, readyAt, waitsForKey: waits };
}

function moveClaim(tx: Tx, change: ClaimChange): void {
  const is = tx.rows.claim(change);
  const holderDead = is !== null && isDead(tx, is.holder.uid);
  const moved = changeClaim(is, change, { at: tx.at, holderDead, ttl: tx.claimTtl });
  if ("held" in moved) throw new Refused({ is: "held", claim: moved.held });
  tx.rows.setClaim(moved.to);
  if (change.to !== "running") wakeWaiting(tx, moved.to);
}

/** Whether to wait for it makes sense: its holder may still settle it. */
function isBusy(tx: Tx, claim: Claim | null): boolean {
  if (claim === null || claim.state === "settled" || claim.state === "released") return false;
  return !isDead(tx, claim.holder.uid);
}

function isDead(tx: Tx, holder: Uid): boolean {
  const run = tx.rows.run(holder);
  return run === null || run.outcome !== null;
}

function wakeWaiting(tx: Tx, claim: Claim): void {
  if (isBusy(tx, claim)) return;
  for (const run of tx.rows.waitingFor(claim)) wake(tx, run);
}

/** A run that ends leaves the questions of its keys to whoever waits for them. */
function wakeHeirs(tx: Tx, ended: Uid): void {
  for (const claim of tx.rows.claimsOf(ended)) wakeWaiting(tx, claim);
}

/** Runs that wait for another deployment look at the one that opens the store. @returns how many there are */
export function wakeForDeployment(tx: Tx): number {
  const runs = [...tx.rows.asking("contract-changed"), ...tx.rows.asking("diverged")];
  for (const run of runs) wake(tx, run);
  return runs.length;
}

export function wakeUp(tx: Tx, uid: Uid): void {
  const run = tx.rows.run(uid);
  if (run !== null && run.outcome === null) wake(tx, run);
}

/** Makes a run claimable now, and those above it, which show what it does; one that is being driven stays so, but for its hint. */
function wake(tx: Tx, run: RunRow): void {
  const readyAt = run.readyAt === null ? tx.at : Math.min(run.readyAt, tx.at);
  tx.rows.changeRun(run.id, { readyAt, waitsForKey: null });
  tx.news.push({ run: run.uid }, { inbox: run.uid }, "claimable");
  wakeParent(tx, run);
}

/** One that is being driven looks at its children itself. */
function wakeParent(tx: Tx, { parent }: RunRow): void {
  const run = parent === null ? null : tx.rows.run(parent.uid);
  if (run !== null && run.outcome === null && run.owner === null) wake(tx, run);
}

/** A child rests or has ended. */
function tellParent(tx: Tx, { id }: Appending): void {
  const run = tx.rows.runOf(id);
  if (run === null || run.parent === null) return;
  // Whoever drives the parent may have nothing new to read, and has to look.
  tx.news.push({ run: run.uid });
  if (run.outcome !== null || (run.readyAt !== null && run.readyAt <= tx.at)) wakeParent(tx, run);
}

/** Whether a child has gone on, is about to, or has ended since its parent looked. */
function hasMoved(tx: Tx, { uid, head }: { readonly uid: Uid; readonly head: number }): boolean {
  const run = tx.rows.run(uid);
  if (run === null || run.head !== head || run.outcome !== null || run.aside !== null) return true;
  return run.owner !== null || (run.readyAt !== null && run.readyAt <= tx.at);
}

/** A child exists from the batch of its step on, and only once. */
function beginChild(tx: Tx, parent: Appending, first: readonly NewEntry[]): void {
  const [start] = first;
  if (start?.kind !== "run.started" || start.parent?.uid !== parent.uid || start.thread !== null) {
    throw misused(`a child of run ${parent.uid} begins with a run.started that says so, and belongs to no thread`);
  }
  const { uid, owner, agent, turn, labels } = start;
  if (tx.rows.run(uid) !== null) throw misused(`run ${uid} exists`);
  const run = tx.rows.addRun({
    ...{ uid, ...owner, agent, thread: null, threadId: null, turn, labels, createdAt: tx.at },
    ...{ leg: 0, legOpen: false, outcome: null, readyAt: tx.at, owner: null, epoch: 0, until: 0 },
    ...{ waitsForKey: null, aside: null, pruned: null, parent: start.parent },
  });
  tx.rows.changeRun(run.id, record(tx, run, first.map(stored)));
  tx.news.push({ run: uid }, "claimable");
}

export function post<M extends Meaning>(
  tx: Tx,
  request: { readonly key: ThreadKey; readonly runId: string; readonly owner: string },
  decide: (view: ThreadView) => M,
): Posted<M> {
  const threadId = tx.rows.threadId(request.key);
  const newest = threadId === null ? null : tx.rows.newestRun(threadId);
  const view = viewOf(tx, threadId, newest, request.runId);
  const decided = decide(view);
  const meaning: Meaning = decided;
  let lease: Lease | null = null;
  switch (meaning.is) {
    case "run":
      lease = beginRun(tx, request, view, meaning);
      break;
    case "queue":
      if (threadId === null || newest === null || meaning.uid !== newest.uid) {
        throw misused(`run ${meaning.uid} is not the newest of its thread`);
      }
      enqueue(tx, threadId, newest, view, meaning);
      break;
    case "queued":
      break;
    case "leg":
    case "rejoin":
    case "hydrate":
      // The same request again: whatever it brought is there, perhaps in a run that is no longer the newest.
      if (view.known !== null && meaning.is !== "leg") break;
      if (threadId === null || newest === null || meaning.uid !== newest.uid) {
        throw misused(`run ${meaning.uid} is not the newest of its thread`);
      }
      goOn(tx, threadId, newest, view, request.runId, meaning);
      // Whoever takes in what it waits for drives it on: a claim of its own would be one more commit.
      if (meaning.is === "leg") lease = claimRested(tx, newest.uid, request.owner);
      break;
    case "refuse":
      for (const answer of meaning.contested ?? []) contest(tx, answer);
      break;
    default:
      meaning satisfies never;
  }
  const uid = lease?.uid ?? ("uid" in meaning ? meaning.uid : null);
  const run = uid === null ? null : tx.rows.run(uid);
  return { meaning: decided, run: run === null ? null : publicRun(run), lease };
}

function beginRun(
  tx: Tx,
  { key, runId, owner }: { readonly key: ThreadKey; readonly runId: string; readonly owner: string },
  view: ThreadView,
  { first, queued }: Extract<Meaning, { is: "run" }>,
): Lease {
  const [start] = first;
  if (start?.kind !== "run.started") throw misused("a run begins with run.started");
  if (view.known !== null) throw misused(`run id ${runId} is known in its thread`);
  if (view.run !== null && view.run.outcome === null)
    throw misused(`run ${view.run.uid} of the thread is not finished`);
  if (tx.rows.run(start.uid) !== null) throw misused(`run ${start.uid} exists`);
  const [next, ...later] = view.queued;
  if (next?.n !== queued) throw misused(`run ${start.uid} begins before what waits in its thread`);
  const lease = { uid: start.uid, epoch: 1, owner, until: tx.at + tx.leaseMs, span: tx.leaseMs };
  const run = tx.rows.addRun({
    ...key,
    uid: start.uid,
    threadId: tx.rows.threadId(key) ?? tx.rows.addThread(key),
    turn: start.turn,
    labels: start.labels,
    createdAt: tx.at,
    leg: 0,
    legOpen: false,
    outcome: null,
    readyAt: tx.at, // it stays so under the lease: if its driver dies at once, somebody claims it
    owner,
    epoch: lease.epoch,
    until: lease.until,
    waitsForKey: null,
    aside: null,
    pruned: null,
    parent: null,
  });
  const change = record(tx, run, first.map(stored));
  tx.rows.changeRun(run.id, change);
  if (queued !== undefined && run.threadId !== null) tx.rows.dropQueued(run.threadId, queued);
  const canceller = later.find(({ cancels }) => cancels);
  if (canceller !== undefined) addInbox(tx, run, canceller.request.principal.subject, { kind: "cancel" });
  tx.news.push({ run: run.uid }, { thread: key });
  return lease;
}

/** The request waits, durably, for its turn. Its messages are the thread's from now on: sent again, they are no news. */
function enqueue(
  tx: Tx,
  threadId: number,
  run: RunRow,
  view: ThreadView,
  { request, answers, cancels }: Extract<Meaning, { is: "queue" }>,
): void {
  const { runId, messages, principal } = request;
  if (view.known !== null || view.queued.some((other) => other.request.runId === runId)) {
    throw misused(`run id ${runId} is known in its thread`);
  }
  checkRequest(request);
  for (const message of messages) tx.rows.addMessage(threadId, message.id);
  for (const one of answers) {
    if (answer(tx, one).is !== "taken") throw misused(`question ${one.interrupt} is not open`);
  }
  tx.rows.addQueued(threadId, { at: tx.at, cancels, text: text(request) });
  if (run.outcome !== null) tx.news.push("claimable");
  else if (cancels) {
    addInbox(tx, run, principal.subject, { kind: "cancel" });
    wake(tx, run);
  }
}

/** A leg, rejoin or hydrate of the newest run: its alias, its answers and, for a leg, its request. */
function goOn(
  tx: Tx,
  threadId: number,
  run: RunRow,
  view: ThreadView,
  runId: string,
  meaning: Extract<Meaning, { is: "leg" | "rejoin" | "hydrate" }>,
): void {
  const { added, leg } =
    meaning.is === "leg"
      ? { added: meaning.request, leg: null }
      : { added: meaning.added, leg: meaning.is === "rejoin" && view.run?.legDue === true ? null : run.leg };
  if (view.known !== null) throw misused(`run id ${runId} is known in its thread`);
  const { messages, results, resume } = added;
  tx.rows.setAlias(threadId, runId, { runId: run.id, leg, added: text({ messages, results, resume }), seq: null });
  if (meaning.is === "hydrate") return;
  if (meaning.is === "leg") {
    if (run.legOpen || tx.rows.inbox(run.id).some(isRequest)) throw misused(`a leg of run ${run.uid} is open or due`);
    if (run.outcome !== null) throw misused(`run ${run.uid} is finished`);
    // The driver is to find nothing in its inbox that the log does not take.
    checkRequest(meaning.request);
    for (const message of messages) tx.rows.addMessage(threadId, message.id);
    addInbox(tx, run, meaning.request.principal.subject, { kind: "request", request: meaning.request });
    wake(tx, run);
  }
  for (const result of results) tx.rows.addMessage(threadId, result.id);
  for (const one of meaning.answers) {
    const answered = answer(tx, one);
    if (answered.is !== "taken") throw misused(`question ${one.interrupt} is not open`);
  }
}

export function answer(tx: Tx, { interrupt, by, ...reply }: Answer): Answered {
  checkPayload(reply.payload, `the answer to interrupt ${interrupt}`);
  const question = tx.rows.question(interrupt);
  const run = question === null ? null : tx.rows.runOf(question.runId);
  if (question === null || run === null || run.tenant !== by.tenant) return { is: "none" };
  if (question.closed !== null) {
    if (covers(question.closed, reply)) return { is: "covered", uid: run.uid };
    contest(tx, { interrupt, by, ...reply });
    return { is: "conflict", uid: run.uid, ...question.closed };
  }
  const closed: Closed = { ...reply, by: by.subject, at: tx.at };
  tx.rows.changeQuestion(question.n, { closed }); // (5)
  addInbox(tx, run, by.subject, { kind: "answer", interrupt });
  wake(tx, run);
  return { is: "taken", uid: run.uid };
}

/** How many later callers a question's row remembers. */
const CONTESTED = 10;

function contest(tx: Tx, { interrupt, by, status }: Answer): void {
  const question = tx.rows.question(interrupt);
  if (question === null) return;
  const note = { by: by.subject, at: tx.at, status };
  tx.rows.changeQuestion(question.n, { contested: [...question.contested, note].slice(-CONTESTED) });
}

export function put(tx: Tx, uid: Uid, by: string, item: Outside): "put" | "finished" | "none" {
  const run = tx.rows.run(uid);
  if (run === null) return "none";
  if (run.outcome !== null) return "finished";
  if ("payload" in item) checkPayload(item.payload, `the payload of a ${item.kind} to run ${uid}`);
  addInbox(tx, run, by, item);
  wake(tx, run);
  return "put";
}

/** An answer's reply stands on its question's row alone. */
function addInbox(tx: Tx, run: RunRow, by: string, item: Exclude<InboxItem, { kind: "answer" }> | AnswerRow): void {
  const { kind, ...rest } = item;
  tx.rows.addInbox(run.id, { at: tx.at, by, text: text({ kind, ...rest }) });
}
type AnswerRow = { readonly kind: "answer"; readonly interrupt: string };

export function claim(tx: Tx, owner: string): Lease | null {
  const run = tx.rows.claimable(tx.at);
  return run === null ? null : claimRun(tx, run, owner);
}

function claimRested(tx: Tx, uid: Uid, owner: string): Lease | null {
  const run = tx.rows.run(uid);
  return run === null || run.owner !== null || run.aside !== null ? null : claimRun(tx, run, owner);
}

function claimRun(tx: Tx, run: RunRow, owner: string): Lease {
  const lease = { uid: run.uid, epoch: run.epoch + 1, owner, until: tx.at + tx.leaseMs, span: tx.leaseMs };
  // `readyAt` stays in the past: if this driver dies too, the next one finds the run by it.
  tx.rows.changeRun(run.id, { owner, epoch: lease.epoch, until: lease.until, waitsForKey: null });
  // A timer of its own has woken it: nobody has told those above.
  wakeParent(tx, run);
  return lease;
}

export function renew(tx: Tx, lease: Lease): Lease | null {
  const run = tx.rows.run(lease.uid);
  if (run === null || run.owner === null || run.epoch !== lease.epoch) return null;
  const until = tx.at + tx.leaseMs;
  tx.rows.changeRun(run.id, { until });
  return { ...lease, until, span: tx.leaseMs };
}

/** (7) */
export function prune(
  tx: Tx,
  { uid, head }: { readonly uid: Uid; readonly head: number },
  transcript: Stored & { readonly entry: Fact<"transcript"> },
): Pruned {
  const run = tx.rows.run(uid);
  if (run === null) return "none";
  if (run.outcome === null) return "unfinished";
  if (run.pruned !== null) return "already";
  if (run.owner !== null) return "driven";
  if (run.head !== head) return "moved";
  if (run.parent !== null && tx.rows.run(run.parent.uid)?.pruned === null) return "shown";
  const { last, texts } = tx.rows.dropFrames(run.id);
  addEntries(tx.rows, run, tx.at, [transcript]);
  tx.rows.changeRun(run.id, { pruned: last });
  dropBlobs(tx, texts);
  tx.news.push({ appendedTo: uid, seq: head + 1, at: tx.at, entries: [transcript] });
  return "pruned";
}

/** The blobs that these texts, which are gone, referred to, and nothing else does. */
function dropBlobs(tx: Tx, texts: readonly string[]): void {
  for (const hash of new Set(texts.flatMap(blobsOf))) {
    const text = tx.rows.blob(hash);
    if (text === null || tx.rows.isBlobUsed(hash)) continue;
    tx.rows.dropBlob(hash);
    dropBlobs(tx, [text]);
  }
}

export function setAside(tx: Tx, uid: Uid, cause: string): void {
  const run = tx.rows.run(uid);
  if (run === null || run.aside !== null) return;
  tx.rows.changeRun(run.id, { aside: cause, owner: null, until: 0 });
  tx.news.push({ run: uid }, { inbox: uid });
  wakeParent(tx, run);
}

function text(value: unknown): string {
  return JSON.stringify(toJson(value));
}
