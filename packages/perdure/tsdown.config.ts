import { defineConfig } from "tsdown";

export default defineConfig({
  entry: ["src/index.ts", "src/emit.ts", "src/protocol.ts", "src/testing.ts"],
  format: "esm",
  platform: "neutral",
  target: "node20",
  dts: true,
  sourcemap: true,
});
