/** Which stream answers which request. */
import type { RunAgentInput } from "../protocol/events.ts";
import type { Principal, Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";
import { type Batches, Turns } from "./batches.ts";
import { type Cursor, decodeCursor } from "./cursor.ts";
import type { Engine, PostedRun } from "./engine.ts";
import { Feeds } from "./feed.ts";
import { type FollowOptions, follow } from "./follow.ts";
import { rests } from "./resting-child.ts";
import { anyOf } from "./signals.ts";

export interface ThreadStreamRequest {
  readonly threadId: string;
  readonly agent: string;
  readonly principal: Principal;
  /** Where the reader left off; anything but a cursor of this thread means that it begins anew. */
  readonly cursor: string | null;
  /** Stay when no leg is open. */
  readonly isFollowing: boolean;
  /** The run id that the reader asked for, if it has one. */
  readonly runId: string | null;
  /** Fires when the connection is. */
  readonly gone: AbortSignal;
}

/** A stream, and the run that it begins with. */
export interface RunStream {
  readonly batches: Batches;
  readonly run: Uid;
}

const DISCONNECT_GRACE = 10_000;
/**
 * When, and how often, it is looked whether a run that was woken has begun a leg. Its driver is about to, and nothing is told when it does not;
 * one that waits for its turn, or has no agent here, is shown as it is after that.
 */
const LOOK_MS = 10;
const LOOKS = 500;

export class Streams {
  readonly #engine: Engine;
  readonly #feeds: Feeds;
  readonly #stopping: AbortSignal;

  readonly #disconnectGrace: number;

  /**
   * @param stopping - ends every stream: this server stops
   * @param disconnectGrace - ms without a reader after which a run is cancelled whose agent says `disconnect: "cancel"`
   */
  constructor(engine: Engine, stopping: AbortSignal, disconnectGrace = DISCONNECT_GRACE) {
    this.#engine = engine;
    this.#disconnectGrace = disconnectGrace;
    this.#feeds = new Feeds(engine.store, engine.threads, (uid) => this.#unread(uid));
    this.#stopping = stopping;
  }

  /**
   * What a POST is answered with. Its stream ends with its leg's terminal event.
   *
   * @param gone - fires when the connection is
   */
  async ofPost({ meaning, run, known }: PostedRun, input: RunAgentInput, gone: AbortSignal): Promise<RunStream> {
    if (run === null || meaning.is === "refuse") throw new Error("a refused request has no stream");
    const common = { run, until: "terminal", gone } as const;
    const of = (begun: Pick<FollowOptions, "as" | "after" | "known">) => ({
      batches: this.#follow({ ...common, ...begun }),
      run: run.uid,
    });
    switch (meaning.is) {
      case "run":
        return of({ as: null, after: -1, ...(known && { known }) });
      case "leg": {
        const own = of({ as: null, after: run.head, ...(known && { known }) });
        const waiting = await this.#waitingIn(run);
        // Whoever asked for those may have gone, to answer what this leg goes on with.
        return waiting ? { ...own, batches: this.#turns(run, own.batches, null, gone) } : own;
      }
      case "queue":
      case "queued": {
        const due = await this.#dueLeg(run, gone);
        const before = this.#follow({ run, as: null, after: null, due, until: "rest", gone });
        return { batches: this.#turns(run, before, input.runId, gone), run: run.uid };
      }
      case "rejoin":
      case "hydrate": {
        const known = await this.#legOf(run, input);
        // A leg that was asked for and has not begun has no number yet; it is the next one.
        const leg = known ?? (meaning.is === "rejoin" && !run.legOpen ? run.leg + 1 : run.leg);
        return of({ as: { runId: input.runId, leg }, after: null });
      }
      default:
        return meaning satisfies never;
    }
  }

  /**
   * A run, and the turns that wait behind it, up to the one of the run id; null: up to the last. Where the thread comes to rest with questions
   * the stream ends, for whoever reads it may have to answer them.
   */
  #turns(first: Run, begun: Batches, runId: string | null, gone: AbortSignal): Batches {
    let run = first;
    return new Turns(begun, async () => {
      if (gone.aborted || this.#stopping.aborted) return null;
      const now = await this.#engine.store.run(run.uid);
      const own = runId === null ? null : await this.#legNamed(run, runId);
      if (now === null || now.outcome === null || own?.uid === run.uid) return null;
      const isMore = own !== null || (await this.#waitingIn(run));
      const next = await this.#nextTurn(run, isMore, gone);
      if (next === undefined) return null;
      run = next;
      return this.#follow({ run, as: null, after: -1, until: "rest", gone });
    });
  }

  async #waitingIn({ tenant, subject, agent, thread }: Run): Promise<boolean> {
    return thread !== null && (await this.#engine.store.queued({ tenant, subject, agent, thread })).length > 0;
  }

  /** A thread's stream: from a cursor on, through later turns; or a prelude and what is live. @returns null when there is no such thread */
  async ofThread(request: ThreadStreamRequest): Promise<RunStream | null> {
    const { tenant, subject } = request.principal;
    const key = { tenant, subject, agent: request.agent, thread: request.threadId };
    await this.#engine.open();
    const newest = (await this.#engine.store.runs({ ...key, limit: 1 })).items[0];
    if (newest === undefined) return null;
    const cursor = decodeCursor(request.cursor);
    const from = cursor === undefined ? null : await this.#engine.store.run(cursor.uid);
    const isOurs =
      from !== null && from.thread === key.thread && isOf(from, request.principal) && from.agent === key.agent;
    const isThere = isOurs && cursor !== undefined && hasRest(from, cursor);
    return isThere
      ? { batches: this.#thread(from, { cursor }, request), run: from.uid }
      : { batches: this.#thread(newest, { due: await this.#dueLeg(newest, request.gone) }, request), run: newest.uid };
  }

  /** One run's stream: from a cursor of it on, or a prelude and what is live. Ends when no leg is open; when following, with the run. */
  ofRun(
    run: Run,
    { cursor, isFollowing, gone }: Pick<ThreadStreamRequest, "cursor" | "isFollowing" | "gone">,
  ): Batches {
    const from = decodeCursor(cursor);
    const isThere = from !== undefined && from.uid === run.uid && hasRest(run, from);
    const until = isFollowing ? "finished" : "rest";
    const common = { run, as: null, until, gone } as const;
    return this.#follow(isThere ? { ...common, after: from.seq, knownAs: from.runId } : { ...common, after: null });
  }

  /** For stock front ends, whose stop button only closes the socket. */
  #unread(uid: Uid): void {
    if (this.#stopping.aborted) return;
    const timer = setTimeout(() => {
      if (!this.#feeds.has(uid) && !this.#stopping.aborted) void this.#engine.cancelIfLeft(uid);
    }, this.#disconnectGrace);
    timer.unref?.();
  }

  #thread(
    first: Run,
    from: { readonly cursor: Cursor } | { readonly due: number },
    { isFollowing, runId, gone }: ThreadStreamRequest,
  ): Batches {
    const common = { until: isFollowing ? "finished" : "rest", gone } as const;
    const begun =
      "cursor" in from
        ? { after: from.cursor.seq, as: null, knownAs: from.cursor.runId }
        : { after: null, as: runId === null ? null : { runId, leg: from.due }, due: from.due };
    let run = first;
    return new Turns(this.#follow({ run, ...begun, ...common }), async () => {
      if (gone.aborted || this.#stopping.aborted) return null;
      const next = await this.#nextTurn(run, isFollowing, gone);
      if (next === undefined) return null;
      run = next;
      return this.#follow({ run, as: null, after: -1, ...common });
    });
  }

  /**
   * The leg that a run is in, or is about to begin: what comes in while none is open opens one. What came in for a child of its only wakes it,
   * and then it has to be seen what its driver makes of that: it may lie down again, and no leg begins.
   */
  async #dueLeg(run: Run, gone: AbortSignal): Promise<number> {
    const { store } = this.#engine;
    let seen = run;
    for (let looks = 0; ; looks++) {
      const { uid, leg, legOpen, outcome, aside } = seen;
      if (legOpen || outcome !== null || aside !== null) return leg;
      if ((await store.inbox(uid)).length > 0) return leg + 1;
      const isOver = gone.aborted || this.#stopping.aborted || looks === LOOKS;
      if (isOver || rests(seen, this.#engine.now())) return leg;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      seen = (await store.run(uid)) ?? seen;
    }
  }

  /** The thread's next run; when following, the one that will begin. */
  async #nextTurn(run: Run, isFollowing: boolean, gone: AbortSignal): Promise<Run | undefined> {
    const { tenant, subject, agent, thread } = run;
    if (thread === null) return undefined;
    const key = { tenant, subject, agent, thread };
    for (;;) {
      let hinted = (): void => {};
      const hint = new Promise<void>((resolve) => {
        hinted = resolve;
      });
      const unwatch = this.#engine.store.watch({ thread: key }, hinted);
      const over = anyOf(this.#stopping, gone);
      over.signal.addEventListener("abort", hinted, { once: true });
      try {
        const { items } = await this.#engine.store.runs({ ...key, limit: 100 });
        const next = items.filter(({ turn }) => turn > run.turn).at(-1);
        if (next !== undefined || !isFollowing || over.signal.aborted) return next;
        await hint;
      } finally {
        unwatch();
        over.release();
      }
    }
  }

  async #legOf(run: Run, input: RunAgentInput): Promise<number | null> {
    return (await this.#legNamed(run, input.runId))?.leg ?? null;
  }

  async #legNamed({ tenant, subject, agent, thread }: Run, runId: string): ReturnType<EventStore["leg"]> {
    return thread === null ? null : await this.#engine.store.leg({ tenant, subject, agent, thread }, runId);
  }

  #follow(options: Omit<FollowOptions, "stopping">): Batches {
    return follow({ feeds: this.#feeds, threads: this.#engine.threads }, { ...options, stopping: this.#stopping });
  }
}

/** Whether everything that followed a cursor in its run is there. */
function hasRest({ head, pruned }: Run, { seq }: Cursor): boolean {
  return seq <= head && seq >= (pruned ?? -1);
}

/** Whether a run belongs to whoever asks. "Not yours" and "not there" look the same. */
export function isOf(run: Run, { tenant, subject }: Principal): boolean {
  return run.tenant === tenant && run.subject === subject;
}
