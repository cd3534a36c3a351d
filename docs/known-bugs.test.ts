import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));
const page = readFileSync(`${root}docs/known-bugs.md`, "utf8");

interface Row {
  readonly seenIn: string;
  readonly property: string;
  readonly tests: readonly { readonly file: string; readonly name: string }[];
}

const rows = page.split("\n").flatMap((line): Row[] => {
  const [, seenIn = "", property = "", tests = ""] = /^\| (.*?) +\| (.*?) +\| (.*?) +\|$/.exec(line) ?? [];
  if (tests === "" || seenIn === "seen in" || /^-+$/.test(seenIn)) return [];
  const named = tests.split("<br>").map((test) => /`([^`]+)` › (.+)$/.exec(test));
  return [{ seenIn, property, tests: named.map((match) => ({ file: match?.[1] ?? "", name: match?.[2] ?? "" })) }];
});

/** The titles of the tests that a file runs, as they stand in its source: those that are left out do not count. */
function titlesIn(file: string): readonly string[] {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  const titles: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && /^(it|test)(\.each\b|$)/.test(node.expression.getText())) {
      const [title] = node.arguments;
      if (title !== undefined && ts.isStringLiteralLike(title)) titles.push(title.text);
    }
    node.forEachChild(visit);
  };
  visit(source);
  return titles;
}

describe("docs/known-bugs.md", () => {
  it("has a row for each bug, once", () => {
    expect(rows.length).toBeGreaterThan(60);
    expect(new Set(rows.map(({ seenIn }) => seenIn)).size).toBe(rows.length);
  });

  it.each(rows)("$seenIn, $property: its tests are there", ({ tests }) => {
    expect(tests).not.toEqual([]);
    for (const { file, name } of tests) {
      const path = [`${root}packages/perdure/test/${file}`, root + file].find((candidate) => existsSync(candidate));
      expect(path, file).toBeDefined();
      expect(titlesIn(path ?? "")).toContain(name);
    }
  });
});
