import type { Server } from "node:http";
import type { Socket } from "node:net";
import { PerdureError } from "../protocol/errors.ts";
import type { Runtime } from "./create-runtime.ts";
import { isLoopback } from "./guard.ts";
import { problem } from "./problem.ts";

export interface ServeOptions {
  /** 0 takes a free one. */
  readonly port: number;
  /** Default 127.0.0.1. Another one needs an `authorize` hook. */
  readonly hostname?: string;
  /** Signals that close the server and then end the process as they would have. Default: SIGTERM; `[]` leaves them to you. */
  readonly drainOn?: readonly NodeJS.Signals[];
  /** How long `close()` waits for readers who have stopped reading, before it cuts them off. Milliseconds; default 5,000. */
  readonly linger?: number;
}

export interface Served {
  readonly url: string;
  readonly port: number;
  /** Stops listening, lets each stream end and what runs come to an end, as `Runtime.close` says. */
  close(): Promise<void>;
}

const DEFAULT_LINGER = 5_000;

/**
 * Serves a runtime on Node.
 *
 * @throws {@link PerdureError} `AUTHORIZE_MISSING` for a host other than loopback without an `authorize` hook; `PORT_TAKEN`
 */
export async function serve(
  runtime: Runtime,
  { port, hostname = "127.0.0.1", linger = DEFAULT_LINGER, drainOn = ["SIGTERM"] }: ServeOptions,
): Promise<Served> {
  const inUrl = hostname.includes(":") ? `[${hostname}]` : hostname;
  if (!runtime.isOpen && !isLoopback(inUrl)) {
    throw new PerdureError(
      "AUTHORIZE_MISSING",
      `serving ${hostname} opens every agent to the network: give createRuntime an authorize hook`,
    );
  }
  const [{ createServer }, { getRequestListener }] = await Promise.all([
    import("node:http"),
    import("@hono/node-server"),
  ]);
  // The handler is for requests that are none, for example without a usable Host.
  const errorHandler = () => problem(400, "BAD_REQUEST", "this is not an HTTP request that can be answered");
  const listener = getRequestListener(runtime.fetch, { overrideGlobalObjects: false, errorHandler });
  const server: Server = createServer((request, response) => void listener(request, response));
  // Clients open connections ahead of need. Node takes one that has not seen a request for a busy one, and would wait for its end.
  const unused = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    unused.add(socket);
    socket.once("close", () => unused.delete(socket));
  });
  server.on("request", ({ socket }) => unused.delete(socket));
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(listenError(error, port, hostname)));
    server.listen(port, hostname, resolve);
  });
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  const unwatch = onSignals(drainOn, () => close());
  async function close(): Promise<void> {
    unwatch();
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    await runtime.close();
    for (const socket of unused) socket.destroy();
    // Connections that were kept alive end with their streams; those of readers who have stopped reading never would.
    const idle = setInterval(() => server.closeIdleConnections(), 50);
    const cut = setTimeout(() => server.closeAllConnections(), linger);
    await closed;
    clearInterval(idle);
    clearTimeout(cut);
  }
  return { url: `http://${inUrl}:${bound}`, port: bound, close };
}

/** Runs `drain` on the first of the signals, and then lets it do what it does by itself. @returns takes that back */
function onSignals(signals: readonly NodeJS.Signals[], drain: () => Promise<void>): () => void {
  const handlers = signals.map((signal) => {
    const handler = (): void => {
      void drain().finally(() => process.kill(process.pid, signal));
    };
    process.once(signal, handler);
    return () => process.off(signal, handler);
  });
  return () => {
    for (const remove of handlers) remove();
  };
}

function listenError(error: NodeJS.ErrnoException, port: number, hostname: string): Error {
  if (error.code !== "EADDRINUSE") return error;
  const next = "stop what listens there, take another port, or 0 for a free one";
  return new PerdureError("PORT_TAKEN", `port ${port} of ${hostname} is taken; ${next}`, { cause: error });
}
