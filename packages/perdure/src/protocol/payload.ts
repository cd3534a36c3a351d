import { PerdureError } from "./errors.ts";
import type { Json } from "./json.ts";
import { longerThan } from "./size.ts";

/** How large the JSON text of one payload may be, in bytes of UTF-8: an input, an output, a patch, a message, a state. */
export const MAX_PAYLOAD_BYTES = 4 * 1024 * 1024;

/** A payload that the log does not take. Nothing was written. */
export class PayloadTooLargeError extends PerdureError {
  override readonly name = "PayloadTooLargeError";
  constructor(
    /** What it is, for example `state of the request`. */
    readonly what: string,
    /** Bytes of its JSON text. */
    readonly bytes: number,
    /** Bytes that are allowed. */
    readonly limit = MAX_PAYLOAD_BYTES,
  ) {
    super(
      "PAYLOAD_TOO_LARGE",
      `${what} has ${bytes} bytes of JSON and ${limit} are allowed: keep it elsewhere, and pass on where it is`,
    );
  }
}

/** The length of a text in bytes of UTF-8, if it is over `limit`; else `null`, mostly without encoding it. */
export function bytesOver(text: string, limit: number): number | null {
  // A character of a string has at most three bytes.
  if (text.length * 3 <= limit) return null;
  const bytes = new TextEncoder().encode(text).byteLength;
  return bytes > limit ? bytes : null;
}

/** Bytes that an estimate may miss for each character that it counted: `\u0000` has six. */
const ESCAPED = 6;

/** The bytes of a payload's JSON text, if there are too many; else `null`, mostly without serialising it. */
export function payloadOver(value: Json): number | null {
  return longerThan(value, MAX_PAYLOAD_BYTES / ESCAPED) ? bytesOver(JSON.stringify(value), MAX_PAYLOAD_BYTES) : null;
}

/** @throws {@link PayloadTooLargeError} */
export function checkPayload(value: Json | undefined, what: string): void {
  const bytes = value === undefined ? null : payloadOver(value);
  if (bytes !== null) throw new PayloadTooLargeError(what, bytes);
}
