import type { AuthProvider, Transport } from "@modelcontextprotocol/client";
import type { Duration } from "../../protocol/words.ts";
import type { ToolDefinition } from "../../tool/definition.ts";

/** A server that is a process of ours. It speaks over its standard input and output, and ends with us. */
export interface StdioServer {
  readonly command: string;
  readonly args?: readonly string[];
  /** Beside `HOME`, `PATH` and what else is harmless: nothing else of our own environment is handed on. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A server that is reached by streamable HTTP. */
export interface HttpServer {
  readonly url: string | URL;
  readonly headers?: Readonly<Record<string, string>>;
  /** Gives a token for each request, or a whole OAuth flow, as of `@modelcontextprotocol/client`. */
  readonly authProvider?: AuthProvider;
  /** Default: the platform's. */
  readonly fetch?: typeof fetch;
}

/** A server that is reached in another way. */
export interface OtherServer {
  /** Makes a transport that has not been started, for each connection a new one. */
  readonly transport: () => Transport;
}

/** What we say of a server's tool, in place of what the server or the default says. */
export interface McpToolOptions
  extends Pick<
    ToolDefinition,
    "effect" | "approval" | "timeout" | "settle" | "keyWait" | "parallel" | "retry" | "idempotencyKey" | "aliases"
  > {}

/** All of it may be left out. */
export type McpToolOverride = Partial<McpToolOptions> & {
  /** What the model calls it, without the server's prefix. Default: its own name. */
  readonly name?: string;
  /** For the model. Default: the server's words. */
  readonly description?: string;
  /**
   * What an error says that the tool itself answers (`isError`): it may have done its work or a part of it, or it did nothing. Default `unknown`:
   * then a human is asked about a `write` that failed. `notApplied` is for tools that check everything before they act.
   */
  readonly errorsMean?: "unknown" | "notApplied";
  /** How long the server may be silent in a call; its progress counts as a sign of life. `timeout` holds beside it. Default: only `timeout`. */
  readonly idleTimeout?: Duration;
};

export interface McpCommonOptions {
  /** Stands before the names of the server's tools: with `files` its `read_file` is `files_read_file`. Default: their own names. */
  readonly name?: string;
  /** Only these of its tools, by their own names. Default: all. */
  readonly include?: readonly string[];
  /** Not these. */
  readonly exclude?: readonly string[];
  /** By the tool's own name. What is said here is believed, not the server. */
  readonly tools?: Readonly<Record<string, McpToolOverride>>;
  /** For every tool, where `tools` says nothing. */
  readonly defaults?: Omit<McpToolOverride, "name" | "description" | "aliases">;
  /** How long connecting, and asking for the tools, may take. Default: 30 seconds. */
  readonly connectTimeout?: Duration;
  /** Gets what was odd about the server: a tool that no model can call, an override that fits no tool. Default: `console.warn`. */
  readonly onWarning?: (warning: string) => void;
}

export type McpOptions = (StdioServer | HttpServer | OtherServer) & McpCommonOptions;
