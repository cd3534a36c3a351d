/**
 * Pruning: the frames of a finished run go, and a transcript stands for them.
 *
 * 1. What a reader is shown afterwards is compared, byte for byte, with what he was shown before. Where that differs nothing is removed.
 * 2. The store removes only what the transcript was made of: an entry that came in between makes it anew.
 */
import type { Entry, Fact } from "../log/entries.ts";
import { fold, type RunState } from "../log/fold.ts";
import { prelude } from "../log/prelude.ts";
import { textIn, transcriptOf, withChildTexts } from "../log/transcript.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore } from "../store/store.ts";
import type { Threads } from "./threads.ts";

/** Why the frames of a run stay. Nothing of it was changed. */
export class PruneRefusedError extends PerdureError {
  override readonly name = "PruneRefusedError";
  constructor(
    readonly run: Uid,
    override readonly code:
      | "RUN_NOT_FOUND"
      | "RUN_UNFINISHED"
      | "RUN_SET_ASIDE"
      | "RUN_DRIVEN"
      | "RUN_SHOWN"
      | "TRANSCRIPT_UNEQUAL",
    why: string,
  ) {
    super(code, `run ${run} is not pruned: ${why}`);
  }
}

/**
 * Removes the frames of a run that is over.
 *
 * @returns `already`: they are gone
 * @throws {@link PruneRefusedError}, and what reading its log throws
 */
export async function prune(store: EventStore, threads: Threads, uid: Uid): Promise<"pruned" | "already"> {
  for (;;) {
    const run = await store.run(uid);
    if (run === null) throw new PruneRefusedError(uid, "RUN_NOT_FOUND", "there is no such run");
    if (run.pruned !== null) return "already";
    if (run.outcome === null) throw unfinished(uid);
    if (run.aside !== null) {
      throw new PruneRefusedError(uid, "RUN_SET_ASIDE", `it cannot be read (${run.aside}); perdure verify says more`);
    }
    const { entries, state, before } = await threads.read(run);
    const below = await runsBelow(store, threads, uid);
    const transcript = transcriptOf(state, [...below.values()]);
    const whole = withChildTexts(transcript, (child, of) => {
      const log = below.get(child);
      return log === undefined ? "" : textIn(log, of);
    });
    const stands: Entry = { ...whole, seq: state.head + 1, at: run.updatedAt };
    const left = fold([...entries.filter(isFact), stands], before.at(-1));
    if (shownBy(left) !== shownBy(state)) {
      throw new PruneRefusedError(
        uid,
        "TRANSCRIPT_UNEQUAL",
        "its transcript would not show what its frames show; this is a bug in Perdure, please report it with the run's log",
      );
    }
    const pruned = await store.prune(uid, state.head, whole);
    switch (pruned) {
      case "pruned":
        await pruneChildren(store, threads, uid);
        return pruned;
      case "already":
        return pruned;
      case "driven":
        throw new PruneRefusedError(
          uid,
          "RUN_DRIVEN",
          "a driver is writing down what came in after its end; try again in a moment",
        );
      case "unfinished":
        throw unfinished(uid);
      case "shown":
        throw new PruneRefusedError(
          uid,
          "RUN_SHOWN",
          `run ${run.parent?.uid} shows it, of which it is a child; prune that one, and this one goes with it`,
        );
      case "moved":
      case "none":
        continue;
      default:
        pruned satisfies never;
    }
  }
}

/** The children of a run, and theirs, as far as they can be read. */
async function runsBelow(store: EventStore, threads: Threads, uid: Uid): Promise<ReadonlyMap<Uid, RunState>> {
  const found = new Map<Uid, RunState>();
  for (let next: string | null | undefined; next !== null; ) {
    const page = await store.runs({ tenant: null, parent: uid, ...(next !== undefined && { after: next }) });
    for (const child of page.items) {
      if (child.aside !== null) continue;
      found.set(child.uid, (await threads.load(child)).state);
      for (const [deeper, state] of await runsBelow(store, threads, child.uid)) found.set(deeper, state);
    }
    next = page.next;
  }
  return found;
}

/** Children have ended before their parent has. One that is left here, because this process dies, is an ordinary run that can be pruned. */
async function pruneChildren(store: EventStore, threads: Threads, uid: Uid): Promise<void> {
  for (let next: string | null | undefined; next !== null; ) {
    const page = await store.runs({ tenant: null, parent: uid, ...(next !== undefined && { after: next }) });
    for (const child of page.items) if (child.aside === null) await prune(store, threads, child.uid);
    next = page.next;
  }
}

function unfinished(uid: Uid): PruneRefusedError {
  return new PruneRefusedError(
    uid,
    "RUN_UNFINISHED",
    "it is not over, so its frames are still needed; let it end, or cancel it",
  );
}

function isFact(entry: Entry): entry is Entry & Fact {
  return entry.kind !== "frame";
}

function shownBy(state: RunState): string {
  return JSON.stringify(prelude(state, { threadId: "", runId: "" }));
}
