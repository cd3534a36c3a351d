/** Who is above a run, and how deep children may go. */
import type { RecordedError, Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";

/** How many runs may stand one above the other. */
const DEEPEST = 8;

/** The runs above one, its parent first. */
export async function ancestors(store: EventStore, parent: Uid | undefined): Promise<readonly Run[]> {
  const found: Run[] = [];
  for (let uid = parent; uid !== undefined; ) {
    const run = await store.run(uid);
    if (run === null) break;
    found.push(run);
    uid = run.parent?.uid;
  }
  return found;
}

/** Why a run may not have a child of this agent; undefined where it may. */
export async function childRefusal(
  store: EventStore,
  run: { readonly uid: Uid; readonly agent: string; readonly parent?: { readonly uid: Uid } },
  agent: string,
): Promise<RecordedError | undefined> {
  const above = [run.agent, ...(await ancestors(store, run.parent?.uid)).map((one) => one.agent)];
  const chain = [...above.toReversed(), agent].map((name) => `"${name}"`).join(" → ");
  if (above.includes(agent)) {
    return {
      code: "SUBAGENT_RECURSION",
      message: `agent "${agent}" is at work above already (${chain}): nothing was begun; do it without that agent`,
    };
  }
  if (above.length < DEEPEST) return undefined;
  return {
    code: "SUBAGENT_DEPTH",
    message: `agents may call each other ${DEEPEST} deep, and this would be one more (${chain}): nothing was begun`,
  };
}
