import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, it } from "vitest";
import { breaks, replaced } from "../src/breaks.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const sourceOf = (file: string): string => `${root}packages/perdure/src/${file}`;

it("every break still finds what it replaces, and compiles: a build that dies of a typing error proves nothing", () => {
  const broken = new Map<string, string>();
  for (const replacement of Object.values(breaks).flatMap(({ replacements }) => replacements)) {
    const file = sourceOf(replacement.file);
    broken.set(file, replaced(broken.get(file) ?? readFileSync(file, "utf8"), replacement));
  }
  const { config } = ts.readConfigFile(`${root}tsconfig.json`, (name) => readFileSync(name, "utf8")) as {
    config: unknown;
  };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const host = ts.createCompilerHost(options);
  host.readFile = (name) => broken.get(name) ?? ts.sys.readFile(name);
  const program = ts.createProgram([...broken.keys()], options, host);
  const messages = [...broken.keys()].flatMap((file) =>
    program
      .getSemanticDiagnostics(program.getSourceFile(file))
      .map(({ messageText }) => `${file}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`),
  );
  expect(messages).toEqual([]);
});
