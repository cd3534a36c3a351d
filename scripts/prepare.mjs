/** Installs and builds, each only when what is there does not fit what is asked for. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { steps, tool } from "./job.mjs";

/**
 * Installs what package-lock.json says, unless npm's own record of node_modules says the same.
 * @returns {Promise<number>} the exit code
 */
export async function install() {
  if (isInstalled()) return 0;
  const npm = process.env.npm_execpath ?? "";
  const [command, ...before] = npm.endsWith("npm-cli.js") ? [process.execPath, npm] : ["npm"];
  // Naming both kinds keeps NODE_ENV=production, or an "omit" in somebody's own npm settings, from leaving the tools out.
  const args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--include=dev", "--include=optional"];
  return steps({ install: { command, args: [...before, ...args] } });
}

function isInstalled() {
  const wanted = packagesOf("package-lock.json");
  // npm writes its record last, so an install that was cut short has none.
  const present = packagesOf("node_modules/.package-lock.json");
  return Object.entries(wanted).every(([path, { version, integrity, optional }]) => {
    if (!path.includes("node_modules/")) return true;
    const found = present[path];
    // Optional ones may be for another system.
    return found ? found.version === version && found.integrity === integrity && existsSync(path) : optional === true;
  });
}

/**
 * @param {string} lockFile
 * @returns {Record<string, { version?: string, integrity?: string, optional?: boolean }>}
 */
function packagesOf(lockFile) {
  return existsSync(lockFile) ? JSON.parse(readFileSync(lockFile, "utf8")).packages : {};
}

const BUILT = "packages/perdure/dist/index.js";
const BUILT_FROM = "node_modules/.cache/perdure/built-from";
const SOURCES = [
  "packages/perdure/src",
  "packages/perdure/package.json",
  "packages/perdure/tsdown.config.ts",
  "tsconfig.json",
  "package-lock.json",
  "LICENSE",
  "README.md",
];

/**
 * Builds the package, unless it was built from these very sources.
 * @returns {Promise<number>} the exit code
 */
export async function build() {
  const sources = hashOf(SOURCES);
  if (existsSync(BUILT) && existsSync(BUILT_FROM) && readFileSync(BUILT_FROM, "utf8") === sources) return 0;
  rmSync(BUILT_FROM, { force: true });
  const code = await steps({ build: { ...tool("tsdown", "tsdown"), cwd: "packages/perdure" } });
  if (code === 0) {
    mkdirSync(dirname(BUILT_FROM), { recursive: true });
    writeFileSync(BUILT_FROM, sources);
  }
  return code;
}

/** @param {readonly string[]} paths of files and folders; what is missing counts as missing */
function hashOf(paths) {
  const hash = createHash("sha256");
  /** @param {string} path */
  const add = (path) => {
    if (!existsSync(path)) return;
    if (statSync(path).isDirectory()) {
      for (const name of readdirSync(path).sort()) add(join(path, name));
      return;
    }
    const bytes = readFileSync(path);
    hash.update(`${path}\0${bytes.length}\0`).update(bytes);
  };
  for (const path of paths) add(path);
  return hash.digest("hex");
}
