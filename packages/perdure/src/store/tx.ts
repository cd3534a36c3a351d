import { StoreError } from "./errors.ts";
import type { News } from "./hints.ts";
import type { Rows } from "./rows.ts";
import type { Appended } from "./store.ts";

/** One transaction: the tables, its moment, and whom to tell once it is committed. */
export interface Tx {
  readonly rows: Rows;
  readonly at: number;
  readonly leaseMs: number;
  readonly claimTtl: number;
  readonly news: News[];
}

/** Ends a transaction without a trace and without a fault. Control flow, so not an `Error`: nobody ever sees it. */
export class Refused {
  constructor(readonly appended: Appended) {}
}

/** A bug in whoever calls the store. Nothing was written. */
export function misused(why: string): StoreError {
  return new StoreError("STORE_MISUSED", `the store was asked for what its contract forbids: ${why}`);
}
