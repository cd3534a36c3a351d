/** Many readers of one stream, in a process of their own. */
import { type IncomingMessage, request } from "node:http";
import process from "node:process";

export interface Readers {
  readonly url: string;
  readonly readers: number;
  /** Each reads until it has seen this. */
  readonly until: string;
}

/** All are connected and have got something. */
export interface Connected {
  readonly connected: true;
}
/** All have seen what they read for. */
export interface Read {
  /** Milliseconds since the first began. */
  readonly ms: number;
}

process.on("message", ({ url, readers, until }: Readers) => {
  const begun = performance.now();
  let connected = 0;
  let done = 0;
  for (let i = 0; i < readers; i++) {
    read(url, until, () => {
      if (++connected === readers) process.send?.({ connected: true } satisfies Connected);
    }).then(
      () => {
        if (++done === readers) process.send?.({ ms: performance.now() - begun } satisfies Read);
      },
      (error: unknown) => {
        throw error;
      },
    );
  }
});

function read(url: string, until: string, onFirst: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const sent = request(
      url,
      { agent: false, headers: { accept: "text/event-stream" } },
      (response: IncomingMessage) => {
        let isFirst = true;
        // What is looked for may be cut by a chunk's end.
        let rest = "";
        response.setEncoding("utf8").on("data", (chunk: string) => {
          if (isFirst) onFirst();
          isFirst = false;
          const text = rest + chunk;
          if (text.includes(until)) resolve();
          rest = text.slice(-until.length);
        });
      },
    );
    sent.on("error", reject).end();
  });
}
