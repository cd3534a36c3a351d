/**
 * Verified events as a response of server-sent events.
 *
 * E1. The next batch is asked for when the connection has taken the last one, so a slow reader fills no buffer here. A run without a log
 *     waits for him; where there is a log, what waits for him is bounded, and past that he is told to come back.
 * E2. On Node the frames go straight to the socket. A web stream between takes three times as long for each, and works everywhere else.
 * E3. An event is encoded once for all its readers.
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { AGUIEvent } from "../protocol/events.ts";
import { gateFor } from "../protocol/gates.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { encodeSse, KEEP_ALIVE } from "../protocol/sse.ts";
import type { Sent } from "../runtime/feed.ts";

/** `no-transform` and `X-Accel-Buffering` keep proxies from collecting the stream into one lump. */
const HEADERS = {
  "content-type": EVENT_STREAM,
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  connection: "keep-alive",
};

/** Events in the batches in which they came. */
export interface SentStream {
  next(): Promise<IteratorResult<readonly Sent[], unknown>>;
  /** The connection is gone. Takes effect at once, also while `next` is pending. */
  cancel(): void;
}

/** An iterator that ends with a signal, as a stream. */
export function sentStream(
  start: (gone: AbortSignal) => Promise<AsyncIterator<readonly Sent[], void>>,
): Promise<SentStream> {
  const gone = new AbortController();
  return start(gone.signal).then((batches) => ({
    next: () => batches.next(),
    cancel: () => gone.abort(),
  }));
}

/**
 * A response that streams verified events. Leaving it cancels them.
 *
 * @param batches - the first one is awaited before the response exists, so what is wrong with a request can still be a status
 * @param protocolVersion - what the reader declared; decides which 1.0 features it is spared
 * @param keepAliveMs - after this much silence a comment goes out, or middleboxes take the connection for dead
 */
export async function eventStreamResponse(
  batches: SentStream,
  protocolVersion: string | undefined,
  keepAliveMs: number,
): Promise<Response> {
  const frames = new Frames(batches, protocolVersion);
  await frames.begun;
  const body = webStream(frames, keepAliveMs);
  unread.set(body, { frames, keepAliveMs });
  return new Response(body, { headers: HEADERS });
}

/** The streams behind the bodies of responses, while nobody has begun to read them. */
const unread = new WeakMap<ReadableStream, { readonly frames: Frames; readonly keepAliveMs: number }>();

/**
 * Writes a response to Node's own, if it is one of {@link eventStreamResponse}; its body is not read then.
 *
 * @param report - gets what breaks the stream in the middle, which its reader only sees as a connection that was cut
 * @returns whether it is; then there is nothing left to send
 */
export function writeEventStream(
  response: Response,
  outgoing: ServerResponse,
  report: (error: unknown) => void,
): boolean {
  const stream = response.body === null ? undefined : unread.get(response.body);
  if (stream === undefined) return false;
  const headers: OutgoingHttpHeaders = Object.fromEntries(response.headers);
  outgoing.writeHead(response.status, headers).flushHeaders();
  write(stream.frames, outgoing, stream.keepAliveMs).catch((error: unknown) => {
    outgoing.destroy();
    report(error);
  });
  return true;
}

async function write(frames: Frames, outgoing: ServerResponse, keepAliveMs: number): Promise<void> {
  const silence = setInterval(() => {
    // A reader who has not taken what is there needs no comment.
    if (outgoing.writableLength === 0) outgoing.write(KEEP_ALIVE);
  }, keepAliveMs);
  let onward = (): void => {};
  const gone = (): void => {
    frames.cancel();
    onward();
  };
  outgoing.on("close", gone).on("drain", () => onward());
  if (outgoing.destroyed) gone();
  try {
    for (;;) {
      const text = await frames.next();
      if (text === null || outgoing.destroyed) return void outgoing.end();
      silence.refresh();
      if (outgoing.write(text)) continue;
      await new Promise<void>((resolve) => {
        onward = resolve;
        if (outgoing.destroyed) resolve();
      });
    }
  } finally {
    clearInterval(silence);
  }
}

function webStream(frames: Frames, keepAliveMs: number): ReadableStream<Uint8Array> {
  let next: Promise<string | null> | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        next ??= frames.next();
        const text = await orSilence(next, keepAliveMs);
        if (text === SILENCE) return controller.enqueue(encoder.encode(KEEP_ALIVE));
        next = undefined;
        if (text === null) controller.close();
        else controller.enqueue(encoder.encode(text));
      },
      cancel: () => frames.cancel(),
    },
    { highWaterMark: 0 },
  );
}

const encoder = new TextEncoder();

/** A stream's frames, as its reader may see them. */
class Frames {
  readonly #batches: SentStream;
  readonly #gate: (event: AGUIEvent) => AGUIEvent | null;
  #first: Promise<IteratorResult<readonly Sent[], unknown>> | undefined;

  constructor(batches: SentStream, protocolVersion: string | undefined) {
    this.#batches = batches;
    this.#gate = gateFor(protocolVersion);
    this.#first = batches.next();
  }

  /** Resolves when the stream has begun. */
  get begun(): Promise<unknown> {
    return this.#first ?? Promise.resolve();
  }

  /** The next frames; null after the last ones. */
  async next(): Promise<string | null> {
    for (;;) {
      const { done, value } = await (this.#first ?? this.#batches.next());
      this.#first = undefined;
      if (done === true) return null;
      let text = "";
      for (const sent of value) text += this.#encoded(sent);
      if (text !== "") return text;
    }
  }

  cancel(): void {
    this.#batches.cancel();
  }

  #encoded(sent: Sent): string {
    const event = this.#gate(sent.event);
    if (event === null) return "";
    if (event !== sent.event) return encodeSse(event, sent.cursor);
    sent.text ??= encodeSse(event, sent.cursor);
    return sent.text;
  }
}

const SILENCE = Symbol("silence");

async function orSilence<T>(next: Promise<T>, ms: number): Promise<T | typeof SILENCE> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<typeof SILENCE>((resolve) => {
    timer = setTimeout(resolve, ms, SILENCE);
  });
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
  }
}
