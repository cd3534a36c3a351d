/**
 * The log of one run in the hands of its driver. What is added is folded at once, so the next decision and the next frame see it, and goes
 * to the store in the order of adding.
 *
 * G1. Nothing is acted on before it is durable: a caller that starts an effect awaits {@link RunLog.committed} first.
 * G2. What a batch holds was added in one tick; a batch is committed whole or not at all.
 * G3. After a failed or fenced append nothing more is appended, and everything that waits rejects: what was folded ahead is void.
 *     Where a batch that was with the store before has failed, so do those behind it: each names the entry that it follows.
 * G4. Offers take turns. What is added while one is with the store is folded behind it and appended behind it; if the store refuses it, it
 *     is folded again without. What was added before one is with the store before it, so one commit can take both.
 */
import { checkEntry, entryAt, type Frame, type NewEntry } from "../log/entries.ts";
import { Folding, type RunState } from "../log/fold.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Wire } from "../protocol/verify.ts";
import type { Uid } from "../protocol/words.ts";
import type { Appended, Batch, ClaimChange, EventStore, Lease } from "../store/store.ts";

/** The run is somebody else's now, or its last append failed. */
export class LeaseLostError extends PerdureError {
  override readonly name = "LeaseLostError";
  constructor(uid: string, epoch: number, options?: ErrorOptions) {
    super("LEASE_LOST", `epoch ${epoch} of run ${uid} is over: another driver goes on from its log`, options);
  }
}

/** What follows it comes in a microtask. `queueMicrotask` makes a resource for async hooks of each, four times as large. */
const SETTLED = Promise.resolve();

export class RunLog {
  #folding: Folding;
  #queue: NewEntry[] = [];
  #claims: readonly ClaimChange[] | undefined;
  #taken: readonly number[] | undefined;
  #bytes = 0;
  /** Of {@link #bytes}, what no append has taken yet. */
  #queuedBytes = 0;
  #isFlushing = false;
  #last: Promise<void> = Promise.resolve();
  #lost: LeaseLostError | undefined;
  /** The offer that is with the store, and the last one in the queue for it. Neither rejects. */
  #offered: Promise<void> | undefined;
  #lastOffer: Promise<void> = Promise.resolve();

  constructor(
    private readonly store: Pick<EventStore, "append">,
    private lease: Lease,
    state: RunState,
    private readonly onLost: (error: LeaseLostError) => void,
    private readonly now: () => number,
  ) {
    this.#folding = new Folding(state);
  }

  /** The run with everything that was added, durable or not yet. */
  get state(): RunState {
    return this.#folding.state;
  }

  /** The verifier's state, with everything that was added. */
  get wire(): Wire {
    return this.#folding.wire;
  }

  get uid(): Uid {
    return this.lease.uid;
  }

  get epoch(): number {
    return this.lease.epoch;
  }

  /** What was added and is not durable yet. Bytes, estimated by the callers. */
  get pendingBytes(): number {
    return this.#bytes;
  }

  /**
   * Adds entries to the batch of this tick.
   *
   * @throws {@link LeaseLostError}, `PayloadTooLargeError` for what the store would not take, and whatever the fold refuses; then nothing
   * was added
   */
  add(
    entries: readonly NewEntry[],
    options: {
      readonly claims?: readonly ClaimChange[];
      readonly taken?: readonly number[];
      readonly bytes?: number;
    } = {},
  ): void {
    if (this.#lost) throw this.#lost;
    this.#fold(entries);
    this.#queue.push(...entries);
    if (options.claims !== undefined) this.#claims = [...(this.#claims ?? []), ...options.claims];
    if (options.taken !== undefined) this.#taken = [...(this.#taken ?? []), ...options.taken];
    this.#queued(options.bytes ?? 0);
  }

  /**
   * Adds a frame of which {@link wire} is known to allow it, and which changes nothing that an error would have to take back: a delta, of a
   * size that the store takes.
   */
  addDelta(frame: Frame, bytes: number): void {
    if (this.#lost) throw this.#lost;
    this.#folding.add(entryAt(frame, this.#folding.head + 1, this.now()));
    this.#queue.push(frame);
    this.#queued(bytes);
  }

  #queued(bytes: number): void {
    this.#bytes += bytes;
    this.#queuedBytes += bytes;
    if (this.#offered === undefined) this.#flushSoon();
  }

  /** @throws what {@link add} does; then nothing has changed */
  #fold(entries: readonly NewEntry[]): void {
    const before = this.#folding.state;
    try {
      const at = this.now();
      for (const entry of entries) checkEntry(entry);
      for (const entry of entries) this.#folding.add(entryAt(entry, this.#folding.head + 1, at));
    } catch (error) {
      this.#folding = new Folding(before);
      throw error;
    }
  }

  /** Resolves when everything added so far is durable. @throws {@link LeaseLostError} */
  async committed(): Promise<void> {
    await this.#offered;
    // What was added in this tick is flushed before this goes on.
    if (this.#isFlushing) await Promise.resolve();
    await this.#last;
    if (this.#lost) throw this.#lost;
  }

  /**
   * Appends a batch that the store may refuse: one that parks or finishes the run, closes a question, or takes a key.
   *
   * @param make - the batch, made when its turn has come: what it says may depend on what was added before it
   * @throws {@link LeaseLostError}, and what {@link add} does
   */
  offer(make: () => Batch): Promise<Exclude<Appended, { is: "fenced" }>> {
    const offer = this.#lastOffer.then(() => this.#offer(make));
    const over = offer.then(
      () => {},
      () => {},
    );
    this.#lastOffer = over;
    return offer;
  }

  async #offer(make: () => Batch): Promise<Exclude<Appended, { is: "fenced" }>> {
    while (this.#isFlushing) await SETTLED;
    if (this.#lost) throw this.#lost;
    const batch = make();
    // What it has had emitted, to be made of it.
    if (this.#isFlushing) this.#append();
    const before = this.#folding.state;
    const behind = this.#folding.head;
    // Folded before it is appended, so that nothing is appended that cannot be read.
    this.#fold(batch.entries);
    let isOver = (): void => {};
    this.#offered = new Promise((resolve) => {
      isOver = resolve;
    });
    try {
      const appended = await this.store.append(this.lease, { ...batch, behind }).catch((error: unknown) => {
        // A failed commit is never repeated blindly: the run is claimed again and read again.
        throw this.lose(error);
      });
      if (appended.is === "fenced") throw this.lose();
      if (appended.is !== "appended") this.#foldAgain(before);
      return appended;
    } finally {
      this.#offered = undefined;
      if (this.#queue.length > 0) this.#flushSoon();
      isOver();
    }
  }

  /** What was added behind a refused offer stands where that would have stood. */
  #foldAgain(before: RunState): void {
    this.#folding = new Folding(before);
    try {
      this.#fold(this.#queue);
    } catch (error) {
      throw this.lose(error);
    }
  }

  renewed(lease: Lease): void {
    this.lease = lease;
  }

  /** The driver has learnt that the run is not its own any more. */
  lose(cause?: unknown): LeaseLostError {
    if (this.#lost === undefined) {
      this.#lost = new LeaseLostError(this.lease.uid, this.lease.epoch, cause === undefined ? undefined : { cause });
      this.onLost(this.#lost);
    }
    return this.#lost;
  }

  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    void SETTLED.then(() => this.#append());
  }

  /** The batch of this tick, taken. */
  #gathered(): Batch {
    const [entries, claims, taken] = [this.#queue, this.#claims, this.#taken];
    const behind = this.#folding.head - entries.length;
    this.#queue = [];
    if (claims === undefined && taken === undefined) return { entries, behind };
    this.#claims = undefined;
    this.#taken = undefined;
    return { entries, behind, ...(claims && { claims }), ...(taken && { taken }) };
  }

  #append(): void {
    const isDue = this.#isFlushing;
    this.#isFlushing = false;
    if (!isDue || this.#lost) return;
    const batch = this.#gathered();
    const bytes = this.#queuedBytes;
    this.#queuedBytes = 0;
    // The store commits in the order of the calls, so the last one stands for all.
    this.#last = this.store.append(this.lease, batch).then(
      ({ is }) => {
        this.#bytes -= bytes;
        // Only a batch that ends the run or takes a key can be refused otherwise, and those go through `offer`.
        if (is !== "appended") this.lose();
      },
      // `committed` says so to whoever waits.
      (error: unknown) => void this.lose(error),
    );
  }
}
