#!/usr/bin/env node
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import { perdure } from "./program.ts";

const stop = new AbortController();
process.once("SIGINT", () => stop.abort());
// Whoever reads the report may have read enough, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

process.exitCode = await perdure(process.argv.slice(2), {
  output: {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    isColoured: process.stdout.isTTY === true && !process.env.NO_COLOR && process.env.TERM !== "dumb",
  },
  env: process.env,
  version: version(),
  stop: stop.signal,
});

/** The package's manifest stands beside `dist`, and above the sources. */
function version(): string {
  const places = ["../package.json", "../../package.json"].map((path) => new URL(path, import.meta.url));
  const manifest = places.find((place) => existsSync(place));
  return manifest === undefined
    ? "unknown"
    : (JSON.parse(readFileSync(manifest, "utf8")) as { version: string }).version;
}
