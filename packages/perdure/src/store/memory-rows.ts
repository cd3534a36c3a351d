import type { Interrupt } from "../log/entries.ts";
import type { Path, Uid } from "../protocol/words.ts";
import { type Blob, blobsOf } from "./blobs.ts";
import type { Tail } from "./chain.ts";
import type {
  AliasRow,
  Appending,
  InboxRow,
  LogRow,
  NewRun,
  QuestionRow,
  QueuedRow,
  Rows,
  RunChange,
  RunRow,
} from "./rows.ts";
import type { Claim, KeyName, Query, ThreadKey } from "./store.ts";

/** How to take back a change, and then those before it. */
interface Undo {
  readonly take: () => void;
  readonly before: Undo | null;
}

/** The tables as maps. What a transaction changes is noted in `#undo`, so that one that throws leaves nothing. */
export class MemoryRows implements Rows {
  readonly #threads = new Map<string, number>();
  readonly #runs: Mutable<RunRow>[] = [];
  readonly #byUid = new Map<Uid, number>();
  readonly #byThread = new Map<number, number[]>();
  readonly #byParent = new Map<Uid, number[]>();
  readonly #log = new Map<number, LogRow[]>();
  readonly #blobs = new Map<string, string>();
  readonly #inbox = new Map<number, readonly InboxRow[]>();
  readonly #questions: QuestionRow[] = [];
  readonly #byQuestion = new Map<string, number>();
  readonly #byRun = new Map<number, number[]>();
  readonly #aliases = new Map<number, Map<string, AliasRow>>();
  readonly #messages = new Map<number, Set<string>>();
  readonly #claims = new Map<string, Claim>();
  readonly #queues = new Map<number, readonly QueuedRow[]>();
  #inboxRows = 0;
  #undo: Undo | null = null;

  /** Runs `work` whole or not at all. */
  transaction<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      for (let undo = this.#undo; undo !== null; undo = undo.before) undo.take();
      throw error;
    } finally {
      this.#undo = null;
    }
  }

  threadId(key: ThreadKey): number | null {
    return this.#threads.get(threadName(key)) ?? null;
  }

  addThread(key: ThreadKey): number {
    const id = this.#threads.size;
    this.#set(this.#threads, threadName(key), id);
    return id;
  }

  run(uid: Uid): RunRow | null {
    const id = this.#byUid.get(uid);
    return id === undefined ? null : this.runOf(id);
  }

  runOf(id: number): RunRow | null {
    return this.#runs[id] ?? null;
  }

  newestRun(threadId: number): RunRow | null {
    const id = this.#byThread.get(threadId)?.at(-1);
    return id === undefined ? null : this.runOf(id);
  }

  childrenOf(uid: Uid): readonly RunRow[] {
    return (this.#byParent.get(uid) ?? []).flatMap((id) => this.runOf(id) ?? []);
  }

  addRun(run: NewRun): RunRow {
    if (this.#byUid.has(run.uid)) throw new Error(`run ${run.uid} exists`);
    const row = { ...run, id: this.#runs.length, head: -1, updatedAt: run.createdAt };
    this.#push(this.#runs, row);
    this.#set(this.#byUid, run.uid, row.id);
    if (run.threadId !== null) this.#pushTo(this.#byThread, run.threadId, row.id);
    if (run.parent !== null) this.#pushTo(this.#byParent, run.parent.uid, row.id);
    return row;
  }

  changeRun(id: number, change: RunChange): void {
    this.#change(this.#runs, id, change);
  }

  appending(uid: Uid, epoch: number): Appending | null {
    const run = this.run(uid);
    if (run === null || run.owner === null || run.epoch !== epoch || run.aside !== null) return null;
    const { id, threadId, head, leg } = run;
    return { id, uid, threadId, head, leg };
  }

  claimable(now: number): RunRow | null {
    let best: RunRow | null = null;
    for (const run of this.#runs) {
      if (run.readyAt === null || run.readyAt > now || run.aside !== null) continue;
      if (run.owner !== null && run.until > now) continue;
      if (best === null || run.readyAt < (best.readyAt ?? 0)) best = run;
    }
    return best;
  }

  nextReadyAt(): number | null {
    let next: number | null = null;
    for (const run of this.#runs) {
      if (run.readyAt === null || run.aside !== null) continue;
      const at = run.owner === null ? run.readyAt : Math.max(run.readyAt, run.until);
      if (next === null || at < next) next = at;
    }
    return next;
  }

  waitingFor({ tenant, tool, key }: KeyName): readonly RunRow[] {
    return this.#runs.filter(
      ({ waitsForKey: w }) => w !== null && w.tenant === tenant && w.tool === tool && w.key === key,
    );
  }

  asking(kind: Interrupt["kind"]): readonly RunRow[] {
    const asks = new Set(
      this.#questions.flatMap(({ closed, interrupt, runId }) =>
        closed === null && interrupt.kind === kind ? [runId] : [],
      ),
    );
    return this.#runs.filter(({ id, aside }) => asks.has(id) && aside === null);
  }

  voidLeases(owner: string | null): number {
    const held = this.#runs.filter((run) => run.owner !== null && (owner === null || run.owner === owner));
    for (const run of held) this.changeRun(run.id, { owner: null, until: 0 });
    return held.length;
  }

  names(before: number | null, limit: number): readonly RunRow[] {
    const end = Math.min(before ?? this.#runs.length, this.#runs.length);
    return this.#runs.slice(Math.max(0, end - limit), end).reverse();
  }

  runs(query: Query, before: number | null, limit: number): readonly RunRow[] {
    const found: RunRow[] = [];
    const ids = this.#among(query);
    const length = ids?.length ?? this.#runs.length;
    for (let i = length - 1; i >= 0 && found.length < limit; i--) {
      const id = ids === null ? i : (ids[i] ?? -1);
      const run = before === null || id < before ? this.#runs[id] : undefined;
      if (run !== undefined && matches(run, query) && !(query.prunable && this.#isShown(run))) found.push(run);
    }
    return found;
  }

  /** The runs of which only these can be meant, in the order of their ids; `null`: any. */
  #among({ tenant, subject, agent, thread, parent }: Query): readonly number[] | null {
    if (parent !== undefined) return this.#byParent.get(parent) ?? [];
    if (tenant === null || subject === undefined || agent === undefined || thread === undefined) return null;
    const threadId = this.threadId({ tenant, subject, agent, thread });
    return (threadId === null ? undefined : this.#byThread.get(threadId)) ?? [];
  }

  /** Whether the frames of the run that it is a child of refer to its own. */
  #isShown({ parent }: RunRow): boolean {
    return parent !== null && this.run(parent.uid)?.pruned === null;
  }

  addEntries(runId: number, rows: readonly LogRow[]): void {
    const [run, last] = [this.#runs[runId], rows.at(-1)];
    if (run === undefined || last === undefined) return;
    const { head, updatedAt } = run;
    const log = this.#log.get(runId) ?? [];
    this.#log.set(runId, log);
    const { length } = log;
    log.push(...rows);
    // In place: this is done for every frame, and a row has two dozen members.
    [run.head, run.updatedAt] = [last.seq, last.at];
    this.#undone(() => {
      log.length = length;
      [run.head, run.updatedAt] = [head, updatedAt];
    });
  }

  entries(runId: number, after: number, limit: number): readonly LogRow[] {
    const log = this.#log.get(runId) ?? [];
    const from = placeOf(log, after + 1);
    return log.slice(from, from + limit);
  }

  tail(runId: number, seq: number): Tail | null {
    const log = this.#log.get(runId) ?? [];
    for (let i = placeOf(log, seq + 1) - 1; i >= 0; i -= log[i]?.since || 1) {
      const { seq: fact, chain } = log[i] ?? { seq, chain: null };
      if (chain !== null) return { fact, chain };
    }
    return null;
  }

  dropFrames(runId: number): { readonly last: number; readonly texts: readonly string[] } {
    const log = this.#log.get(runId) ?? [];
    const frames = log.filter(({ chain }) => chain === null);
    this.#set(
      this.#log,
      runId,
      log.filter(({ chain }) => chain !== null),
    );
    const texts = frames.flatMap(({ text }) => (blobsOf(text).length > 0 ? [text] : []));
    return { last: frames.at(-1)?.seq ?? -1, texts };
  }

  addBlob({ hash, text }: Blob): void {
    if (!this.#blobs.has(hash)) this.#set(this.#blobs, hash, text);
  }

  blob(hash: string): string | null {
    return this.#blobs.get(hash) ?? null;
  }

  /** Only the log and other blobs refer to blobs here: the rows beside it hold their values themselves. */
  isBlobUsed(hash: string): boolean {
    const texts = [...this.#log.values()].flatMap((log) => log.map(({ text }) => text));
    return [...texts, ...this.#blobs.values()].some((text) => blobsOf(text).includes(hash));
  }

  dropBlob(hash: string): void {
    const text = this.#blobs.get(hash);
    if (text === undefined) return;
    this.#blobs.delete(hash);
    this.#undone(() => this.#blobs.set(hash, text));
  }

  addInbox(runId: number, row: Omit<InboxRow, "row">): void {
    this.#inboxRows += 1;
    this.#set(this.#inbox, runId, [...this.inbox(runId), { ...row, row: this.#inboxRows }]);
  }

  inbox(runId: number): readonly InboxRow[] {
    return this.#inbox.get(runId) ?? [];
  }

  dropInbox(runId: number, row: number): void {
    this.#set(
      this.#inbox,
      runId,
      this.inbox(runId).filter((one) => one.row !== row),
    );
  }

  addQueued(threadId: number, row: Omit<QueuedRow, "n">): void {
    this.#inboxRows += 1;
    this.#set(this.#queues, threadId, [...this.queued(threadId), { ...row, n: this.#inboxRows }]);
  }

  queued(threadId: number): readonly QueuedRow[] {
    return this.#queues.get(threadId) ?? [];
  }

  dropQueued(threadId: number, n: number): void {
    this.#set(
      this.#queues,
      threadId,
      this.queued(threadId).filter((one) => one.n !== n),
    );
  }

  dueThreads(): readonly ThreadKey[] {
    const waiting = [...this.#queues].filter(([, queue]) => queue.length > 0).map(([threadId]) => threadId);
    return waiting.flatMap((threadId) => {
      const { tenant, subject, agent, thread, outcome } = this.newestRun(threadId) ?? { outcome: null };
      if (outcome === null || thread === undefined || thread === null) return [];
      return [{ tenant, subject, agent, thread }];
    });
  }

  question(id: string): QuestionRow | null {
    return this.#questions[this.#byQuestion.get(id) ?? -1] ?? null;
  }

  questionAt(runId: number, path: Path): QuestionRow | null {
    const mine = this.#questionsOf(runId);
    return mine.find(({ interrupt }) => interrupt.kind === "client-tool" && interrupt.path === path) ?? null;
  }

  openQuestions(runId: number): readonly QuestionRow[] {
    return this.#questionsOf(runId).filter((question) => question.closed === null);
  }

  addQuestion(question: Omit<QuestionRow, "n">): void {
    if (this.#byQuestion.has(question.interrupt.id)) throw new Error(`question ${question.interrupt.id} exists`);
    const n = this.#questions.length;
    this.#push(this.#questions, { ...question, n });
    this.#set(this.#byQuestion, question.interrupt.id, n);
    this.#pushTo(this.#byRun, question.runId, n);
  }

  changeQuestion(n: number, change: Partial<QuestionRow>): void {
    this.#change(this.#questions, n, change);
  }

  questions(query: Query, after: number | null, limit: number): readonly (QuestionRow & { run: RunRow })[] {
    const found: (QuestionRow & { run: RunRow })[] = [];
    for (const question of this.#questions.slice((after ?? -1) + 1)) {
      const run = this.runOf(question.runId);
      if (question.closed !== null || question.interrupt.kind === "client-tool") continue;
      if (run === null || run.aside !== null || !matches(run, query)) continue;
      if (found.push({ ...question, run }) === limit) break;
    }
    return found;
  }

  alias(threadId: number, runId: string): AliasRow | null {
    return this.#aliases.get(threadId)?.get(runId) ?? null;
  }

  setAlias(threadId: number, runId: string, alias: AliasRow): void {
    const aliases = this.#aliases.get(threadId) ?? new Map<string, AliasRow>();
    this.#set(this.#aliases, threadId, aliases);
    this.#set(aliases, runId, alias);
  }

  settleAliases(runId: number, leg: number): void {
    const threadId = this.runOf(runId)?.threadId ?? -1;
    const aliases = this.#aliases.get(threadId) ?? new Map<string, AliasRow>();
    for (const [name, alias] of aliases) {
      if (alias.runId === runId && alias.leg === null) this.#set(aliases, name, { ...alias, leg });
    }
  }

  hasMessage(threadId: number, id: string): boolean {
    return this.#messages.get(threadId)?.has(id) ?? false;
  }

  addMessage(threadId: number, id: string): void {
    const ids = this.#messages.get(threadId) ?? new Set<string>();
    this.#set(this.#messages, threadId, ids);
    if (ids.has(id)) return;
    ids.add(id);
    this.#undone(() => ids.delete(id));
  }

  claim(key: KeyName): Claim | null {
    return this.#claims.get(keyName(key)) ?? null;
  }

  claimsOf(holder: Uid): readonly Claim[] {
    return [...this.#claims.values()].filter((claim) => claim.holder.uid === holder);
  }

  setClaim(claim: Claim): void {
    this.#set(this.#claims, keyName(claim), claim);
  }

  #questionsOf(runId: number): QuestionRow[] {
    return (this.#byRun.get(runId) ?? []).flatMap((n) => this.#questions[n] ?? []);
  }

  #undone(take: () => void): void {
    this.#undo = { take, before: this.#undo };
  }

  #set<K, V>(map: Map<K, V>, key: K, value: V): void {
    const before = map.get(key);
    map.set(key, value);
    this.#undone(() => (before === undefined ? map.delete(key) : map.set(key, before)));
  }

  #push<T>(list: T[], item: T): void {
    list.push(item);
    this.#undone(() => list.pop());
  }

  #pushTo<K, T>(map: Map<K, T[]>, key: K, item: T): void {
    const list = map.get(key) ?? [];
    this.#set(map, key, list);
    this.#push(list, item);
  }

  #change<T extends object>(list: T[], index: number, change: Partial<T>): void {
    const before = list[index];
    if (before === undefined) return;
    list[index] = { ...before, ...change };
    this.#undone(() => {
      list[index] = before;
    });
  }
}

function matches(run: RunRow, query: Query): boolean {
  return (
    (query.tenant === null || run.tenant === query.tenant) &&
    (query.subject === undefined || run.subject === query.subject) &&
    (query.agent === undefined || run.agent === query.agent) &&
    (query.thread === undefined || run.thread === query.thread) &&
    (query.run === undefined || run.uid === query.run) &&
    (query.parent === undefined || run.parent?.uid === query.parent) &&
    (query.prunable !== true || (run.outcome !== null && run.pruned === null && run.aside === null))
  );
}

/** Where an entry stands in a log, or the next one behind it: at its own `seq`, until frames before it were pruned. */
function placeOf(log: readonly LogRow[], seq: number): number {
  if (log[seq]?.seq === seq) return seq;
  let [low, high] = [0, log.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((log[middle]?.seq ?? 0) < seq) low = middle + 1;
    else high = middle;
  }
  return low;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** A list as JSON: no separator that a name could hold. */
const threadName = (key: ThreadKey) => JSON.stringify([key.tenant, key.subject, key.agent, key.thread]);
const keyName = (key: KeyName) => JSON.stringify([key.tenant, key.tool, key.key]);
