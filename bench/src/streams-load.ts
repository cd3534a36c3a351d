/** The readers of the streams bench, in a process of their own: they take each frame's age when it arrives. */
import { type IncomingMessage, request } from "node:http";
import process from "node:process";

export interface Load {
  readonly url: string;
  readonly streams: number;
  /** Measured after all are connected and have settled. Milliseconds. */
  readonly settle: number;
  readonly measure: number;
}

export interface Loaded {
  /** Ages of the frames that were made while it measured. Microseconds. */
  readonly ages: readonly number[];
}

/** What a frame carries: when it was made, by the clock that all processes of a machine share. Microseconds. */
export function stamp(): string {
  return `@${process.hrtime.bigint() / 1000n}`;
}

const STAMP = /@(\d+)/g;

async function run({ url, streams, settle, measure }: Load): Promise<Loaded> {
  const ages: number[] = [];
  let from = Number.POSITIVE_INFINITY;
  let until = Number.POSITIVE_INFINITY;
  const take = (chunk: string): void => {
    const now = micros();
    for (const [, made] of chunk.matchAll(STAMP)) {
      const at = Number(made);
      if (at >= from && at < until) ages.push(now - at);
    }
  };
  for (let i = 0; i < streams; i += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, n) => connect(url, i + n, take)));
  }
  await sleep(settle);
  from = micros();
  until = from + measure * 1000;
  // Frames of the last moment may still be under way.
  await sleep(measure + 1_000);
  return { ages };
}

function connect(url: string, n: number, take: (chunk: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", accept: "text/event-stream" };
    const sent = request(url, { method: "POST", headers, agent: false }, (response: IncomingMessage) => {
      if (response.statusCode !== 200) reject(new Error(`${url} answered ${response.statusCode}`));
      response
        .setEncoding("utf8")
        .on("data", take)
        .on("error", () => {});
      resolve();
    });
    sent.on("error", reject);
    const messages = [{ id: `u-${n}`, role: "user", content: "Talk." }];
    sent.end(JSON.stringify({ threadId: `t-${n}-${micros()}`, runId: "run", messages, protocolVersion: "1.0" }));
  });
}

function micros(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

process.on("message", (load: Load) => {
  void run(load).then((loaded) => process.send?.(loaded));
});
