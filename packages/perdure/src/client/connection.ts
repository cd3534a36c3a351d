/** One request and its answer: what is lost and what is refused are told apart here, and nowhere else. */
import { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { isJsonObject } from "../protocol/json.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { SseFrames } from "../protocol/sse.ts";
import { requestError } from "./errors.ts";
import { LONGEST_TIMER, Lost } from "./lost.ts";

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** Of a gateway without a server behind it, or of a server that cannot do it now and has done nothing. */
const PASSING: ReadonlySet<number> = new Set([502, 503, 504]);

/**
 * Makes a request.
 *
 * @throws {@link Lost} when no server has answered it; `RequestError` when one has refused it; what the signal says when it has fired
 */
export async function ask(fetch: Fetch, url: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
  const method = init.method ?? "GET";
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (cause) {
    init.signal.throwIfAborted();
    throw new Lost(`${method} ${url} has got no answer`, { cause });
  }
  if (response.ok) return response;
  const { status, headers } = response;
  const text = await textOf(response, init.signal);
  if (!PASSING.has(status)) throw requestError(status, text);
  throw new Lost(`${method} ${url} was answered with ${status}`, { retryAfter: retryAfterOf(headers, Date.now()) });
}

/** @throws {@link Lost} when the answer breaks off; what the signal says when it has fired */
export async function textOf(response: Response, signal: AbortSignal): Promise<string> {
  try {
    return await response.text();
  } catch (cause) {
    signal.throwIfAborted();
    throw new Lost("the answer broke off", { cause });
  }
}

/** @returns milliseconds */
function retryAfterOf(headers: Headers, now: number): number | undefined {
  const text = headers.get("retry-after")?.trim();
  if (!text) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - now;
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** An event, and the cursor of its frame. */
export interface Framed {
  readonly event: AGUIEvent;
  readonly cursor: string | undefined;
}

/**
 * The events of a response, as long as it lasts, or until the signal fires.
 *
 * @param idleTimeoutMs - of so much silence it dies: a connection may be gone without a word
 * @throws {@link Lost} when it breaks off
 */
export async function* framesOf(
  response: Response,
  { idleTimeoutMs, signal }: { readonly idleTimeoutMs: number; readonly signal: AbortSignal },
): AsyncGenerator<Framed, void> {
  const type = response.headers.get("content-type") ?? "nothing";
  if (!type.startsWith(EVENT_STREAM)) {
    throw new PerdureError(
      "NOT_AN_EVENT_STREAM",
      `${response.url || "the server"} answered with ${type}, not with ${EVENT_STREAM}: is this the address of an agent?`,
    );
  }
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  // It may have broken already: that is known by then.
  const leave = (): void => void reader.cancel().catch(() => {});
  // Not every fetch that an application brings minds the signal of its request.
  signal.addEventListener("abort", leave);
  const frames = new SseFrames();
  try {
    for (;;) {
      const bytes = await nextBytes(reader, idleTimeoutMs);
      if (bytes === undefined) return;
      for (const { id, data } of frames.take(bytes)) yield { event: eventIn(data), cursor: id };
    }
  } finally {
    signal.removeEventListener("abort", leave);
    leave();
  }
}

async function nextBytes(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  idleTimeoutMs: number,
): Promise<Uint8Array | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    const die = (): void => reject(new Lost(`the stream was silent for ${idleTimeoutMs} ms`));
    if (idleTimeoutMs <= LONGEST_TIMER) timer = setTimeout(die, idleTimeoutMs);
  });
  try {
    return (await Promise.race([reader.read(), silence])).value;
  } catch (cause) {
    throw cause instanceof Lost ? cause : new Lost("the connection broke off", { cause });
  } finally {
    clearTimeout(timer);
  }
}

/** The one cast: whether it is a sound event is the published client's to judge, as for any other agent. */
function eventIn(data: string): AGUIEvent {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch (cause) {
    throw new PerdureError("BAD_FRAME", `a frame of the stream is not JSON: ${data.slice(0, 80)}`, { cause });
  }
  if (isJsonObject(value) && typeof value.type === "string") return value as unknown as AGUIEvent;
  throw new PerdureError("BAD_FRAME", `a frame of the stream is no event with a type: ${data.slice(0, 80)}`);
}
