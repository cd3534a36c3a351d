/** One connection to a server, from its handshake to its end. Another one is made when it has ended. */
import {
  type CallToolRequestParams,
  Client,
  type ClientOptions,
  type ElicitResult,
  type Tool,
  type Transport,
} from "@modelcontextprotocol/client";
import { type Json, toJson } from "../../protocol/json.ts";
import { McpConnectionError } from "./failures.ts";
import { HttpTransport } from "./http-transport.ts";
import type { OpenCall } from "./open-call.ts";
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

/** Who we say that we are. */
const CLIENT = { name: "perdure", version: "0.1.0" };

export class Connection {
  readonly #client: Client;
  readonly #onError: (error: Error) => void;
  /** Those that the server works on. */
  readonly #calls = new Set<OpenCall>();

  private constructor(client: Client, onError: (error: Error) => void) {
    this.#client = client;
    this.#onError = onError;
    client.setRequestHandler("elicitation/create", ({ params }) => this.#elicited(toJson(params)));
  }

  /** @throws {@link McpConnectionError} */
  static async open(options: ConnectionOptions): Promise<{ connection: Connection; tools: readonly Tool[] }> {
    const { server, target, connectTimeout, onTools, onClose, onError } = options;
    const client = new Client(CLIENT, clientOptions(onTools, onError, Math.min(ERA_PROBE, connectTimeout / 2)));
    client.onerror = onError;
    const connection = new Connection(client, onError);
    let transport: Transport | undefined;
    try {
      transport = transportTo(target);
      await client.connect(transport, { timeout: connectTimeout });
      client.onclose = onClose;
      const { tools } = await client.listTools(undefined, { timeout: connectTimeout, cacheMode: "refresh" });
      return { connection, tools };
    } catch (error) {
      client.onclose = () => {};
      await client.close().catch(() => {});
      await transport?.close().catch(() => {});
      const lastWords = transport !== undefined && "lastWords" in transport ? String(transport.lastWords) : "";
      throw new McpConnectionError(server, error, lastWords);
    }
  }

  /** Sends a call. @param tool - as it was listed */
  send(call: OpenCall, tool: Tool, params: CallToolRequestParams): void {
    // What the result has to be is checked where a result that is wrong counts as done. The client would throw as if nothing had happened.
    const { outputSchema: _, ...toolDefinition } = tool;
    const result = this.#client.callTool(params, {
      ...{ signal: call.signal, toolDefinition, timeout: NO_LIMIT, allowInputRequired: true },
      onprogress: (progress) => call.progressed(progress),
    });
    this.#calls.add(call);
    call.sent(result.finally(() => this.#calls.delete(call)));
  }

  /** A server of before 2026 does not say which of its calls it asks about. If that is not plain, nobody is asked: it may be another's. */
  async #elicited(params: Json): Promise<ElicitResult> {
    const [call, ...others] = [...this.#calls].filter(({ isAtWork }) => isAtWork);
    if (call !== undefined && others.length === 0) return await call.ask(params);
    this.#onError(new Error(`it asks while ${others.length + 1} calls go on; none of them can be told to be the one`));
    return { action: "cancel" };
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
    capabilities: { elicitation: { form: {} } },
    inputRequired: { autoFulfill: false },
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
