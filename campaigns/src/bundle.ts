import { mkdirSync, mkdtempSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "tsdown";
import { breaks, replaced } from "./breaks.ts";

const here = fileURLToPath(new URL("../", import.meta.url));
const sources = fileURLToPath(new URL("../../packages/perdure/src/", import.meta.url));

/**
 * Bundles a server with the product's sources, so that it starts in moments and a break touches nothing but the bundle.
 *
 * @param broken - a name of {@link breaks}
 * @param source - the server, among these sources
 * @returns the file to run; its folder is the caller's to remove
 */
export async function bundleServer(broken?: string, source = "server.ts"): Promise<string> {
  const replacements = broken === undefined ? [] : (breaks[broken]?.replacements ?? []);
  const left = new Set(replacements);
  // Within the workspace, so that what is not bundled is found.
  mkdirSync(join(here, ".servers"), { recursive: true });
  const outDir = mkdtempSync(join(here, ".servers", `${broken ?? "sound"}-`));
  const doors = ["sqlite", "testing", "mcp"].map((door) => [`perdure/${door}`, join(sources, `${door}.ts`)]);
  await build({
    config: false,
    entry: { server: join(here, "src", source) },
    outDir,
    clean: false,
    dts: false,
    format: "esm",
    platform: "node",
    target: "node20",
    logLevel: "error",
    alias: { ...Object.fromEntries(doors), perdure: join(sources, "index.ts") },
    deps: { neverBundle: ["@photostructure/sqlite"], alwaysBundle: /^(?!@photostructure|node:)/, onlyBundle: false },
    plugins: [
      {
        name: "breaks",
        transform(code: string, id: string) {
          const file = relative(sources, id).split(sep).join("/");
          const own = replacements.filter((replacement) => replacement.file === file);
          for (const replacement of own) left.delete(replacement);
          return own.length === 0 ? undefined : own.reduce(replaced, code);
        },
      },
    ],
  });
  if (left.size > 0) throw new Error(`not in the bundle: ${[...left].map(({ file }) => file).join(", ")}`);
  return join(outDir, "server.mjs");
}
