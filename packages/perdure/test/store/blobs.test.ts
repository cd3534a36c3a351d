import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Json } from "../../src/protocol/json.ts";
import { BLOB_BYTES, BlobFault, pack, unpack } from "../../src/store/blobs.ts";
import { largeJson } from "./large-values.ts";

const bytes = (text: string): number => Buffer.byteLength(text);
const packed = (value: Json) => pack(JSON.stringify(value), () => value);
/** A stored text without the list of places. */
const bodyOf = (text: string): string => text.split("\n", 1)[0] ?? "";

describe("what is taken apart", () => {
  test("is put together exactly, from parts of which only strings are over the limit by themselves", () => {
    fc.assert(
      fc.property(largeJson, (value) => {
        const { text, blobs } = packed(value);
        const kept = new Map(blobs.map((blob) => [blob.hash, blob.text]));
        expect(unpack(text, (hash) => kept.get(hash) ?? null)).toEqual(value);
        expect(bytes(bodyOf(text))).toBeLessThanOrEqual(BLOB_BYTES);
        expect(blobs.length === 0).toBe(bytes(JSON.stringify(value)) <= BLOB_BYTES);
        for (const blob of blobs) expect(bytes(blob.text)).toBeGreaterThan(BLOB_BYTES);
      }),
      { numRuns: 100 },
    );
  });

  test("shares its large parts, wherever they stand", () => {
    const large = "x".repeat(BLOB_BYTES);
    const [one, two] = [packed({ a: large, b: [large] }), packed([{ deep: { large } }])];
    expect(new Set([...one.blobs, ...two.blobs].map(({ hash }) => hash)).size).toBe(1);
    expect(bytes(one.text) + bytes(two.text)).toBeLessThan(500);
  });

  test("that looks like what we write is nothing but a value", () => {
    const value = { text: `null\n[["hash"]]${"x".repeat(BLOB_BYTES)}`, list: [["hash", "text"]] };
    const { text, blobs } = packed(value);
    expect(unpack(text, (hash) => blobs.find((blob) => blob.hash === hash)?.text ?? null)).toEqual(value);
  });
});

describe("a fault has its place", () => {
  const value = { "a/b": ["x".repeat(BLOB_BYTES)] };
  const { text, blobs } = packed(value);
  const [blob] = blobs;
  const fault = (stored: string, found: string | null): BlobFault => {
    try {
      unpack(stored, () => found);
    } catch (error) {
      if (error instanceof BlobFault) return error;
      throw error;
    }
    throw new Error("it was put together");
  };
  test.each([
    ["missing", text, null, "is missing"],
    ["altered", text, `${blob?.text.slice(0, -2)}y"`, "not what its hash says"],
    ["without a place", `{}\n${text.split("\n")[1]}`, blob?.text ?? null, "no place"],
  ])("%s", (_, stored, found, why) => {
    expect(fault(stored, found)).toMatchObject({ where: "/a~1b/0", why: expect.stringContaining(why) });
  });
  test("a list of places that is none", () => {
    expect(fault(`${bodyOf(text)}\n[7]`, null).why).toContain("unreadable");
    expect(fault(`${bodyOf(text)}\n{`, null).why).toContain("not JSON");
  });
});
