import { defineConfig } from "tsdown";

export default defineConfig({
  // The doors: each is an entry of "exports" in package.json.
  entry: ["index", "emit", "log", "protocol", "sqlite", "testing"].map((door) => `src/${door}.ts`),
  format: "esm",
  platform: "neutral",
  target: "node20",
  dts: true,
  sourcemap: true,
  // npm packs these from beside package.json. Copied here and not by a `prepack` script, which ignore-scripts would skip.
  copy: ["../../README.md", "../../LICENSE"].map((from) => ({ from, to: "." })),
});
