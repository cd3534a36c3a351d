/**
 * Runs the conformance kit against AG-UI servers that others wrote. Each folder of `campaigns/others` has a server and what it needs, pinned;
 * it is installed into a temporary folder, and the model behind it is a fake of OpenAI's API, so that what is judged is the server's own.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Json } from "perdure/protocol";
import { checkProducer, type ProducerInput, type ProducerReport } from "perdure/testing";
import { delta, fakeOpenAI, finished, type Reply, usageFrame } from "../../packages/perdure/test/agent/fake-openai.ts";

const OTHERS = fileURLToPath(new URL("../others/", import.meta.url));

const inputs: readonly ProducerInput[] = [
  { name: "weather", says: ["What is the weather in Faro?", "And in Porto?"] },
  { name: "pay", says: ["Pay 5 cents.", "Thank you."], answer: { approved: true } },
];

const names = process.argv.slice(2);
const known = readdirSync(OTHERS);
const unknown = names.find((name) => !known.includes(name));
if (unknown !== undefined) {
  console.error(`There is no server "${unknown}". There are: ${known.join(", ")}.`);
  process.exit(2);
}
let calls = 0;
await using model = await fakeOpenAI(replyTo);
for (const name of names.length > 0 ? names : known) {
  const report = await check(name, model.baseURL);
  console.log(`\n${versionsOf(name)}\n${report.table()}`);
}

async function check(name: string, baseURL: string): Promise<ProducerReport> {
  const folder = mkdtempSync(join(tmpdir(), `perdure-${name}-`));
  let server: ChildProcess | undefined;
  try {
    cpSync(join(OTHERS, name), folder, { recursive: true });
    execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--silent"], {
      cwd: folder,
    });
    const env = { ...process.env, FAKE_OPENAI: baseURL };
    server = spawn(process.execPath, ["server.mjs"], { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
    return await checkProducer(await firstLine(server), { inputs, timeoutMs: 10_000 });
  } finally {
    server?.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What a server says first is where it is. What it complains of later is not what is judged. */
async function firstLine({ stdout, stderr }: ChildProcess): Promise<string> {
  if (stdout === null || stderr === null) throw new Error("the server has no output");
  let complaints = "";
  stderr.setEncoding("utf8").on("data", (text: string) => {
    complaints = (complaints + text).slice(-2_000);
  });
  for await (const line of createInterface({ input: stdout })) return line;
  throw new Error(`the server has ended before it listened:\n${complaints}`);
}

function versionsOf(name: string): string {
  const { dependencies } = JSON.parse(readFileSync(join(OTHERS, name, "package.json"), "utf8")) as {
    dependencies: object;
  };
  return Object.entries(dependencies)
    .map(([dependency, version]) => `${dependency} ${version}`)
    .join(", ");
}

interface Asked {
  readonly role: string;
  readonly content?: Json;
}

/** The script of the model: what the user says last decides. */
function replyTo({ messages, tools }: { readonly [key: string]: Json }): Reply {
  const asked = messages as unknown as readonly Asked[];
  const text = JSON.stringify(asked.findLast(({ role }) => role === "user")?.content ?? "");
  const offered = JSON.stringify(tools ?? []);
  const isAnswered = asked.at(-1)?.role === "tool";
  const call = (name: string, args: string): Reply => ({
    frames: [
      delta({
        role: "assistant",
        content: null,
        tool_calls: [{ index: 0, id: `call_${++calls}`, type: "function", function: { name, arguments: "" } }],
      }),
      ...[args.slice(0, 3), args.slice(3)].map((piece) =>
        delta({ tool_calls: [{ index: 0, function: { arguments: piece } }] }),
      ),
      ...[finished("tool_calls"), usageFrame(), "[DONE]"],
    ],
  });
  if (!isAnswered && /get_location/.test(text) && /get_location/.test(offered)) return call("get_location", "{}");
  if (!isAnswered && /weather|Porto/.test(text)) return call("get_weather", '{"city":"Faro"}');
  if (!isAnswered && /Pay/.test(text)) return call("pay", '{"cents":5}');
  return {
    frames: [
      delta({ role: "assistant", content: "" }),
      ...["Hello ", "to ", "you."].map((content) => delta({ content })),
      ...[finished("stop"), usageFrame(), "[DONE]"],
    ],
  };
}
