import { StoreLockedError } from "./errors.ts";
import { SqliteDatabase, SqliteError } from "./sqlite-database.ts";

type Driver = ConstructorParameters<typeof SqliteDatabase>[0];

/**
 * The lock on `<file>-owner`: an exclusive transaction on a database of its own, which never writes. The system releases it when the process
 * dies, however it dies, and not before: whoever gets it knows that no body of the former owner's steps is running. It is not a lock on the
 * store itself, so that tools can go on reading that one.
 */
export class OwnerLock {
  readonly #db: SqliteDatabase;

  /** @throws {@link StoreLockedError} */
  constructor(driver: Driver, file: string) {
    this.#db = new SqliteDatabase(driver, `${file}-owner`);
    try {
      // Only ever `exec`: a prepared statement could keep the connection, and the lock with it, beyond `close`.
      this.#db.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      this.#db.close();
      if (error instanceof SqliteError && error.reason === "SQLITE_BUSY") {
        throw new StoreLockedError(file, pidOfOwner(driver, file));
      }
      throw error;
    }
  }

  release(): void {
    this.#db.close();
  }
}

/** The owner may be just about to make the file: then nobody can say. */
function pidOfOwner(driver: Driver, file: string): number | null {
  try {
    const db = new SqliteDatabase(driver, file, { readOnly: true });
    try {
      return Number(db.get("SELECT pid FROM owner")?.pid ?? Number.NaN) || null;
    } finally {
      db.close();
    }
  } catch {
    return null; // the lock is the news; that its owner could not be named is not
  }
}
