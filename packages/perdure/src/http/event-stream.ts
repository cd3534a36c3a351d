/**
 * Verified events as a streaming response.
 *
 * E1. The next batch is taken when the connection has room for it, so a slow reader fills no buffer here. What waits for him is bounded, and
 *     past that he is told to come back.
 * E2. On Node the frames go straight to the socket. A web stream between takes three times as long for each, and works everywhere else.
 * E3. A reader who takes nothing for too long is cut off: he is asleep, or gone without a word. He comes back with his cursor.
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { AGUIEvent } from "../protocol/events.ts";
import { gateFor } from "../protocol/gates.ts";
import { RUN_HEADER } from "../protocol/negotiate.ts";
import type { Uid } from "../protocol/words.ts";
import type { Batches } from "../runtime/batches.ts";
import type { EventFormat, OnOversize } from "./event-format.ts";

/** `no-transform` and `X-Accel-Buffering` keep proxies from collecting the stream into one lump. */
const HEADERS = {
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  connection: "keep-alive",
};

/** What a connection is sent, and what tells whoever sends that the connection is gone. */
export interface SentStream {
  readonly batches: Batches;
  readonly gone: AbortController;
  /** The run that it begins with. */
  readonly run: Uid;
}

/** Who is sent it. */
export interface StreamReader {
  readonly format: EventFormat;
  /** What it declared; decides which 1.0 features it is spared. */
  readonly protocolVersion: string | undefined;
}

export interface StreamSettings {
  /** After this much silence a comment goes out, or middleboxes take the connection for dead. Milliseconds. */
  readonly keepAlive: number;
  /** How long a reader may take nothing of what waits for it. Milliseconds. */
  readonly stalledAfter: number;
  /** Gets what was too large for one frame. */
  readonly onWarning: ((warning: string) => void) | undefined;
}

/**
 * A response that streams verified events. Leaving it cancels them.
 *
 * @param stream - its first batch is awaited before the response exists, so what is wrong with a request can still be a status
 */
export async function eventStreamResponse(
  stream: SentStream,
  reader: StreamReader,
  settings: StreamSettings,
): Promise<Response> {
  const frames = new Frames(stream, reader, (event, bytes) => {
    settings.onWarning?.(
      `a ${event.type} of ${bytes} bytes is over what clients take in one frame; it was sent in parts, or shortened`,
    );
  });
  await frames.begin();
  const body = webStream(frames, settings.keepAlive);
  unread.set(body, { frames, settings });
  const headers = { "content-type": reader.format.contentType, ...HEADERS, [RUN_HEADER]: stream.run };
  return new Response(body, { headers });
}

/** The streams behind the bodies of responses, while nobody has begun to read them. */
const unread = new WeakMap<ReadableStream, { readonly frames: Frames; readonly settings: StreamSettings }>();

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
  write(stream.frames, outgoing, stream.settings, report);
  return true;
}

function write(
  frames: Frames,
  outgoing: ServerResponse,
  settings: StreamSettings,
  report: (error: unknown) => void,
): void {
  let isFull = false;
  const { keepAlive } = frames;
  const silence = setInterval(() => {
    // A reader who has not taken what is there needs no comment.
    if (keepAlive !== null && outgoing.writableLength === 0) outgoing.write(keepAlive);
  }, settings.keepAlive);
  // Node's own timer, which knows of writes that are under way, piece by piece.
  outgoing.setTimeout(settings.stalledAfter, () => {
    if (isFull) outgoing.destroy();
  });
  const pump = (): void => {
    try {
      while (!isFull) {
        const chunk = frames.take();
        if (chunk === undefined) return;
        if (chunk === null) return void outgoing.end();
        silence.refresh();
        isFull = !outgoing.write(chunk);
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
        for (;;) {
          const chunk = frames.take();
          if (chunk === null) return controller.close();
          if (chunk !== undefined) return controller.enqueue(bytesOf(chunk));
          if (await newsWithin(frames, keepAliveMs)) continue;
          if (frames.keepAlive !== null) return controller.enqueue(bytesOf(frames.keepAlive));
        }
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

function bytesOf(chunk: string | Uint8Array): Uint8Array {
  return typeof chunk === "string" ? encoder.encode(chunk) : chunk;
}

/** A stream's frames, as its reader may see them. */
class Frames {
  readonly #stream: SentStream;
  readonly #format: EventFormat;
  readonly #gate: (event: AGUIEvent) => AGUIEvent | null;
  #first: ReturnType<Batches["take"]>;

  constructor(
    stream: SentStream,
    { format, protocolVersion }: StreamReader,
    private readonly onOversize: OnOversize,
  ) {
    this.#stream = stream;
    this.#format = format;
    this.#gate = gateFor(protocolVersion);
  }

  get keepAlive(): string | null {
    return this.#format.keepAlive;
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
  take(): string | Uint8Array | undefined | null {
    for (;;) {
      const batch = this.#first === undefined ? this.#stream.batches.take() : this.#first;
      this.#first = undefined;
      if (batch === undefined || batch === null) return batch;
      let text = "";
      const messages: Uint8Array[] = [];
      for (const sent of batch) {
        const event = this.#gate(sent.event);
        if (event === null) continue;
        const encoded = this.#format.encode(sent, event, this.onOversize);
        if (typeof encoded === "string") text += encoded;
        else messages.push(encoded);
      }
      if (text !== "") return text;
      if (messages.length > 0) return Buffer.concat(messages);
    }
  }

  cancel(): void {
    this.#stream.gone.abort();
  }
}
