/**
 * The contract of a store: what the runtime and the HTTP side may rely on, whatever keeps the bytes. `test/store/conformance.ts` is its test.
 *
 * A store owns order, atomicity and ownership. It knows nothing of agents or of AG-UI; of an entry it reads only what moves one of its rows:
 * that a run or a leg began or ended, and that a question was asked or closed.
 *
 * 1. A run's `seq` counts from 0 without a gap, until its frames are pruned; only the store assigns `seq` and `at`.
 * 2. A batch is appended whole or not at all, under the epoch of a lease that still holds; then it is durable.
 * 3. What comes from outside is an inbox row until the batch that appends the entry it became.
 * 4. A run is never put to rest over an inbox row, nor over a question that somebody else has answered: else an answer is slept through.
 * 5. A question is closed once. The later of two callers learns who was first.
 * 6. A run that cannot be read is set aside with its cause; its neighbours go on.
 * 7. Only frames of a finished run are ever removed, all of them at once, with the append of the `transcript` that stands for them.
 * 8. A hint says "look again" after a commit. It is never data, may come for nothing, and is never missing.
 */
import type { Added, Entry, Fact, Interrupt, LegRequest, NewEntry } from "../log/entries.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import type { Hash, Path, Principal, Uid } from "../protocol/words.ts";

/** The right to append to a run, until `until` (ms) or until somebody else claims it. `(uid, epoch)` is the fence for the world outside. */
export interface Lease {
  readonly uid: Uid;
  readonly epoch: number;
  readonly owner: string;
  readonly until: number;
  /** How long it was granted for, in ms: a driver counts from when it asked, by its own clock. */
  readonly span: number;
}

/** The conversation: a thread of the same name under another tenant, subject or agent is another thread. */
export interface ThreadKey {
  readonly tenant: string;
  readonly subject: string;
  readonly agent: string;
  readonly thread: string;
}

/** A run as its row tells it. */
export interface Run {
  readonly uid: Uid;
  readonly tenant: string;
  readonly subject: string;
  readonly agent: string;
  readonly thread: string | null;
  /** From 1, in its thread; a forked thread counts on from where it left. */
  readonly turn: number;
  readonly labels: { readonly [name: string]: string };
  readonly createdAt: number;
  readonly updatedAt: number;
  /** `seq` of the last entry. */
  readonly head: number;
  /** The newest leg. */
  readonly leg: number;
  readonly legOpen: boolean;
  /** Of `run.finished`. */
  readonly outcome: "success" | "cancelled" | "failed" | "abandoned" | null;
  /** When it may be claimed, in ms: since then it is runnable, or then its timer is due. `null`: parked until something comes in. */
  readonly readyAt: number | null;
  /** The business key that another write holds and that it waits for; `readyAt` is then when it has waited long enough. */
  readonly waitsForKey: KeyName | null;
  /** Who drives it. */
  readonly owner: string | null;
  readonly epoch: number;
  /** Why it cannot be read, once that was found out: no driver gets it. */
  readonly aside: string | null;
  /** Once its frames are gone: the place of the last one. */
  readonly pruned: number | null;
  /** The run that it is a child of, and the step there. Then it belongs to no thread. */
  readonly parent: { readonly uid: Uid; readonly path: Path } | null;
}

/** What came in from outside. */
export type InboxItem =
  | { readonly kind: "request"; readonly request: LegRequest }
  /** For a client tool, `interrupt` is the call's id. */
  | ({ readonly kind: "answer"; readonly interrupt: string } & Reply)
  | { readonly kind: "cancel" | "abandon" }
  | { readonly kind: "message" | "signal" | "raise" | "accept"; readonly payload: Json };

/** A row of a run's inbox, in the order of arrival. */
export type Inbox = InboxItem & { readonly row: number; readonly at: number; readonly by: string };

/** What may be put by anybody; a request comes through `post`, an answer through `post` or `answer`. */
export type Outside = Exclude<InboxItem, { kind: "request" | "answer" }>;

/** What a human, or the client of a client tool, said. */
export interface Reply {
  readonly status: "resolved" | "cancelled";
  readonly payload?: Json;
}

/** A reply to one question, already checked against its schema and audience; or to a client's call, by the id of its row. */
export interface Answer extends Reply {
  readonly interrupt: string;
  readonly by: Principal;
}

/** How a question was closed. */
export interface Closed {
  readonly status: "resolved" | "cancelled" | "expired" | "withdrawn";
  readonly payload?: Json;
  readonly by: string;
  readonly at: number;
}

/** A question's row. `closed` is `null` while it is open. */
export interface Question {
  readonly uid: Uid;
  readonly interrupt: Interrupt;
  readonly openedAt: number;
  readonly closed: Closed | null;
  /** Later callers that said something else, newest last. */
  readonly contested: readonly { readonly by: string; readonly at: number; readonly status: string }[];
}

/** `covered`: closed already, and nothing else was wanted. `none`: no such question. */
export type Answered =
  | { readonly is: "taken"; readonly uid: Uid }
  | { readonly is: "covered"; readonly uid: Uid }
  | ({ readonly is: "conflict"; readonly uid: Uid } & Closed)
  | { readonly is: "none" };

/**
 * Whether a reply to a closed question asks for nothing more: the same reply again, or `cancelled`, by which a client that missed the closing
 * goes on.
 */
export function covers(closed: Closed, reply: Reply): boolean {
  if (reply.status === "cancelled") return true;
  return closed.status === reply.status && jsonEqual(closed.payload, reply.payload);
}

/** A request that waits for its turn in the thread: each becomes a run of its own. */
export interface Queued {
  /** Its row. */
  readonly n: number;
  /** It wants what was begun before it cancelled. */
  readonly cancels: boolean;
  readonly request: LegRequest;
}

/** What `decide` sees of a thread. Valid only while `decide` runs. */
export interface ThreadView {
  /** The newest run. */
  readonly run: (Run & { readonly atRest: boolean; readonly legDue: boolean }) | null;
  /** Open questions and client calls of the newest run; and its children's, and theirs, each with the uid of who asks as `subagentRunId`. */
  readonly open: readonly Interrupt[];
  /** Requests that wait for the runs before them to end, in their order. */
  readonly queued: readonly Queued[];
  /** The requested run id, if the thread knows it. `leg` is `null` until the driver has begun it. */
  readonly known: { readonly uid: Uid; readonly leg: number | null; readonly added: Added } | null;
  /** Whether an earlier request has brought the thread a message of this id. */
  hasMessage(id: string): boolean;
  /** How a question or client call of this thread, or of its runs' children, was closed; `null` if it is open or was never asked here. */
  closed(interrupt: string): Closed | null;
}

/**
 * What a POST means. `answers` are to open questions of `uid`, taken all or none.
 *
 * - `run`: `first` begins with `run.started` and has the `leg.started` of this request; `queued` is its row, if it has waited: the oldest of the
 *   thread, and none may begin before it.
 * - `queue`: the request waits until the run and those that wait already have ended; with `cancels`, all of those are cancelled. `queued`: it
 *   waits already, and nothing is written.
 * - `leg`: the request becomes an inbox row, from which the driver begins the next leg.
 * - `rejoin`: of the leg that is open or due. `hydrate`: of the last one.
 * - `refuse`: nothing is written, but for a note of the `contested` answers on their rows.
 */
export type Meaning =
  | { readonly is: "run"; readonly first: readonly NewEntry[]; readonly queued?: number }
  | {
      readonly is: "queue";
      readonly uid: Uid;
      readonly answers: readonly Answer[];
      readonly request: LegRequest;
      readonly cancels: boolean;
    }
  | { readonly is: "queued"; readonly uid: Uid }
  | { readonly is: "leg"; readonly uid: Uid; readonly answers: readonly Answer[]; readonly request: LegRequest }
  | { readonly is: "rejoin"; readonly uid: Uid; readonly answers: readonly Answer[]; readonly added: Added }
  | { readonly is: "hydrate"; readonly uid: Uid; readonly added: Added }
  | {
      readonly is: "refuse";
      readonly status: 403 | 409 | 422;
      readonly code: string;
      readonly details: Json;
      readonly contested?: readonly Answer[];
    };

/** What came of a POST: the meaning, the run after it, and, for a new run or a next leg that nobody drives, the lease to drive it. */
export interface Posted<M extends Meaning = Meaning> {
  readonly meaning: M;
  readonly run: Run | null;
  readonly lease: Lease | null;
}

/** Name of a business key. */
export interface KeyName {
  readonly tenant: string;
  readonly tool: string;
  readonly key: string;
}

/** Who has a business key, and how far it got. */
export interface Claim extends KeyName {
  readonly argsHash: Hash;
  readonly holder: { readonly uid: Uid; readonly path: Path };
  readonly state: "running" | "unknown" | "settled" | "released";
  /** Of a settled one. */
  readonly output?: Json;
  /** When a settled claim is forgotten, in ms; `null` while it is not settled: an unfinished or unknown one never is. */
  readonly until: number | null;
}

/**
 * A step of a claim's life, in the batch of the entry that it belongs to; `claims.ts` has the rules. To take a key is `running`; to inherit the
 * question of a dead holder is `unknown`. Everything else is the holder's alone.
 */
export interface ClaimChange extends KeyName {
  readonly to: Claim["state"];
  readonly argsHash: Hash;
  readonly holder: { readonly uid: Uid; readonly path: Path };
  readonly output?: Json;
}

/** What is appended together. */
export interface Batch {
  readonly entries: readonly NewEntry[];
  /** The `seq` of the entry that it was made to follow: where the log ends with another one, it is `fenced`. Default: whichever is the last. */
  readonly behind?: number;
  readonly claims?: readonly ClaimChange[];
  /** Inbox rows that became entries of this batch. */
  readonly taken?: readonly number[];
  /** Children that begin with this batch, each by its first entries. They are anybody's to drive. */
  readonly starts?: readonly (readonly NewEntry[])[];
  /**
   * Gives the lease back. `runnable`: anybody may go on at once; else the run rests until `wakeAt` (ms), until nobody who lives holds
   * `waitsForKey` unsettled, or until something comes in, or until a child goes on or ends. `children` are those that have not ended, each as
   * far as the driver has read it: nobody rests over one that has moved since.
   */
  readonly ends?: {
    readonly runnable: boolean;
    readonly wakeAt: number | null;
    readonly waitsForKey: KeyName | null;
    readonly children?: readonly { readonly uid: Uid; readonly head: number }[];
  };
}

/**
 * What came of a batch; but for `appended`, nothing was written.
 *
 * - `fenced`: the lease no longer holds, or the log does not end where the batch was to follow: stop.
 * - `inbox`: something came in that has to be taken first: read the inbox and decide again.
 * - `held`: a key is not free: `claim` says who has it.
 */
export type Appended =
  | { readonly is: "appended"; readonly head: number; readonly at: number }
  | { readonly is: "fenced" }
  | { readonly is: "inbox" }
  | { readonly is: "held"; readonly claim: Claim };

/**
 * What came of pruning; but for `pruned`, nothing was changed.
 *
 * - `already`: its frames are gone.
 * - `unfinished`: it is not over, so its frames are still needed.
 * - `driven`: somebody has its lease, to write down what came in after its end.
 * - `moved`: its log goes on behind what the transcript was made of: read it again.
 * - `shown`: the frames of the run that it is a child of are still there, and refer to its own.
 */
export type Pruned = "pruned" | "already" | "unfinished" | "driven" | "moved" | "shown" | "none";

/**
 * Says that there is something new.
 *
 * @param appended - for a run, what its log has got, where the writer is in this process and it was an append; else read
 */
export type Hint = (appended?: readonly Entry[]) => void;

/**
 * What a hint may be about: one run, what came in for it from outside (so its driver is not told of each of his own appends), one thread
 * (a new run in it), or something to claim.
 */
export type Topic = { readonly run: Uid } | { readonly inbox: Uid } | { readonly thread: ThreadKey } | "claimable";

/** One page of a listing. `next` goes into the next query's `after`. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

/** Which rows. */
export interface Query {
  /** `null`: of every tenant, for whoever holds the store itself. No request may ask for that. */
  readonly tenant: string | null;
  readonly subject?: string;
  readonly agent?: string;
  readonly thread?: string;
  /** Only this run, or its questions. */
  readonly run?: Uid;
  /** `next` of the page before. One that is not ours means the first page. */
  readonly after?: string;
  /** 50 by default, at most 500. */
  readonly limit?: number;
  /** Only runs that are over, have their frames, and are shown by no other run's. */
  readonly prunable?: true;
  /** Only children of this run. */
  readonly parent?: Uid;
}

/** What `verify` found. */
export interface Verified {
  readonly runs: number;
  /** Those that can be read. */
  readonly entries: number;
  /** Of a run the first one: `seq` is the entry, where it is one. `run` is `null` for what concerns the store. */
  readonly faults: readonly { readonly run: Uid | null; readonly seq: number | null; readonly why: string }[];
}

/** Everything rejects with a `StoreError` when the store is closed, or when a commit fails. */
export interface EventStore {
  /**
   * Comes first. An embedded store takes the owner lock, so whoever had leases is dead and they are void at once; in a shared one they expire,
   * but for those under the same owner name, whose bearer has evidently started again. Runs that wait for another deployment
   * (`contract-changed`, `diverged`) are ready once more: this may be it.
   *
   * @param owner - name of this driver, unique among those alive
   * @returns `formerOwnerDead`: an earlier owner went without `close`, and no body of its steps can still be running
   * @throws StoreLockedError, NotAPerdureStoreError, StoreTooNewError, SqliteMissingError
   */
  open(owner: string): Promise<{ readonly formerOwnerDead: boolean }>;
  close(): Promise<void>;

  /**
   * One transaction: `decide` is called once with the thread as it is, has to be synchronous and pure, and what it says is done. If it throws,
   * nothing was written and the promise rejects with that.
   *
   * @throws PayloadTooLargeError when a part of what is to be kept of the request is over 4 MiB
   */
  post<M extends Meaning>(
    request: { readonly key: ThreadKey; readonly runId: string; readonly owner: string },
    decide: (view: ThreadView) => M,
  ): Promise<Posted<M>>;
  /** What waits in a thread, in its order. */
  queued(key: ThreadKey): Promise<readonly Queued[]>;
  /** Threads in which something waits and no run is unfinished: whoever sees them begins the next run, by `post`. The topic `claimable` tells of them. */
  dueThreads(): Promise<readonly ThreadKey[]>;
  /** The inbox's way to close a question: the same compare-and-set. @throws PayloadTooLargeError when the payload is over 4 MiB */
  answer(answer: Answer): Promise<Answered>;
  /** @returns `finished`: too late, nothing was put; `none`: no such run @throws PayloadTooLargeError when the payload is over 4 MiB */
  put(uid: Uid, by: string, item: Outside): Promise<"put" | "finished" | "none">;

  /** What a run that rests waits for has come about elsewhere: it may be claimed now. Nothing happens to one that has ended. */
  wake(uid: Uid): Promise<void>;
  /** The run that has been ready longest and has no valid lease, under the next epoch. */
  claim(owner: string): Promise<Lease | null>;
  /** When the next run becomes ready or the next lease of a ready run expires, in ms. In the past: now. */
  nextReadyAt(): Promise<number | null>;
  /** @returns `null`: lost */
  renew(lease: Lease): Promise<Lease | null>;
  /**
   * Promise 2. Appends of one caller are committed in the order of their calls. A large value is kept once, whatever entries have it.
   *
   * @throws EntryError, NotJsonError, and PayloadTooLargeError when a payload is over 4 MiB; then nothing of the batch was appended
   */
  append(lease: Lease, batch: Batch): Promise<Appended>;
  inbox(uid: Uid): Promise<readonly Inbox[]>;
  /**
   * Removes the frames of a finished run, and the large values that nothing else refers to, in one transaction with the append of what stands
   * for them.
   *
   * @param head - the last entry that `transcript` was made of
   */
  prune(uid: Uid, head: number, transcript: Fact<"transcript">): Promise<Pruned>;
  /** Takes a run away from its driver for good, with the cause. */
  setAside(uid: Uid, cause: string): Promise<void>;

  /**
   * The entries after `after` (-1: all), up to what is committed when the end is reached. References to what children have shown come with it
   * (`shown`).
   *
   * @throws EntryError, EntryMissingError, StoreDamagedError, after the run has been set aside
   */
  read(uid: Uid, after: number): AsyncIterable<Entry>;
  /** @param hint - called after the commit, on a turn of its own; must not throw @returns ends it */
  watch(topic: Topic, hint: Hint): () => void;
  run(uid: Uid): Promise<Run | null>;
  question(interrupt: string): Promise<Question | null>;
  /** The leg that a thread knows under a run id. */
  leg(key: ThreadKey, runId: string): Promise<{ readonly uid: Uid; readonly leg: number | null } | null>;
  claimOf(name: KeyName): Promise<Claim | null>;
  /** Newest first. */
  runs(query: Query): Promise<Page<Run>>;
  /** Open questions, oldest first; client calls are not among them. */
  questions(query: Query): Promise<Page<Question & { readonly run: Run }>>;
  /** Reads everything and recomputes each run's chain of hashes; runs that cannot be read, or are not what was appended, are set aside. */
  verify(): Promise<Verified>;
}
