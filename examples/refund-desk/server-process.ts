import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Said } from "./server.ts";

export interface ServerOptions {
  readonly port: number;
  readonly folder: string;
  /** Whether it stops inside the first refund. */
  readonly hold?: boolean;
}

/** A server of the desk as another process, which can be killed. It ends when this process does. */
export class ServerProcess {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;

  private constructor(
    child: ChildProcess,
    readonly pid: number,
    readonly url: string,
    /** Settles with the id of a refund when its money has moved and its call is held. */
    readonly moved: Promise<string>,
  ) {
    this.#child = child;
    this.#exit = once(child, "exit");
  }

  /** Resolves when it listens. */
  static async start({ port, folder, hold = false }: ServerOptions): Promise<ServerProcess> {
    const args = ["--port", String(port), "--data", folder, ...(hold ? ["--hold"] : [])];
    const child = fork(join(import.meta.dirname, "server.ts"), args);
    const moved = new Promise<string>((resolve) => {
      child.on("message", (said: Said) => said.is === "moved" && resolve(said.refundId));
    });
    const url = await new Promise<string>((resolve, reject) => {
      child.on("message", (said: Said) => said.is === "listening" && resolve(said.url));
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended before it listened (exit code ${code})`)));
    });
    return new ServerProcess(child, child.pid ?? 0, url, moved);
  }

  /** No warning, no clean-up: the power cord. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exit;
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGTERM");
    await this.#exit;
  }

  /** Settles when it has ended, for whatever reason. */
  get ended(): Promise<unknown> {
    return this.#exit;
  }
}
