import type { AGUIEvent, TokenUsage } from "../protocol/events.ts";
import type { Uid } from "../protocol/words.ts";
import { type ChildRef, joined } from "./child-frames.ts";
import type { Entry, Fact } from "./entries.ts";
import { Folding } from "./fold.ts";
import { LogError } from "./log-error.ts";
import type { RunState } from "./run-state.ts";
import { childrenIn, textIn, withChildTexts } from "./transcript.ts";

/** A child's log, folded as far as it was read, and what its frames show. */
export class ChildLog {
  readonly #folding = new Folding();
  readonly #usage: TokenUsage[] = [];

  constructor(readonly uid: Uid) {}

  /** What its legs have used so far, one after the other. */
  get usage(): readonly TokenUsage[] {
    return this.#usage;
  }

  /** The last entry that was taken; -1 before the first. */
  get head(): number {
    return this.#folding.head;
  }

  get state(): RunState {
    return this.#folding.state;
  }

  /** Takes the next entry. @returns what it shows, if it is a frame */
  take(entry: Entry): AGUIEvent | undefined {
    const event = this.#folding.add(entry);
    if (entry.kind === "leg.finished") this.#usage.push(...entry.usage);
    return event;
  }
}

/** What references to children show, as they come: each child's log is read once, as far as it is referred to. */
export class ChildFrames {
  readonly #logs = new Map<Uid, { readonly log: ChildLog; readonly entries: AsyncIterator<Entry> }>();

  /** @param read - a run's entries from the first one, with what its own children show in them */
  constructor(private readonly read: (uid: Uid) => AsyncIterable<Entry>) {}

  /** A transcript with what stands in the logs of children. */
  async texts(transcript: Fact<"transcript">): Promise<Fact<"transcript">> {
    const states = new Map<Uid, RunState>();
    for (const uid of childrenIn(transcript)) {
      const log = new ChildLog(uid);
      for await (const entry of this.read(uid)) log.take(entry);
      states.set(uid, log.state);
    }
    return withChildTexts(transcript, (child, of) => {
      const state = states.get(child);
      if (state === undefined) throw new LogError(child, "a text that its parent refers to", "there is no such run");
      return textIn(state, of);
    });
  }

  /** @throws {@link LogError} when the child's log does not have it, or it was asked for in another order than that of the references */
  async shown({ uid, from, to }: ChildRef): Promise<AGUIEvent> {
    const known = this.#logs.get(uid) ?? { log: new ChildLog(uid), entries: this.read(uid)[Symbol.asyncIterator]() };
    this.#logs.set(uid, known);
    let shown: AGUIEvent | undefined;
    while (known.log.head < to) {
      const { done, value: entry } = await known.entries.next();
      if (done) break;
      const event = known.log.take(entry);
      if (event === undefined || entry.seq < from) continue;
      shown = shown === undefined ? event : joined(shown, event);
      if (shown === undefined) break;
    }
    if (shown !== undefined && known.log.head === to) return shown;
    throw new LogError(uid, `what its parent shows of it (frames ${from} to ${to})`, "its log does not have that");
  }
}
