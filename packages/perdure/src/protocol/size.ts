import { isJsonObject, type Json } from "./json.ts";

/**
 * About how many characters `JSON.stringify(value)` has. Escapes are not looked at, so the estimate is at times short, never long.
 *
 * @param value - a JSON value; a member that is `undefined` counts nothing, since it is not written
 */
export function estimateBytes(value: Json): number {
  return measure(value, Number.MAX_SAFE_INTEGER);
}

/**
 * Whether `JSON.stringify(value)` is (about) longer than `bytes`, found without serialising it. Given up as soon as the answer is clear, so
 * the work grows with `bytes` and not with the value; only the keys of an object that is looked at are listed whole.
 */
export function longerThan(value: Json, bytes: number): boolean {
  return measure(value, bytes) > bytes;
}

/** The length of `value` as JSON, or some number beyond `limit` once that is certain. */
function measure(value: Json | undefined, limit: number): number {
  switch (typeof value) {
    case "string":
      return value.length + 2;
    case "number":
      return String(value).length;
    case "boolean":
      return value ? 4 : 5;
    case "object":
      break;
    default:
      return 0;
  }
  if (value === null) return 4;
  let bytes = 1;
  if (!isJsonObject(value)) {
    for (let i = 0; i < value.length && bytes <= limit; i++) bytes += 1 + measure(value[i], limit - bytes);
  } else {
    for (const key in value) {
      const member = value[key];
      if (member !== undefined) bytes += 4 + key.length + measure(member, limit - bytes);
      if (bytes > limit) break;
    }
  }
  return Math.max(bytes, 2);
}
