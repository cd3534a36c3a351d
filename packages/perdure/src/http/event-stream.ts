/**
 * Verified events as a response of server-sent events.
 *
 * E1. The next batch is taken when the connection has room for it, so a slow reader fills no buffer here. What waits for him is bounded, and
 *     past that he is told to come back.
 * E2. On Node the frames go straight to the socket. A web stream between takes three times as long for each, and works everywhere else.
 * E3. An event is encoded once for all its readers.
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { AGUIEvent } from "../protocol/events.ts";
import { gateFor } from "../protocol/gates.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { encodeSse, KEEP_ALIVE } from "../protocol/sse.ts";
import type { Batches } from "../runtime/batches.ts";
import type { Sent } from "../runtime/feed.ts";

/** `no-transform` and `X-Accel-Buffering` keep proxies from collecting the stream into one lump. */
const HEADERS = {
  "content-type": EVENT_STREAM,
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  connection: "keep-alive",
};

/** What a connection is sent, and what tells whoever sends that the connection is gone. */
export interface SentStream {
  readonly batches: Batches;
  readonly gone: AbortController;
}

/**
 * A response that streams verified events. Leaving it cancels them.
 *
 * @param stream - its first batch is awaited before the response exists, so what is wrong with a request can still be a status
 * @param protocolVersion - what the reader declared; decides which 1.0 features it is spared
 * @param keepAliveMs - after this much silence a comment goes out, or middleboxes take the connection for dead
 */
export async function eventStreamResponse(
  stream: SentStream,
  protocolVersion: string | undefined,
  keepAliveMs: number,
): Promise<Response> {
  const frames = new Frames(stream, protocolVersion);
  await frames.begin();
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
  write(stream.frames, outgoing, stream.keepAliveMs, report);
  return true;
}

function write(frames: Frames, outgoing: ServerResponse, keepAliveMs: number, report: (error: unknown) => void): void {
  let isFull = false;
  const silence = setInterval(() => {
    // A reader who has not taken what is there needs no comment.
    if (outgoing.writableLength === 0) outgoing.write(KEEP_ALIVE);
  }, keepAliveMs);
  const pump = (): void => {
    try {
      while (!isFull) {
        const text = frames.take();
        if (text === undefined) return;
        if (text === null) return void outgoing.end();
        silence.refresh();
        isFull = !outgoing.write(text);
      }
    } catch (error) {
      outgoing.destroy();
      report(error);
    }
  };
  const gone = (): void => {
    clearInterval(silence);
    frames.cancel();
  };
  outgoing.on("close", gone).on("drain", () => {
    isFull = false;
    pump();
  });
  frames.onNews(pump);
  if (outgoing.destroyed) gone();
  else pump();
}

function webStream(frames: Frames, keepAliveMs: number): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        let text = frames.take();
        while (text === undefined) {
          if (!(await newsWithin(frames, keepAliveMs))) return controller.enqueue(encoder.encode(KEEP_ALIVE));
          text = frames.take();
        }
        if (text === null) controller.close();
        else controller.enqueue(encoder.encode(text));
      },
      cancel: () => frames.cancel(),
    },
    { highWaterMark: 0 },
  );
}

/** Resolves with whether there was news before so many ms had passed. */
function newsWithin(frames: Frames, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const silence = setTimeout(() => resolve(false), ms);
    frames.onNews(() => {
      clearTimeout(silence);
      resolve(true);
    });
  });
}

const encoder = new TextEncoder();

/** A stream's frames, as its reader may see them. */
class Frames {
  readonly #stream: SentStream;
  readonly #gate: (event: AGUIEvent) => AGUIEvent | null;
  #first: ReturnType<Batches["take"]>;

  constructor(stream: SentStream, protocolVersion: string | undefined) {
    this.#stream = stream;
    this.#gate = gateFor(protocolVersion);
  }

  /** Resolves when the stream has begun, be it with nothing. @throws what breaks it before that */
  async begin(): Promise<void> {
    const { batches } = this.#stream;
    for (;;) {
      this.#first = batches.take();
      if (this.#first !== undefined) return;
      await new Promise<void>((resolve) => this.onNews(resolve));
    }
  }

  /** From now on this is called, and nothing else, when there may be something to take. */
  onNews(call: () => void): void {
    this.#stream.batches.onNews = call;
  }

  /** The next frames; undefined while there are none, null after the last ones. */
  take(): string | undefined | null {
    for (;;) {
      const batch = this.#first === undefined ? this.#stream.batches.take() : this.#first;
      this.#first = undefined;
      if (batch === undefined || batch === null) return batch;
      let text = "";
      for (const sent of batch) text += this.#encoded(sent);
      if (text !== "") return text;
    }
  }

  cancel(): void {
    this.#stream.gone.abort();
  }

  #encoded(sent: Sent): string {
    const event = this.#gate(sent.event);
    if (event === null) return "";
    if (event !== sent.event) return encodeSse(event, sent.cursor);
    sent.text ??= encodeSse(event, sent.cursor);
    return sent.text;
  }
}
