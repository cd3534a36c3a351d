import { defineConfig } from "tsdown";

export default defineConfig({
  // The doors, each an entry of "exports" in package.json; and the command, its "bin".
  entry: {
    ...Object.fromEntries(
      ["index", "client", "emit", "log", "mcp", "protocol", "sqlite", "testing"].map((door) => [
        door,
        `src/${door}.ts`,
      ]),
    ),
    cli: "src/cli/main.ts",
  },
  format: "esm",
  platform: "neutral",
  target: "node20",
  dts: true,
  sourcemap: true,
  // npm packs these from beside package.json. Copied here and not by a `prepack` script, which ignore-scripts would skip.
  copy: ["../../README.md", "../../LICENSE"].map((from) => ({ from, to: "." })),
});
