/**
 * What one connection is sent: a prelude or the rest behind a cursor, then what is live, under the run id that the connection asked for.
 *
 * L1. A reader with a cursor gets exactly what follows it. A reader without gets a prelude and then exactly what follows that.
 * L2. Frames made for one connection carry no cursor, but for the last one of a prelude.
 */
import { bytesOf } from "../emit/verified-stream.ts";
import type { Entry } from "../log/entries.ts";
import { type RunState, rendered } from "../log/fold.ts";
import { prelude } from "../log/prelude.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Run } from "../store/store.ts";
import type { Batches } from "./batches.ts";
import { cursorsOf } from "./cursor.ts";
import type { FeedReader, Feeds, Sent, Shown } from "./feed.ts";
import { anyOf, type Held } from "./signals.ts";
import type { Threads } from "./threads.ts";

export interface FollowOptions {
  readonly run: Run;
  /** The run id that the connection asked for, and the leg that it stands for there; null: the log's own ids. */
  readonly as: { readonly runId: string; readonly leg: number } | null;
  /** A leg that is due, and that a prelude waits for: before it, it would end with the leg before. */
  readonly due?: number;
  /** Only what follows this entry of the run; null: begin with a prelude. */
  readonly after: number | null;
  /** The run at `after` or some entries behind it, and what those show, where that is known: then those need not be read. */
  readonly known?: { readonly state: RunState; readonly shown: readonly Shown[] };
  /** The run id under which the reader of a cursor knows the leg that the cursor is in. */
  readonly knownAs?: string;
  /** Ends the stream at the first terminal event, or when no leg is open and none is due, or only with the run. */
  readonly until: "terminal" | "rest" | "finished";
  /** Fires when the connection is gone. */
  readonly gone: AbortSignal;
  /** Fires when this server stops. */
  readonly stopping: AbortSignal;
}

interface Followed {
  readonly feeds: Feeds;
  readonly threads: Threads;
}

/** The stream of one run. Ends as `until` says, with the run, or when either signal fires. */
export function follow(followed: Followed, options: FollowOptions): Batches {
  return new Following(followed, options);
}

class Following implements Batches {
  onNews = (): void => {};
  readonly #over: Held;
  readonly #mailbox = new Mailbox();
  #first: readonly Sent[] | undefined;
  #connection: Connection | undefined;
  #failure: { readonly error: unknown } | undefined;
  #leave = (): void => {};
  #hasEnded = false;

  constructor(
    private readonly followed: Followed,
    private readonly options: FollowOptions,
  ) {
    const { gone, stopping } = options;
    this.#over = anyOf(gone, stopping);
    const { signal } = this.#over;
    signal.addEventListener("abort", this.#cut, { once: true });
    // Whoever has gone takes nothing any more, not even the news that it is over.
    gone.addEventListener("abort", this.#end, { once: true });
    if (gone.aborted) this.#end();
    else if (signal.aborted) this.#cut();
    else void this.#start();
  }

  async #start(): Promise<void> {
    try {
      await this.#begin();
    } catch (error) {
      this.#failure = { error };
    }
    this.#mailbox.onNews = () => this.onNews();
    this.onNews();
  }

  take(): readonly Sent[] | undefined | null {
    if (this.#hasEnded) return null;
    try {
      return this.#taken();
    } catch (error) {
      this.#end();
      throw error;
    }
  }

  #taken(): readonly Sent[] | undefined | null {
    if (this.#failure !== undefined) throw this.#failure.error;
    const first = this.#first;
    this.#first = undefined;
    if (first !== undefined) return first;
    const connection = this.#connection;
    while (connection !== undefined && !connection.isDone) {
      const news = this.#mailbox.take();
      if (news === undefined) break;
      const sent = connection.sent(news.shown, news.run);
      if (sent.length > 0) return sent;
    }
    const isDone = connection?.isDone === true;
    if (!isDone && !this.#mailbox.isClosed) return undefined;
    this.#end();
    return isDone ? null : [{ event: RECONNECT }];
  }

  /** What was asked for is known: a prelude, or what was missed. */
  async #begin(): Promise<void> {
    const { as, after, known, due = as?.leg ?? 0 } = this.options;
    const { feeds, threads } = this.followed;
    const joined = await feeds.join(this.options.run, this.#mailbox, known?.state);
    this.#leave = joined.leave;
    if (this.#over.signal.aborted) return joined.leave();
    let { run } = joined;
    // A leg that is due begins when a driver has taken in what came.
    while (after === null && run.legs < due && run.finished === null) {
      const news = await this.#mailbox.next();
      if (news === undefined) return;
      run = news.run;
    }
    const read = known?.state.head ?? after;
    const head = joined.run.head;
    const rest = joined.shown ?? (read === null ? null : await missedBetween(threads, this.options.run, read, head));
    const connection = new Connection(this.options, run);
    // Also when nothing was missed: it tells whoever waits for the stream to begin that it has.
    this.#first = rest === null ? connection.prelude() : connection.sent([...(known?.shown ?? []), ...rest]);
    this.#connection = connection;
  }

  /** Nothing more comes: this server stops, or the connection is gone. */
  readonly #cut = (): void => {
    this.#leave();
    this.#mailbox.close();
    this.onNews();
  };

  readonly #end = (): void => {
    this.#hasEnded = true;
    this.#leave();
    this.#over.release();
    this.options.gone.removeEventListener("abort", this.#end);
  };
}

class Connection {
  #run: RunState;
  #hasEnded = false;
  /** The run id under which this connection knows the leg that it is in, the cursors of that, and whether the log has it under the same. */
  #name = "";
  #cursorAt: (seq: number) => string = String;
  #isLogs: boolean;

  constructor(
    private readonly options: FollowOptions,
    run: RunState,
  ) {
    this.#run = run;
    this.#call(options.knownAs ?? run.run.uid);
    this.#isLogs = options.knownAs === undefined;
  }

  get isDone(): boolean {
    const { leg, finished } = this.#run;
    if (this.options.until === "terminal" && this.#hasEnded) return true;
    return finished !== null || (this.options.until === "rest" && leg === null);
  }

  prelude(): Sent[] {
    const run = this.#run;
    const { uid, thread } = this.options.run;
    const runId = this.options.as?.runId ?? run.leg?.runId ?? run.lastLeg?.started.runId ?? uid;
    const events = prelude(run, { threadId: thread ?? uid, runId });
    this.#call(runId);
    const cursor = this.#cursorAt(run.head);
    this.#hasEnded = run.leg === null;
    this.#isLogs = runId === run.leg?.runId;
    return events.map((event, i) => (i === events.length - 1 ? { event, cursor } : { event }));
  }

  /** Frames as this connection is sent them. With `until: "terminal"` nothing follows the end of the leg. */
  sent(shown: readonly Shown[], run = this.#run): Sent[] {
    this.#run = run;
    const sent: Sent[] = [];
    for (const one of shown) {
      if (this.#hasEnded && this.options.until === "terminal") break;
      const { event } = one;
      if (event.type === "RUN_STARTED") this.#enter(event.runId);
      sent.push(this.#isLogs ? this.#shared(one) : this.#cited(one));
      this.#hasEnded = isTerminal(event) || (this.#hasEnded && event.type !== "RUN_STARTED");
    }
    if (this.#name === run.leg?.runId) this.#isLogs = true;
    return sent;
  }

  #enter(runId: string): void {
    const { as } = this.options;
    const { leg, lastLeg } = this.#run;
    const entered = leg?.runId === runId ? leg : lastLeg?.started;
    this.#isLogs = as === null || entered?.runId !== runId || entered.leg !== as.leg;
    this.#call(this.#isLogs ? runId : (as?.runId ?? runId));
  }

  #call(name: string): void {
    this.#name = name;
    this.#cursorAt = cursorsOf({ uid: this.options.run.uid, runId: name });
  }

  #shared(shown: Shown): Sent {
    shown.sent ??= this.#cited(shown);
    return shown.sent;
  }

  #cited({ seq, event }: Shown): Sent {
    const namesLeg = event.type === "RUN_STARTED" || event.type === "RUN_FINISHED";
    const own = namesLeg && !this.#isLogs ? { ...event, runId: this.#name } : event;
    return { event: own, cursor: this.#cursorAt(seq) };
  }
}

function isTerminal({ type }: AGUIEvent): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}

/**
 * The frames behind `after`, up to what the reader joined at: they are rendered from the log, as everything that is live. Null when some of
 * them were pruned: then a prelude has to do.
 */
async function missedBetween(threads: Threads, run: Run, after: number, head: number): Promise<Shown[] | null> {
  if (after >= head) return [];
  const before = (await threads.before(run)).at(-1);
  const entries = await threads.entries(run.uid, -1);
  if (lastPruned(entries) > after) return null;
  const missed: Shown[] = [];
  for (const shown of rendered(entries, before)) {
    if (shown.seq > after && shown.seq <= head) missed.push(shown);
  }
  return missed;
}

/** The place of the last frame that was pruned: a run ends with its last leg's terminal event. */
function lastPruned(entries: readonly Entry[]): number {
  if (!entries.some(({ kind }) => kind === "transcript")) return -1;
  return (entries.find(({ kind }) => kind === "run.finished")?.seq ?? 0) - 1;
}

interface News {
  readonly shown: readonly Shown[];
  readonly run: RunState;
}

/** Said to a reader whose connection ends before its leg does: the run goes on, and a request with the same run id rejoins it. */
const RECONNECT: AGUIEvent = {
  type: "RUN_ERROR",
  code: "RECONNECT",
  message: "This connection ends here; the run goes on. Connect again.",
};

/** How much may wait for a connection that does not take it: frames, and their bytes. */
const MAX_FRAMES = 10_000;
const MAX_BYTES = 16 * 1024 * 1024;

/** What a feed has brought and the connection has not sent yet. A reader that is too slow is let go: it comes back with its cursor. */
class Mailbox implements FeedReader {
  /** Called when there is something to take, or when there will be nothing more. */
  onNews = (): void => {};
  readonly #news: (News & { readonly frames: number; readonly bytes: number })[] = [];
  #frames = 0;
  #bytes = 0;
  #isClosed = false;
  #failure: { readonly error: unknown } | undefined;

  get isClosed(): boolean {
    return this.#isClosed;
  }

  put(shown: readonly Shown[], run: RunState): void {
    if (this.#isClosed) return;
    // Whoever keeps up takes each batch before the next one comes, however large it is; only for others is there something to count.
    const isBehind = this.#news.length > 0;
    const frames = isBehind ? shown.length : 0;
    const bytes = isBehind ? shown.reduce((sum, { event }) => sum + bytesOf(event), 0) : 0;
    this.#frames += frames;
    this.#bytes += bytes;
    if (this.#frames > MAX_FRAMES || this.#bytes > MAX_BYTES) {
      // It may never read again: what waits for it must not wait with it.
      this.#news.length = 0;
      this.#isClosed = true;
    } else this.#news.push({ shown, run, frames, bytes });
    this.onNews();
  }

  fail(error: unknown): void {
    this.#failure = { error };
    this.onNews();
  }

  close(): void {
    this.#isClosed = true;
    this.onNews();
  }

  /** The next batch, if it is there. @throws what broke the feed, once all before it was taken */
  take(): News | undefined {
    const news = this.#news.shift();
    if (news === undefined) {
      if (this.#failure !== undefined) throw this.#failure.error;
      return undefined;
    }
    this.#frames -= news.frames;
    this.#bytes -= news.bytes;
    return news;
  }

  /** The next batch; undefined when there is none any more. */
  async next(): Promise<News | undefined> {
    for (;;) {
      const news = this.take();
      if (news !== undefined || this.#isClosed) return news;
      await new Promise<void>((resolve) => {
        this.onNews = resolve;
      });
    }
  }
}
