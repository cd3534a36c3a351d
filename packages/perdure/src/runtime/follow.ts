/**
 * What one connection is sent: a prelude or the rest behind a cursor, then what is live, under the run id that the connection asked for.
 *
 * L1. A reader with a cursor gets exactly what follows it. A reader without gets a prelude and then exactly what follows that.
 * L2. Frames made for one connection carry no cursor, but for the last one of a prelude.
 */
import type { RunState } from "../log/fold.ts";
import { prelude } from "../log/prelude.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import type { Uid } from "../protocol/words.ts";
import type { Run } from "../store/store.ts";
import { type Cursor, encodeCursor } from "./cursor.ts";
import type { Feeds, Shown } from "./feed.ts";

/** An event on its way to a connection, with the cursor that its reader may come back with. */
export interface Sent {
  readonly event: AGUIEvent;
  readonly cursor?: string;
}

export interface FollowOptions {
  readonly run: Run;
  /** The run id that the connection asked for; null: the log's own. */
  readonly runId: string | null;
  /** Only what follows this entry of the run; null: begin with a prelude. */
  readonly after: number | null;
  /** Ends the stream at the first terminal event, or when no leg is open; never by itself. */
  readonly until: "terminal" | "rest" | "closed";
  readonly signal: AbortSignal;
}

/** The stream of one run. Ends as `until` says, when the run has ended, or with the signal. */
export async function* follow(feeds: Feeds, options: FollowOptions): AsyncGenerator<readonly Sent[], RunState | undefined> {
  const { run, after, until, signal } = options;
  const inbox = new Mailbox(signal);
  const { run: state, leave } = await feeds.join(run, inbox);
  try {
    let seen = after ?? state.head;
    let current = state;
    if (after === null) {
      const threadId = run.thread ?? run.uid;
      const runId = options.runId ?? state.leg?.runId ?? state.lastLeg?.started.runId ?? run.uid;
      const events = prelude(state, { threadId, runId });
      const cursor = encodeCursor({ uid: run.uid, seq: state.head, runId });
      yield events.map((event, i) => (i === events.length - 1 ? { event, cursor } : { event }));
      if (isDone(current, until)) return current;
    } else {
      // What was appended between the cursor and the joining is read from the log, as everything that is live.
      const missed = await inbox.missed(feeds, run, after, state.head);
      for (const batch of missed) {
        const sent = batch.map((shown) => send(shown, run.uid, options.runId));
        if (sent.length > 0) yield sent;
        seen = Math.max(seen, batch.at(-1)?.seq ?? seen);
        if (until === "terminal" && batch.some(({ event }) => isTerminal(event))) return current;
      }
      if (isDone(current, until)) return current;
    }
    for (;;) {
      const next = await inbox.next();
      if (next === undefined) return undefined;
      current = next.run;
      const sent = next.shown.filter(({ seq }) => seq > seen).map((shown) => send(shown, run.uid, options.runId));
      if (sent.length > 0) yield sent;
      if (isDone(current, until)) return current;
    }
  } finally {
    leave();
  }
}
