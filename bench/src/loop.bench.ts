/**
 * What the loop itself costs per step: a model that answers at once, a tool that does nothing, again and again. In memory against the AI SDK's own
 * loop, which keeps nothing; over SQLite against LangGraph.js with its SQLite checkpointer, each time with commits that are as durable. LangGraph.js
 * is installed into a temporary folder, so it takes a network; without one, or with `--no-others`, it is left out and said so.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import * as ai from "ai";
import { agent, createRuntime, type LanguageModel, type Runtime, tool } from "perdure";
import { sqlite } from "perdure/sqlite";
import { z } from "zod";
import { Bench, type Contender } from "./harness.ts";

/** Calls of a run, each of which is asked for by a model step of its own. */
const STEPS = 20;

const usage = {
  inputTokens: { total: 10, noCache: 10, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 5, text: 5, reasoning: undefined },
};

/** Answers at once, each time with a call, and in the end with a text. What comes next is read off the prompt. */
const model: LanguageModel & ai.LanguageModel = {
  specificationVersion: "v3",
  provider: "bench",
  modelId: "at-once",
  supportedUrls: {},
  doGenerate: () => Promise.reject(new Error("it streams")),
  doStream: async ({ prompt }: { readonly prompt: readonly object[] }) => {
    const n = prompt.filter((message) => "role" in message && message.role === "assistant").length;
    const id = `call_${n}`;
    const input = `{"n":${n}}`;
    const isLast = n === STEPS;
    const parts = isLast
      ? [
          { type: "text-start", id: "0" },
          { type: "text-delta", id: "0", delta: "Done." },
          { type: "text-end", id: "0" },
        ]
      : [
          { type: "tool-input-start", id, toolName: "add" },
          { type: "tool-input-delta", id, delta: input },
          { type: "tool-input-end", id },
          { type: "tool-call", toolCallId: id, toolName: "add", input },
        ];
    const finish = { type: "finish", usage, finishReason: { unified: isLast ? "stop" : "tool-calls", raw: "x" } };
    return {
      stream: new ReadableStream({
        start(controller) {
          for (const part of [{ type: "stream-start", warnings: [] }, ...parts, finish]) controller.enqueue(part);
          controller.close();
        },
      }),
    };
  },
} as never;

const input = z.object({ n: z.number() });
const description = "Adds one.";
const adder = agent({
  name: "adder",
  model,
  tools: [tool({ name: "add", description, effect: "read", input, call: async ({ n }) => n + 1 })],
});
const asking = (threadId: string) => ({
  ...{ threadId, runId: "r", messages: [{ id: "u", role: "user" as const, content: "Go." }], tools: [], context: [] },
  ...{ state: {}, forwardedProps: {} },
});

/** Of each contender. After some three seconds all of them are as quick as they get. */
const WARM = { leadInMs: 3_000, sliceMs: 1_000 };

const bench = new Bench("loop");
let threads = 0;

/** Jobs are runs of {@link STEPS} steps. Each is asked for, and read as text, as a server would send it. */
function served(name: string, runtime: Runtime): Contender {
  return {
    ...{ ...WARM, name },
    async run(times) {
      let bytes = 0;
      for (let i = 0; i < times; i++) {
        const request = new Request("http://127.0.0.1/agents/adder", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ...asking(`t${threads++}`), protocolVersion: "1.0" }),
        });
        const text = await (await runtime.fetch(request)).text();
        if (!text.includes("RUN_FINISHED")) throw new Error(text.slice(-500));
        bytes += text.length;
      }
      return bytes;
    },
  };
}

function streamText() {
  const tools = { add: ai.tool({ description, inputSchema: input, execute: async ({ n }) => n + 1 }) };
  return ai.streamText({ model, tools, stopWhen: ai.stepCountIs(STEPS + 2), prompt: "Go." });
}
const sent: Contender = {
  name: `streamText, its UI message stream, ${STEPS} steps`,
  ...WARM,
  async run(times) {
    let bytes = 0;
    for (let i = 0; i < times; i++) {
      const text = await streamText().toUIMessageStreamResponse().text();
      if (!text.includes("Done.")) throw new Error(text.slice(-500));
      bytes += text.length;
    }
    return bytes;
  },
};
const parts: Contender = {
  name: `streamText, its parts, ${STEPS} steps`,
  ...WARM,
  async run(times) {
    let count = 0;
    for (let i = 0; i < times; i++) for await (const { type } of streamText().fullStream) count += type.length;
    return count;
  },
};
const inMemory = createRuntime({ agents: [adder] });
const ours = served(`memory(), served, ${STEPS} steps`, inMemory);
await bench.compare("The loop in memory", ours, [sent, parts], [{ slowerThan: sent.name, atMost: 2 }]);
await inMemory.close();

const folder = mkdtempSync(join(tmpdir(), "perdure-bench-"));
const others = process.argv.includes("--no-others") ? undefined : await langGraphs(folder);
if (others === undefined) console.log("\nLangGraph.js is left out: nothing is judged over SQLite");
for (const { durability, title } of [
  { durability: "process", title: "The loop over SQLite, commits that outlive the process" },
  { durability: "power", title: "The loop over SQLite, commits that wait for the disk" },
] as const) {
  const runtime = createRuntime({ agents: [adder], store: sqlite(join(folder, `${durability}.db`), { durability }) });
  const durable = served(`sqlite(), durability "${durability}", served, ${STEPS} steps`, runtime);
  const alike = others?.[durability];
  await bench.compare(
    title,
    durable,
    alike === undefined ? [] : [alike.contender],
    alike === undefined ? [] : [{ fasterThan: alike.contender.name, atLeast: 3 }],
  );
  await runtime.close();
  alike?.close();
}
rmSync(folder, { recursive: true, force: true });
bench.finish();

interface LangGraph {
  run(): Promise<number>;
  close(): void;
}

/**
 * LangGraph.js as it comes, and with each commit as durable as ours are by default: better-sqlite3 is built so that a commit in WAL mode does not
 * wait for the disk.
 */
async function langGraphs(folder: string) {
  const home = join(folder, "langgraph");
  cpSync(fileURLToPath(new URL("../others/langgraph/", import.meta.url)), home, { recursive: true });
  const install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--silent"];
  try {
    execFileSync("npm", install, { cwd: home, stdio: ["ignore", "ignore", "inherit"] });
  } catch {
    return undefined;
  }
  const { langGraph } = (await import(pathToFileURL(join(home, "loop.mjs")).href)) as {
    readonly langGraph: (driver: unknown, file: string, options: { steps: number; synchronous: string }) => LangGraph;
  };
  const own = process.getBuiltinModule?.("node:sqlite") as { DatabaseSync?: unknown } | undefined;
  const driver = own?.DatabaseSync ?? (await import("@photostructure/sqlite")).DatabaseSync;
  const alike = (synchronous: string, note: string) => {
    const graph = langGraph(driver, join(folder, `${synchronous}.db`), { steps: STEPS, synchronous });
    const contender: Contender = {
      name: `LangGraph.js, SqliteSaver${note}`,
      ...WARM,
      async run(times) {
        let messages = 0;
        for (let i = 0; i < times; i++) messages += await graph.run();
        return messages;
      },
    };
    return { contender, close: () => graph.close() };
  };
  return { process: alike("NORMAL", ""), power: alike("FULL", ", synchronous=FULL") };
}
