import type { AGUIEvent } from "../protocol/events.ts";
import { gateFor } from "../protocol/gates.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { encodeSse, KEEP_ALIVE } from "../protocol/sse.ts";

/** `no-transform` and `X-Accel-Buffering` keep proxies from collecting the stream into one lump. */
const HEADERS = {
  "content-type": EVENT_STREAM,
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
  connection: "keep-alive",
};

/**
 * A response that streams verified events as server-sent events.
 *
 * Each frame is asked for when the connection wants one, so a slow reader holds the run's pumps back instead of filling memory. Leaving
 * the stream returns the iterator.
 *
 * @param events - the first event is awaited before the response exists, so what is wrong with a request can still be a status
 * @param protocolVersion - what the reader declared; decides which 1.0 features it is spared
 * @param keepAliveMs - after this much silence a comment goes out, or middleboxes take the connection for dead
 */
export async function eventStreamResponse(
  events: AsyncIterableIterator<AGUIEvent>,
  protocolVersion: string | undefined,
  keepAliveMs: number,
): Promise<Response> {
  const gate = gateFor(protocolVersion);
  const encoder = new TextEncoder();
  let next = events.next();
  await next;

  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          const read = await orSilence(next, keepAliveMs);
          if (read === "silence") return controller.enqueue(encoder.encode(KEEP_ALIVE));
          if (read.done === true) return controller.close();
          next = events.next();
          const event = gate(read.value);
          if (event !== null) return controller.enqueue(encoder.encode(encodeSse(event)));
        }
      },
      async cancel() {
        await events.return?.();
      },
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
