import { memory } from "../../src/store/memory.ts";
import type { EventStore } from "../../src/store/store.ts";
import { storeConformance } from "./conformance.ts";

storeConformance("memory()", async () => {
  let store: EventStore | null = null;
  return {
    open(options) {
      store ??= memory(options);
      return store;
    },
    async dispose() {},
  };
});
