import { type Json, toJson } from "../protocol/json.ts";

const MAX_DEPTH = 32;
const MAX_PARTS = 10_000;
const MAX_TEXT = 64 * 1024;

/**
 * As much of a value as JSON can keep, for an output that cannot be recorded: what JSON cannot hold becomes a text that says what stood there.
 * Never throws, and is never large: of more than 64 Ki characters only the beginning of the text is kept.
 */
export function salvage(value: unknown): Json {
  let parts = 0;
  const kept = keep(value, []);
  const text = JSON.stringify(kept);
  return text.length <= MAX_TEXT ? kept : `${text.slice(0, MAX_TEXT)}…`;

  function keep(v: unknown, parents: readonly object[]): Json {
    if (v === null || typeof v === "boolean") return v;
    if (typeof v === "string") return v.length <= MAX_TEXT ? v : `${v.slice(0, MAX_TEXT)}…`;
    if (typeof v === "number") return Number.isFinite(v) ? v : String(v);
    if (typeof v === "bigint") return String(v);
    if (v === undefined) return null;
    if (typeof v !== "object") return `[${typeof v}]`;
    if (parents.includes(v)) return "[circular]";
    if (parents.length >= MAX_DEPTH || ++parts > MAX_PARTS) return "[cut]";
    try {
      return keepObject(v, [...parents, v]);
    } catch {
      return "[unreadable]"; // A getter, a proxy or a toJSON threw: the rest is still worth keeping.
    }
  }

  function keepObject(v: object, parents: readonly object[]): Json {
    if (v instanceof Date) return toJson(v);
    if (v instanceof Map) return keep(Object.fromEntries(v), parents);
    if (v instanceof Set) return keep([...v], parents);
    if (ArrayBuffer.isView(v)) return `[${v.constructor.name} of ${v.byteLength} bytes]`;
    if (Array.isArray(v)) return v.slice(0, MAX_PARTS).map((item) => keep(item, parents));
    const members = Object.keys(v).filter((key) => key !== "__proto__");
    return Object.fromEntries(members.map((key) => [key, keep(Reflect.get(v, key), parents)]));
  }
}
