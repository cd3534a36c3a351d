import { PerdureError } from "../protocol/errors.ts";

/**
 * `MODEL_REFUSED`: the request as it is will never be taken (4xx, a missing key, a part that the provider cannot send), or the provider withheld
 * the answer. `MODEL_CONTEXT_TOO_LONG`: nor will this one, for its length. `MODEL_RATE_LIMITED`: 429. `MODEL_UNAVAILABLE`: 5xx, 408, 409, or no connection. `MODEL_TIMEOUT`: it was silent for longer than
 * `timeouts` allows. `MODEL_FAILED`: an error within the answer's stream. `MODEL_CUT`: the stream ended before the answer did.
 * `MODEL_UNREADABLE`: a part of the answer is not what the specification says.
 */
export type ModelErrorCode =
  | "MODEL_REFUSED"
  | "MODEL_CONTEXT_TOO_LONG"
  | "MODEL_RATE_LIMITED"
  | "MODEL_UNAVAILABLE"
  | "MODEL_TIMEOUT"
  | "MODEL_FAILED"
  | "MODEL_CUT"
  | "MODEL_UNREADABLE";

/** When a service wants to be asked again: after so many ms, or at a time in ms since the epoch. */
export type RetryAfter = { readonly ms: number } | { readonly at: number };

/** A model call gave no whole answer. `message` may be shown to anybody; what the provider said is in `cause`. */
export class ModelError extends PerdureError {
  override readonly name = "ModelError";
  declare readonly code: ModelErrorCode;
  constructor(
    code: ModelErrorCode,
    message: string,
    /** Whether the same request may succeed later. */
    readonly retryable: boolean,
    cause?: unknown,
    /** What the provider itself said about when. */
    readonly retryAfter?: RetryAfter,
  ) {
    super(code, message, cause === undefined ? undefined : { cause });
  }
}
