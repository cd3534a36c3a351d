import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { EmbeddedStore, notOpen } from "./embedded-store.ts";
import type { Engine, Pace, StoreOptions } from "./engine.ts";
import { StoreDamagedError, StoreError } from "./errors.ts";
import type { Rows } from "./rows.ts";
import { loadDriver, SqliteDatabase } from "./sqlite-database.ts";
import { OwnerLock } from "./sqlite-owner.ts";
import { SqliteRows } from "./sqlite-rows.ts";
import { checkSchema, isNew, migrate, SCHEMA_VERSION } from "./sqlite-schema.ts";
import { SqliteWriter } from "./sqlite-writer.ts";
import type { EventStore } from "./store.ts";

export interface SqliteOptions extends StoreOptions {
  /**
   * `drive` (the default) owns the file: one process at a time. `read` takes no lock and writes nothing, for tools that look on while another
   * process drives. `visit` owns the file for a moment, while nobody drives, to put something into an inbox: leases, and what the last driver
   * has left behind, stay as they are for the next one.
   */
  readonly access?: "drive" | "visit" | "read";
  /**
   * What a commit outlives. `power` (the default): also the loss of power and a crash of the operating system, because each commit waits for the
   * disk. `process`: the death of the process, however it dies. A commit waits for no disk then; a machine that goes down may lose the newest ones, and what
   * they have recorded is done again. See https://sqlite.org/pragma.html#pragma_synchronous.
   */
  readonly durability?: "power" | "process";
}

/**
 * A store in one SQLite file, durable against power loss unless told otherwise. It needs Node 22.13, or the package `@photostructure/sqlite` on Node 20.
 *
 * @param file - path of the database; made when it is not there. Beside it stand `-wal`, `-shm` and `-owner`
 */
export function sqlite(file: string, options: SqliteOptions = {}): EventStore {
  if (file === "" || file.startsWith(":")) {
    throw new StoreError("STORE_FILE", `"${file}" is not a file that outlives its process: use memory() for that`);
  }
  return new EmbeddedStore(new SqliteEngine(file, options), options);
}

interface Opened {
  readonly db: SqliteDatabase;
  readonly rows: SqliteRows;
  readonly writer: SqliteWriter;
  readonly lock: OwnerLock | null;
}

class SqliteEngine implements Engine {
  #opened: Opened | null = null;
  #opening: Promise<boolean> | null = null;
  readonly #access: "drive" | "visit" | "read";
  readonly #synchronous: "FULL" | "NORMAL";
  readonly #clock: () => number;

  constructor(
    readonly file: string,
    options: SqliteOptions,
  ) {
    this.#access = options.access ?? "drive";
    this.#synchronous = options.durability === "process" ? "NORMAL" : "FULL";
    this.#clock = options.clock ?? Date.now;
  }

  get rows(): Rows {
    return this.#open.rows;
  }

  async open(owner: string): Promise<{ exclusive: boolean; formerOwnerDead: boolean }> {
    if (this.#opening !== null) {
      await this.#opening;
      return { exclusive: false, formerOwnerDead: false }; // a second driver in the process that has the lock already
    }
    this.#opening = this.#access === "drive" ? this.#openToDrive(owner) : this.#openBeside();
    try {
      return { exclusive: this.#access === "drive", formerOwnerDead: await this.#opening };
    } catch (error) {
      this.#opening = null;
      throw error;
    }
  }

  transact<T>(work: () => T, pace: Pace): Promise<T> {
    if (this.#access === "read") {
      return Promise.reject(
        new StoreError(
          "STORE_READ_ONLY",
          `store ${this.file} was opened to read: the process that drives it has to do this`,
        ),
      );
    }
    if (this.#opened === null) return Promise.reject(notOpen(this.file));
    return this.#opened.writer.transact(work, pace);
  }

  faults(): readonly string[] {
    try {
      this.#open.rows.forget();
      const rows = this.#open.db.all("PRAGMA integrity_check");
      return rows.map((row) => String(row.integrity_check)).filter((line) => line !== "ok");
    } catch (error) {
      if (error instanceof StoreDamagedError) return [error.message];
      throw error;
    }
  }

  async close(): Promise<void> {
    const opened = this.#opened;
    if (opened === null) return;
    opened.writer.flush();
    this.#opened = null;
    this.#opening = null;
    try {
      if (opened.lock === null) return;
      if (this.#access === "drive") opened.db.run("UPDATE owner SET closed_at = ?", this.#clock());
      // `@photostructure/sqlite` keeps a closed connection until its statements are collected, so closing alone does not do this.
      opened.db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    } finally {
      opened.db.close();
      opened.lock?.release();
    }
  }

  get #open(): Opened {
    if (this.#opened === null) throw notOpen(this.file);
    return this.#opened;
  }

  async #openToDrive(owner: string): Promise<boolean> {
    const driver = await loadDriver();
    const file = realFile(this.file);
    // First of all without a trace: a file that is not ours gets no lock file beside it and no write-ahead log.
    if (!isNew(file)) withDatabase(new SqliteDatabase(driver, file, { readOnly: true }), checkSchema);
    const lock = new OwnerLock(driver, file);
    try {
      const db = new SqliteDatabase(driver, file);
      try {
        db.exec("PRAGMA busy_timeout = 5000");
        migrate(db);
        db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${this.#synchronous}; PRAGMA foreign_keys = OFF`);
        const former = db.get("SELECT closed_at FROM owner");
        db.run(
          "INSERT OR REPLACE INTO owner (one, name, pid, opened_at, closed_at) VALUES (1, ?, ?, ?, NULL)",
          owner,
          process.pid,
          this.#clock(),
        );
        this.#opened = opened(db, lock);
        return former !== null && former.closed_at === null;
      } catch (error) {
        db.close();
        throw error;
      }
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  /** To read or to visit: it makes no file, upgrades none, and does not become its owner. */
  async #openBeside(): Promise<boolean> {
    const driver = await loadDriver();
    const file = realFile(this.file);
    const isVisit = this.#access === "visit";
    withDatabase(new SqliteDatabase(driver, file, { readOnly: true }), (db) => this.#refuseOlder(db));
    const lock = isVisit ? new OwnerLock(driver, file) : null;
    try {
      const db = new SqliteDatabase(driver, file, { readOnly: !isVisit });
      if (isVisit) {
        db.exec(`PRAGMA busy_timeout = 5000; PRAGMA synchronous = ${this.#synchronous}; PRAGMA foreign_keys = OFF`);
      }
      this.#opened = opened(db, lock);
      return false;
    } catch (error) {
      lock?.release();
      throw error;
    }
  }

  #refuseOlder(db: SqliteDatabase): void {
    if (checkSchema(db) >= SCHEMA_VERSION) return;
    throw new StoreError(
      "STORE_TOO_OLD",
      `store ${this.file} has an older schema: open it once to drive, to upgrade it`,
    );
  }
}

function opened(db: SqliteDatabase, lock: OwnerLock | null): Opened {
  const rows = new SqliteRows(db, lock !== null);
  return { db, rows, writer: new SqliteWriter(db, () => rows.forget()), lock };
}

/** Two names of one file must not mean two locks. */
function realFile(file: string): string {
  const path = resolve(file);
  try {
    return realpathSync(path);
  } catch {
    try {
      return join(realpathSync(dirname(path)), basename(path));
    } catch (cause) {
      throw new StoreError("STORE_FILE", `the folder of store ${file} is not there: make it first`, { cause });
    }
  }
}

function withDatabase(db: SqliteDatabase, work: (db: SqliteDatabase) => void): void {
  try {
    work(db);
  } finally {
    db.close();
  }
}
