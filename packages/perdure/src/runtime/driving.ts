/**
 * Which runs this process drives: it claims what is due, one driver has a run at a time, and what a driver has lost is given back.
 */
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Lease } from "../store/store.ts";
import type { Driven } from "./driven.ts";
import type { LoadedRun } from "./threads.ts";

/** How long a driver's failure keeps its run from being claimed again: at first, and when it has failed time and again. Milliseconds. */
const REST_AFTER_LOSS = 250;
const LONGEST_REST = 30_000;

/** How long after a failed claim the next one is tried. Milliseconds. */
const CLAIM_AGAIN = 1_000;

/** How often it is looked for runs that nobody told of. Milliseconds. */
const LOOK_AGAIN = 10_000;

/** A run that is this process's to drive. */
export interface Claimed {
  readonly lease: Lease;
  /** Milliseconds since the epoch: not later than the lease was taken. */
  readonly leasedAt: number;
  /** The run as it was then, where that is known. */
  readonly loaded?: LoadedRun | undefined;
}

export interface DrivingOptions {
  readonly store: EventStore;
  readonly owner: string;
  readonly now: () => number;
  /** No run is claimed any more. */
  readonly stop: AbortSignal;
  readonly report: (error: unknown, run: Uid | null) => void;
  /** @param lostHere - the epochs in which the run was lost here since it last came to a rest here */
  readonly drive: (claimed: Claimed, lostHere: ReadonlySet<number>) => Promise<Driven>;
  /** Begins the runs that are due and were not begun yet. */
  readonly beginDue: () => Promise<void>;
}

export class Driving {
  readonly #options: DrivingOptions;
  readonly #driving = new Map<Uid, Promise<void>>();
  readonly #lost = new Map<Uid, ReadonlySet<number>>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #claiming: Promise<void> | undefined;
  #claimAgain = false;

  constructor(options: DrivingOptions) {
    this.#options = options;
  }

  /** Claims what is due, now or right behind what is being claimed. */
  claimSoon(): void {
    this.#claimAgain = true;
    this.#claiming ??= this.#claimAll()
      .catch((error: unknown) => this.#claimFailed(error))
      .finally(() => {
        this.#claiming = undefined;
        if (this.#claimAgain && !this.#options.stop.aborted) this.claimSoon();
      });
  }

  async #claimAll(): Promise<void> {
    const { store, owner, now, stop, beginDue } = this.#options;
    this.#claimAgain = false;
    clearTimeout(this.#timer);
    while (!stop.aborted) {
      const leasedAt = now();
      const lease = await store.claim(owner);
      if (lease === null) break;
      this.drive({ lease, leasedAt });
    }
    if (stop.aborted) return;
    await beginDue();
    await this.#look();
  }

  /** Claims when the next run is due. What another process leaves behind tells nobody, so it is looked for now and then. */
  async #look(): Promise<void> {
    const readyAt = await this.#options.store.nextReadyAt();
    const ms = readyAt === null ? Number.POSITIVE_INFINITY : readyAt - this.#options.now();
    if (ms <= LOOK_AGAIN) this.#later(ms, () => this.claimSoon());
    else this.#later(LOOK_AGAIN, () => void this.#look().catch((error: unknown) => this.#claimFailed(error)));
  }

  #claimFailed(error: unknown): void {
    this.#options.report(error, null);
    this.#later(CLAIM_AGAIN, () => this.claimSoon());
  }

  #later(ms: number, then: () => void): void {
    clearTimeout(this.#timer);
    if (this.#options.stop.aborted) return;
    this.#timer = setTimeout(then, Math.max(1, ms));
    this.#timer.unref?.();
  }

  /** Drives a run, behind whoever has it here. */
  drive(claimed: Claimed): void {
    const { uid } = claimed.lease;
    const before = this.#driving.get(uid) ?? Promise.resolve();
    const driven = before
      .then(() => this.#driveOrGiveBack(claimed))
      .finally(() => {
        if (this.#driving.get(uid) === driven) this.#driving.delete(uid);
      });
    this.#driving.set(uid, driven);
  }

  async #driveOrGiveBack(claimed: Claimed): Promise<void> {
    const { uid, epoch } = claimed.lease;
    const before = this.#lost.get(uid) ?? NONE;
    const ended = await this.#options.drive(claimed, before).catch((error: unknown): Driven => {
      this.#options.report(error, uid);
      return "lost";
    });
    if (ended !== "lost") {
      this.#lost.delete(uid);
      return;
    }
    const lost = new Set(this.#lost.get(uid)).add(epoch);
    this.#lost.set(uid, lost);
    await this.#giveBack(claimed.lease, lost.size);
  }

  /**
   * Gives a lost run's lease back, if it is still its own, so that nobody has to wait for its end. That is an append like any other: under a
   * newer epoch it does nothing, and what this driver had under way stands before it in the store or is fenced behind it.
   */
  async #giveBack(lease: Lease, losses: number): Promise<void> {
    const { store, stop } = this.#options;
    for (let tries = losses; ; tries++) {
      await this.#rest(Math.min(REST_AFTER_LOSS * 2 ** (tries - 1), LONGEST_REST));
      try {
        const ends = { runnable: true, wakeAt: null, waitsForKey: null };
        const { is } = await store.append(lease, { entries: [], ends });
        if (is === "fenced") this.#lost.delete(lease.uid);
        break;
      } catch {
        // The cause was reported with the loss. While it lasts there is nothing to claim either.
        if (stop.aborted) return;
      }
    }
    if (!stop.aborted) this.claimSoon();
  }

  /** Ends early when this process stops. */
  async #rest(ms: number): Promise<void> {
    const { stop } = this.#options;
    if (stop.aborted) return;
    await new Promise<void>((resolve) => {
      const over = (): void => {
        clearTimeout(timer);
        stop.removeEventListener("abort", over);
        resolve();
      };
      const timer = setTimeout(over, ms);
      stop.addEventListener("abort", over);
    });
  }

  /** Resolves when nothing is claimed any more. Called when it is to stop. */
  async claimed(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#claiming;
  }

  /** Resolves when nothing is driven here, or after `ms`. */
  async driven(ms: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([Promise.all(this.#driving.values()), late]);
    clearTimeout(timer);
  }
}

const NONE: ReadonlySet<number> = new Set();
