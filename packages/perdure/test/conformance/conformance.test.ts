/**
 * Runs the official AG-UI 1.1 streams, where they are: in `PERDURE_CONFORMANCE_DIR`, else in `../shared/agui-conformance` beside the
 * repository. They are not ours to ship.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CLIENT_ONLY, FATAL, LEGAL } from "./classes.ts";
import { checkNullCase, checkStream, classOf, type Fixture, findUnsorted, type NullCase } from "./conformance.ts";

const named = process.env.PERDURE_CONFORMANCE_DIR;
const folder = named ?? fileURLToPath(new URL("../../../../../shared/agui-conformance", import.meta.url));

if (existsSync(folder)) {
  describe("the official AG-UI 1.1 streams", () => run(folder));
} else {
  test("the official AG-UI 1.1 streams", ({ skip }) => {
    expect(named, "PERDURE_CONFORMANCE_DIR names a folder that is not there").toBeUndefined();
    skip("the folder ../shared/agui-conformance is not there; name it with PERDURE_CONFORMANCE_DIR");
  });
}

function run(folder: string): void {
  const streams = join(folder, "streams");
  const fixtures = readdirSync(streams)
    .filter((file) => file.endsWith(".json"))
    .map((file) => ({ ...read<Fixture>(join(streams, file)), name: file.slice(0, -".json".length) }));

  test("each is sorted as legal, fatal or client-only, and each class names one", () => {
    expect(findUnsorted(fixtures.map(({ name }) => name))).toEqual([]);
    expect([LEGAL, FATAL, CLIENT_ONLY].map((classes) => Object.keys(classes).length)).toEqual([27, 15, 26]);
  });

  test.each(fixtures)("$name", (fixture) => {
    const kind = classOf(fixture.name);
    expect(kind === undefined ? ["it is in no class"] : checkStream(fixture, kind)).toEqual([]);
  });

  const { stream: nullCases } = read<{ stream: NullCase[] }>(join(folder, "null-omission.json"));

  test("there are cases of null-omission.json", () => {
    expect(nullCases.length).toBeGreaterThan(0);
  });

  test.each(nullCases)("null omission: $name", (nullCase) => {
    expect(checkNullCase(nullCase)).toEqual([]);
  });
}

function read<T>(file: string): T {
  return JSON.parse(readFileSync(file, "utf8")) as T;
}
