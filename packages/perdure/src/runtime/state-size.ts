import type { Json } from "../protocol/json.ts";
import type { Patch } from "../protocol/patch.ts";
import { MAX_PAYLOAD_BYTES, PayloadTooLargeError } from "../protocol/payload.ts";

/**
 * Keeps a run's state to the size of one payload. What clients are sent and the next run of the thread begins with is the whole of it, however
 * small the patches were that made it.
 *
 * The whole is measured once, and again only when what was added since could have made it too large.
 */
export class StateSize {
  /** Bytes that the committed state has at most. */
  #atMost: number | undefined;

  /**
   * Asked for each change before it is committed.
   *
   * @param next - what `patch` makes of the state
   * @returns what is wrong with it
   */
  refuses(patch: Patch, next: Json): PayloadTooLargeError | undefined {
    if (patch.length === 0) return undefined;
    const grown = this.#atMost === undefined ? undefined : this.#atMost + bytesOf([...patch] as unknown as Json);
    if (grown !== undefined && grown <= MAX_PAYLOAD_BYTES) {
      this.#atMost = grown;
      return undefined;
    }
    const bytes = bytesOf(next);
    if (bytes > MAX_PAYLOAD_BYTES) return new PayloadTooLargeError("the state of the run after this change", bytes);
    this.#atMost = bytes;
    return undefined;
  }
}

function bytesOf(value: Json): number {
  return new TextEncoder().encode(JSON.stringify(value)).byteLength;
}
