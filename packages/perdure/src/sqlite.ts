// Runs in one file, for one process.
export { type SqliteOptions, sqlite } from "./store/sqlite.ts";
