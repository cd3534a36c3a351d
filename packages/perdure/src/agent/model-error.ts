import { isJsonObject } from "../protocol/json.ts";
import { ModelError } from "../runtime/model-error.ts";
import { isContextOverflow } from "./context-overflow.ts";
import type { LanguageModel } from "./model-port.ts";
import { retryAfterOf } from "./retry-after.ts";

export { ModelError };

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
    const message = `${name} takes no more requests for now (429); try later`;
    return new ModelError("MODEL_RATE_LIMITED", message, true, cause, retryAfterOf(cause));
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
    const message = `${name} is not available (${status}); try later`;
    return new ModelError("MODEL_UNAVAILABLE", message, true, cause, retryAfterOf(cause));
  }
  // A success as status: the answer had begun and broke. The AI SDK says of such an error that it is not retryable, because of that status.
  const hasBegun = status !== undefined && status >= 200 && status < 300;
  if (where === "stream" || hasBegun) {
    const retryable = hasBegun || (retryableOf(cause) ?? true); // most of what breaks an answer that had begun is load or network
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
