/** What `npm start` runs: the story, then a server to play with. With `--serve` that server alone, and on the files it had last time. */
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { constants } from "node:os";
import { join, relative } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { Books, euros } from "./books.ts";
import { type ServerOptions, ServerProcess } from "./server-process.ts";
import { faultsOf, playStory, THREAD } from "./story.ts";
import { bold, dim, green, label, print, red } from "./terminal.ts";
import { readLog, timeLine } from "./time-line.ts";

/** Milliseconds. A story that hangs has gone wrong, and whoever watches it should be told. */
const TOO_LONG = 100_000;

const { values } = parseArgs({
  options: {
    serve: { type: "boolean", default: false },
    /** Where the databases are kept. */
    data: { type: "string", default: join(import.meta.dirname, ".data") },
  },
});

/** The server that must not outlive us. */
let current: ServerProcess | undefined;
const own = (server: ServerProcess): void => {
  current = server;
};

const interrupted = new Promise<NodeJS.Signals>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, resolve);
});

async function main(): Promise<void> {
  const port = await freePort(Number(process.env.PORT ?? 8787));
  const where = { port, folder: join(values.data, values.serve ? "served" : `story-${port}`) };
  if (values.serve) own(await ServerProcess.start(where));
  else await tell(where);
  invite(where.folder);
}

async function tell(where: ServerOptions): Promise<void> {
  rmSync(where.folder, { recursive: true, force: true });
  const { client, url } = await playStory(where, own);

  const books = await Books.open(join(where.folder, "books.db"));
  const ledger = books.ledger();
  books.close();
  print();
  print(bold("5. The run has ended. The ledger, which would count a second refund of an order:"));
  for (const { refundId, orderId, cents } of ledger) print(`${label(refundId)}${orderId}  ${euros(cents)}`);
  const faults = faultsOf(ledger, client);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  print(
    `  ${green(`${ledger.length} refunds, each once`)}; the client holds ${client.messages.length} messages, each call with one result.`,
  );

  const entries = await readLog(url, THREAD);
  print();
  print(bold(`6. The same, told by the ${entries.length} entries of the run's log:`));
  for (const line of timeLine(entries)) print(line);
}

/** What to do with the server that is there now. */
function invite(folder: string): void {
  const url = `${current?.url}/agents/refund-desk`;
  const content = "The night light never lit: please refund A-1003.";
  const body = { threadId: "t1", runId: "r1", messages: [{ id: "u1", role: "user", content }] };
  print();
  print(bold(`Serving ${url} until Ctrl-C. Ask it (once more, and nothing is refunded again):`));
  print();
  print(`curl -N ${url} -H 'content-type: application/json' -d '${JSON.stringify(body)}'`);
  print();
  print(dim(`Beside it: ${current?.url}/runs and ${current?.url}/inbox. Files: ${relative(process.cwd(), folder)}`));
}

/** @returns the port, or a free one for 0 @throws when another process listens there, before its files are touched */
async function freePort(port: number): Promise<number> {
  const probe = createServer();
  return new Promise((resolve, reject) => {
    probe.once("error", () => {
      reject(new Error(`port ${port} is taken: stop what listens there, or say PORT=8788 npm start`));
    });
    probe.listen(port, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === "object" && address !== null ? address.port : port));
    });
  });
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message} (${reasonOf(error.cause)})`;
}

async function play(): Promise<number> {
  let watchdog: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    watchdog = setTimeout(() => reject(new Error(`it has not ended after ${TOO_LONG / 1_000} s`)), TOO_LONG);
  });
  try {
    const signal = await Promise.race([main(), interrupted, late]);
    if (signal !== undefined) return 128 + constants.signals[signal];
  } catch (error) {
    print(red(`This should not have happened: ${reasonOf(error)}`));
    return 1;
  } finally {
    clearTimeout(watchdog);
  }
  const ended = await Promise.race([interrupted, current?.ended]);
  if (typeof ended === "string") return 0;
  print(red("The server has ended by itself."));
  return 1;
}

const code = await play();
await current?.stop();
process.exit(code);
