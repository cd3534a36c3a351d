/**
 * Holds the arrows between the rooms of packages/perdure/src. It owns the table below and nothing else: whether a name exists or a type fits is
 * the compiler's business, and tests, examples and benches may import what they like.
 *
 * 1. A room imports itself and the rooms that an arrow allows; arrows are transitive, and one arrow of types makes a path of types.
 * 2. Of a room with a face, other rooms see the face alone. (The store's is its interface; an implementation enters by a door, or a test.)
 * 3. A pure room imports no package but those listed as pure, not even a type: it also runs in a browser.
 * 4. A door, which is a file at the top of src, holds nothing but re-exports. It may name any room; no room imports a door.
 * 5. No cycle of imports between files. Imports of types count: files that need each other to be understood are one file, or lack a third.
 */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import ts from "typescript";

/** @typedef {"all" | "types"} Extent */

/**
 * What each room imports directly.
 * @type {Record<string, Record<string, Extent>>}
 */
const ARROWS = {
  protocol: {},
  emit: { protocol: "all" },
  tool: { protocol: "all", emit: "types" },
  log: { protocol: "all" },
  store: { log: "all" },
  client: { protocol: "all", log: "all" },
  producer: { tool: "all", log: "all" },
  runtime: { emit: "all", tool: "all", log: "all", store: "all" },
  agent: { runtime: "all" },
  http: { agent: "all" },
  cli: { http: "all", producer: "all" },
};
/** May import every room, implementations too; nothing but a door imports it. */
const TESTING = "testing";

/** @type {Record<string, readonly string[]>} */
const FACES = { store: ["store/store.ts", "store/errors.ts"] };
/** What composes chooses among implementations: a runtime for whoever gives it none, and the command for a file that it is named. */
const COMPOSERS = ["http/create-runtime.ts", "cli/file-access.ts"];

const PURE_ROOMS = ["protocol", "tool", "log"];
const PURE_PACKAGES = ["@ag-ui/core", "@standard-schema/spec", "canonicalize", "mutative", "typebox", "uuidv7", "zod"];

/**
 * One import, re-export, `import()`, `require()` or `import("…")` type.
 * @typedef {{ specifier: string, line: number, typesOnly: boolean }} Import
 * @typedef {{ file: string, line: number, message: string }} Violation `file` is relative to src, with "/".
 */

/**
 * Checks all rooms and doors under `src`.
 * @param {string} src
 * @returns {Violation[]} in the order of the files, then of their lines; empty when every arrow holds
 */
export function checkArrows(src) {
  const files = sourceFiles(src);
  /** @type {Violation[]} */
  const violations = [];
  /** @type {Map<string, { to: string, line: number }[]>} */
  const graph = new Map();

  for (const file of files) {
    const source = ts.createSourceFile(file, readFileSync(join(src, file), "utf8"), ts.ScriptTarget.Latest, true);
    /** @type {{ to: string, line: number }[]} */
    const edges = [];
    graph.set(file, edges);
    const room = roomOf(file);
    /** @param {number} line @param {string} message */
    const report = (line, message) => violations.push({ file, line, message });

    if (room === null) {
      for (const line of statementsThatAreNoReExport(source)) report(line, "a door holds nothing but re-exports");
    } else if (!isRoom(room)) {
      report(1, `no room is named "${room}"; a new one needs its arrows in the table`);
      continue;
    }
    for (const { specifier, line, typesOnly } of importsOf(source)) {
      if (!specifier.startsWith(".")) {
        const refusal = refusePackage(room, specifier);
        if (refusal) report(line, refusal);
        continue;
      }
      const target = resolveImport(src, file, specifier);
      if (target === null) {
        report(line, `"${specifier}" is no source file of this package`);
        continue;
      }
      edges.push({ to: target, line });
      const refusal = room === null ? null : refuseArrow(file, room, target, typesOnly);
      if (refusal) report(line, refusal);
    }
  }
  violations.push(...cycles(graph));
  return violations.sort((a, b) => a.file.localeCompare(b.file) || a.line - b.line);
}

/** The arrows as text, one room a line. */
export function arrowTable() {
  const width = Math.max(...Object.keys(ARROWS).map((room) => room.length));
  const rows = Object.keys(ARROWS).map((room) => `  ${room.padEnd(width)} → ${describe(reach(room))}`);
  return [...rows, `  ${TESTING.padEnd(width)} → everything`].join("\n");
}

/**
 * Every room that `room` may import, and how much of it.
 * @param {string} room
 * @returns {Map<string, Extent>}
 */
function reach(room) {
  /** @type {Map<string, Extent>} */
  const reached = new Map();
  /** @param {string} from @param {Extent} extent */
  const walk = (from, extent) => {
    for (const [to, arrow] of Object.entries(ARROWS[from] ?? {})) {
      const through = extent === "types" ? "types" : arrow;
      if (reached.get(to) === "all" || reached.get(to) === through) continue;
      reached.set(to, through);
      walk(to, through);
    }
  };
  walk(room, "all");
  return reached;
}

/**
 * @param {string} file
 * @param {string} room
 * @param {string} target
 * @param {boolean} typesOnly
 */
function refuseArrow(file, room, target, typesOnly) {
  const other = roomOf(target);
  if (other === room) return null;
  if (other === null)
    return `${room} → ${target} is not allowed: no room imports a door; import the file that the door names`;
  if (room === TESTING) return null;
  const reachable = reach(room);
  const extent = reachable.get(other);
  const face = FACES[other];
  if (extent === undefined) return `${room} → ${other} is no arrow: ${room} may import ${describe(reachable)}`;
  if (extent === "types" && !typesOnly) return `${room} → ${other} is an arrow of types only: write "import type"`;
  if (face && !face.includes(target) && !COMPOSERS.includes(file))
    return `${room} → ${target} is not allowed: of ${other}, other rooms see ${face.join(", ")}`;
  return null;
}

/**
 * @param {string | null} room
 * @param {string} specifier
 */
function refusePackage(room, specifier) {
  const name = specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
  if (name === "perdure") return `"${specifier}" is this package's own door; import the file that the door names`;
  if (room === null || !PURE_ROOMS.includes(room) || PURE_PACKAGES.includes(name)) return null;
  return `${room} → "${specifier}" is not allowed: ${PURE_ROOMS.join(", ")} do no I/O and import only ${PURE_PACKAGES.join(", ")}`;
}

/** @param {ReadonlyMap<string, Extent>} reachable */
function describe(reachable) {
  const rooms = [...reachable].map(([room, extent]) => (extent === "types" ? `${room} (types only)` : room));
  return rooms.join(", ") || "no other room";
}

/** @param {string} room */
function isRoom(room) {
  return room === TESTING || Object.hasOwn(ARROWS, room);
}

/**
 * The folder directly under src, or null for a door.
 * @param {string} file
 */
function roomOf(file) {
  const [first, ...rest] = file.split("/");
  return rest.length === 0 || first === undefined ? null : first;
}

/** @param {string} src */
function sourceFiles(src) {
  return readdirSync(src, { recursive: true, encoding: "utf8" })
    .map((path) => path.split(sep).join("/"))
    .filter((path) => /\.[cm]?[jt]sx?$/.test(path) && statSync(join(src, path)).isFile())
    .sort();
}

/**
 * @param {string} src
 * @param {string} file
 * @param {string} specifier
 */
function resolveImport(src, file, specifier) {
  const path = resolve(src, dirname(file), specifier);
  for (const candidate of [path, path.replace(/\.js$/, ".ts"), `${path}.ts`, join(path, "index.ts")]) {
    const inside = relative(src, candidate).split(sep).join("/");
    if (!inside.startsWith("../") && existsSync(candidate) && statSync(candidate).isFile()) return inside;
  }
  return null;
}

/**
 * @param {ts.SourceFile} source
 * @returns {Import[]}
 */
function importsOf(source) {
  /** @type {Import[]} */
  const found = [];
  /** @param {ts.Node | undefined} specifier @param {boolean} typesOnly */
  const add = (specifier, typesOnly) => {
    if (specifier && ts.isStringLiteralLike(specifier))
      found.push({ specifier: specifier.text, line: lineOf(source, specifier), typesOnly });
  };
  /** @param {ts.Node} node */
  const visit = (node) => {
    if (ts.isImportDeclaration(node)) {
      const clause = node.importClause;
      const named = clause?.namedBindings;
      const eachIsType =
        !clause?.name &&
        named !== undefined &&
        ts.isNamedImports(named) &&
        named.elements.length > 0 &&
        named.elements.every((e) => e.isTypeOnly);
      add(node.moduleSpecifier, clause?.phaseModifier === ts.SyntaxKind.TypeKeyword || eachIsType);
    } else if (ts.isExportDeclaration(node)) {
      const named = node.exportClause;
      const eachIsType =
        named !== undefined &&
        ts.isNamedExports(named) &&
        named.elements.length > 0 &&
        named.elements.every((e) => e.isTypeOnly);
      add(node.moduleSpecifier, node.isTypeOnly || eachIsType);
    } else if (ts.isImportEqualsDeclaration(node) && ts.isExternalModuleReference(node.moduleReference)) {
      add(node.moduleReference.expression, node.isTypeOnly);
    } else if (ts.isImportTypeNode(node)) {
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true);
    } else if (
      ts.isCallExpression(node) &&
      (node.expression.kind === ts.SyntaxKind.ImportKeyword || node.expression.getText() === "require")
    ) {
      add(node.arguments[0], false);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** @param {ts.SourceFile} source */
function statementsThatAreNoReExport(source) {
  return source.statements
    .filter((s) => !(ts.isExportDeclaration(s) && s.moduleSpecifier))
    .map((s) => lineOf(source, s));
}

/**
 * @param {ts.SourceFile} source
 * @param {ts.Node} node
 */
function lineOf(source, node) {
  return source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
}

/**
 * One violation for each cycle that a walk meets, at the import that closes it.
 * @param {ReadonlyMap<string, readonly { to: string, line: number }[]>} graph
 */
function cycles(graph) {
  /** @type {Violation[]} */
  const found = [];
  /** @type {Set<string>} */
  const done = new Set();
  /** @type {string[]} */
  const path = [];
  /** @param {string} file */
  const walk = (file) => {
    path.push(file);
    for (const { to, line } of graph.get(file) ?? []) {
      const start = path.indexOf(to);
      if (start >= 0)
        found.push({ file, line, message: `a cycle of imports: ${[...path.slice(start), to].join(" → ")}` });
      else if (!done.has(to)) walk(to);
    }
    path.pop();
    done.add(file);
  };
  for (const file of graph.keys()) if (!done.has(file)) walk(file);
  return found;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const src = fileURLToPath(new URL("../packages/perdure/src/", import.meta.url));
  const violations = checkArrows(src);
  const shown = relative(process.cwd(), src).split(sep).join("/");
  for (const { file, line, message } of violations) console.error(`${shown}/${file}:${line}: ${message}`);
  if (violations.length > 0) {
    console.error(`\nThe arrows (a room → what it may import):\n${arrowTable()}`);
    process.exitCode = 1;
  }
}
