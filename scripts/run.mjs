/**
 * What stands behind `npm start`, `npm test` and the other commands of package.json: from a fresh clone to a running command. Each command
 * installs and builds what it needs and is not there (prepare.mjs), then does its job (job.mjs).
 *
 * 1. Until something is installed, only Node's own modules are imported.
 * 2. No install script runs, whether npm is set to ignore them or not: one way, so one thing to test.
 * 3. The exit code is the job's, and a signal reaches the job.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { foreground, isStopping, steps, tool, typeScript } from "./job.mjs";
import { build, install } from "./prepare.mjs";

/** @type {Record<string, { usage: string, run: (args: string[]) => Promise<number> }>} */
const commands = {
  start: { usage: "npm start [-- EXAMPLE] [OPTION…]", run: start },
  test: { usage: "npm test", run: test },
  t: { usage: "npm run t -- FILE", run: testFiles },
  build: { usage: "npm run build", run: async () => (await install()) || (await build()) },
  bench: { usage: "npm run bench -- [NAME] [--check]", run: bench },
  chaos: { usage: "npm run chaos -- N [--seed S] [--broken NAME|all]", run: (args) => campaign("chaos", args) },
  cuts: { usage: "npm run cuts -- N [--seed S] [--broken NAME|all]", run: (args) => campaign("cuts", args) },
  perdure: { usage: "npm run perdure -- COMMAND", run: perdure },
  workday: {
    usage: "npm run workday [-- --turns N] [--kills N] [--seed S]",
    run: (args) => campaign("workday", args),
  },
  hunt: { usage: "npm run hunt -- N [--seed S]", run: hunt },
  conformance: { usage: "npm run conformance -- FOLDER", run: conformance },
  "conformance-others": {
    usage: "npm run conformance-others [-- NAME]",
    run: (args) => campaign("conformance-others", args),
  },
  "front-ends": {
    usage: "npm run front-ends [-- perdure|own]",
    run: (args) => campaign("front-ends", args),
  },
  browser: { usage: "npm run browser", run: browser },
  format: { usage: "npm run format", run: format },
};

/** What runs an example, by its name. */
const examples = {
  "refund-desk": "examples/refund-desk/start.ts",
  hello: "examples/hello/hello.ts",
  "task-board": "examples/task-board/server.ts",
  dojo: "examples/dojo/server.ts",
  "chat-page": "examples/chat-page/server.ts",
};

/** @param {string[]} args */
async function start(args) {
  const isNamed = args[0] !== undefined && !args[0].startsWith("-");
  const [name = "refund-desk", ...options] = isNamed ? args : ["refund-desk", ...args];
  const file = Object.entries(examples).find(([known]) => known === name)?.[1];
  if (file === undefined)
    return complain(`There is no example ${name}. There are: ${Object.keys(examples).join(", ")}.`);
  return (await install()) || (await build()) || (await foreground(typeScript(file, options)));
}

/** All gates, the cheap ones first, then all tests. The first failure ends it. */
async function test() {
  return (
    (await install()) ||
    (await steps({
      "format and lint": tool("@biomejs/biome", "biome", ["ci", "--error-on-warnings"]),
      "lint with types": tool("oxlint", "oxlint", ["--type-aware", "--deny-warnings"]),
      types: tool("typescript", "tsc", ["--project", "."]),
      "types of scripts": tool("typescript", "tsc", ["--project", "scripts"]),
      "arrows between rooms": { command: process.execPath, args: ["scripts/check-arrows.mjs"] },
      "nothing unused": tool("knip", "knip"),
    })) ||
    (await build()) ||
    (await steps({
      "package by publint": tool("publint", "publint", ["run", "packages/perdure", "--strict"]),
      "package by attw": tool("@arethetypeswrong/cli", "attw", ["--profile", "esm-only", "--pack", "packages/perdure"]),
    })) ||
    (await foreground(tool("vitest", "vitest", ["run"])))
  );
}

/** @param {string[]} files */
async function testFiles(files) {
  if (files.length === 0) return complain(`Which test file? ${usage("t")}`);
  return (await install()) || (await foreground(tool("vitest", "vitest", ["run", ...files])));
}

/** @param {string[]} args */
async function bench(args) {
  const all = readdirSync("bench/src").flatMap((file) =>
    file.endsWith(".bench.ts") ? [file.slice(0, -".bench.ts".length)] : [],
  );
  const named = args.filter((arg) => !arg.startsWith("--"));
  const options = args.filter((arg) => arg.startsWith("--"));
  const unknown = named.filter((name) => !all.includes(name));
  if (unknown.length > 0) return complain(`No bench is named ${unknown.join(", ")}. There are: ${all.join(", ")}.`);

  let code = (await install()) || (await build());
  if (code !== 0) return code;
  // A process each, so that none is measured in a heap and with code that another has shaped.
  for (const name of named.length > 0 ? named : all) {
    if (isStopping()) break;
    code = (await foreground(typeScript(`bench/src/${name}.bench.ts`, options))) || code;
  }
  return code;
}

/**
 * @param {string} name
 * @param {string[]} args
 */
async function campaign(name, args) {
  return (await install()) || (await build()) || (await foreground(typeScript(`campaigns/src/${name}.ts`, args)));
}

/**
 * The package's own command, as an installed one would run. Paths are those of where it was called.
 * @param {string[]} args
 */
async function perdure(args) {
  const code = (await install()) || (await build());
  if (code !== 0) return code;
  const file = resolve("packages/perdure/dist/cli.js");
  return await foreground({
    command: process.execPath,
    args: [file, ...args],
    cwd: process.env.INIT_CWD ?? process.cwd(),
  });
}

/**
 * All property tests with N other seeds than the build's, up to the first that finds something.
 * @param {string[]} args
 */
async function hunt(args) {
  const { values, positionals } = parseArgs({ args, options: { seed: { type: "string" } }, allowPositionals: true });
  const rounds = Number(positionals[0]);
  const first = Number(values.seed ?? Date.now() % 1_000_000_000);
  if (!Number.isSafeInteger(rounds) || rounds < 1 || !Number.isSafeInteger(first)) return complain(usage("hunt"));
  let code = await install();
  const properties = readdirSync("packages/perdure/test", { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(".test.ts") && isAboutProperties(`packages/perdure/test/${file}`),
  );
  const run = tool("vitest", "vitest", ["run", "--silent", "--reporter=agent", ...properties]);
  for (let seed = first; code === 0 && !isStopping() && seed < first + rounds; seed++) {
    code = await steps({ [`hunt --seed ${seed}`]: { ...run, env: { PROPERTY_SEED: String(seed), PLAY: "all" } } });
  }
  return code;
}

/** The page in a real browser, which has to be there. In `npm test` it is passed over where there is none. */
async function browser() {
  const page = tool("vitest", "vitest", ["run", "examples/chat-page"]);
  return (await install()) || (await build()) || (await foreground({ ...page, env: { PERDURE_BROWSER: "1" } }));
}

/** @param {string} file */
function isAboutProperties(file) {
  return /\bfc\.|legalStream|play\.ts/.test(readFileSync(file, "utf8"));
}

/** @param {string[]} folders */
async function conformance([folder]) {
  if (folder === undefined) return complain(`Which folder holds the streams? ${usage("conformance")}`);
  const path = resolve(process.env.INIT_CWD ?? process.cwd(), folder);
  if (!existsSync(path)) return complain(`There is no folder ${path}.`);
  const run = tool("vitest", "vitest", ["run", "packages/perdure/test/conformance"]);
  return (await install()) || (await foreground({ ...run, env: { PERDURE_CONFORMANCE_DIR: path } }));
}

async function format() {
  return (await install()) || (await foreground(tool("@biomejs/biome", "biome", ["check", "--write"])));
}

/** @param {string} name */
function usage(name) {
  return `Usage: ${commands[name]?.usage}`;
}

/** @param {string} message */
function complain(message) {
  console.error(message);
  return 2;
}

async function main() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19)) {
    return complain(
      `Perdure needs Node 20.19 or newer, and this is ${process.version}. Node 22 and 24 are fine choices.`,
    );
  }
  process.chdir(fileURLToPath(new URL("../", import.meta.url)));
  const [name = "", ...args] = process.argv.slice(2);
  const command = commands[name];
  if (command === undefined)
    return complain(
      Object.values(commands)
        .map(({ usage }) => usage)
        .join("\n"),
    );
  return command.run(args);
}

process.exitCode = await main();
