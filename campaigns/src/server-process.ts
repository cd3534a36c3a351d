import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import process from "node:process";

export interface ServerFiles {
  /** The bundle to run. */
  readonly program: string;
  readonly store: string;
  readonly ledger: string;
  /** Added to the environment of the next process. */
  readonly env?: () => NodeJS.ProcessEnv;
}

/** The server under test: one process at a time, on one port and one file, killed and started again. */
export class ServerProcess {
  #child: ChildProcess | undefined;
  #died: Promise<void> = Promise.resolve();
  #starts = 0;
  #said: string[] = [];
  #port = 0;

  constructor(
    private readonly files: ServerFiles,
    private readonly seed: string,
  ) {}

  get port(): number {
    return this.#port;
  }

  /** The newest lines of what all its processes have complained of. */
  get complaints(): readonly string[] {
    return this.#said;
  }

  get isDead(): boolean {
    return this.#child === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Resolves when the process that was started last is dead. */
  get died(): Promise<void> {
    return this.#died;
  }

  /**
   * Starts a process and resolves when it serves, or has hit its aim. Rejects when it ends by itself before that.
   *
   * @param aim - how many effects it survives; 0: all
   */
  async start(aim = 0): Promise<void> {
    if (this.#port === 0) this.#port = await freePort();
    const { program, store, ledger, env } = this.files;
    const args = [program, store, ledger, String(this.#port), `${this.seed}/${this.#starts++}`, String(aim)];
    const child = spawn(process.execPath, args, {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env?.() },
    });
    this.#child = child;
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#said = [...this.#said, ...text.trimEnd().split("\n")].slice(-200);
    });
    this.#died = new Promise((resolve) => child.once("exit", () => resolve()));
    await new Promise<void>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", (_, signal) => {
        if (signal === "SIGKILL") resolve();
        else reject(new Error(`the server did not start:\n${this.#said.join("\n")}`));
      });
      child.stdout.setEncoding("utf8").on("data", (text: string) => text.includes("ready") && resolve());
    });
  }

  /** SIGKILL; resolves when it is dead. */
  async kill(): Promise<void> {
    this.#child?.kill("SIGKILL");
    await this.#died;
  }
}

/** One that nobody listens on now. It is kept over restarts, as a deployed server's is. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return typeof address === "object" && address !== null ? address.port : 0;
}
