/**
 * One run's stream as it is appended, for all its readers in this process: read once, folded once, rendered once.
 *
 * A feed lives while somebody reads it. What a reader has not taken yet waits with the reader, not here.
 */
import type { Entry } from "../log/entries.ts";
import { Folding, type RunState } from "../log/fold.ts";
import { brokenLog, LogError } from "../log/log-error.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";
import type { Threads } from "./threads.ts";

/** An event on its way to a connection, with the cursor that its reader may come back with. */
export interface Sent {
  readonly event: AGUIEvent;
  readonly cursor?: string;
  /** What it is on the wire, kept by whoever encoded it: readers who are sent the same share the object. */
  text?: string;
}

/** A frame with its place. */
export interface Shown {
  readonly seq: number;
  readonly event: AGUIEvent;
  /** As it goes to readers who know its leg by the log's own run id. Made for the first of them. */
  sent?: Sent;
}

export interface FeedReader {
  put(shown: readonly Shown[], run: RunState): void;
  fail(error: unknown): void;
}

/** A feed that was joined: the run where what the reader gets begins. */
export interface Joined {
  readonly run: RunState;
  /** What the run has shown since it was as it is known, where the feed begins with that. */
  readonly shown: readonly Shown[] | undefined;
  readonly leave: () => void;
}

/** Has what is read while somebody joins. Whatever fails then fails the joining. */
class Gathering implements FeedReader {
  readonly shown: Shown[] = [];
  put(shown: readonly Shown[]): void {
    for (const one of shown) this.shown.push(one);
  }
  fail(): void {}
}

export class Feed {
  readonly #readers = new Set<FeedReader>();
  readonly #store: EventStore;
  readonly #threads: Threads;
  readonly #uid: Uid;
  readonly #onIdle: () => void;
  #folding: Folding | undefined;
  #reading: Promise<void> | undefined;
  #isStale = true;
  #unwatch: (() => void) | undefined;
  /** The run at the end of what was read last. */
  #run: RunState | undefined;

  constructor(store: EventStore, threads: Threads, uid: Uid, onIdle: () => void) {
    this.#store = store;
    this.#threads = threads;
    this.#uid = uid;
    this.#onIdle = onIdle;
  }

  /**
   * Joins the feed.
   *
   * @param reader - gets each batch of frames that is appended from now on
   * @param known - the run as it was at the end of a batch: a feed may begin with it
   * @returns the run as it is, at the end of a batch, and how to leave
   */
  async join(reader: FeedReader, run: Run, known?: RunState): Promise<Joined> {
    const sinceKnown = new Gathering();
    const isFirst = this.#folding === undefined && known !== undefined;
    if (isFirst) {
      this.#folding = new Folding(known);
      this.#run = known;
      this.#readers.add(sinceKnown);
    } else {
      const before = (await this.#threads.before(run)).at(-1);
      this.#folding ??= new Folding(before);
    }
    this.#unwatch ??= this.#store.watch({ run: this.#uid }, (appended) => this.#hear(appended));
    this.#isStale = true;
    const leave = (): void => {
      if (this.#readers.delete(reader)) this.#restIfUnread();
    };
    try {
      await this.#read();
      // A reading that is under way goes to this reader too, and begins where this run ends.
      const joined = this.#run;
      if (joined === undefined) throw new LogError(this.#uid, "its stream", "it has no entry");
      this.#readers.add(reader);
      return { run: joined, shown: isFirst ? sinceKnown.shown : undefined, leave };
    } finally {
      this.#readers.delete(sinceKnown);
      this.#restIfUnread();
    }
  }

  #restIfUnread(): void {
    if (this.#readers.size > 0) return;
    if (this.#run !== undefined) this.#threads.keep(this.#run);
    this.#unwatch?.();
    this.#unwatch = undefined;
    this.#onIdle();
  }

  #hear(appended: readonly Entry[] | undefined): void {
    // What does not follow what was read last (a reading is under way, or another process appends) is read in its turn.
    const next = this.#run === undefined || this.#reading !== undefined ? undefined : this.#run.head + 1;
    if (appended === undefined || appended[0]?.seq !== next) {
      this.#isStale = true;
      this.#read().catch(() => {}); // the readers have been told
      return;
    }
    const shown: Shown[] = [];
    try {
      for (const entry of appended) this.#fold(entry, shown);
      this.#show(shown);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Reads what is new, and again while more has come. Called with `#isStale` set. */
  #read(): Promise<void> {
    this.#reading ??= this.#readAll();
    return this.#reading;
  }

  async #readAll(): Promise<void> {
    try {
      while (this.#isStale) await this.#readOnce();
    } finally {
      this.#reading = undefined;
    }
  }

  async #readOnce(): Promise<void> {
    this.#isStale = false;
    const shown: Shown[] = [];
    try {
      for await (const entry of this.#store.read(this.#uid, this.#run?.head ?? -1)) this.#fold(entry, shown);
      this.#show(shown);
    } catch (error) {
      throw this.#fail(error);
    }
  }

  #fold(entry: Entry, shown: Shown[]): void {
    const event = this.#folding?.add(entry);
    if (event !== undefined) shown.push({ seq: entry.seq, event });
  }

  #show(shown: readonly Shown[]): void {
    const run = this.#folding?.state;
    if (run === undefined) return;
    this.#run = run;
    for (const reader of this.#readers) reader.put(shown, run);
  }

  /** @returns what the readers are told */
  #fail(error: unknown): unknown {
    const broken = brokenLog(this.#uid, error);
    // What keeps it from being read may be over when the next one joins.
    this.#folding = undefined;
    this.#run = undefined;
    for (const reader of this.#readers) reader.fail(broken);
    return broken;
  }
}

/** The feeds that somebody reads. */
export class Feeds {
  readonly #feeds = new Map<Uid, Feed>();

  constructor(
    private readonly store: EventStore,
    private readonly threads: Threads,
    /** Told of each run whose last reader has left. */
    private readonly onUnread: (uid: Uid) => void,
  ) {}

  /** Whether somebody reads a run. */
  has(uid: Uid): boolean {
    return this.#feeds.has(uid);
  }

  async join(run: Run, reader: FeedReader, known?: RunState): Promise<Joined> {
    const { uid } = run;
    let feed = this.#feeds.get(uid);
    if (feed === undefined) {
      const made = new Feed(this.store, this.threads, uid, () => {
        if (this.#feeds.get(uid) !== made) return;
        this.#feeds.delete(uid);
        this.onUnread(uid);
      });
      feed = made;
      this.#feeds.set(uid, feed);
    }
    return await feed.join(reader, run, known);
  }
}
