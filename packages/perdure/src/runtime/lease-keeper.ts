import type { Lease } from "../store/store.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";

/** How often a lease is renewed, as a part of its time. */
const RENEWALS = 3;

/** Renews a driver's lease until it is stopped, and tells the driver when it could not: never tool code does. */
export class LeaseKeeper {
  readonly #options: Pick<DriverOptions, "store" | "now">;
  readonly #session: DriveSession;
  #lease: Lease;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  constructor(options: Pick<DriverOptions, "store" | "now" | "lease">, session: DriveSession) {
    this.#options = options;
    this.#session = session;
    this.#lease = options.lease;
    this.#renewLater();
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #renewLater(): void {
    const { now } = this.#options;
    this.#timer = setTimeout(() => void this.#renew(), Math.max(10, (this.#lease.until - now()) / RENEWALS));
    this.#timer.unref?.();
  }

  async #renew(): Promise<void> {
    try {
      const lease = await this.#options.store.renew(this.#lease);
      if (this.#isStopped) return;
      if (lease === null) {
        this.#session.lose();
        return;
      }
      this.#lease = lease;
      this.#session.renewed(lease);
      this.#renewLater();
    } catch (error) {
      if (!this.#isStopped) this.#session.lose(error);
    }
  }
}
