/**
 * A process to be killed: it drives ten runs over a SQLite file, each appending batches of three entries that carry the batch's number, and tells
 * its parent each batch that was acknowledged. It never ends by itself.
 */
import { writeSync } from "node:fs";
import { sqlite } from "../../src/store/sqlite.ts";
import { begin, delta, memo } from "./builders.ts";

const [file = "", durability] = process.argv.slice(2);
const store = sqlite(file, { durability: durability === "process" ? durability : "power" });
await store.open("child");
writeSync(1, "open\n");
await Promise.all(
  Array.from({ length: 10 }, async (_, i) => {
    const lease = await begin(store, `k${i}`);
    for (let n = 0; ; n++) {
      const done = await store.append(lease, { entries: [memo(n), delta(String(n)), memo(n)] });
      if (done.is === "appended") writeSync(1, `${lease.uid} ${n} ${done.head}\n`);
    }
  }),
);
