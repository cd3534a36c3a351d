import { env } from "node:process";
import fc from "fast-check";
import fastJsonPatch from "fast-json-patch";
import { expect, test } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { Folding } from "../../src/log/fold.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Patch } from "../../src/protocol/patch.ts";
import { cases } from "../random-cases.ts";
import { type Board, labelsIn, type Played, type Program, play, program } from "./parallel-programs.ts";

/** `PROGRAMS=4000 npm run t -- packages/perdure/test/runtime/parallel-state.test.ts` plays more. One takes about 15 ms. */
const PROGRAMS = Number(env.PROGRAMS ?? cases(1_000, 4_000));

/** A client: it applies the STATE frames with the stock client's own applier. */
class Client {
  #state: unknown = {};

  get state(): Json {
    return this.#state as Json;
  }

  sees(event: ReturnType<Folding["add"]>): void {
    if (event?.type === "STATE_SNAPSHOT") this.#state = structuredClone(event.snapshot);
    if (event?.type === "STATE_DELTA") this.#state = patched(this.#state, event.delta);
  }
}

function patched(state: unknown, patch: Patch): unknown {
  return fastJsonPatch.applyPatch(state, structuredClone(patch) as never, true, false).newDocument;
}

/** The patch that a fact carries. */
function patchOf(entry: Entry): Patch {
  if (entry.kind === "state" || entry.kind === "interrupt.opened") return entry.patch ?? [];
  return entry.kind === "step.finished" && entry.status === "ok" ? entry.patch : [];
}

/** Reads a log as a client, and as somebody who only looks at the facts; at every rest all say the same. */
function check({ log, run }: Played): { state: Json; atRest: number } {
  const folding = new Folding();
  const client = new Client();
  let facts: unknown = {};
  let atRest = 0;
  for (const entry of log) {
    client.sees(folding.add(entry));
    facts = patched(facts, patchOf(entry));
    const { shown, committed, running } = folding.state;
    if (client.state !== shown) expect(client.state, `shown at ${entry.seq}`).toEqual(shown);
    if (entry.kind !== "leg.finished" && entry.kind !== "step.attempt") continue;
    if (entry.kind === "step.attempt" && running.size > 1) continue;
    atRest++;
    expect(committed, `the facts at ${entry.seq}`).toEqual(facts);
    expect(client.state, `at rest at ${entry.seq} (${entry.kind})`).toEqual(committed);
  }
  expect(run.outcome).not.toBeNull();
  return { state: folding.state.committed, atRest };
}

/** The attempts whose changes count: those that returned, and those that asked a human. */
function countingAttempts(log: readonly Entry[]): Set<string> {
  const attempts = new Map<string, number>();
  const counting = new Set<string>();
  for (const entry of log) {
    if (entry.kind === "step.attempt") attempts.set(entry.path, entry.n);
    const isOk = entry.kind === "step.finished" && entry.status === "ok" && ["call", "resume"].includes(entry.via);
    if (isOk) counting.add(`${entry.path}#${attempts.get(entry.path)}`);
    if (entry.kind === "interrupt.opened" && entry.interrupt.kind === "suspension") {
      counting.add(`${entry.interrupt.path}#${attempts.get(entry.interrupt.path)}`);
    }
  }
  return counting;
}

/** What a program may leave in the state, told by what its bodies did and which of them count. */
function checkState(played: Played, state: Json, { calls }: Program): void {
  const { log, trails } = played;
  const counting = countingAttempts(log);
  expect(labelsIn(state).filter((label) => !counting.has(label))).toEqual([]);
  const { items } = state as unknown as Board;
  const names = items.map(({ by, v }) => `${by}/${v}`);
  expect(new Set(names).size).toBe(names.length);
  const counted = [...trails].flatMap(([label, trail]) => (counting.has(label) ? [trail] : []));
  // Nobody has seen what a sibling had not recorded. (One that died may have seen what died with it.)
  for (const label of counted.flatMap(({ found }) => [...found])) expect(counting).toContain(label);
  const removed = new Set(counted.flatMap((trail) => trail.removed));
  const reduced = log.flatMap((entry) => {
    if (entry.kind !== "step.finished" || entry.status !== "ok" || !entry.path.includes(".")) return [];
    const index = Number(entry.path.split(".").at(-1));
    return calls[index]?.reduces ? [`reduce ${index}/0`] : [];
  });
  const start = [0, 1, 2, 3].map((v) => `start/${v}`);
  const put = [...start, ...reduced, ...counted.flatMap((trail) => trail.put)];
  // One without an id that a sibling has changed where it had moved it is another one: removing the first does not take it away.
  const changed = new Set(items.flatMap(({ by, v, seen }) => (seen === undefined ? [] : [`${by}/${v}`])));
  const wanted = names.filter((name) => !(removed.has(name) && changed.has(name)));
  expect(wanted.toSorted()).toEqual(put.filter((name) => !removed.has(name)).toSorted());
}

test(`${PROGRAMS} random parallel programs: a client holds what the log says at every rest, and only what counts is there`, async () => {
  const seen = { deaths: 0, dropped: 0, cancelled: 0, legs: 0, atRest: 0, vias: new Set<string>() };
  await fc.assert(
    fc.asyncProperty(program, async (one) => {
      const played = await play(one);
      const { state, atRest } = check(played);
      checkState(played, state, one);
      seen.atRest += atRest;
      seen.deaths += played.deaths;
      seen.legs += played.run.leg;
      if (played.run.outcome === "cancelled") seen.cancelled++;
      for (const entry of played.log) {
        if (entry.kind === "step.finished") seen.vias.add(entry.via);
        if ("dropped" in entry) seen.dropped++;
      }
    }),
    { numRuns: PROGRAMS },
  );
  // The programs are what they should be.
  expect([...seen.vias].toSorted()).toEqual(["answer", "call", "reconcile", "resume"]);
  expect(seen.deaths).toBeGreaterThan(PROGRAMS / 4);
  expect(seen.cancelled).toBeGreaterThan(PROGRAMS / 100);
  expect(seen.dropped).toBeGreaterThan(0);
  expect(seen.legs).toBeGreaterThan(PROGRAMS * 1.1);
}, 900_000);
