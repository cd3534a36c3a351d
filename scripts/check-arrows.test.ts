import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { arrowTable, checkArrows } from "./check-arrows.mjs";

const trees: string[] = [];
afterEach(() => {
  for (const tree of trees.splice(0)) rmSync(tree, { recursive: true });
});

/** What the check says about a package of these sources, as "file:line message". */
function check(sources: Record<string, string>): string[] {
  const src = mkdtempSync(join(tmpdir(), "arrows-"));
  trees.push(src);
  for (const [file, text] of Object.entries(sources)) {
    mkdirSync(dirname(join(src, file)), { recursive: true });
    writeFileSync(join(src, file), text);
  }
  return checkArrows(src).map(({ file, line, message }) => `${file}:${line} ${message}`);
}

/** Two files, the first importing the second. */
function arrow(from: string, to: string, how = "import { x } from"): string[] {
  const up = "../".repeat(from.split("/").length - 1) || "./";
  return check({ [from]: `${how} "${up}${to}";\n`, [to]: "export const x = 1;\nexport type X = 1;\n" });
}

describe("arrows between rooms", () => {
  test.each([
    ["emit/context.ts", "protocol/json.ts"],
    ["tool/tool.ts", "protocol/json.ts"],
    ["store/store.ts", "log/entries.ts"],
    ["store/store.ts", "protocol/json.ts"],
    ["client/agent.ts", "log/fold.ts"],
    ["runtime/driver.ts", "emit/context.ts"],
    ["cli/main.ts", "protocol/json.ts"],
    ["http/routes.ts", "store/store.ts"],
    ["testing/run-context.ts", "cli/main.ts"],
    ["testing/crash-matrix.ts", "store/sqlite/store.ts"],
  ])("%s may import %s", (from, to) => {
    expect(arrow(from, to)).toEqual([]);
  });

  test.each([
    ["protocol/json.ts", "emit/context.ts", "protocol → emit is no arrow: protocol may import no other room"],
    ["log/fold.ts", "store/store.ts", "log → store is no arrow: log may import protocol"],
    ["emit/context.ts", "tool/tool.ts", "emit → tool is no arrow: emit may import protocol"],
    ["store/store.ts", "tool/tool.ts", "store → tool is no arrow: store may import log, protocol"],
    ["client/agent.ts", "runtime/driver.ts", "client → runtime is no arrow: client may import protocol, log"],
    [
      "agent/loop.ts",
      "http/routes.ts",
      "agent → http is no arrow: agent may import runtime, emit, protocol, tool, log, store",
    ],
    [
      "runtime/driver.ts",
      "testing/clock.ts",
      "runtime → testing is no arrow: runtime may import emit, protocol, tool, log, store",
    ],
  ])("%s may not import %s", (from, to, message) => {
    expect(arrow(from, to)).toEqual([`${from}:1 ${message}`]);
  });

  test("an arrow of types admits every way to import only types", () => {
    for (const how of [
      "import type { X } from",
      "import { type X } from",
      "export type { X } from",
      "export { type X } from",
    ])
      expect(arrow("tool/tool.ts", "emit/context.ts", how), how).toEqual([]);
    expect(
      check({
        "tool/tool.ts": 'export type Y = import("../emit/context.ts").X;\n',
        "emit/context.ts": "export type X = 1;\n",
      }),
    ).toEqual([]);
  });

  test("an arrow of types admits no value, however it is imported", () => {
    const refusal = 'tool/tool.ts:1 tool → emit is an arrow of types only: write "import type"';
    for (const how of [
      "import { x } from",
      "import { x, type X } from",
      "import * as all from",
      "import",
      "export * from",
      "export { x } from",
    ])
      expect(arrow("tool/tool.ts", "emit/context.ts", how), how).toEqual([refusal]);
  });

  test("a lazy import, a require and a type by import() are imports too", () => {
    const http = { "http/serve.ts": "export type X = 1;\n" };
    const refusal = "runtime → http is no arrow: runtime may import emit, protocol, tool, log, store";
    for (const text of [
      'await import("../http/serve.ts");',
      'require("../http/serve.ts");',
      'type Y = import("../http/serve.ts").X;',
    ])
      expect(check({ "runtime/driver.ts": `export {};\n\n${text}\n`, ...http }), text).toEqual([
        `runtime/driver.ts:3 ${refusal}`,
      ]);
  });

  test("an import spelled without its extension, or as .js, is still seen", () => {
    for (const name of ["../http/serve", "../http/serve.js"])
      expect(check({ "log/fold.ts": `import "${name}";\n`, "http/serve.ts": "" })).toEqual([
        "log/fold.ts:1 log → http is no arrow: log may import protocol",
      ]);
  });

  test("what looks like an import in a comment or a string is none", () => {
    expect(
      check({
        "log/fold.ts": '// import "../http/serve.ts";\nexport const text = `import "../http/serve.ts"`;\n',
        "http/serve.ts": "",
      }),
    ).toEqual([]);
  });

  test("a folder that the table does not know is no room", () => {
    expect(check({ "utils/misc.ts": "" })).toEqual([
      `utils/misc.ts:1 no room is named "utils"; a new one needs its arrows in the table`,
    ]);
  });

  test("an import that leaves the sources is refused", () => {
    expect(check({ "emit/context.ts": 'import "../../package.json";\n' })).toEqual([
      'emit/context.ts:1 "../../package.json" is no source file of this package',
    ]);
  });
});

describe("the store's face", () => {
  test("a room sees the interface, not an implementation", () => {
    expect(arrow("runtime/driver.ts", "store/sqlite/store.ts", "import type { X } from")).toEqual([
      "runtime/driver.ts:1 runtime → store/sqlite/store.ts is not allowed: of store, other rooms see store/store.ts, store/errors.ts",
    ]);
  });

  test("a door names an implementation", () => {
    expect(arrow("sqlite.ts", "store/sqlite/store.ts", "export { x } from")).toEqual([]);
  });
});

describe("pure rooms", () => {
  test.each(["protocol", "tool", "log"])("%s imports no Node module and no package that does I/O", (room) => {
    for (const name of ["node:crypto", "fs", "hono", "@hono/node-server", "pg", "@photostructure/sqlite"])
      expect(check({ [`${room}/file.ts`]: `import type {} from "${name}";\n` })).toEqual([
        expect.stringContaining(`${room}/file.ts:1 ${room} → "${name}" is not allowed: protocol, tool, log do no I/O`),
      ]);
  });

  test("a package without I/O is welcome, also by a subpath", () => {
    expect(check({ "protocol/file.ts": 'import "@ag-ui/core/schemas";\nimport "typebox/schema";\n' })).toEqual([]);
  });

  test("other rooms may import Node", () => {
    expect(check({ "http/serve.ts": 'import "node:http";\n' })).toEqual([]);
  });
});

describe("doors", () => {
  test("a door may re-export from every room", () => {
    const rooms = ["protocol", "testing", "store", "cli"];
    const files = Object.fromEntries(rooms.map((room) => [`${room}/file.ts`, "export const x = 1;\n"]));
    expect(
      check({
        ...files,
        "index.ts": rooms.map((room) => `export { x as ${room} } from "./${room}/file.ts";\n`).join(""),
      }),
    ).toEqual([]);
  });

  test("a door holds no code", () => {
    const text = [
      'import { x } from "./log/fold.ts";',
      'export * from "./log/fold.ts";',
      "export const y = x;",
      "export { y as z };",
    ].join("\n");
    const refusal = "a door holds nothing but re-exports";
    expect(check({ "index.ts": text, "log/fold.ts": "export const x = 1;\n" })).toEqual(
      [1, 3, 4].map((line) => `index.ts:${line} ${refusal}`),
    );
  });

  test("no room imports a door, not even testing, not even by the published name", () => {
    expect(arrow("testing/clock.ts", "index.ts", "export * from")).toEqual([
      "index.ts:1 a door holds nothing but re-exports",
      "index.ts:2 a door holds nothing but re-exports",
      "testing/clock.ts:1 testing → index.ts is not allowed: no room imports a door; import the file that the door names",
    ]);
    expect(check({ "testing/clock.ts": 'import "perdure/protocol";\n' })).toEqual([
      `testing/clock.ts:1 "perdure/protocol" is this package's own door; import the file that the door names`,
    ]);
  });
});

describe("cycles", () => {
  test("files that import each other in a ring are named with the ring", () => {
    expect(
      check({
        "log/a.ts": 'import "./b.ts";\n',
        "log/b.ts": '\nimport "./c.ts";\n',
        "log/c.ts": 'import type {} from "./a.ts";\n',
      }),
    ).toEqual(["log/c.ts:1 a cycle of imports: log/a.ts → log/b.ts → log/c.ts → log/a.ts"]);
  });

  test("a file that imports itself is a cycle", () => {
    expect(check({ "log/a.ts": 'import "./a.ts";\n' })).toEqual(["log/a.ts:1 a cycle of imports: log/a.ts → log/a.ts"]);
  });

  test("two ways to one file are no cycle", () => {
    expect(
      check({ "log/a.ts": 'import "./b.ts";\nimport "./c.ts";\n', "log/b.ts": 'import "./c.ts";\n', "log/c.ts": "" }),
    ).toEqual([]);
  });
});

test("the table shows each room with all it may import", () => {
  expect(arrowTable()).toBe(
    [
      "  protocol → no other room",
      "  emit     → protocol",
      "  tool     → protocol, emit (types only)",
      "  log      → protocol",
      "  store    → log, protocol",
      "  client   → protocol, log",
      "  producer → tool, protocol, emit (types only), log",
      "  runtime  → emit, protocol, tool, log, store",
      "  agent    → runtime, emit, protocol, tool, log, store",
      "  http     → agent, runtime, emit, protocol, tool, log, store",
      "  cli      → http, agent, runtime, emit, protocol, tool, log, store, producer",
      "  testing  → everything",
    ].join("\n"),
  );
});
