import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { breaks, replaced } from "../src/breaks.ts";

it.each(Object.entries(breaks))("the product can still be broken so: %s", (_, { replacements }) => {
  for (const replacement of replacements) {
    const file = fileURLToPath(new URL(`../../packages/perdure/src/${replacement.file}`, import.meta.url));
    const source = readFileSync(file, "utf8");
    expect(replaced(source, replacement)).not.toBe(source);
  }
});
