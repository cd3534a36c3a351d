/** Runs other programs: one in the foreground, or several as steps of which each is one line unless it fails. */
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, constants } from "node:os";
import { resolve } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { stripVTControlCharacters } from "node:util";

/**
 * `env` is added to this process's own.
 * @typedef {{ command: string, args: string[], cwd?: string, env?: Record<string, string> }} Job
 */

/**
 * The job that runs an installed package's command. Not over npx, which would go and fetch what is missing.
 * @param {string} name
 * @param {string} command
 * @param {string[]} [args]
 * @returns {Job}
 */
export function tool(name, command, args = []) {
  /** @type {{ bin: Record<string, string> }} */
  const { bin } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8"));
  return { command: process.execPath, args: [resolve("node_modules", name, bin[command] ?? command), ...args] };
}

/**
 * The job that runs a TypeScript file against the built package, as a user's file would run. In one process with its loader, so that no second one
 * stands between a signal and its handler; and without Node 22's warning, among what the file prints, that its SQLite is experimental.
 * @param {string} file
 * @param {string[]} [args]
 * @returns {Job}
 */
export function typeScript(file, args = []) {
  return {
    command: process.execPath,
    args: ["--disable-warning=ExperimentalWarning", "--import", "tsx", file, ...args],
    env: { TSX_TSCONFIG_PATH: "tsconfig.built.json" },
  };
}

/** @type {Set<(signal: NodeJS.Signals) => unknown>} */
const running = new Set();
/** @type {NodeJS.Signals | null} */
let stopping = null;

/** @param {NodeJS.Signals} signal */
function stop(signal) {
  stopping = signal;
  for (const forward of running) forward(signal);
}

for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(signal, stop);

// npm hands a signal to the shell that it has put between itself and us, and the shell dies of it without a word. That its place as our parent
// is taken by another is all we see of it.
if (process.env.npm_lifecycle_event !== undefined) {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    stop("SIGTERM");
  }, 200).unref();
}

/** Whether a signal has asked this process to end. */
export function isStopping() {
  return stopping !== null;
}

/**
 * Runs a job with this process's own input and output.
 * @param {Job} job
 * @returns {Promise<number>} its exit code; 128 + n if signal n ended it
 */
export function foreground(job) {
  if (!process.stdin.isTTY) return exitOf(launch(job, "inherit", true));
  // It has to stay in the terminal's group to be able to read. There Ctrl-C reaches it without us, and a second time would mean "at once" to some.
  const child = launch(job, "inherit", false);
  const forward = child.forward;
  return exitOf({ ...child, forward: (signal) => signal !== "SIGINT" && forward(signal) });
}

/**
 * Runs independent jobs, as many at once as there are cores, and prints a line for each. After a failure, which is printed whole, the others are ended.
 * @param {Record<string, Job>} jobs by what the line calls them
 * @returns {Promise<number>} the exit code of the one that failed, or 0
 */
export async function steps(jobs) {
  const waiting = Object.entries(jobs);
  let failed = 0;
  const worker = async () => {
    for (let next = waiting.shift(); next && failed === 0 && !isStopping(); next = waiting.shift()) {
      const [name, job] = next;
      const begun = performance.now();
      const { code, output } = await captured(job);
      if (failed !== 0 || isStopping()) return;
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      console.log(`${code === 0 ? "✓" : "✗"} ${name.padEnd(22)} ${seconds.padStart(5)} s`);
      if (code === 0) continue;
      failed = code;
      // Some colour what they write into a pipe, whatever NO_COLOR says.
      process.stdout.write(process.stdout.isTTY ? output : stripVTControlCharacters(output));
      for (const forward of running) forward("SIGTERM");
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  return failed || (stopping === null ? 0 : exitCodeOf(stopping));
}

/**
 * @param {Job} job
 * @returns {Promise<{ code: number, output: string }>}
 */
async function captured(job) {
  const launched = launch(job, ["ignore", "pipe", "pipe"], true);
  let output = "";
  for (const stream of [launched.child.stdout, launched.child.stderr]) {
    stream?.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
  }
  return { code: await exitOf(launched), output };
}

/** @typedef {{ child: import("node:child_process").ChildProcess, forward: (signal: NodeJS.Signals) => unknown }} Launched */

/**
 * In a process group of its own a signal also reaches what the job has started: some tools are a script around a program, and vitest leaves its
 * workers behind when it is asked to end alone.
 * @param {Job} job
 * @param {import("node:child_process").StdioOptions} stdio
 * @param {boolean} ownGroup
 * @returns {Launched}
 */
function launch({ command, args, cwd, env }, stdio, ownGroup) {
  const detached = ownGroup && process.platform !== "win32";
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio, detached });
  const { pid } = child;
  return {
    child,
    forward: (signal) => (detached && pid !== undefined ? process.kill(-pid, signal) : child.kill(signal)),
  };
}

/**
 * @param {Launched} launched
 * @returns {Promise<number>}
 */
function exitOf({ child, forward }) {
  running.add(forward);
  return new Promise((settle, reject) => {
    child.on("error", reject);
    child.on("exit", () => running.delete(forward));
    child.on("close", (code, signal) => settle(signal === null ? (code ?? 1) : exitCodeOf(signal)));
  });
}

/** @param {NodeJS.Signals} signal */
function exitCodeOf(signal) {
  return 128 + constants.signals[signal];
}
