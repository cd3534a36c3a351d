/** The published servers, as they stand in node_modules, and what a test lets go of. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DynTool } from "perdure";
import { type McpCommonOptions, type McpOptions, type McpServer, mcp } from "perdure/mcp";
import { onTestFinished } from "vitest";
import * as commands from "./commands.ts";

export const never = new AbortController().signal;

/** Closes it when the test is over. Warnings fail the test that does not want them. */
export function connected(options: McpOptions): McpServer {
  const server = mcp({
    onWarning: (warning) => {
      throw new Error(warning);
    },
    ...options,
  });
  onTestFinished(() => server.close());
  return server;
}

export function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), "perdure-mcp-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export const filesystem = (dir: string, options: McpCommonOptions = {}) =>
  connected({ ...commands.filesystem(dir), ...options });

export const everything = (options: McpCommonOptions = {}) => connected({ ...commands.everything, ...options });

export const memoryServer = commands.memory;

export function known(server: McpServer, name: string): DynTool {
  const tool = server.tool(name);
  if (tool === undefined)
    throw new Error(`there is no ${name} among ${server.tools.map((one) => one.name).join(", ")}`);
  return tool;
}

/** Starts the everything server over streamable HTTP. */
export async function everythingOverHttp(port?: number): Promise<{ url: string; port: number; child: ChildProcess }> {
  const at = port ?? (await freePort());
  const child = spawn(process.execPath, [...commands.everything.args, "streamableHttp"], {
    env: { ...process.env, PORT: String(at) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  await new Promise<void>((resolve, reject) => {
    child.once("exit", () => reject(new Error("the server ended")));
    child.stderr?.on("data", (text: Buffer) => {
      if (text.toString().includes("listening")) resolve();
    });
  });
  return { url: `http://127.0.0.1:${at}/mcp`, port: at, child };
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
