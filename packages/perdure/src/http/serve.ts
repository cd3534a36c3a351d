import type { Server } from "node:http";
import { PerdureError } from "../protocol/errors.ts";
import type { Runtime } from "./create-runtime.ts";
import { isLoopback } from "./guard.ts";

export interface ServeOptions {
  /** 0 takes a free one. */
  readonly port: number;
  /** Default 127.0.0.1. Another one needs an `authorize` hook. */
  readonly hostname?: string;
}

export interface Served {
  readonly url: string;
  readonly port: number;
  /** Cancels what runs, lets each stream end, and stops listening. */
  close(): Promise<void>;
}

/**
 * Serves a runtime on Node.
 *
 * @throws {@link PerdureError} `AUTHORIZE_MISSING` for a host other than loopback without an `authorize` hook; the system's error when
 * the port is taken
 */
export async function serve(runtime: Runtime, { port, hostname = "127.0.0.1" }: ServeOptions): Promise<Served> {
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
  const server: Server = createServer(getRequestListener(runtime.fetch, { overrideGlobalObjects: false }));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
  const address = server.address();
  const bound = typeof address === "object" && address !== null ? address.port : port;
  return {
    url: `http://${inUrl}:${bound}`,
    port: bound,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      await runtime.close();
      server.closeIdleConnections();
      await closed;
    },
  };
}
