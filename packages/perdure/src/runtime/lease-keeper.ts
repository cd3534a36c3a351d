/**
 * The lease of a driver: renewed in time, and asked before anything begins that another driver must not begin too. All of it by this process's
 * clock alone: a lease counts from when it was asked for, so it is over here before it is over in the store, however their clocks differ.
 *
 * K1. Nothing begins in the last part of a lease: it is renewed first.
 * K2. A renewal that fails is tried again until the lease is over; then the run is lost, and every signal of its bodies fires.
 */
import type { Lease } from "../store/store.ts";
import type { DriverOptions } from "./driver-options.ts";

/** How often a lease is renewed, as a part of the time it has left. */
const RENEWALS = 3;

/** The last part of a lease, in which nothing begins. */
const MARGIN = 1 / 10;

/** The shortest time between two renewals. Milliseconds. */
const PAUSE = 10;

/** The log that is written under the lease. */
interface Holder {
  renewed(lease: Lease): void;
  lose(cause?: unknown): unknown;
}

export class LeaseKeeper {
  readonly #options: Pick<DriverOptions, "store" | "now">;
  readonly #holder: Holder;
  #lease: Lease;
  #askedAt: number;
  #renewing: Promise<void> | undefined;
  #askingSince: number | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #end: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  constructor(options: Pick<DriverOptions, "store" | "now" | "lease" | "leasedAt">, holder: Holder) {
    this.#options = options;
    this.#holder = holder;
    this.#lease = options.lease;
    this.#askedAt = options.leasedAt;
    this.#renewLater();
    this.#endLater(this.#left);
  }

  /** Whether something may begin in this tick (K1). */
  get isSure(): boolean {
    return !this.#isStopped && this.#left > this.#lease.span * MARGIN;
  }

  /** Renews it now. Resolves when the store has answered, or could not. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
      this.#askingSince = undefined;
    });
    return this.#renewing;
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#end);
  }

  /** Milliseconds. */
  get #left(): number {
    return this.#askedAt + this.#lease.span - this.#options.now();
  }

  #renewLater(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.renew(), Math.max(PAUSE, this.#left / RENEWALS));
    this.#timer.unref?.();
  }

  async #renew(): Promise<void> {
    const askedAt = this.#options.now();
    this.#askingSince = askedAt;
    try {
      const lease = await this.#options.store.renew(this.#lease);
      if (this.#isStopped) return;
      if (lease === null) {
        this.#lose();
        return;
      }
      this.#lease = lease;
      this.#askedAt = askedAt;
      this.#holder.renewed(lease);
    } catch (error) {
      if (this.#isStopped) return;
      if (this.#left <= 0) {
        this.#lose(error);
        return;
      }
      // Whoever waits for it asks again: not at once.
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    if (!this.#isStopped) this.#renewLater();
  }

  /** For a store that does not even answer. */
  #endLater(ms: number): void {
    this.#end = setTimeout(() => this.#endIfUnanswered(), Math.max(PAUSE, ms));
    this.#end.unref?.();
  }

  #endIfUnanswered(): void {
    const { now } = this.#options;
    if (this.#left > 0) {
      this.#endLater(this.#left);
      return;
    }
    const margin = this.#lease.span * MARGIN;
    if (this.#askingSince !== undefined && now() - this.#askingSince >= margin) {
      this.#lose(new Error("the store has not answered a renewal until the lease was over"));
      return;
    }
    // This process was stopped for a while. The run may still be its own, and the store knows.
    void this.renew();
    this.#endLater(margin);
  }

  #lose(cause?: unknown): void {
    this.stop();
    this.#holder.lose(cause);
  }
}
