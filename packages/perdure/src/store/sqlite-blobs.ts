import { parseInterrupt } from "../log/entries.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import type { Hash, Path, Uid } from "../protocol/words.ts";
import { type Blob, BlobFault, pack, unpack } from "./blobs.ts";
import { StoreDamagedError } from "./errors.ts";
import type { QuestionRow } from "./rows.ts";
import type { SqliteDatabase, SqlRow } from "./sqlite-database.ts";
import { BLOB_COLUMNS, hasBlobs } from "./sqlite-schema.ts";
import { damaged, jsonOf, numberOf, numberOrNull, textIn, textOf } from "./sqlite-values.ts";
import type { Claim, Closed, Question } from "./store.ts";

/** The table of blobs, and the rows beside the log that hold values which the log most often has too: large ones are there once. */
export class SqliteBlobs {
  readonly #db: SqliteDatabase;

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  add({ hash, text }: Blob): void {
    this.#db.run("INSERT OR IGNORE INTO blobs (hash, text) VALUES (?, ?)", hash, text);
  }

  text(hash: string): string | null {
    const row = this.#db.get("SELECT text FROM blobs WHERE hash = ?", hash);
    return row === null ? null : textIn(row, "text");
  }

  /** Whether a row, or another blob, refers to it: few have blobs at all, and an index knows which. */
  isUsed(hash: string): boolean {
    return BLOB_COLUMNS.some(([table, column]) => {
      const sql = `SELECT 1 FROM ${table} WHERE ${hasBlobs(column)} AND instr(${column}, ?) > 0 LIMIT 1`;
      return this.#db.get(sql, hash) !== null;
    });
  }

  /** The text of a value, to be read by {@link question} or {@link claim}. */
  packed(value: unknown): string {
    const { text, blobs } = pack(JSON.stringify(value), () => toJson(value));
    for (const blob of blobs) this.add(blob);
    return text;
  }

  question(row: SqlRow): QuestionRow {
    return {
      n: numberOf(row, "n"),
      runId: numberOf(row, "run"),
      openedAt: numberOf(row, "opened_at"),
      interrupt: parseInterrupt(this.#unpacked(row, "interrupt", isJsonObject), { run: null, seq: null }),
      closed: row.closed === null ? null : this.#unpacked<Closed>(row, "closed", isJsonObject),
      contested: jsonOf<Question["contested"]>(row, "contested", Array.isArray),
    };
  }

  claim(row: SqlRow): Claim {
    return {
      tenant: textOf(row, "tenant"),
      tool: textOf(row, "tool"),
      key: textOf(row, "key"),
      argsHash: textOf<Hash>(row, "args_hash"),
      holder: { uid: textOf<Uid>(row, "holder"), path: textOf<Path>(row, "path") },
      state: textOf<Claim["state"]>(row, "state"),
      ...(row.output === null ? {} : { output: this.#unpacked<Json>(row, "output", () => true) }),
      until: numberOrNull(row, "until"),
    };
  }

  #unpacked<T>(row: SqlRow, column: string, fits: (value: unknown) => boolean): T {
    const text = textOf(row, column);
    let value: unknown;
    try {
      value = unpack(text, (hash) => this.text(hash));
    } catch (error) {
      if (!(error instanceof BlobFault)) throw error;
      throw new StoreDamagedError(`column ${column} of a row cannot be read: ${error.why}`);
    }
    if (!fits(value)) throw damaged(column, text);
    return value as T;
  }
}
