/** The client where there is nothing of Node: bundled as a front end is, and run in a context that has the web's globals alone. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createContext, runInContext } from "node:vm";
import { build } from "tsdown";
import { beforeAll, expect, it, onTestFinished } from "vitest";
import type * as door from "../../src/client.ts";
import { desk } from "../http/desk.ts";
import { serving } from "../http/rig.ts";
import { cutting, user } from "./rig.ts";

const entry = fileURLToPath(new URL("../../src/client.ts", import.meta.url));
let script: string;

beforeAll(async () => {
  const outDir = mkdtempSync(join(tmpdir(), "perdure-client-"));
  await build({
    ...{ config: false, entry: { client: entry }, outDir, clean: false, dts: false, logLevel: "error" },
    ...{ format: "iife", platform: "browser", target: "es2022", globalName: "client" },
    deps: { alwaysBundle: /./, onlyBundle: false },
  });
  script = readFileSync(join(outDir, "client.iife.js"), "utf8");
  rmSync(outDir, { recursive: true });
});

it("runs, is cut off, comes back and answers", async () => {
  const { agent: asked, ledger } = desk({ delayMs: 1 });
  const server = await serving([asked]);
  const cut = await cutting(server, [1_500, 900, 2_000]);
  const { AbortController, AbortSignal, DOMException, Headers, ReadableStream, Request, Response, TextDecoder } =
    globalThis;
  const { TextEncoder, URL, URLSearchParams, clearTimeout, console, crypto, fetch, queueMicrotask, setTimeout } =
    globalThis;
  const web = {
    ...{ AbortController, AbortSignal, DOMException, Headers, ReadableStream, Request, Response, TextDecoder },
    ...{
      TextEncoder,
      URL,
      URLSearchParams,
      clearTimeout,
      console,
      crypto,
      fetch,
      queueMicrotask,
      setTimeout,
      structuredClone,
    },
  };
  const { ResumableHttpAgent } = runInContext(`${script}\nclient`, createContext(web)) as typeof door;
  const reader = new ResumableHttpAgent({
    ...{ url: `${cut.url}/agents/desk`, threadId: "t", initialMessages: [user("u1", "9000")] },
    reconnect: { initialDelayMs: 1 },
  });
  onTestFinished(() => reader.abortRun());
  await reader.runAgent({ runId: "r" });
  await reader.answer(reader.openInterrupts[0]?.id ?? "", { status: "resolved", payload: { approved: true } });
  await reader.connectAgent();
  expect(reader.messages.at(-1)).toMatchObject({ content: "Done with 9000 cents." });
  expect(ledger).toEqual([9000]);
  expect(cut.cuts()).toBeGreaterThan(1);
});

it("has nothing of Node's in it", () => {
  expect(script).not.toMatch(/\bnode:|\brequire\(|\bBuffer\b/);
});
