import type { Rows } from "./rows.ts";

/** When a transaction has to be durable: at once, because a step waits for it, or a little later, together with others. */
export type Pace = "now" | "soon";

/** What keeps the tables of an embedded store. */
export interface Engine {
  /** What is committed; within `transact`, what the transaction sees. */
  readonly rows: Rows;
  /** @returns whether everybody who drove this store before is known to be dead, and whether one of them went without `close` */
  open(owner: string): Promise<{ readonly exclusive: boolean; readonly formerOwnerDead: boolean }>;
  /**
   * Runs `work` whole or not at all, in the order of the calls. Resolves once it is durable; rejects with what `work` threw, or with
   * `CommitFailedError`.
   */
  transact<T>(work: () => T, pace: Pace): Promise<T>;
  /** What is wrong with the medium itself. */
  faults(): readonly string[];
  /** After everything that was asked for is durable. */
  close(): Promise<void>;
}

/** The settings that all embedded stores share. */
export interface StoreOptions {
  /** The one clock: times of entries, leases and timers, in ms. `Date.now` by default. */
  readonly clock?: () => number;
  /** How long a lease lasts without renewal, in ms. 30 s by default. */
  readonly leaseMs?: number;
  /** How long a settled business key answers for its write, in ms. 30 days by default. */
  readonly claimTtl?: number;
}
