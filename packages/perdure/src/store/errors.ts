import { PerdureError } from "../protocol/errors.ts";
import type { Uid } from "../protocol/words.ts";

/** Whatever a store cannot do. The subclasses and `code` say what. */
export class StoreError extends PerdureError {
  override readonly name: string = "StoreError";
}

/** Another process drives this store. */
export class StoreLockedError extends StoreError {
  override readonly name = "StoreLockedError";
  constructor(
    readonly file: string,
    /** Process id of the owner, where it could be read. */
    readonly pid: number | null,
  ) {
    const who = pid === null ? "another process" : `process ${pid}`;
    super(
      "STORE_LOCKED",
      `store ${file} is driven by ${who}: stop it first, or share a PostgreSQL store between processes`,
    );
  }
}

/** The file holds something else. It was not touched. */
export class NotAPerdureStoreError extends StoreError {
  override readonly name = "NotAPerdureStoreError";
  constructor(
    readonly file: string,
    why: string,
    options?: ErrorOptions,
  ) {
    super("NOT_A_PERDURE_STORE", `${file} is not a Perdure store: ${why}; name another file`, options);
  }
}

/** A newer Perdure wrote this store. It was not touched. */
export class StoreTooNewError extends StoreError {
  override readonly name = "StoreTooNewError";
  constructor(
    readonly file: string,
    /** Schema version of the file. */
    readonly version: number,
    /** The newest schema version that this Perdure knows. */
    readonly known: number,
  ) {
    super(
      "STORE_TOO_NEW",
      `store ${file} has schema version ${version}, this Perdure knows up to ${known}: upgrade the package "perdure"`,
    );
  }
}

/** There is no SQLite in this Node. */
export class SqliteMissingError extends StoreError {
  override readonly name = "SqliteMissingError";
  constructor(options?: ErrorOptions) {
    super(
      "SQLITE_MISSING",
      `Node ${process.versions.node} has no built-in SQLite (it needs 22.13 or later): run "npm install @photostructure/sqlite@1.2.1"`,
      options,
    );
  }
}

/**
 * A commit failed: nothing of what it was to hold may be relied on, and none of it is tried again here. Whoever appended reads the log again
 * before going on.
 */
export class CommitFailedError extends StoreError {
  override readonly name = "CommitFailedError";
  constructor(
    /** The database's own word for it, for example `SQLITE_FULL`. */
    readonly reason: string,
    store: string,
    options?: ErrorOptions,
  ) {
    const next =
      reason === "SQLITE_FULL" ? "free some disk space" : "see the cause; the log has to be read again before going on";
    super(
      "COMMIT_FAILED",
      `a commit to store ${store} failed (${reason}) and nothing of it was kept: ${next}`,
      options,
    );
  }
}

/** A row, or the page that it stands on, cannot be read. */
export class StoreDamagedError extends StoreError {
  override readonly name = "StoreDamagedError";
  constructor(what: string, options?: ErrorOptions) {
    super("STORE_DAMAGED", `${what}; the file was damaged or changed by hand: restore it from a backup`, options);
  }
}

/** The log of a run ends, or has a hole, where entries were promised. */
export class EntryMissingError extends StoreError {
  override readonly name = "EntryMissingError";
  constructor(
    readonly run: Uid,
    readonly seq: number,
    /** Last seq of the run, by its own row. */
    readonly head: number,
  ) {
    super(
      "ENTRY_MISSING",
      `entry ${seq} of run ${run} is missing, though its log goes up to ${head}: restore the store from a backup`,
    );
  }
}
