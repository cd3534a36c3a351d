/**
 * CopilotKit's runtime as the middleman: page → CopilotKit's runtime → Perdure, each in a process of its own but for the page, which is driven
 * here. What the page holds in the end is compared with what the official client holds of the same script, without a middleman and
 * uninterrupted; what was done to the world is counted in a ledger.
 *
 * Everything is played twice: with Perdure's runner in CopilotKit's runtime, which has to hold, and with the runner that CopilotKit has by default, of
 * which it is said what comes of it.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { ResumeEntry } from "@ag-ui/core";
import { type HeldByClient, normaliseTranscript } from "perdure/log";
import { isJsonObject, type Json } from "perdure/protocol";
import { z } from "zod";
import { CLIENT_TOOL, firstMessage, scripts } from "./agents.ts";
import { bundleServer } from "./bundle.ts";
import { type Client, connectClient } from "./clients.ts";
import { CopilotPage, loadCopilotKit } from "./copilot-page.ts";
import { Ledger } from "./ledger.ts";
import { ServerProcess } from "./server-process.ts";

const FOLDER = fileURLToPath(new URL("../front-ends/copilotkit/", import.meta.url));
const PACKAGE = fileURLToPath(new URL("../../packages/perdure/", import.meta.url));
/** Longer than anything here takes; what hangs is told instead. Milliseconds. */
const PATIENCE = 60_000;

const runners = { perdure: "PerdureRunner", own: "CopilotKit's own runner" } as const;
type Runner = keyof typeof runners;

const wanted = process.argv[2];
if (wanted !== undefined && !Object.hasOwn(runners, wanted)) {
  console.error("Usage: npm run front-ends [-- perdure|own]");
  process.exit(2);
}

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
// CopilotKit logs what it also tells the page; and the client below it raises an unhandled rejection when a body errs (ag-ui#2510), which a browser logs.
console.error = () => {};
process.on("unhandledRejection", () => {});

const scratch = mkdtempSync(join(tmpdir(), "perdure-copilotkit-"));
const program = await bundleServer();
cpSync(FOLDER, scratch, { recursive: true });
const npm = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--silent"];
execFileSync("npm", [...npm, "--install-links", PACKAGE], { cwd: scratch, stdio: ["ignore", "ignore", "inherit"] });
const copilotKit = await loadCopilotKit(scratch);

const ledgerFile = join(scratch, "ledger");
const ledger = new Ledger(ledgerFile);
const server = new ServerProcess({ program, store: join(scratch, "store.db"), ledger: ledgerFile }, "front-ends");
await server.start();
const base = `http://127.0.0.1:${server.port}`;
const over = new AbortController();

/** CopilotKit's runtime, in a process that can be killed; it comes back at the same place. */
class MiddlemanProcess {
  #child: ChildProcess | undefined;
  #url = "";

  constructor(private readonly runner: Runner) {}

  get url(): string {
    return this.#url;
  }

  get isDead(): boolean {
    return this.#child?.exitCode !== null || this.#child.signalCode !== null;
  }

  async start(): Promise<void> {
    const port = this.#url === "" ? "0" : new URL(this.#url).port;
    const agents = Object.keys(scripts).join(",");
    const env = { ...process.env, PERDURE_URL: base, AGENTS: agents, RUNNER: this.runner, PORT: port };
    const child = spawn(process.execPath, ["runtime.mjs"], { cwd: scratch, env, stdio: ["pipe", "pipe", "ignore"] });
    this.#child = child;
    for await (const line of createInterface({ input: child.stdout })) {
      if (!line.startsWith("http://")) continue;
      this.#url = line;
      // What it says later has to be read, or its pipe fills up.
      child.stdout.resume();
      return;
    }
    throw new Error("CopilotKit's runtime has ended before it listened");
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || this.isDead) return;
    const died = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await died;
  }
}

interface Play {
  readonly order: string;
  readonly middleman: MiddlemanProcess;
  readonly page: (agentName: string) => Promise<CopilotPage>;
}

const YES = { status: "resolved", payload: { approved: true } } as const;
const NO = { status: "resolved", payload: { approved: false } } as const;

/** The first question is answered with yes, the others with no. */
function answers(pending: readonly { readonly id: string }[]): ResumeEntry[] {
  return pending.map(({ id }, i) => ({ interruptId: id, ...(i === 0 ? YES : NO) }));
}

async function say(page: CopilotPage, order: string, messages = 1): Promise<void> {
  for (let i = 0; i < messages; i++) {
    await page.say(`${order}-u${i}`, i === 0 ? firstMessage(order) : `And then? (${i})`);
  }
}

interface Scene {
  /** Which of the agents, and so what is due. */
  readonly script: string;
  /** Resolves with the page that is judged. */
  play(on: Play): Promise<CopilotPage>;
  /** What is wrong. Default: what the page or the ledger holds in another way than without a middleman. */
  judge?(page: CopilotPage, order: string): Promise<string | undefined>;
}

const plays: Readonly<Record<string, Scene>> = {
  "text, reasoning, state and server tools over three turns": {
    script: "talk",
    async play({ order, page }) {
      const one = await page("talk");
      await say(one, order, 3);
      return one;
    },
  },
  "a page loaded again shows the thread": {
    script: "talk",
    async play({ order, page }) {
      await say(await page("talk"), order, 3);
      const again = await page("talk");
      await again.connect();
      return again;
    },
  },
  "two approvals, one granted and one refused": {
    script: "approve",
    async play({ order, page }) {
      const one = await page("approve");
      await say(one, order);
      await one.answer(answers(one.pending));
      return one;
    },
  },
  "two approvals, answered by a page loaded again": {
    script: "approve",
    async play({ order, page, middleman }) {
      await say(await page("approve"), order);
      await middleman.kill();
      await middleman.start();
      const again = await page("approve");
      await again.connect();
      if (again.pending.length !== 2) throw new Error(`the page knows of ${again.pending.length} questions, not of 2`);
      await again.answer(answers(again.pending));
      return again;
    },
  },
  "a tool of the page": {
    script: "client",
    async play({ order, page }) {
      const one = await page("client");
      one.offer({ ...CLIENT_TOOL, parameters: z.looseObject({}), handler: async () => "green" });
      await say(one, order);
      return one;
    },
  },
  "a page loaded again in the middle of a run": {
    script: "label",
    async play({ order, page }) {
      const one = await page("label");
      const middle = one.arrival("TEXT_MESSAGE_CONTENT");
      const saying = say(one, order);
      await middle;
      const again = await page("label");
      await again.connect();
      await saying;
      return again;
    },
  },
  "the server killed behind an effect that it has not recorded": {
    script: "label",
    async play({ order, page }) {
      const one = await page("label");
      await server.kill();
      await server.start(1);
      const saying = say(one, order);
      await server.died;
      await server.start();
      await saying;
      return one;
    },
  },
  "CopilotKit's runtime killed in the middle of a run": {
    script: "label",
    async play({ order, page, middleman }) {
      const one = await page("label");
      const middle = one.arrival("TEXT_MESSAGE_CONTENT");
      const saying = say(one, order);
      await middle;
      await middleman.kill();
      await middleman.start();
      await saying;
      await one.connect();
      return one;
    },
  },
  "the stop button": {
    script: "talk",
    async play({ order, page }) {
      const one = await page("talk");
      await say(one, order);
      const middle = one.arrival("TEXT_MESSAGE_CONTENT");
      const saying = one.say(`${order}-u1`, "And then?");
      await middle;
      one.stop();
      await saying;
      return one;
    },
    async judge(_page, order) {
      const outcome = await outcomeOf(order);
      const done = doneFor(order);
      return outcome === "cancelled" && done.length === 0
        ? undefined
        : `the run has ended with ${outcome}; done: ${done.join(", ")}`;
    },
  },
};

/** How the newest run of a thread has ended, once it has. */
async function outcomeOf(thread: string): Promise<string> {
  for (;;) {
    const response = await fetch(`${base}/runs?agent=talk&thread=${thread}&limit=1`);
    const { runs } = (await response.json()) as { runs: { outcome: string | null }[] };
    const [newest] = runs;
    if (newest !== undefined && newest.outcome !== null) return newest.outcome;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function doneFor(order: string): readonly string[] {
  return ledger.effects().flatMap(({ what }) => (what.includes(order) ? [what] : []));
}

let orders = 0;

/** @returns what is wrong; nothing when it holds */
async function played(name: string, runner: Runner): Promise<string | undefined> {
  const one = plays[name];
  const script = scripts[one?.script ?? ""];
  if (one === undefined || script === undefined) throw new Error(`there is no play ${name}`);
  const order = `f${++orders}x`;
  const middleman = new MiddlemanProcess(runner);
  await middleman.start();
  let page: CopilotPage | undefined;
  try {
    page = await inTime(
      one.play({
        order,
        middleman,
        page: async (agentName) => {
          page = await CopilotPage.open(copilotKit, { runtimeUrl: middleman.url, agentName, threadId: order });
          return page;
        },
      }),
    );
    if (one.judge !== undefined) return await inTime(one.judge(page, order));
    const done = doneFor(order);
    const due = script.effects(order);
    if (done.toSorted().join() !== due.toSorted().join()) return `done: ${done.join(", ")}; due: ${due.join(", ")}`;
    const held = unnamed({ messages: page.messages, state: page.state }, order);
    const direct = await uninterrupted(one.script);
    return held === direct ? undefined : `the page holds something else: ${difference(held, direct)}`;
  } catch (error) {
    const died = middleman.isDead ? "CopilotKit's runtime has died; " : "";
    return `${died}${error instanceof Error ? error.message : String(error)}${page?.errors.map((told) => `; ${told}`).join("") ?? ""}`;
  } finally {
    await middleman.kill();
    if (server.isDead) await server.start();
  }
}

const directs = new Map<string, Promise<string>>();

/** What the official client holds of the same script, without a middleman. */
function uninterrupted(name: string): Promise<string> {
  const known = directs.get(name) ?? direct(name);
  directs.set(name, known);
  return known;
}

async function direct(agentName: string): Promise<string> {
  const order = `d${++orders}x`;
  const client = connectClient("1.0.0", { base, agentName, threadId: order, over: over.signal });
  const tools = agentName === "client" ? [CLIENT_TOOL] : [];
  for (let i = 0; i < (scripts[agentName]?.messages ?? 0); i++) {
    client.add({
      id: `${order}-u${i}`,
      role: "user",
      content: i === 0 ? firstMessage(order) : `And then? (${i})`,
    });
    await client.run({ runId: `${order}-r${i}`, tools });
  }
  if (client.pending.length > 0) await client.run({ runId: `${order}-answered`, resume: answers(client.pending) });
  const call = pendingCall(client);
  if (call !== undefined) {
    client.add({ id: `${order}-t`, role: "tool", toolCallId: call, content: "green" });
    await client.run({ runId: `${order}-called`, tools });
  }
  return unnamed(client, order);
}

function pendingCall({ messages }: Client): string | undefined {
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  return calls.find(({ function: { name } }) => name === CLIENT_TOOL.name)?.id;
}

function unnamed(held: Pick<HeldByClient, "messages" | "state">, order: string): string {
  const { messages, state } = held;
  return canonical(normaliseTranscript({ messages, state })).replaceAll(order, "ORDER");
}

/** JSON text that is the same for the same value. */
function canonical(value: Json): string {
  return JSON.stringify(value, (_, inner: Json) =>
    isJsonObject(inner) ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1))) : inner,
  );
}

function difference(a: string, b: string): string {
  let at = 0;
  while (a[at] === b[at]) at++;
  const from = Math.max(0, at - 60);
  return `…${a.slice(from, at + 60)}… instead of …${b.slice(from, at + 60)}…`;
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing has come of it in ${PATIENCE / 1_000} s`)), PATIENCE);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

let faults = 0;
try {
  const { dependencies } = JSON.parse(readFileSync(join(FOLDER, "package.json"), "utf8")) as {
    dependencies: Record<string, string>;
  };
  for (const runner of Object.keys(runners) as Runner[]) {
    if (wanted !== undefined && runner !== wanted) continue;
    console.log(`\n@copilotkit/runtime ${dependencies["@copilotkit/runtime"]} with ${runners[runner]}`);
    for (const name of Object.keys(plays)) {
      const wrong = await played(name, runner);
      console.log(wrong === undefined ? `  ok    ${name}` : `  FAILS ${name}\n        ${wrong.slice(0, 600)}`);
      if (wrong !== undefined && runner === "perdure") faults++;
    }
  }
} finally {
  over.abort();
  await server.kill();
  rmSync(scratch, { recursive: true, force: true });
  rmSync(dirname(program), { recursive: true, force: true });
}
process.exit(faults === 0 ? 0 : 1);
