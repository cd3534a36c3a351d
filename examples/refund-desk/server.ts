/** The server, in a process of its own. What it tells its parent, if there is one, is for the story. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { createRuntime, PerdureError, type Served, serve } from "perdure";
import { sqlite } from "perdure/sqlite";
import { refundDesk } from "./agent.ts";
import { Books } from "./books.ts";
import { deskModel } from "./model.ts";

/** What the server says to the process that has forked it. */
export type Said =
  | { readonly is: "listening"; readonly url: string }
  | { readonly is: "moved"; readonly refundId: string };

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "8787" },
    /** The folder of the two databases: the world's and the runs'. */
    data: { type: "string" },
    /** Stops inside the first refund, after the money has moved. */
    hold: { type: "boolean", default: false },
  },
});

async function start(folder: string): Promise<Served> {
  mkdirSync(folder, { recursive: true });
  const books = await Books.open(join(folder, "books.db"));
  const moved = async (refundId: string): Promise<void> => {
    say({ is: "moved", refundId });
    await new Promise(() => {});
  };
  const desk = refundDesk({ books, model: await deskModel(), ...(values.hold && { moved }) });
  const runtime = createRuntime({ agents: [desk], store: sqlite(join(folder, "runs.db")) });
  await runtime.open(); // goes on with what the last process left, whether or not anybody asks
  return serve(runtime, { port: Number(values.port) });
}

function say(said: Said): void {
  process.send?.(said);
}

function fail(error: unknown): never {
  console.error(error instanceof PerdureError ? error.message : error);
  process.exit(1);
}

const starting = start(values.data ?? join(import.meta.dirname, ".data", "served")).catch(fail);
let isStopping = false;
const stop = (): void => {
  if (isStopping) return;
  isStopping = true;
  starting.then((server) => server.close()).then(() => process.exit(0), fail);
};
// Each may come twice, once from the terminal and once from the parent.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
// A parent that was killed sends no signal, but its channel closes, perhaps before we were ready to hear it.
process.on("disconnect", stop);
if (process.send !== undefined && !process.connected) stop();

const { url } = await starting;
say({ is: "listening", url });
