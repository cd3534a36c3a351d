/**
 * A server as a process of ours, in a process group of its own: with `npx` the server is a grandchild, and all of them have to go.
 *
 * 1. Closing ends its input, which is how a server is asked to leave; after a while the group is terminated, then killed.
 * 2. When this process exits, the group is killed.
 * 3. When this process is killed nothing of it runs any more, but the server's input ends: servers leave then. One that does not read its
 *    input does not notice.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import { type JSONRPCMessage, ReadBuffer, serializeMessage, type Transport } from "@modelcontextprotocol/client";
import { getDefaultEnvironment, StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import type { StdioServer } from "./options.ts";

/** How long a server may take to leave by itself, and then when it is told to. Milliseconds. */
const LEAVING = 2_000;

/** How long what a dead process has written may take to be read. Milliseconds. */
const LAST_READ = 1_000;

/** How much is kept of what it wrote to its error output. Characters. */
const KEPT_WORDS = 2_000;

/** What a connection needs of either kind. */
export interface ProcessTransport extends Transport {
  readonly pid: number | null;
  /** The end of what the server wrote to its error output. */
  readonly lastWords: string;
}

export function serverProcess(server: StdioServer): ProcessTransport {
  return process.platform === "win32" ? onWindows(server) : new ServerProcess(server);
}

const groups = new Set<number>();

function killAll(): void {
  for (const pid of groups) killGroup(pid, "SIGKILL");
}

function killGroup(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid, signal);
  } catch {
    // It is gone already.
  }
}

class ServerProcess implements ProcessTransport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: NonNullable<Transport["onmessage"]>;
  lastWords = "";
  /** By these two the client knows that it talks to a process: one that says nothing to a question is an old one. */
  readonly stderr = null;
  pid: number | null = null;
  readonly #server: StdioServer;
  readonly #buffer = new ReadBuffer();
  #child: ChildProcessByStdio<Writable, Readable, Readable> | undefined;
  #closed: Promise<void> | undefined;

  constructor(server: StdioServer) {
    this.#server = server;
  }

  async start(): Promise<void> {
    const { command, args = [], env, cwd } = this.#server;
    const child = spawn(command, args, {
      ...{ stdio: ["pipe", "pipe", "pipe"], detached: true },
      env: { ...getDefaultEnvironment(), ...env },
      ...(cwd !== undefined && { cwd }),
    });
    this.#child = child;
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", reject);
    });
    const pid = child.pid as number;
    this.pid = pid;
    if (groups.size === 0) process.once("exit", killAll);
    groups.add(pid);
    child.on("error", (error) => this.onerror?.(error));
    for (const stream of [child.stdin, child.stdout, child.stderr]) {
      stream.on("error", (error: Error) => this.onerror?.(error));
    }
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.lastWords = `${this.lastWords}${text}`.slice(-KEPT_WORDS);
    });
    child.stdout.on("data", (chunk: Buffer) => this.#read(chunk));
    this.#closed = new Promise<void>((resolve) => {
      let isOver = false;
      const over = (): void => {
        clearTimeout(late);
        if (isOver) return;
        isOver = true;
        this.#buffer.clear();
        resolve();
        this.onclose?.();
      };
      let late: ReturnType<typeof setTimeout> | undefined;
      child.once("exit", () => {
        // Whoever of the group lives on would keep the streams open, and with them a connection to nobody.
        killGroup(pid, "SIGKILL");
        groups.delete(pid);
        if (groups.size === 0) process.removeListener("exit", killAll);
        late = setTimeout(over, LAST_READ);
      });
      child.once("close", over);
    });
  }

  #read(chunk: Buffer): void {
    try {
      this.#buffer.append(chunk);
    } catch (error) {
      this.onerror?.(error as Error);
      void this.close();
      return;
    }
    for (;;) {
      try {
        const message = this.#buffer.readMessage();
        if (message === null) return;
        this.onmessage?.(message);
      } catch (error) {
        // A line that is no message; some servers write their log there.
        this.onerror?.(error as Error);
      }
    }
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const stdin = this.#child?.stdin;
    if (stdin === undefined || !stdin.writable) throw new Error("the server's process has ended");
    await new Promise<void>((resolve, reject) => {
      stdin.write(serializeMessage(message), (error) => (error ? reject(error) : resolve()));
    });
  }

  async close(): Promise<void> {
    const { pid } = this;
    if (pid === null || this.#closed === undefined) return;
    this.#child?.stdin.end();
    if (await this.#leaves()) return;
    killGroup(pid, "SIGTERM");
    if (await this.#leaves()) return;
    killGroup(pid, "SIGKILL");
    await this.#closed;
  }

  async #leaves(): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, LEAVING, false);
    });
    const left = await Promise.race([this.#closed?.then(() => true), late]);
    clearTimeout(timer);
    return left ?? true;
  }
}

/** There, processes have no groups, and commands like `npx` are scripts that only the client knows how to start. */
function onWindows({ command, args = [], env, cwd }: StdioServer): ProcessTransport {
  const transport = new StdioClientTransport({
    ...{ command, args: [...args], stderr: "pipe" },
    ...(env !== undefined && { env: { ...env } }),
    ...(cwd !== undefined && { cwd }),
  });
  let lastWords = "";
  transport.stderr?.on("data", (chunk: Buffer) => {
    lastWords = `${lastWords}${chunk.toString()}`.slice(-KEPT_WORDS);
  });
  return Object.defineProperty(transport, "lastWords", { get: () => lastWords }) as StdioClientTransport & {
    readonly lastWords: string;
  };
}
