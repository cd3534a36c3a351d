/** A process to be killed: it ends 200 runs, each of 20 facts and 40 frames, and then prunes one after the other, telling its parent of each. */
import { writeSync } from "node:fs";
import { sqlite } from "../../src/store/sqlite.ts";
import { begin, delta, legFinished, memo, parked, runFinished } from "./builders.ts";
import { transcript } from "./pruning.ts";

const [file = ""] = process.argv.slice(2);
const store = sqlite(file);
await store.open("child");
const runs = await Promise.all(
  Array.from({ length: 200 }, async (_, i) => {
    const lease = await begin(store, `k${i}`);
    const entries = Array.from({ length: 20 }, (__, n) => [memo(n), delta("a"), delta("b")]).flat();
    const ended = await store.append(lease, { entries: [...entries, legFinished(1), runFinished], ends: parked });
    return { uid: lease.uid, head: ended.is === "appended" ? ended.head : -1 };
  }),
);
writeSync(1, "ready\n");
for (const { uid, head } of runs) writeSync(1, `${uid} ${await store.prune(uid, head, transcript)}\n`);
