import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A folder of its own for a store's files. */
export async function folder(): Promise<{ dir: string; file: string; remove: () => Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), "perdure-store-"));
  return { dir, file: join(dir, "test.db"), remove: () => rm(dir, { recursive: true, force: true }) };
}
