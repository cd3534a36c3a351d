/** One connection to a server, from its handshake to its end. Another one is made when it has ended. */
import {
  type CallToolRequestParams,
  type CallToolResult,
  Client,
  type ClientOptions,
  type ProgressCallback,
  type Tool,
  type Transport,
} from "@modelcontextprotocol/client";
import { McpConnectionError } from "./failures.ts";
import { HttpTransport } from "./http-transport.ts";
import type { McpOptions } from "./options.ts";
import { serverProcess } from "./server-process.ts";

/** Longer than any request of ours: what limits a call is the deadline of its attempt. Milliseconds. */
const NO_LIMIT = 0x7fffffff;

/** How long a server may take to say whether it speaks the protocol of 2026. One that says nothing is an old one. Milliseconds. */
const ERA_PROBE = 5_000;

export interface ConnectionOptions {
  readonly server: string;
  readonly target: McpOptions;
  /** Milliseconds. */
  readonly connectTimeout: number;
  /** The server has other tools now. */
  readonly onTools: (tools: readonly Tool[]) => void;
  /** It has ended, whoever ended it. */
  readonly onClose: () => void;
  readonly onError: (error: Error) => void;
}

export interface CallOptions {
  readonly signal: AbortSignal;
  readonly onProgress: ProgressCallback;
  /** How long the server may be silent. Milliseconds. */
  readonly idleTimeout: number | undefined;
}

/** Who we say that we are. */
const CLIENT = { name: "perdure", version: "0.1.0" };

export class Connection {
  readonly #client: Client;

  private constructor(client: Client) {
    this.#client = client;
  }

  /** @throws {@link McpConnectionError} */
  static async open(options: ConnectionOptions): Promise<{ connection: Connection; tools: readonly Tool[] }> {
    const { server, target, connectTimeout, onTools, onClose, onError } = options;
    const transport = transportTo(target);
    const client = new Client(CLIENT, clientOptions(onTools, onError, Math.min(ERA_PROBE, connectTimeout / 2)));
    client.onerror = onError;
    try {
      await client.connect(transport, { timeout: connectTimeout });
      client.onclose = onClose;
      const { tools } = await client.listTools(undefined, { timeout: connectTimeout, cacheMode: "refresh" });
      return { connection: new Connection(client), tools };
    } catch (error) {
      client.onclose = () => {};
      await client.close().catch(() => {});
      await transport.close().catch(() => {});
      throw new McpConnectionError(server, error, "lastWords" in transport ? String(transport.lastWords) : "");
    }
  }

  /** @param tool - as it was listed */
  async call(
    tool: Tool,
    params: CallToolRequestParams,
    { signal, onProgress, idleTimeout }: CallOptions,
  ): Promise<CallToolResult> {
    // What the result has to be is checked where a result that is wrong counts as done. The client would throw as if nothing had happened.
    const { outputSchema: _, ...toolDefinition } = tool;
    return await this.#client.callTool(params, {
      ...{ signal, toolDefinition, timeout: idleTimeout ?? NO_LIMIT, resetTimeoutOnProgress: true },
      onprogress: onProgress,
    });
  }

  async close(): Promise<void> {
    const { transport } = this.#client;
    if (transport instanceof HttpTransport) await transport.terminateSession().catch(() => {});
    await this.#client.close();
  }
}

function clientOptions(
  onTools: ConnectionOptions["onTools"],
  onError: ConnectionOptions["onError"],
  timeoutMs: number,
): ClientOptions {
  return {
    versionNegotiation: { mode: "auto", probe: { timeoutMs } },
    listChanged: {
      tools: { onChanged: (error, tools) => (error ? onError(error) : onTools(tools ?? [])) },
    },
  };
}

function transportTo(target: McpOptions): Transport {
  if ("transport" in target) return target.transport();
  if ("command" in target) return serverProcess(target);
  const { url, headers, authProvider, fetch } = target;
  return new HttpTransport(new URL(url), {
    ...(headers !== undefined && { requestInit: { headers: { ...headers } } }),
    ...(authProvider !== undefined && { authProvider }),
    ...(fetch !== undefined && { fetch }),
  });
}
