import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Served } from "perdure";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { perdure } from "../packages/perdure/src/cli/program.ts";
import { blocksOf } from "./blocks.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
/** A page of tables has no code; known-bugs.test.ts reads it. */
const pages = readdirSync(`${root}docs`).filter((file) => file.endsWith(".md") && file !== "known-bugs.md");
const onFreePort = (code: string): string => code.replaceAll("port: 8787", "port: 0");
const ofPages = pages.flatMap((page) => blocksOf(`docs/${page}`, onFreePort));
const blocks = ofPages;

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

describe("docs/command.md", () => {
  it("shows what the command says", async () => {
    const block = ofPages.find(({ name }) => name === "docs/command.md, A run that waits");
    const { server } = (await import(block?.file ?? "")) as { server: Served };
    const said: string[] = [];
    const say = async (line: string): Promise<string> => {
      const output = { out: (text: string) => void said.push(text), err: (text: string) => void said.push(text) };
      said.length = 0;
      await perdure(line.split(" ").slice(1), {
        ...{ output: { ...output, isColoured: false }, env: {}, version: "", stop: new AbortController().signal },
      });
      return said.join("");
    };
    const uid = /[0-9a-f-]{36}/;
    const run = uid.exec(await say(`perdure ls --url ${server.url}`))?.[0] ?? "";
    const [shown = ""] = [...readFileSync(`${root}docs/command.md`, "utf8").matchAll(/^```console\n(.*?)^```$/gms)].map(
      ([, text]) => text,
    );
    const alike = (text: string) => text.replaceAll(/\d+ (ms|s) ago/g, "just now");
    expect(shown.split(/^\$ /m)).toHaveLength(4);
    for (const part of shown.split(/^\$ /m).slice(1)) {
      const page = part.replaceAll("http://127.0.0.1:8787", server.url).replaceAll(new RegExp(uid, "g"), run);
      const end = page.indexOf("\n");
      expect(alike(await say(page.slice(0, end)))).toBe(alike(page.slice(end + 1)));
    }
    await server.close();
  });
});

describe("the README", () => {
  const text = readFileSync(`${root}README.md`, "utf8");

  it("has an agent in at most twenty lines, which is the example that its own test runs", () => {
    const hello = readFileSync(`${root}examples/hello/hello.ts`, "utf8").trim();
    const [, ...blocks] = text.split("```ts\n");
    expect(blocks.map((block) => block.split("```")[0]?.trim())).toEqual([hello]);
    expect(hello.split("\n").length).toBeLessThanOrEqual(20);
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
