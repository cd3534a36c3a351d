import { gateFor } from "../protocol/gates.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { encodeSse, KEEP_ALIVE } from "../protocol/sse.ts";
import type { Sent } from "../runtime/follow.ts";

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

/** A generator that ends with a signal, as a stream. */
export function sentStream(
  start: (gone: AbortSignal) => Promise<AsyncGenerator<readonly Sent[], void>>,
): Promise<SentStream> {
  const gone = new AbortController();
  return start(gone.signal).then((batches) => ({
    next: () => batches.next(),
    cancel: () => gone.abort(),
  }));
}

/**
 * A response that streams verified events as server-sent events.
 *
 * Each batch is asked for when the connection wants one, so a slow reader holds the run's pumps back instead of filling memory. Leaving
 * the stream cancels them.
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
  const gate = gateFor(protocolVersion);
  const encoder = new TextEncoder();
  let next = batches.next();
  await next;

  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          const read = await orSilence(next, keepAliveMs);
          if (read === "silence") return controller.enqueue(encoder.encode(KEEP_ALIVE));
          if (read.done === true) return controller.close();
          next = batches.next();
          let frames = "";
          for (const { event, cursor } of read.value) {
            const gated = gate(event);
            if (gated !== null) frames += encodeSse(gated, cursor);
          }
          if (frames !== "") return controller.enqueue(encoder.encode(frames));
        }
      },
      cancel: () => batches.cancel(),
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: HEADERS });
}

async function orSilence<T>(next: Promise<T>, ms: number): Promise<T | "silence"> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<"silence">((resolve) => {
    timer = setTimeout(resolve, ms, "silence");
  });
  try {
    return await Promise.race([next, silence]);
  } finally {
    clearTimeout(timer);
  }
}
