import { SqliteMissingError, StoreDamagedError, StoreError } from "./errors.ts";

export type SqlValue = null | number | string;
export type SqlRow = { readonly [column: string]: unknown };

/** What we use of `DatabaseSync`, which Node's own SQLite and `@photostructure/sqlite` have alike. */
interface DatabaseSync {
  exec(sql: string): void;
  prepare(sql: string): StatementSync;
  close(): void;
}
interface StatementSync {
  run(...values: SqlValue[]): { readonly lastInsertRowid: number | bigint };
  get(...values: SqlValue[]): unknown;
  all(...values: SqlValue[]): unknown[];
}
type Driver = new (file: string, options?: { readOnly?: boolean }) => DatabaseSync;

/** Node's own SQLite, else the optional peer. @throws {@link SqliteMissingError} */
export async function loadDriver(): Promise<Driver> {
  const own: unknown = process.getBuiltinModule?.("node:sqlite");
  if (hasDriver(own)) return own.DatabaseSync;
  let peer: unknown;
  try {
    peer = await import("@photostructure/sqlite");
  } catch (cause) {
    throw new SqliteMissingError({ cause });
  }
  if (hasDriver(peer)) return peer.DatabaseSync;
  throw new SqliteMissingError();
}

function hasDriver(module: unknown): module is { DatabaseSync: Driver } {
  return (
    typeof module === "object" &&
    module !== null &&
    "DatabaseSync" in module &&
    typeof module.DatabaseSync === "function"
  );
}

/** What SQLite itself says no to. */
export class SqliteError extends StoreError {
  override readonly name = "SqliteError";
  constructor(
    /** Primary result code by name, for example `SQLITE_FULL`. */
    readonly reason: string,
    message: string,
    options: ErrorOptions,
  ) {
    super("SQLITE_ERROR", message, options);
  }
}

/** One connection. Statements are compiled once; SQLite's errors become ours here and nowhere else. */
export class SqliteDatabase {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(
    driver: Driver,
    readonly file: string,
    options: { readonly readOnly?: boolean } = {},
  ) {
    this.#db = this.#translating(() => new driver(file, options));
  }

  exec(sql: string): void {
    this.#translating(() => this.#db.exec(sql));
  }

  /** @returns the row id of what was inserted */
  run(sql: string, ...values: SqlValue[]): number {
    return this.#translating(() => Number(this.#prepare(sql).run(...values).lastInsertRowid));
  }

  get(sql: string, ...values: SqlValue[]): SqlRow | null {
    return this.#translating(() => {
      const row = this.#prepare(sql).get(...values);
      return isRow(row) ? row : null;
    });
  }

  all(sql: string, ...values: SqlValue[]): SqlRow[] {
    return this.#translating(() =>
      this.#prepare(sql)
        .all(...values)
        .filter(isRow),
    );
  }

  pragma(name: string): unknown {
    return Object.values(this.get(`PRAGMA ${name}`) ?? {})[0];
  }

  close(): void {
    this.#statements.clear();
    this.#db.close();
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#db.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #translating<T>(work: () => T): T {
    try {
      return work();
    } catch (cause) {
      throw translate(cause, this.file);
    }
  }
}

function isRow(row: unknown): row is SqlRow {
  return typeof row === "object" && row !== null;
}

/** Primary result codes and SQLite's own text for them, https://sqlite.org/rescode.html. */
const REASONS: readonly (readonly [code: number, reason: string, text: string])[] = [
  [5, "SQLITE_BUSY", "database is locked"],
  [7, "SQLITE_NOMEM", "out of memory"],
  [8, "SQLITE_READONLY", "attempt to write a readonly database"],
  [10, "SQLITE_IOERR", "disk I/O error"],
  [11, "SQLITE_CORRUPT", "database disk image is malformed"],
  [13, "SQLITE_FULL", "database or disk is full"],
  [14, "SQLITE_CANTOPEN", "unable to open database file"],
  [18, "SQLITE_TOOBIG", "string or blob too big"],
  [19, "SQLITE_CONSTRAINT", "constraint failed"],
  [20, "SQLITE_MISMATCH", "datatype mismatch"],
  [26, "SQLITE_NOTADB", "file is not a database"],
];

function translate(cause: unknown, file: string): unknown {
  if (!(cause instanceof Error) || !("code" in cause) || cause.code !== "ERR_SQLITE_ERROR") return cause;
  // `@photostructure/sqlite` leaves the result code out where an error comes from `all`: then the text has to do.
  const code = "errcode" in cause && typeof cause.errcode === "number" ? cause.errcode & 0xff : null;
  const known = REASONS.find(([number, , text]) => (code === null ? cause.message.includes(text) : code === number));
  const reason = known?.[1] ?? "SQLITE_ERROR";
  if (reason === "SQLITE_CORRUPT") {
    return new StoreDamagedError(`store ${file} has a page that SQLite cannot read`, { cause });
  }
  return new SqliteError(reason, `SQLite failed on ${file}: ${cause.message} (${reason})`, { cause });
}
