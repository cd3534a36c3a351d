/** The example as a process of its own: with the script, and with a real provider package against a fake of its API. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HttpAgent } from "@ag-ui/client";
import { expect, it, onTestFinished } from "vitest";
import { listening, openaiResponses } from "../../packages/perdure/test/agent/fake-apis.ts";

/** `hello.ts` on the sources, in a folder of its own. */
async function start(env: Record<string, string>, folder = newFolder()) {
  const { OPENAI_API_KEY: _key, OPENAI_BASE_URL: _url, ...own } = process.env;
  const child = spawn(process.execPath, ["--import", "tsx", join(import.meta.dirname, "hello.ts")], {
    env: {
      ...{ ...own, TSX_TSCONFIG_PATH: join(import.meta.dirname, "../../tsconfig.json"), PORT: "0" },
      ...{ HELLO_DB: join(folder, "hello.db"), ...env },
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => end(child, "SIGKILL"));
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const exit = once(child, "close");
  for (;;) {
    const url = /^(http\S+\/agents\/hello)$/m.exec(output)?.[1];
    if (url !== undefined) return { url, child };
    if (child.exitCode !== null) throw new Error(output);
    await Promise.race([once(child.stdout, "data"), exit]);
  }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill(signal);
  await exit;
}

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "hello-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

let asked = 0;

async function ask(client: HttpAgent, content: string): Promise<void> {
  client.addMessage({ id: `u${++asked}`, role: "user", content });
  await client.runAgent({ runId: `r${asked}` });
}

const said = ({ messages }: HttpAgent) => messages.flatMap(({ role, content }) => (content ? [[role, content]] : []));
const talk = [
  ["user", "What is the weather like in Oslo?"],
  ["tool", '{"city":"Oslo","celsius":21}'],
  ["assistant", "It is 21 °C in Oslo."],
];

it("is at most 20 lines", () => {
  const source = readFileSync(join(import.meta.dirname, "hello.ts"), "utf8");
  expect(source.trimEnd().split("\n").length).toBeLessThanOrEqual(20);
});

it("answers with the script, and goes on with what it has said after it was killed", async () => {
  const folder = newFolder();
  const first = await start({}, folder);
  const client = new HttpAgent({ url: first.url, threadId: "t" });
  await ask(client, "What is the weather like in Oslo?");
  expect(said(client)).toEqual(talk);
  await end(first.child, "SIGKILL");

  const second = await start({}, folder);
  client.url = second.url;
  await ask(client, "And now?");
  expect(said(client)).toEqual([...talk, ["user", "And now?"], ...talk.slice(1)]);
});

it("asks a real model where there is a key, and gives it back all that it has said", async () => {
  await using fake = await listening(openaiResponses, ({ input }) => {
    const results = JSON.stringify(input).match(/"type":"function_call_output"/g)?.length ?? 0;
    return results === 0
      ? { reasoning: "A tool.", calls: [{ id: "call_1", name: "weather", args: '{"city":"Oslo"}' }] }
      : { reasoning: "", text: "It is 21 °C in Oslo." };
  });
  const { url } = await start({ OPENAI_API_KEY: "k-1", OPENAI_BASE_URL: fake.baseURL });
  const client = new HttpAgent({ url, threadId: "t" });
  await ask(client, "What is the weather like in Oslo?");
  await ask(client, "Thanks.");
  expect(fake.refused).toEqual([]);
  expect(fake.keys).toEqual(["Bearer k-1", "Bearer k-1", "Bearer k-1"]);
  expect(
    said(client)
      .filter(([role]) => role !== "reasoning")
      .slice(0, 3),
  ).toEqual(talk);
  expect(fake.requests[0]?.tools).toMatchObject([{ type: "function", name: "weather" }]);
});
