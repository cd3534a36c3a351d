import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject } from "../protocol/json.ts";
import { isContextOverflow } from "./context-overflow.ts";
import type { LanguageModel } from "./model-port.ts";

/**
 * `MODEL_REFUSED`: the request as it is will never be taken (4xx, a missing key, a part that the provider cannot send).
 * `MODEL_CONTEXT_TOO_LONG`: nor will this one, for its length.
 * `MODEL_RATE_LIMITED`: 429. `MODEL_UNAVAILABLE`: 5xx, 408, 409, or no connection. `MODEL_FAILED`: an error within the answer's stream.
 * `MODEL_CUT`: the stream ended before the answer did. `MODEL_UNREADABLE`: a part of the answer is not what the specification says.
 */
export type ModelErrorCode =
  | "MODEL_REFUSED"
  | "MODEL_CONTEXT_TOO_LONG"
  | "MODEL_RATE_LIMITED"
  | "MODEL_UNAVAILABLE"
  | "MODEL_FAILED"
  | "MODEL_CUT"
  | "MODEL_UNREADABLE";

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
  ) {
    super(code, message, cause === undefined ? undefined : { cause });
  }
}

/** The one border where what a provider throws, or sends as an error part, becomes ours. */
export function toModelError(model: LanguageModel, cause: unknown, where: "request" | "stream"): ModelError {
  if (cause instanceof ModelError) return cause;
  const name = `model ${model.provider}/${model.modelId}`;
  const status = statusOf(cause);
  if ((status === undefined || (status >= 400 && status < 500)) && status !== 429 && isContextOverflow(cause)) {
    const message = `the conversation is too long for ${name}; give the agent a \`compaction\`, or begin another thread`;
    return new ModelError("MODEL_CONTEXT_TOO_LONG", message, false, cause);
  }
  if (status === 429) {
    return new ModelError("MODEL_RATE_LIMITED", `${name} takes no more requests for now (429); try later`, true, cause);
  }
  if (status !== undefined && status >= 400 && status < 500 && status !== 408 && status !== 409) {
    return new ModelError(
      "MODEL_REFUSED",
      `${name} refused the request (${status}); see the server's log`,
      false,
      cause,
    );
  }
  if (status !== undefined && status >= 400) {
    return new ModelError("MODEL_UNAVAILABLE", `${name} is not available (${status}); try later`, true, cause);
  }
  if (where === "stream") {
    const retryable = retryableOf(cause) ?? true; // most of what breaks an answer that had begun is load or network
    return new ModelError("MODEL_FAILED", `${name} failed within its answer; see the server's log`, retryable, cause);
  }
  // Without a status and without the provider's word, only a connection that failed is worth another try: the rest is a wrong
  // request or a missing key, which no time heals.
  if (retryableOf(cause) ?? isConnectionError(cause)) {
    return new ModelError("MODEL_UNAVAILABLE", `${name} could not be reached; try later`, true, cause);
  }
  return new ModelError("MODEL_REFUSED", `${name} could not be asked; see the server's log`, false, cause);
}

/** The HTTP status in an APICallError of the AI SDK (`statusCode`), or in an error object as providers stream it (`status`, `code`). */
function statusOf(cause: unknown): number | undefined {
  if (!isJsonObject(cause)) return undefined;
  return [cause.statusCode, cause.status, cause.code].find((value) => typeof value === "number");
}

function retryableOf(cause: unknown): boolean | undefined {
  return isJsonObject(cause) && typeof cause.isRetryable === "boolean" ? cause.isRetryable : undefined;
}

const CONNECTION = /^(ECONN|ENOTFOUND|EAI_AGAIN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|UND_ERR_)/;

function isConnectionError(cause: unknown): boolean {
  for (let error = cause, depth = 0; error instanceof Error && depth < 5; error = error.cause, depth++) {
    if ("code" in error && typeof error.code === "string" && CONNECTION.test(error.code)) return true;
  }
  return false;
}
