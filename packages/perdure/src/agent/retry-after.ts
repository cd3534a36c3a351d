import { isJsonObject } from "../protocol/json.ts";
import type { RetryAfter } from "../runtime/model-error.ts";

/**
 * When a provider wants to be asked again, from the headers of its answer: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date.
 *
 * @param cause - an APICallError of the AI SDK, or anything else
 */
export function retryAfterOf(cause: unknown): RetryAfter | undefined {
  const headers = isJsonObject(cause) ? cause.responseHeaders : undefined;
  if (!isJsonObject(headers)) return undefined;
  const ms = wait(headerOf(headers, "retry-after-ms"), 1);
  if (ms !== undefined) return ms;
  const text = headerOf(headers, "retry-after");
  const seconds = wait(text, 1_000);
  if (seconds !== undefined) return seconds;
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? undefined : { at };
}

/** Providers of one's own may keep the case in which a server wrote them. */
function headerOf(headers: { readonly [name: string]: unknown }, wanted: string): string | undefined {
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() === wanted && typeof value === "string" && value.trim() !== "") return value.trim();
  }
  return undefined;
}

function wait(text: string | undefined, unit: number): RetryAfter | undefined {
  const count = Number(text ?? Number.NaN);
  return Number.isFinite(count) && count >= 0 ? { ms: Math.ceil(count * unit) } : undefined;
}
