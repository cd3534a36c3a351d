import { sqlite } from "../../src/store/sqlite.ts";
import { storeConformance } from "./conformance.ts";
import { folder } from "./folder.ts";

storeConformance("sqlite()", async () => {
  const { file, remove } = await folder();
  return { open: (options) => sqlite(file, options), dispose: remove };
});
