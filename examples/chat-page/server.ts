/** The page and its agent, from one origin: `--port`, and `--data`, the folder of the runs and of the receipts. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { createRuntime, serve } from "perdure";
import { sqlite } from "perdure/sqlite";
import { build } from "tsdown";
import { shoppingList } from "./agent.ts";

const { values } = parseArgs({
  options: {
    port: { type: "string", default: "8787" },
    data: { type: "string", default: join(import.meta.dirname, ".data") },
    /** Milliseconds between two pieces of the model's text. */
    delay: { type: "string", default: "60" },
  },
});

/** The page's script with all that it imports. */
async function bundled(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "chat-page-"));
  await build({
    ...{ config: false, entry: { page: join(import.meta.dirname, "page.ts") }, outDir: folder, dts: false },
    ...{ format: "esm", platform: "browser", target: "es2022", logLevel: "error", clean: false },
    deps: { alwaysBundle: /./, onlyBundle: false },
  });
  const script = readFileSync(join(folder, "page.js"), "utf8");
  rmSync(folder, { recursive: true });
  return script;
}

mkdirSync(values.data, { recursive: true });
const files: Readonly<Record<string, { readonly type: string; readonly text: string }>> = {
  "/": { type: "text/html", text: readFileSync(join(import.meta.dirname, "index.html"), "utf8") },
  "/page.js": { type: "text/javascript", text: await bundled() },
};
const agent = shoppingList({ receipts: join(values.data, "receipts.txt"), delayMs: Number(values.delay) });
const runtime = createRuntime({ agents: [agent], store: sqlite(join(values.data, "runs.db")) });
await runtime.open();
const server = await serve(
  {
    ...runtime,
    async fetch(request, env) {
      const file = files[new URL(request.url).pathname];
      if (file === undefined) return await runtime.fetch(request, env);
      return new Response(file.text, { headers: { "content-type": `${file.type}; charset=utf-8` } });
    },
  },
  { port: Number(values.port), drainOn: ["SIGINT", "SIGTERM"] },
);
process.send?.({ url: server.url });
console.log(`Open ${server.url}`);
