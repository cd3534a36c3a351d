/**
 * The tools of an MCP server.
 *
 * 1. It is connected to at first need, by whoever needs it first; all others wait for that. When the connection ends, the next need makes
 *    another one. After a failure nobody tries again for a while.
 * 2. Its tools are those that it listed last. What it lists later replaces them whole; what runs keeps what it began with.
 */
import type { Tool } from "@modelcontextprotocol/client";
import { backoff } from "../../protocol/backoff.ts";
import { parseDuration } from "../../protocol/duration.ts";
import type { DynTool } from "../../tool/dyn-tool.ts";
import type { ToolSource } from "../../tool/tool-source.ts";
import { Calls } from "./calls.ts";
import { Connection } from "./connection.ts";
import type { McpOptions } from "./options.ts";
import { remoteTool } from "./remote-tool.ts";

/** How often the tools of a server are asked for before whoever needs them is refused. */
const TRIES = 3;

/** Between two tries to connect. Milliseconds. */
const PAUSES = { first: 250, longest: 30_000 };

/** The tools of an MCP server, as an agent's `tools` take them. */
export interface McpServer extends ToolSource {
  /** The tool of this name, with its prefix; undefined where there is none, or none is known yet. */
  tool(name: string): DynTool | undefined;
}

/**
 * The tools of an MCP server, for an agent's `tools`. It is started, or connected to, when a run first needs it, or with the runtime's `open()`;
 * the runtime's `close()` ends it.
 *
 * What a tool does to the world is what `tools` or `defaults` say; else `read` where the server hints that it is read-only, `idempotent` where it
 * hints that; else `write`. A call of a tool with an effect carries its idempotency key as `perdure/idempotencyKey` in `_meta`.
 *
 * ```ts
 * const files = mcp({
 *   name: "files",
 *   command: "npx",
 *   args: ["@modelcontextprotocol/server-filesystem", "/srv/data"],
 *   tools: { edit_file: { errorsMean: "notApplied" }, move_file: { approval: true } },
 * });
 * ```
 *
 * @param options - `command`, `args`, `env`, `cwd`: a process; or `url`, `headers`: streamable HTTP; or `transport`. Times are in milliseconds, or
 * for example `"30s"`
 * @throws `DurationError` for a time that is none
 */
export function mcp(options: McpOptions): McpServer {
  return new RemoteServer(options);
}

class RemoteServer implements McpServer {
  readonly name: string;
  readonly #options: McpOptions;
  readonly #connectTimeout: number;
  #tools: readonly DynTool[] = [];
  #byName: ReadonlyMap<string, DynTool> = new Map();
  #isListed = false;
  readonly #calls: Calls;
  #connection: Promise<Connection> | undefined;
  #closing: Promise<void> = Promise.resolve();
  #failures = 0;
  #notBefore = 0;

  constructor(options: McpOptions) {
    this.#options = options;
    this.name = options.name ?? nameOf(options);
    this.#calls = new Calls({
      name: this.name,
      connected: async (signal) => {
        await this.#pause(signal);
        return await until(this.#connected(), signal);
      },
      forget: async (connection) => {
        if ((await this.#connection) === connection) this.#connection = undefined;
        await connection.close().catch(() => {});
      },
    });
    const { connectTimeout = "30s", defaults, tools = {} } = options;
    this.#connectTimeout = parseDuration(connectTimeout, `connectTimeout of the MCP server ${this.name}`);
    for (const { idleTimeout = 0 } of [defaults ?? {}, ...Object.values(tools)]) {
      parseDuration(idleTimeout, `idleTimeout of the MCP server ${this.name}`);
    }
  }

  get tools(): readonly DynTool[] {
    return this.#tools;
  }

  tool(name: string): DynTool | undefined {
    return this.#byName.get(name);
  }

  async ready(signal: AbortSignal): Promise<void> {
    // Of a server that was there before, the tools are known: what it lacks now its calls will say.
    if (this.#isListed) {
      if (this.#connection === undefined && Date.now() >= this.#notBefore) {
        await until(this.#connected(), signal).catch((error: unknown) => this.#warn(String(error)));
      }
      signal.throwIfAborted();
      return;
    }
    for (let tries = 1; ; tries++) {
      try {
        await this.#pause(signal);
        await until(this.#connected(), signal);
        return;
      } catch (error) {
        if (signal.aborted || tries >= TRIES) throw error;
      }
    }
  }

  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    this.#calls.clear();
    this.#failures = 0;
    this.#notBefore = 0;
    if (connection !== undefined) this.#closing = connection.then((open) => open.close()).catch(() => {});
    await this.#closing;
  }

  /** Only one at a time, and the process before has to have gone. */
  #connected(): Promise<Connection> {
    this.#connection ??= this.#connect();
    return this.#connection;
  }

  #connect(): Promise<Connection> {
    const opening: Promise<Connection> = this.#closing.then(async () => {
      const { connection, tools } = await Connection.open({
        ...{ server: this.name, target: this.#options, connectTimeout: this.#connectTimeout },
        onTools: (listed) => this.#take(listed),
        onClose: () => this.#drop(opening),
        onError: () => {}, // What a request fails of is thrown where it was made; of the rest nothing follows.
      });
      this.#failures = 0;
      this.#take(tools);
      return connection;
    });
    opening.catch(() => {
      this.#failures += 1;
      this.#notBefore = Date.now() + backoff(this.#failures, undefined, Math.random(), PAUSES);
      this.#drop(opening);
    });
    return opening;
  }

  #drop(connection: Promise<Connection>): void {
    if (this.#connection === connection) this.#connection = undefined;
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const ms = this.#notBefore - Date.now();
    if (this.#connection !== undefined || ms <= 0) return;
    await until(new Promise<void>((resolve) => setTimeout(resolve, ms).unref()), signal);
  }

  #take(listed: readonly Tool[]): void {
    const { include, exclude = [], tools: overrides = {} } = this.#options;
    const known = new Set(listed.map(({ name }) => name));
    for (const name of [...Object.keys(overrides), ...(include ?? []), ...exclude]) {
      if (!known.has(name))
        this.#warn(`it has no tool "${name}", which its options name; it has ${[...known].join(", ")}`);
    }
    const byName = new Map<string, DynTool>();
    for (const tool of listed) {
      if (exclude.includes(tool.name) || (include !== undefined && !include.includes(tool.name))) continue;
      try {
        const ours = remoteTool(tool, this.#options, this.#calls);
        for (const name of [ours.name, ...ours.aliases]) {
          if (byName.has(name)) throw new Error(`another of its tools is called ${name} here`);
        }
        byName.set(ours.name, ours);
      } catch (error) {
        const why = error instanceof Error ? error.message : String(error);
        this.#warn(`its tool "${tool.name}" is left out: ${why}; exclude it, or give it a \`name\` in \`tools\``);
      }
    }
    this.#byName = byName;
    this.#tools = [...byName.values()];
    this.#isListed = true;
  }

  #warn(warning: string): void {
    const { onWarning = console.warn } = this.#options;
    onWarning(`MCP server ${this.name}: ${warning}`);
  }
}

function nameOf(options: McpOptions): string {
  if ("command" in options) return [options.command, ...(options.args ?? [])].join(" ");
  return "url" in options ? String(options.url) : "of a transport";
}

/** Waits no longer than the signal allows. */
async function until<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let stop = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
