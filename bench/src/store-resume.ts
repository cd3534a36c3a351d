/**
 * `prepare FILE`: leaves a run of 10,000 entries behind, cut in the middle of a model's answer. `resume FILE`: opens it, and says how long it took
 * from the end of all imports until the store was open, and until the run's next attempt was in the log.
 */
import process from "node:process";
import { agent, createRuntime } from "perdure";
import { sqlite } from "perdure/sqlite";
import { scriptedModel } from "perdure/testing";
import { begin, streaming } from "./store-runs.ts";

const ENTRIES = 10_000;
const RUN = "01a22964-cff9-77bc-aff2-3d3eeb1c6b77";
const [what, file = ""] = process.argv.slice(2);
const store = sqlite(file);

if (what === "prepare") {
  await store.open("bench");
  const entries = streaming(RUN, ENTRIES - 6);
  const lease = await begin(store, RUN);
  for (let i = 0; i < entries.length; i += 100) await store.append(lease, { entries: entries.slice(i, i + 100) });
  process.exit(0); // as a crash does, without closing
}

const talker = agent({ name: "talker", model: scriptedModel(() => ({ text: "Again." })) });
const begun = performance.now();
const runtime = createRuntime({ agents: [talker], store });
await runtime.open();
const open = performance.now() - begun;
const uid = RUN as Parameters<typeof store.run>[0];
while (((await store.run(uid))?.head ?? 0) < ENTRIES) await new Promise((resolve) => setImmediate(resolve));
console.log(JSON.stringify({ open, resume: performance.now() - begun }));
await runtime.close();
