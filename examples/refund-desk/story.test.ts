/** The story as `npm start` plays it, with real processes, and what it would say if it went wrong. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { HttpAgent } from "@ag-ui/client";
import { createRuntime, serve } from "perdure";
import { equalTranscripts } from "perdure/log";
import { afterAll, describe, expect, it } from "vitest";
import { compatible, listening, type Saying } from "../../packages/perdure/test/agent/fake-apis.ts";
import { refundDesk } from "./agent.ts";
import { Books, type LedgerRow } from "./books.ts";
import { deskModel } from "./model.ts";
import { faultsOf, REQUEST } from "./story.ts";

const folder = mkdtempSync(join(tmpdir(), "refund-desk-"));
const started: ChildProcess[] = [];
afterAll(async () => {
  for (const child of started) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

/** `start.ts` on the sources, as npm start runs it on the built package. */
function start(options: { args?: string[]; env?: Record<string, string> } = {}) {
  const data = mkdtempSync(join(folder, "data-"));
  const { OPENAI_API_KEY: _key, OPENAI_BASE_URL: _url, ...env } = process.env;
  const child = spawn(
    process.execPath,
    ["--import", "tsx", join(import.meta.dirname, "start.ts"), "--data", data, ...(options.args ?? [])],
    {
      env: { ...env, TSX_TSCONFIG_PATH: join(import.meta.dirname, "../../tsconfig.json"), PORT: "0", ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  started.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const exit = once(child, "close").then(([code]) => ({ code, output }));
  return {
    child,
    exit,
    /** Settles with all output when it serves. */
    async serves() {
      while (!/^Beside it/m.test(output)) {
        if (child.exitCode !== null) throw new Error(output);
        await Promise.race([once(child.stdout, "data"), exit]);
      }
      return { output, url: /^Serving (\S+)\/agents/m.exec(output)?.[1] ?? "" };
    },
    async ledger() {
      const books = await Books.open(join(data, readdirSync(data)[0] ?? "", "books.db"));
      const rows = books.ledger();
      books.close();
      return rows;
    },
  };
}

const PAID: LedgerRow[] = [
  { refundId: "R-1", orderId: "A-1001", cents: 3_000 },
  { refundId: "R-2", orderId: "A-1002", cents: 8_000 },
];

/** The same conversation with nothing killed. */
async function uninterrupted(): Promise<HttpAgent> {
  const books = await Books.open(join(folder, "uninterrupted.db"));
  const server = await serve(createRuntime({ agents: [refundDesk({ books, model: await deskModel({}) })] }), {
    port: 0,
  });
  const client = new HttpAgent({ url: `${server.url}/agents/refund-desk` });
  client.addMessage({ id: "u1", role: "user", content: REQUEST });
  await client.runAgent({ runId: "r1" });
  const resume = client.pendingInterrupts.map(({ id }) => {
    return { interruptId: id, status: "resolved" as const, payload: { approved: true } };
  });
  await client.runAgent({ runId: "r2", resume });
  await server.close();
  expect(books.ledger()).toEqual(PAID);
  books.close();
  return client;
}

describe("npm start", () => {
  it("plays the story: killed inside a refund, each refund once, the transcript of an uninterrupted run; then it serves", async () => {
    const story = start();
    const { output, url } = await story.serves();
    expect(await story.ledger()).toEqual(PAID);

    // What the log did with each step, in the words of the time line.
    expect(output).toMatch(/refund A-1001 30\.00 EUR \(write\) +ran, killed +reconciled: applied, not run again\n/);
    expect(output).toMatch(/refund A-1002 80\.00 EUR \(write\) +asked, answered, ran\n/);
    expect(output.match(/ran +replayed from the log\n/g)).toHaveLength(3);

    const again = new HttpAgent({ url: `${url}/agents/refund-desk`, threadId: "story" });
    again.addMessage({ id: "u1", role: "user", content: REQUEST });
    await again.runAgent({ runId: "reloaded" });
    expect(equalTranscripts(again, await uninterrupted())).toBe(true);

    // The printed request, twice.
    const body = / -d '(.*)'$/m.exec(output)?.[1] ?? "";
    for (const _ of [1, 2]) {
      const init = { method: "POST", headers: { "content-type": "application/json" }, body };
      expect(await fetch(`${url}/agents/refund-desk`, init).then((answer) => answer.text())).toContain('"R-3"');
    }
    expect(await story.ledger()).toEqual([...PAID, { refundId: "R-3", orderId: "A-1003", cents: 1_250 }]);

    story.child.kill("SIGINT");
    expect(await story.exit).toMatchObject({ code: 0 });
    await expect(fetch(url)).rejects.toThrow();

    // What the README shows of it, in this order.
    const shown = inReadme();
    expect(shown.length).toBeGreaterThan(9);
    expect(comparable(output).filter((line) => shown.includes(line))).toEqual(shown);
  });

  it("says that the port is taken, and leaves the files of whoever has it alone", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as AddressInfo;
    const { code, output } = await start({ env: { PORT: String(port) } }).exit;
    other.close();
    expect({ code, output }).toEqual({
      code: 1,
      output: `This should not have happened: port ${port} is taken: stop what listens there, or say PORT=8788 npm start\n`,
    });
  });

  it("fails when the story goes wrong, here because a real model refuses the key", async () => {
    const keys: unknown[] = [];
    const provider = createServer((request, response) => {
      keys.push(request.headers.authorization);
      response.writeHead(401, { "content-type": "application/json" }).end('{"error":{"message":"bad key"}}');
    }).listen(0, "127.0.0.1");
    await once(provider, "listening");
    const { port } = provider.address() as AddressInfo;
    const env = { OPENAI_BASE_URL: `http://127.0.0.1:${port}/v1`, OPENAI_API_KEY: "k" };
    const { code, output } = await start({ env }).exit;
    provider.close();
    expect(keys).toEqual(["Bearer k"]);
    expect(code).toBe(1);
    expect(output).toContain("This should not have happened: the run was over before it refunded anything");
  });

  it("plays the same story with a real provider, here a fake of its API", async () => {
    await using fake = await listening(compatible, ({ messages }) => {
      const results = JSON.stringify(messages).match(/"role":"tool"/g)?.length ?? 0;
      return TURNS[results] ?? { text: "A-1001 and A-1002 are refunded." };
    });
    const story = start({ env: { OPENAI_BASE_URL: fake.baseURL, OPENAI_API_KEY: "k", OPENAI_MODEL: "m-1" } });
    await story.serves();
    expect(await story.ledger()).toEqual(PAID);
    expect(fake.refused).toEqual([]);
    expect(fake.requests.every(({ model }) => model === "m-1")).toBe(true);
    story.child.kill("SIGINT");
    expect(await story.exit).toMatchObject({ code: 0 });
  });

  it("leaves no server behind when it is killed itself", async () => {
    const served = start({ args: ["--serve"] });
    const { url } = await served.serves();
    expect((await fetch(`${url}/healthz`)).ok).toBe(true);
    served.child.kill("SIGKILL");
    for (;;) {
      const isThere = await fetch(`${url}/healthz`).then(
        () => true,
        () => false,
      );
      if (!isThere) break;
    }
  });
});

/** What a model says in the story, by how many results it has. */
const TURNS: { readonly [results: number]: Saying } = {
  0: { text: "Let me look.", calls: [made(0, "search_orders", { query: "anna@example.com" })] },
  1: { calls: [made(1, "refund", { orderId: "A-1001", cents: 3_000 })] },
  2: {
    calls: [
      made(2, "set_label", { orderId: "A-1001", label: "refunded" }),
      made(3, "refund", { orderId: "A-1002", cents: 8_000 }),
    ],
  },
  4: { calls: [made(4, "set_label", { orderId: "A-1002", label: "refunded" })] },
};

function made(n: number, name: string, input: object) {
  return { id: `call_${n}`, name, args: JSON.stringify(input) };
}

/** What differs between two plays of the story: processes and seconds. */
function comparable(text: string): string[] {
  return text.split("\n").map((line) => line.replace(/(process|kill -9) \d+/, "$1 N").replace(/^ +[\d.]+ s/, "N s"));
}

function inReadme(): string[] {
  const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");
  const shown = /```\n(1\. A customer writes.*?)```/s.exec(readme)?.[1] ?? "";
  return comparable(shown).filter((line) => line !== "" && line !== "…");
}

describe("what the story checks in the end", () => {
  const call = (id: string, name: string, args: object) => {
    return { id, type: "function" as const, function: { name, arguments: JSON.stringify(args) } };
  };
  const whole = {
    messages: [
      { id: "u", role: "user" as const, content: REQUEST },
      {
        id: "a",
        role: "assistant" as const,
        toolCalls: [call("c1", "refund", { orderId: "A-1001" }), call("c2", "refund", { orderId: "A-1002" })],
      },
      { id: "t1", role: "tool" as const, toolCallId: "c1", content: '{"refundId":"R-1"}' },
      { id: "t2", role: "tool" as const, toolCallId: "c2", content: '{"refundId":"R-2"}' },
      { id: "b", role: "assistant" as const, content: "Both are refunded." },
    ],
    state: { refunds: [{ refundId: "R-1" }, { refundId: "R-2" }] },
  };

  it("passes a whole one", () => {
    expect(faultsOf(PAID, whole)).toEqual([]);
  });

  it("finds money that moved twice, or never", () => {
    const twice = [...PAID, { refundId: "R-3", orderId: "A-1001", cents: 3_000 }];
    expect(faultsOf(twice, whole)).toContain("the ledger has 2 refunds of A-1001, and should have one");
    expect(faultsOf(PAID.slice(1), whole)).toContain("the ledger has 0 refunds of A-1001, and should have one");
  });

  it.each([
    ["a result that is missing", whole.messages.filter(({ id }) => id !== "t1"), "holds 0 results of refund"],
    ["a result shown twice", [...whole.messages.slice(0, 3), ...whole.messages.slice(2)], "holds 2 results of refund"],
    ["an agent that was cut off", whole.messages.slice(0, -1), "has not had the last word"],
  ])("finds %s", (_, messages, fault) => {
    expect(faultsOf(PAID, { ...whole, messages }).join("\n")).toContain(fault);
  });

  it("finds a refund that the state does not have", () => {
    expect(faultsOf(PAID, { ...whole, state: { refunds: [] } })).toHaveLength(2);
  });
});
