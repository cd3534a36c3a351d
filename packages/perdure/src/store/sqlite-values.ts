import { StoreDamagedError } from "./errors.ts";
import type { SqlRow } from "./sqlite-database.ts";

/*
 * SQLite keeps whatever type was put into a column, and so does whoever edits the file by hand. These are the only places where a column becomes
 * one of our types: each checks what it can before it says so.
 */

/** A text column; the narrower words are opaque, or were checked when they were written. */
export function textOf<T extends string = string>(row: SqlRow, column: string): T {
  const value = row[column];
  if (typeof value !== "string") throw damaged(column, value);
  return value as T;
}

export function textOrNull<T extends string = string>(row: SqlRow, column: string): T | null {
  return row[column] === null ? null : textOf<T>(row, column);
}

export function numberOf(row: SqlRow, column: string): number {
  const value = row[column];
  if (typeof value !== "number") throw damaged(column, value);
  return value;
}

export function numberOrNull(row: SqlRow, column: string): number | null {
  return row[column] === null ? null : numberOf(row, column);
}

/** For a reader that checks the value and knows whose it is: what has another type becomes what no value of ours is. */
export function numberIn(row: SqlRow, column: string): number {
  const value = row[column];
  return typeof value === "number" ? value : Number.NaN;
}

/** As {@link numberIn}. */
export function textIn(row: SqlRow, column: string): string {
  const value = row[column];
  return typeof value === "string" ? value : "";
}

export function flag(row: SqlRow, column: string): boolean {
  return numberOf(row, column) !== 0;
}

/** A column of JSON whose outer shape `fits`. */
export function jsonOf<T>(row: SqlRow, column: string, fits: (value: unknown) => boolean): T {
  const text = textOf(row, column);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw damaged(column, text);
  }
  if (!fits(value)) throw damaged(column, text);
  return value as T;
}

export function damaged(column: string, value: unknown): StoreDamagedError {
  return new StoreDamagedError(
    `column ${column} of a row holds ${typeof value === "string" ? "unreadable text" : typeof value}`,
  );
}
