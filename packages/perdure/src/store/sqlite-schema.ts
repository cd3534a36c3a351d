import { existsSync, statSync } from "node:fs";
import { NotAPerdureStoreError, StoreDamagedError, StoreTooNewError } from "./errors.ts";
import { type SqliteDatabase, SqliteError } from "./sqlite-database.ts";

/** "PERD": marks a SQLite file as ours, https://sqlite.org/pragma.html#pragma_application_id. */
const APPLICATION_ID = 0x50455244;

/** The columns whose texts may refer to blobs. */
export const BLOB_COLUMNS = [
  ["log", "entry"],
  ["questions", "interrupt"],
  ["questions", "closed"],
  ["claims", "output"],
  ["blobs", "text"],
] as const;

/** That a column's text refers to blobs at all. Word for word as in the indexes, or those are of no use. */
export function hasBlobs(column: (typeof BLOB_COLUMNS)[number][1]): string {
  return `instr(${column}, char(10)) > 0`;
}

/** Runs that are over and have their frames; as in its index. */
export const PRUNABLE = "outcome IS NOT NULL AND pruned IS NULL AND aside IS NULL";

/** Whose frames no other run's refer to. */
export const UNSHOWN =
  "(parent IS NULL OR NOT EXISTS (SELECT 1 FROM runs AS shows WHERE shows.uid = runs.parent AND shows.pruned IS NULL))";

/**
 * Version n is reached by the n-th text. A text that was released never changes: files in the field were made by it.
 *
 * The log is a rowid table with a short integer run id: without a rowid, bodies over 1 KB would spill into pages of their own. Its text
 * comes last, so that nothing else of a row stands behind a long one.
 */
const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE owner (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, pid INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL
  );
  CREATE TABLE threads (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, subject TEXT NOT NULL, agent TEXT NOT NULL, thread TEXT NOT NULL,
    UNIQUE (tenant, subject, agent, thread)
  );
  CREATE TABLE runs (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, thread_id INTEGER REFERENCES threads,
    tenant TEXT NOT NULL, subject TEXT NOT NULL, agent TEXT NOT NULL, thread TEXT, turn INTEGER NOT NULL, labels TEXT NOT NULL,
    created_at REAL NOT NULL,
    sealed INTEGER NOT NULL, leg INTEGER NOT NULL, leg_open INTEGER NOT NULL, outcome TEXT,
    ready_at REAL, owner TEXT, epoch INTEGER NOT NULL, until REAL NOT NULL, waits_for_key TEXT, aside TEXT
  );
  CREATE INDEX runs_ready ON runs (ready_at, id) WHERE ready_at IS NOT NULL AND aside IS NULL;
  CREATE INDEX runs_waiting ON runs (waits_for_key) WHERE waits_for_key IS NOT NULL;
  CREATE INDEX runs_thread ON runs (thread_id, id);
  CREATE INDEX runs_listed ON runs (tenant, subject, id);
  CREATE TABLE log (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, since INTEGER NOT NULL, chain TEXT,
    entry TEXT NOT NULL, UNIQUE (run, seq)
  );
  CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, text TEXT NOT NULL);
  CREATE TABLE inbox (
    row INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, at REAL NOT NULL, by TEXT NOT NULL, item TEXT NOT NULL
  );
  CREATE INDEX inbox_run ON inbox (run, row);
  CREATE TABLE questions (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run INTEGER NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL,
    opened_at REAL NOT NULL, interrupt TEXT NOT NULL, closed TEXT, contested TEXT NOT NULL
  );
  CREATE INDEX questions_run ON questions (run, n) WHERE closed IS NULL;
  CREATE INDEX questions_call ON questions (run, path) WHERE kind = 'client-tool';
  CREATE INDEX questions_open ON questions (n) WHERE closed IS NULL AND kind <> 'client-tool';
  CREATE TABLE aliases (
    thread_id INTEGER NOT NULL, run_id TEXT NOT NULL, run INTEGER NOT NULL, leg INTEGER, added TEXT, seq INTEGER,
    PRIMARY KEY (thread_id, run_id)
  ) WITHOUT ROWID;
  CREATE INDEX aliases_due ON aliases (run) WHERE leg IS NULL;
  CREATE TABLE messages (thread_id INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (thread_id, id)) WITHOUT ROWID;
  CREATE TABLE claims (
    id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, tool TEXT NOT NULL, key TEXT NOT NULL, args_hash TEXT NOT NULL,
    holder TEXT NOT NULL, path TEXT NOT NULL, state TEXT NOT NULL, output TEXT, until REAL,
    UNIQUE (tenant, tool, key)
  );
  CREATE INDEX claims_holder ON claims (holder);
  `,
  `
  ALTER TABLE runs ADD COLUMN pruned INTEGER;
  CREATE INDEX runs_prunable ON runs (id) WHERE outcome IS NOT NULL AND pruned IS NULL AND aside IS NULL;
  CREATE INDEX log_blobs ON log (id) WHERE instr(entry, char(10)) > 0;
  CREATE INDEX questions_blobs ON questions (n) WHERE instr(interrupt, char(10)) > 0;
  CREATE INDEX answers_blobs ON questions (n) WHERE instr(closed, char(10)) > 0;
  CREATE INDEX claims_blobs ON claims (id) WHERE instr(output, char(10)) > 0;
  CREATE INDEX blobs_blobs ON blobs (id) WHERE instr(text, char(10)) > 0;
  `,
  `
  CREATE TABLE queue (
    n INTEGER PRIMARY KEY AUTOINCREMENT, thread_id INTEGER NOT NULL, at REAL NOT NULL, cancels INTEGER NOT NULL, request TEXT NOT NULL
  );
  CREATE INDEX queue_thread ON queue (thread_id, n);
  `,
  `
  ALTER TABLE runs ADD COLUMN parent TEXT;
  ALTER TABLE runs ADD COLUMN parent_path TEXT;
  CREATE INDEX runs_parent ON runs (parent, id) WHERE parent IS NOT NULL;
  `,
];

export const SCHEMA_VERSION = MIGRATIONS.length;

/** A file that is not there, or has no byte, is nobody's. */
export function isNew(file: string): boolean {
  return !existsSync(file) || statSync(file).size === 0;
}

/**
 * Reads whose file this is and how old; changes nothing.
 *
 * @returns the schema version, 0 for an empty database
 */
export function checkSchema(db: SqliteDatabase): number {
  const version = ours(db);
  if (version > SCHEMA_VERSION) throw new StoreTooNewError(db.file, version, SCHEMA_VERSION);
  return version;
}

function ours(db: SqliteDatabase): number {
  try {
    const id = db.pragma("application_id");
    const version = Number(db.pragma("user_version"));
    if (id === APPLICATION_ID) return version;
    if (id !== 0) throw new NotAPerdureStoreError(db.file, `it is a SQLite file of another program (${String(id)})`);
    if (db.get("SELECT 1 FROM sqlite_schema LIMIT 1") !== null) {
      throw new NotAPerdureStoreError(db.file, "it is a SQLite file with tables that are not ours");
    }
    return 0;
  } catch (cause) {
    if (cause instanceof SqliteError && cause.reason === "SQLITE_NOTADB") {
      throw new NotAPerdureStoreError(db.file, "it is not a SQLite file", { cause });
    }
    if (cause instanceof StoreDamagedError) {
      throw new NotAPerdureStoreError(db.file, "it is a SQLite file that cannot be read", { cause });
    }
    throw cause;
  }
}

/** Brings a store to this version, in one transaction: a crash in the middle leaves it as it was. */
export function migrate(db: SqliteDatabase): void {
  const version = checkSchema(db);
  if (version === SCHEMA_VERSION) return;
  db.exec("BEGIN IMMEDIATE");
  try {
    for (const migration of MIGRATIONS.slice(version)) db.exec(migration);
    db.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION}`);
    db.exec("COMMIT");
  } catch (error) {
    db.exec("ROLLBACK");
    throw error;
  }
}
