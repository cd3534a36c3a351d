/** Words, times and values as people read and paste them. */
import { isJsonObject, type Json } from "../protocol/json.ts";

/** How long something took or takes: the largest unit, rounded down. */
export function span(ms: number): string {
  const seconds = Math.floor(Math.abs(ms) / 1_000);
  if (seconds < 1) return `${Math.floor(Math.abs(ms))} ms`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function ago(at: number, now: number): string {
  return `${span(now - at)} ago`;
}

/** Text from outside, on one line, without what a terminal would obey, and not longer than it has to be. */
export function short(text: string, limit = 160): string {
  const line = text.replaceAll(/\s+/g, " ").replaceAll(/[\p{Cc}\p{Cf}\p{Cs}]/gu, "\u{fffd}");
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}

export function quoted(text: string): string {
  return `"${short(text)}"`;
}

/** Ends what may have ended already. */
export function sentence(text: string): string {
  return /[.!?…]"?$/.test(text) ? text : `${text}.`;
}

export function jsonText(value: Json, limit = 160): string {
  return short(JSON.stringify(value), limit);
}

/** A word of a command line, quoted where a shell would not leave it alone. */
export function shellWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

/** Rows in columns, each as wide as its widest cell; two spaces between. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = rows.reduce<number[]>((known, row) => row.map((cell, i) => Math.max(known[i] ?? 0, cell.length)), []);
  return rows.map((row) =>
    row
      .map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

/** A value that a schema might take, for an answer to be filled in. */
export function sampleOf(schema: Json): Json {
  if (!isJsonObject(schema)) return "…";
  const { type, properties, required, items } = schema;
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  for (const choice of [schema.enum, schema.examples]) {
    if (Array.isArray(choice) && choice[0] !== undefined) return choice[0];
  }
  for (const choice of [schema.oneOf, schema.anyOf, schema.allOf]) {
    if (Array.isArray(choice) && choice[0] !== undefined) return sampleOf(choice[0]);
  }
  switch (Array.isArray(type) ? type[0] : type) {
    case "object": {
      const wanted = Array.isArray(required) ? required : [];
      const known = isJsonObject(properties) ? properties : {};
      return Object.fromEntries(wanted.map((name) => [String(name), sampleOf(known[String(name)] ?? true)]));
    }
    case "array":
      return typeof schema.minItems === "number" && schema.minItems > 0 ? [sampleOf(items ?? true)] : [];
    case "boolean":
      return true;
    case "integer":
    case "number":
      return typeof schema.minimum === "number" ? schema.minimum : 1;
    case "null":
      return null;
    default:
      return "…";
  }
}
