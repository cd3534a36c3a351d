import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Served } from "perdure";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { blocksOf } from "./blocks.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const pages = readdirSync(`${root}docs`).filter((file) => file.endsWith(".md"));
const onFreePort = (code: string): string => code.replaceAll("port: 8787", "port: 0");
const ofPages = pages.flatMap((page) => blocksOf(`docs/${page}`, onFreePort));
const ofReadme = blocksOf("README.md", (code) => `${onFreePort(code)}export { server };\n`);
const blocks = [...ofPages, ...ofReadme];

describe("the code on the pages", () => {
  it("is found: each page has some, and no two blocks stand under one heading", () => {
    for (const page of pages) expect(blocks.some(({ name }) => name.startsWith(`docs/${page}`))).toBe(true);
    expect(new Set(blocks.map(({ file }) => file)).size).toBe(blocks.length);
  });

  it("compiles as strictly as our own", () => {
    const { config } = ts.readConfigFile(`${root}tsconfig.json`, (path) => ts.sys.readFile(path));
    const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
    const program = ts.createProgram(
      blocks.map(({ file }) => file),
      options,
    );
    const faults = blocks.flatMap(({ name, file }) => {
      const source = program.getSourceFile(file);
      const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
      return found.map(({ messageText }) => `${name}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
    });
    expect(faults).toEqual([]);
  }, 60_000);

  it.each(ofPages.map((block) => [block.name, block] as const))("runs: %s", async (_, { file }) => {
    await import(file);
  });
});

describe("the README", () => {
  const text = readFileSync(`${root}README.md`, "utf8");

  it("has ten lines of code, which serve what they say", async () => {
    const [block, ...others] = ofReadme;
    expect(others).toEqual([]);
    expect(block?.code.trim().split("\n").length).toBeLessThanOrEqual(12);
    const { server } = (await import(block?.file ?? "")) as { server: Served };
    const response = await fetch(`${server.url}/agents/greeter`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ threadId: "t", runId: "r", messages: [{ id: "u", role: "user", content: "Ada" }] }),
    });
    const deltas = [...(await response.text()).matchAll(/"delta":"([^"]*)"/g)].map(([, delta]) => delta);
    await server.close();
    expect(deltas.join("")).toBe("Hello, Ada!");
  });

  it("names only files and folders that are there", () => {
    const links = [...text.matchAll(/\]\(([^)#:]+)\)/g)].map(([, path]) => path ?? "");
    const tests = [...text.matchAll(/\| `([\w/. -]+)` +\|$/gm)]
      .flatMap(([, files]) => files?.split(" ") ?? [])
      .map((file) => `packages/perdure/test/${file}`);
    expect(links.length).toBeGreaterThan(3);
    expect(tests.length).toBeGreaterThan(7);
    const missing = [...links, ...tests].filter(
      (path) => !ts.sys.fileExists(root + path) && !ts.sys.directoryExists(root + path),
    );
    expect(missing).toEqual([]);
  });
});
