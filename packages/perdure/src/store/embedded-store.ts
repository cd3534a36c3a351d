import type { ChildRef } from "../log/child-frames.ts";
import { ChildFrames } from "../log/child-log.ts";
import { type Entry, EntryError, type Fact, type Frame } from "../log/entries.ts";
import { brokenLog } from "../log/log-error.ts";
import { childrenIn } from "../log/transcript.ts";
import type { Uid } from "../protocol/words.ts";
import { CLAIM_TTL } from "./claims.ts";
import type { Engine, Pace, StoreOptions } from "./engine.ts";
import { EntryMissingError, StoreDamagedError, StoreError } from "./errors.ts";
import { Hints, type News } from "./hints.ts";
import { readEntries, stored } from "./log-rows.ts";
import type {
  Answer,
  Answered,
  Appended,
  Batch,
  Claim,
  EventStore,
  Hint,
  Inbox,
  KeyName,
  Lease,
  Meaning,
  Outside,
  Page,
  Posted,
  Pruned,
  Query,
  Question,
  Queued,
  Run,
  ThreadKey,
  ThreadView,
  Topic,
  Verified,
} from "./store.ts";
import * as transactions from "./transactions.ts";
import { Refused, type Tx } from "./tx.ts";
import { inboxOf, publicQuestion, publicRun, queuedOf } from "./views.ts";

/** Entries read at once: enough to be quick, few enough that a long log does not stop the event loop. */
const PAGE = 256;

/** A store whose tables are in this process. What the medium is, is its engine's affair. */
export class EmbeddedStore implements EventStore {
  readonly #hints = new Hints();
  readonly #owners = new Set<string>();
  readonly #clock: () => number;
  readonly #leaseMs: number;
  readonly #claimTtl: number;

  constructor(
    readonly engine: Engine,
    options: StoreOptions = {},
  ) {
    this.#clock = options.clock ?? Date.now;
    this.#leaseMs = options.leaseMs ?? 30_000;
    this.#claimTtl = options.claimTtl ?? CLAIM_TTL;
  }

  async open(owner: string): Promise<{ readonly formerOwnerDead: boolean }> {
    const { exclusive, formerOwnerDead } = await this.engine.open(owner);
    const again = this.#owners.has(owner);
    this.#owners.add(owner);
    if (!exclusive && !again) return { formerOwnerDead };
    const moved = await this.#transact(
      "now",
      (tx) => tx.rows.voidLeases(exclusive ? null : owner) + transactions.wakeForDeployment(tx),
    );
    if (moved > 0) this.#hints.tell(["claimable"]);
    return { formerOwnerDead: formerOwnerDead || again };
  }

  async close(): Promise<void> {
    await this.engine.close();
    this.#owners.clear();
    this.#hints.clear();
  }

  post<M extends Meaning>(
    request: { readonly key: ThreadKey; readonly runId: string; readonly owner: string },
    decide: (view: ThreadView) => M,
  ): Promise<Posted<M>> {
    return this.#transact("now", (tx) => transactions.post(tx, request, decide));
  }

  async queued(key: ThreadKey): Promise<readonly Queued[]> {
    const { rows } = this.engine;
    const threadId = rows.threadId(key);
    return threadId === null ? [] : queuedOf(rows, threadId);
  }

  async dueThreads(): Promise<readonly ThreadKey[]> {
    return this.engine.rows.dueThreads();
  }

  answer(answer: Answer): Promise<Answered> {
    return this.#transact("now", (tx) => transactions.answer(tx, answer));
  }

  put(uid: Uid, by: string, item: Outside): Promise<"put" | "finished" | "none"> {
    return this.#transact("now", (tx) => transactions.put(tx, uid, by, item));
  }

  wake(uid: Uid): Promise<void> {
    return this.#transact("now", (tx) => transactions.wakeUp(tx, uid));
  }

  claim(owner: string): Promise<Lease | null> {
    return this.#transact("now", (tx) => transactions.claim(tx, owner));
  }

  async nextReadyAt(): Promise<number | null> {
    return this.engine.rows.nextReadyAt();
  }

  renew(lease: Lease): Promise<Lease | null> {
    return this.#transact("soon", (tx) => transactions.renew(tx, lease));
  }

  append(lease: Lease, batch: Batch): Promise<Appended> {
    return this.#transact(paceOf(batch), (tx) => transactions.append(tx, lease, batch), refusal);
  }

  async inbox(uid: Uid): Promise<readonly Inbox[]> {
    const { rows } = this.engine;
    const run = rows.run(uid);
    if (run === null) return [];
    try {
      return inboxOf(rows, run);
    } catch (error) {
      return await this.#aside(uid, error);
    }
  }

  async prune(uid: Uid, head: number, transcript: Fact<"transcript">): Promise<Pruned> {
    const entry = { ...stored(transcript), entry: transcript };
    return await this.#transact("now", (tx) => transactions.prune(tx, { uid, head }, entry));
  }

  setAside(uid: Uid, cause: string): Promise<void> {
    return this.#transact("now", (tx) => transactions.setAside(tx, uid, cause));
  }

  read(uid: Uid, after: number): AsyncIterable<Entry> {
    const pages = {
      load: (from: number) => this.#page(uid, from),
      failed: (error: unknown) => this.#aside(uid, error),
      children: () => new ChildFrames((child) => this.read(child, -1)),
      isPruned: () => (this.engine.rows.run(uid)?.pruned ?? null) !== null,
    };
    return { [Symbol.asyncIterator]: () => new Reading(pages, after + 1) };
  }

  /** The entries from `from` on; a page that is not full is the last one. */
  #page(uid: Uid, from: number): readonly Entry[] {
    const { rows } = this.engine;
    const run = rows.run(uid);
    return run === null || run.head < from ? [] : readEntries(rows, run, from, PAGE);
  }

  watch(topic: Topic, hint: Hint): () => void {
    return this.#hints.watch(topic, hint);
  }

  async run(uid: Uid): Promise<Run | null> {
    const run = this.engine.rows.run(uid);
    return run === null ? null : publicRun(run);
  }

  async question(interrupt: string): Promise<Question | null> {
    const { rows } = this.engine;
    const question = rows.question(interrupt);
    const run = question === null ? null : rows.runOf(question.runId);
    return question === null || run === null ? null : publicQuestion(question, run.uid);
  }

  async leg(key: ThreadKey, runId: string): Promise<{ readonly uid: Uid; readonly leg: number | null } | null> {
    const { rows } = this.engine;
    const threadId = rows.threadId(key);
    const alias = threadId === null ? null : rows.alias(threadId, runId);
    const run = alias === null ? null : rows.runOf(alias.runId);
    return alias === null || run === null ? null : { uid: run.uid, leg: alias.leg };
  }

  async claimOf(name: KeyName): Promise<Claim | null> {
    return this.engine.rows.claim(name);
  }

  async runs(query: Query): Promise<Page<Run>> {
    const limit = limitOf(query);
    const found = this.engine.rows.runs(query, positionOf(query), limit + 1);
    return pageOf(found, limit, (run) => run.id, publicRun);
  }

  async questions(query: Query): Promise<Page<Question & { readonly run: Run }>> {
    const limit = limitOf(query);
    const found = this.engine.rows.questions(query, positionOf(query), limit + 1);
    return pageOf(
      found,
      limit,
      (question) => question.n,
      (question) => ({ ...publicQuestion(question, question.run.uid), run: publicRun(question.run) }),
    );
  }

  async verify(): Promise<Verified> {
    const faults: Verified["faults"][number][] = this.engine.faults().map((why) => ({ run: null, seq: null, why }));
    let runs = 0;
    let entries = 0;
    let before: number | null = null;
    for (;;) {
      const page = this.engine.rows.names(before, PAGE);
      for (const { id, uid } of page) {
        before = id;
        runs += 1;
        try {
          for await (const _ of this.read(uid, -1)) entries += 1;
          await this.inbox(uid);
        } catch (error) {
          if (!isDamage(error)) throw error;
          faults.push({ run: uid, seq: "seq" in error ? error.seq : null, why: error.message });
        }
      }
      if (page.length < PAGE) return { runs, entries, faults };
    }
  }

  /** Not async, because it is done for every frame: two promises, not four. */
  #transact<T>(pace: Pace, work: (tx: Tx) => T, refused?: (error: unknown) => T): Promise<T> {
    const news: News[] = [];
    const done = this.engine.transact(() => work(this.#tx(news)), pace);
    return done.then((result) => {
      this.#hints.tell(news);
      return result;
    }, refused);
  }

  #tx(news: News[]): Tx {
    return { rows: this.engine.rows, at: this.#clock(), leaseMs: this.#leaseMs, claimTtl: this.#claimTtl, news };
  }

  /** Invariant 6 of `store.ts`. @throws the error */
  async #aside(uid: Uid, error: unknown): Promise<never> {
    // What is wrong with the run is the news; that it could not be noted (a full disk, a store opened to read) is not.
    if (isDamage(error)) await this.setAside(uid, error.message).catch(() => {});
    throw error;
  }
}

/** A log being read, page by page. By hand, because readers come back for each entry of a live run, and a generator takes four times as long. */
class Reading implements AsyncIterator<Entry> {
  #page: readonly Entry[] = [];
  #taken = 0;
  #isLast = false;
  #children: ChildFrames | undefined;

  constructor(
    private readonly pages: {
      load(from: number): readonly Entry[];
      failed(error: unknown): Promise<never>;
      children(): ChildFrames;
      isPruned(): boolean;
    },
    private from: number,
  ) {}

  next(): Promise<IteratorResult<Entry, undefined>> {
    if (this.#taken === this.#page.length && !this.#isLast) {
      try {
        this.#page = this.pages.load(this.from);
      } catch (error) {
        this.#isLast = true;
        return this.pages.failed(error);
      }
      this.#taken = 0;
      this.from = (this.#page.at(-1)?.seq ?? this.from - 1) + 1;
      this.#isLast = this.#page.length < PAGE;
    }
    const value = this.#page[this.#taken];
    if (value === undefined) return Promise.resolve({ done: true, value });
    this.#taken++;
    if (value.kind === "frame" && "ref" in value && value.ref.of === "CHILD") return this.#withShown(value, value.ref);
    if (value.kind === "transcript" && childrenIn(value).size > 0) return this.#withTexts(value);
    return Promise.resolve({ done: false, value });
  }

  async #withTexts(entry: Extract<Entry, { kind: "transcript" }>): Promise<IteratorResult<Entry, undefined>> {
    try {
      const { seq, at } = entry;
      return { done: false, value: { ...(await this.pages.children().texts(entry)), seq, at } };
    } catch (error) {
      return await this.pages.failed(error);
    }
  }

  async #withShown(frame: Frame & Entry, ref: ChildRef): Promise<IteratorResult<Entry, undefined>> {
    this.#children ??= this.pages.children();
    try {
      return { done: false, value: { ...frame, shown: await this.#children.shown(ref) } as Entry };
    } catch (error) {
      // Pruned while it is read, and then its children: its frames are gone, and whoever reads comes to what stands for them.
      if (this.pages.isPruned()) return await this.next();
      return await this.pages.failed(brokenLog(ref.uid, error));
    }
  }

  return(): Promise<IteratorResult<Entry, undefined>> {
    this.#isLast = true;
    this.#page = [];
    this.#taken = 0;
    return Promise.resolve({ done: true, value: undefined });
  }
}

function refusal(error: unknown): Appended {
  if (error instanceof Refused) return error.appended;
  throw error;
}

function isDamage(error: unknown): error is EntryError | EntryMissingError | StoreDamagedError {
  return error instanceof EntryError || error instanceof EntryMissingError || error instanceof StoreDamagedError;
}

/** Nobody waits for frames alone; a fact, or a row that moves, is what a step goes on with. */
function paceOf({ entries, claims, taken, ends }: Batch): Pace {
  if (claims !== undefined || taken !== undefined || ends !== undefined) return "now";
  return entries.every((entry) => entry.kind === "frame") ? "soon" : "now";
}

function limitOf({ limit = 50 }: Query): number {
  return Math.max(1, Math.min(500, Math.trunc(limit)));
}

function positionOf({ after }: Query): number | null {
  return after !== undefined && /^\d{1,15}$/.test(after) ? Number(after) : null;
}

function pageOf<R, T>(found: readonly R[], limit: number, position: (row: R) => number, show: (row: R) => T): Page<T> {
  const items = found.slice(0, limit);
  const last = items.at(-1);
  const next = found.length > limit && last !== undefined ? String(position(last)) : null;
  return { items: items.map((row) => show(row)), next };
}

/** For an engine that is closed, or not yet open. */
export function notOpen(name: string): StoreError {
  return new StoreError("STORE_CLOSED", `store ${name} is not open: await open() first, and close() last`);
}
