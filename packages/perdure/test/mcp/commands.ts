/** How the published servers are started, as they stand in node_modules. */
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const require = createRequire(import.meta.url);

function node(name: string, ...args: readonly string[]) {
  const entry = join(dirname(require.resolve(`@modelcontextprotocol/${name}/package.json`)), "dist/index.js");
  return { command: process.execPath, args: [entry, ...args] };
}

export const filesystem = (dir: string) => node("server-filesystem", dir);
export const everything = node("server-everything");
export const memory = (file: string) => ({ ...node("server-memory"), env: { MEMORY_FILE_PATH: file } });
