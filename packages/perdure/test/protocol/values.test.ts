import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { canonicalJson } from "../../src/protocol/canonical.ts";
import { parseDuration } from "../../src/protocol/duration.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Duration } from "../../src/protocol/words.ts";

describe("a duration", () => {
  test.each<[Duration, number]>([
    [0, 0],
    [1.4, 1],
    ["250ms", 250],
    ["30s", 30_000],
    ["1.5s", 1_500],
    ["15m", 900_000],
    ["1h", 3_600_000],
    ["2d", 172_800_000],
  ])("%j is %i ms", (duration, ms) => {
    expect(parseDuration(duration)).toBe(ms);
  });

  test.each([
    "",
    "30",
    "s",
    "-1s",
    "1e3s",
    " 1s",
    "1 s",
    "1w",
    "0x1s",
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    `${"1".repeat(400)}d`,
    null,
    {},
    "1s\n",
  ])("%j is none, and the error names it and what would be one", (duration) => {
    expect(() => parseDuration(duration as Duration, "timeout of tool `t`")).toThrow(
      expect.objectContaining({
        code: "DURATION_INVALID",
        message: expect.stringMatching(/^timeout of tool `t` is .*"30s"/),
      }),
    );
  });
});

describe("canonical JSON", () => {
  test("is the same for equal values, and reads back as the value", () => {
    const shuffled = (value: Json): Json =>
      Array.isArray(value)
        ? value.map(shuffled)
        : typeof value === "object" && value !== null
          ? Object.fromEntries(
              Object.entries(value)
                .reverse()
                .map(([key, member]) => [key, shuffled(member)]),
            )
          : value;
    const json = fc.jsonValue({ stringUnit: "grapheme" }).map((value) => value as Json);
    fc.assert(
      fc.property(json, (value) => {
        expect(canonicalJson(shuffled(value))).toBe(canonicalJson(value));
        expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  test("follows RFC 8785: keys by UTF-16 unit, numbers as ECMAScript writes them", () => {
    expect(canonicalJson({ "\u20ac": 1, "\r": 2, "1": 3, "😀": 4, "\ufb33": 5, ö: 6 })).toBe(
      '{"\\r":2,"1":3,"ö":6,"€":1,"😀":4,"\ufb33":5}',
    );
    expect(canonicalJson([1e30, 4.5, 2e-3, 1e-27, -0])).toBe("[1e+30,4.5,0.002,1e-27,0]");
  });

  test("has U+FFFD for a lone surrogate, in texts and keys, and keeps pairs", () => {
    expect(canonicalJson({ "k\udc00": ["\ud83d", "\ud83d\ude00", "\ude00\ud83d"] })).toBe(
      '{"k\ufffd":["\ufffd","😀","\ufffd\ufffd"]}',
    );
  });
});
