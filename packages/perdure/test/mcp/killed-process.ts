/**
 * A process to be killed with its servers. `serve` connects to all three, says their process ids and waits; `remember` has an agent remember
 * something, and is killed when the server has done so and before anybody has heard of it; started again, it goes on and says the questions.
 */
import { readFileSync, writeSync } from "node:fs";
import { agent, createRuntime, type DynTool, type ToolSource } from "perdure";
import { mcp } from "perdure/mcp";
import { scriptedModel } from "perdure/testing";
import { sqlite } from "../../src/store/sqlite.ts";
import { everything, filesystem, memory } from "./commands.ts";

const [what = "", dir = ""] = process.argv.slice(2);
const say = (value: unknown): void => void writeSync(1, `${JSON.stringify(value)}\n`);

if (what === "serve") {
  const servers = [mcp(filesystem(dir)), mcp(everything), mcp(memory(`${dir}/memory.jsonl`))];
  await Promise.all(servers.map((server) => server.ready(new AbortController().signal)));
  const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8");
  say(children.trim().split(" ").map(Number));
  await new Promise(() => setInterval(() => {}, 1_000));
}

const server = mcp({ ...memory(`${dir}/memory.jsonl`), tools: { create_entities: { settle: 0 } } });
const deadly = (tool: DynTool): DynTool => ({
  ...tool,
  async callJson(input, ctx) {
    const outcome = await tool.callJson(input, ctx);
    if (ctx.attempt === 1) process.kill(process.pid, "SIGKILL");
    return outcome;
  },
});
let known: readonly DynTool[] = [];
let tools: readonly DynTool[] = [];
const deadlyServer: ToolSource = {
  name: server.name,
  ready: (signal) => server.ready(signal),
  close: () => server.close(),
  get tools() {
    if (known !== server.tools) tools = server.tools.map(deadly);
    known = server.tools;
    return tools;
  },
};

const entities = [{ name: "Ada", entityType: "person", observations: ["wrote the first program"] }];
const store = sqlite(`${dir}/runs.db`);
const runtime = createRuntime({
  agents: [
    agent({
      name: "keeper",
      model: scriptedModel([{ calls: [{ name: "create_entities", input: { entities } }] }, { text: "Kept." }]),
      tools: [deadlyServer],
    }),
  ],
  store,
  onError: () => {},
});
const ask = async (path: string, body?: object): Promise<string> => {
  const init = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  return await (await runtime.fetch(new Request(`http://127.0.0.1${path}`, init))).text();
};
await runtime.open();
if ((await store.runs({ tenant: "local" })).items.length === 0) {
  await ask("/agents/keeper", { threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Go." }] });
}
type Listed = { readonly id: string; readonly kind: string };
for (;;) {
  const { interrupts } = JSON.parse(await ask("/inbox")) as { interrupts: Listed[] };
  const [question] = interrupts;
  if (question !== undefined) {
    say(question.kind);
    const output = JSON.parse(readFileSync(`${dir}/memory.jsonl`, "utf8").split("\n")[0] ?? "") as object;
    await ask(`/inbox/${encodeURIComponent(question.id)}`, {
      status: "resolved",
      payload: { did: "yes", output: { entities: [{ ...output, type: undefined }] } },
    });
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 20));
}
for (;;) {
  const [run] = (await store.runs({ tenant: "local" })).items;
  if (run?.outcome !== null && run !== undefined) {
    say(run.outcome);
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 20));
}
await runtime.close();
