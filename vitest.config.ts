import { fileURLToPath } from "node:url";
import { configDefaults, defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(`./packages/perdure/src/${path}`, import.meta.url));

/** Rooms whose tests touch nothing that is not their own: no socket, no timer that outlives them, no heap. */
const PURE = ["agent", "conformance", "emit", "log", "protocol", "store", "tool"].map(
  (room) => `packages/perdure/test/${room}/**/*.test.ts`,
);

const ALL = [
  "packages/*/test/**/*.test.ts",
  "examples/**/*.test.ts",
  "docs/**/*.test.ts",
  "scripts/*.test.ts",
  "bench/src/*.test.ts",
  "campaigns/test/*.test.ts",
];

export default defineConfig({
  // Tests run the sources, so one file runs at once without a build.
  resolve: {
    alias: [
      { find: /^perdure$/, replacement: source("index.ts") },
      { find: /^perdure\/([a-z]+)$/, replacement: source("$1.ts") },
    ],
  },
  // Node 20 has Symbol.dispose but not the `using` syntax.
  oxc: { target: "node20" },
  test: {
    projects: [
      // Loading the modules anew for each file was half of their time.
      { extends: true, test: { name: "pure", include: PURE, isolate: false } },
      { extends: true, test: { name: "whole", include: ALL, exclude: [...configDefaults.exclude, ...PURE] } },
    ],
    setupFiles: ["packages/perdure/test/property-seed.ts"],
    // By default one core is left idle, which on a machine of two is half of it.
    maxWorkers: "100%",
    // Generous, because machines are shared: no test waits for it, and none is about time.
    testTimeout: 60_000,
    expect: { poll: { timeout: 15_000 } },
  },
});
