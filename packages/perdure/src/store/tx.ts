import type { NewEntry } from "../log/entries.ts";
import { StoreError } from "./errors.ts";
import type { Rows } from "./rows.ts";
import type { Appended, Topic } from "./store.ts";

/** One transaction: the tables, its moment, and whom to tell once it is committed. */
export interface Tx {
  readonly rows: Rows;
  readonly at: number;
  readonly leaseMs: number;
  readonly claimTtl: number;
  readonly topics: Topic[];
}

/** An entry and its text, made before the transaction begins: what cannot be written never gets that far. */
export interface Encoded {
  readonly entry: NewEntry;
  readonly text: string;
}

/** Ends a transaction without a trace and without a fault. Control flow, so not an `Error`: nobody ever sees it. */
export class Refused {
  constructor(readonly appended: Appended) {}
}

/** A bug in whoever calls the store. Nothing was written. */
export function misused(why: string): StoreError {
  return new StoreError("STORE_MISUSED", `the store was asked for what its contract forbids: ${why}`);
}
