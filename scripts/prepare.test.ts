import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

const PREPARE = JSON.stringify(pathToFileURL(`${import.meta.dirname}/prepare.mjs`).href);

let tree: string;
beforeEach(() => {
  tree = mkdtempSync(join(tmpdir(), "prepare-"));
});
afterEach(() => {
  rmSync(tree, { recursive: true });
});

function write(file: string, content: unknown): void {
  mkdirSync(dirname(join(tree, file)), { recursive: true });
  writeFileSync(join(tree, file), typeof content === "string" ? content : JSON.stringify(content));
}

/** A program that writes its arguments where {@link called} finds them, then does `more`. */
const recording = (more = "") =>
  `require("node:fs").appendFileSync(${JSON.stringify(join(tree, "calls"))}, process.argv.slice(2).join(" ") + "\\n"); ${more}`;

/** Calls `install` or `build` in the tree, and says what was run for it since the last time. */
function called(name: "install" | "build"): string[] {
  const code = `process.exitCode = await (await import(${PREPARE})).${name}();`;
  const env = { ...process.env, npm_execpath: join(tree, "npm-cli.js") };
  execFileSync(process.execPath, ["--input-type=module", "-e", code], { cwd: tree, env, stdio: "pipe" });
  const calls = existsSync(join(tree, "calls")) ? readFileSync(join(tree, "calls"), "utf8").trim().split("\n") : [];
  rmSync(join(tree, "calls"), { force: true });
  return calls;
}

describe("install", () => {
  const CI = "ci --ignore-scripts --no-audit --no-fund --include=dev --include=optional";
  const wanted = {
    "": { name: "workspace" },
    "packages/a": { version: "1.0.0" },
    "node_modules/a": { resolved: "packages/a", link: true },
    "node_modules/b": { version: "1.0.0", integrity: "sha512-b" },
    "node_modules/elsewhere": { version: "1.0.0", integrity: "sha512-e", optional: true },
  };
  const { "node_modules/elsewhere": _, ...present } = wanted;
  beforeEach(() => {
    write("npm-cli.js", recording());
    write("package-lock.json", { packages: wanted });
    write("node_modules/.package-lock.json", { packages: present });
    write("node_modules/a/package.json", {});
    write("node_modules/b/package.json", {});
  });

  test("nothing happens when npm's record says what the lock file says, less what is optional", () => {
    expect(called("install")).toEqual([]);
  });

  test("a fresh clone is installed by the lock file, without scripts and whatever is to be omitted", () => {
    rmSync(join(tree, "node_modules"), { recursive: true });
    expect(called("install")).toEqual([CI]);
  });

  test("an install that was cut short, so without npm's record, is done again", () => {
    rmSync(join(tree, "node_modules/.package-lock.json"));
    expect(called("install")).toEqual([CI]);
  });

  test.each([
    ["another version", { version: "1.0.1", integrity: "sha512-b" }],
    ["other contents", { version: "1.0.0", integrity: "sha512-c" }],
    ["nothing", undefined],
  ])("a package of which %s is there is installed", (_, b) => {
    write("node_modules/.package-lock.json", { packages: { ...present, "node_modules/b": b } });
    expect(called("install")).toEqual([CI]);
  });

  test("a package that was deleted by hand is installed", () => {
    rmSync(join(tree, "node_modules/b"), { recursive: true });
    expect(called("install")).toEqual([CI]);
  });
});

describe("build", () => {
  const emits = `require("node:fs").mkdirSync("dist", { recursive: true }); require("node:fs").writeFileSync("dist/index.js", "");`;
  beforeEach(() => {
    write("node_modules/tsdown/package.json", { bin: { tsdown: "run.js" } });
    write("node_modules/tsdown/run.js", recording(emits));
    write("packages/perdure/src/index.ts", "export {};");
    write("packages/perdure/src/log/fold.ts", "export {};");
    expect(called("build")).toEqual([""]);
  });

  test("what was built from these sources is not built again", () => {
    expect(called("build")).toEqual([]);
  });

  test("what changes the package is built: a source, a new one, its description, its README, its dependencies", () => {
    for (const file of [
      "src/log/fold.ts",
      "src/new.ts",
      "package.json",
      "../../README.md",
      "../../package-lock.json",
    ]) {
      write(join("packages/perdure", file), "changed");
      expect(called("build"), file).toEqual([""]);
    }
  });

  test("a source that is gone is built away", () => {
    rmSync(join(tree, "packages/perdure/src/log/fold.ts"));
    expect(called("build")).toEqual([""]);
  });

  test("a deleted build is built", () => {
    rmSync(join(tree, "packages/perdure/dist"), { recursive: true });
    expect(called("build")).toEqual([""]);
  });

  test("a build that failed is tried again, also when it left files behind", () => {
    write("packages/perdure/src/index.ts", "broken");
    write("node_modules/tsdown/run.js", recording(`${emits} process.exitCode = 1;`));
    expect(() => called("build")).toThrow();
    write("packages/perdure/src/index.ts", "export {};");
    write("node_modules/tsdown/run.js", recording(emits));
    rmSync(join(tree, "calls"));
    expect(called("build")).toEqual([""]);
  });
});
