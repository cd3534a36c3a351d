import type { Interrupt } from "../log/entries.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Blob } from "./blobs.ts";
import type { Tail } from "./chain.ts";
import type { Claim, Closed, KeyName, Query, Question, Run, ThreadKey } from "./store.ts";

/** A run with what only the store needs to know. `id` orders runs by their beginning. */
export interface RunRow extends Run {
  readonly id: number;
  readonly threadId: number | null;
  /** When its lease expires. */
  readonly until: number;
}

/** A run that has no entry yet. */
export type NewRun = Omit<RunRow, "id" | "head" | "updatedAt">;

/** What of a run an append has to know. */
export type Appending = Pick<RunRow, "id" | "uid" | "threadId" | "head" | "leg">;

/** What of a run's row changes after it was made. `head` and `updatedAt` follow the log. */
export type RunChange = Partial<
  Pick<
    RunRow,
    "leg" | "legOpen" | "outcome" | "readyAt" | "owner" | "epoch" | "until" | "waitsForKey" | "aside" | "pruned"
  >
>;

/** A log row; `log-rows.ts` says what its columns mean. */
export interface LogRow {
  readonly seq: number;
  readonly at: number;
  readonly text: string;
  /** How many rows before it the last fact is; 0: it is one. */
  readonly since: number;
  /** Of a fact. */
  readonly chain: string | null;
}

export interface InboxRow {
  readonly row: number;
  readonly at: number;
  readonly by: string;
  /** JSON of an `InboxItem`; that of an answer lacks what its question's row has. */
  readonly text: string;
}

/** A request that waits in its thread. */
export interface QueuedRow {
  readonly n: number;
  readonly at: number;
  readonly cancels: boolean;
  /** JSON of a `LegRequest`. */
  readonly text: string;
}

export interface QuestionRow {
  readonly n: number;
  readonly runId: number;
  readonly openedAt: number;
  readonly interrupt: Interrupt;
  readonly closed: Closed | null;
  readonly contested: Question["contested"];
}

/** An AG-UI run id of a thread. What its request added stands in `added`, or in the `leg.started` at `seq`. */
export interface AliasRow {
  readonly runId: number;
  readonly leg: number | null;
  readonly added: string | null;
  readonly seq: number | null;
}

/**
 * The tables of an embedded store, synchronous, all calls within one transaction. No rule lives here: this is what memory and SQLite have to
 * do differently, and nothing else is.
 */
export interface Rows {
  threadId(key: ThreadKey): number | null;
  addThread(key: ThreadKey): number;

  run(uid: Uid): RunRow | null;
  runOf(id: number): RunRow | null;
  newestRun(threadId: number): RunRow | null;
  /** In the order of their beginning. */
  childrenOf(uid: Uid): readonly RunRow[];
  /** `id` is given here; the uid has to be new. */
  addRun(run: NewRun): RunRow;
  changeRun(id: number, change: RunChange): void;
  /** The run, if its lease holds and it can be read. */
  appending(uid: Uid, epoch: number): Appending | null;
  /** Ready, not set aside, and with no lease that is valid at `now`; the longest ready first. */
  claimable(now: number): RunRow | null;
  nextReadyAt(): number | null;
  waitingFor(key: KeyName): readonly RunRow[];
  /** Runs with an open question of this kind that can be read. */
  asking(kind: Interrupt["kind"]): readonly RunRow[];
  /** Of `owner`, or of everybody. @returns how many */
  voidLeases(owner: string | null): number;
  /** Newest first, of those with an id below `before`. */
  runs(query: Query, before: number | null, limit: number): readonly RunRow[];
  /** All of them, as far as their names: also those whose row cannot be read. Newest first, of those with an id below `before`. */
  names(before: number | null, limit: number): readonly { readonly id: number; readonly uid: Uid }[];

  /** Moves the run's `head` and `updatedAt`. */
  addEntries(runId: number, rows: readonly LogRow[]): void;
  entries(runId: number, after: number, limit: number): readonly LogRow[];
  /** The last fact at or before `seq`. */
  tail(runId: number, seq: number): Tail | null;
  /** Removes all rows without a hash. @returns the place of the last one, -1 for none, and the texts of those that refer to blobs */
  dropFrames(runId: number): { readonly last: number; readonly texts: readonly string[] };
  /** One that is there is the same. */
  addBlob(blob: Blob): void;
  blob(hash: string): string | null;
  /** Whether any row or other blob refers to it. */
  isBlobUsed(hash: string): boolean;
  dropBlob(hash: string): void;

  addInbox(runId: number, row: Omit<InboxRow, "row">): void;
  inbox(runId: number): readonly InboxRow[];
  dropInbox(runId: number, row: number): void;

  addQueued(threadId: number, row: Omit<QueuedRow, "n">): void;
  /** In the order in which they came. */
  queued(threadId: number): readonly QueuedRow[];
  dropQueued(threadId: number, n: number): void;
  /** Threads with something queued whose newest run is over. */
  dueThreads(): readonly ThreadKey[];

  question(id: string): QuestionRow | null;
  /** Of a client tool's call. */
  questionAt(runId: number, path: Path): QuestionRow | null;
  openQuestions(runId: number): readonly QuestionRow[];
  addQuestion(question: Omit<QuestionRow, "n">): void;
  changeQuestion(n: number, change: Partial<Pick<QuestionRow, "closed" | "contested">>): void;
  /** Open, no client call, of a run that can be read; oldest first, of those with an `n` above `after`. */
  questions(query: Query, after: number | null, limit: number): readonly (QuestionRow & { readonly run: RunRow })[];

  alias(threadId: number, runId: string): AliasRow | null;
  setAlias(threadId: number, runId: string, alias: AliasRow): void;
  /** Gives every alias of the run that waits for its leg this one. */
  settleAliases(runId: number, leg: number): void;

  hasMessage(threadId: number, id: string): boolean;
  addMessage(threadId: number, id: string): void;

  claim(key: KeyName): Claim | null;
  claimsOf(holder: Uid): readonly Claim[];
  setClaim(claim: Claim): void;
}
