/** The code blocks of a page, as modules: a reader copies them whole, so a test runs them whole. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

export interface Block {
  /** Where it stands, for a test's name: the page and the heading above it. */
  readonly name: string;
  readonly code: string;
  /** The module that was made of it. Ignored by git. */
  readonly file: string;
}

/**
 * Writes each `ts` block of a page to a module of its own.
 *
 * @param page - path from the repository's root
 * @param edit - changes a block before it is written, for example a port
 */
export function blocksOf(page: string, edit: (code: string) => string = (code) => code): Block[] {
  const slug = page.replaceAll(/\W/g, "-");
  const folder = join(ROOT, "docs/.generated", slug);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  let heading = "";
  const text = readFileSync(join(ROOT, page), "utf8");
  return [...text.matchAll(/^#+ ([^\n]*)$|^```ts\n(.*?)^```$/gms)].flatMap(([, title, code]) => {
    heading = title ?? heading;
    if (code === undefined) return [];
    const name = `${page}, ${heading}`;
    const file = join(folder, `${heading.toLowerCase().replaceAll(/\W+/g, "-")}.ts`);
    // A module, also when a block imports and exports nothing.
    writeFileSync(file, `${edit(code)}\nexport {};\n`);
    return [{ name, code, file }];
  });
}
