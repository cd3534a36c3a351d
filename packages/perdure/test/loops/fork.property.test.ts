import { env } from "node:process";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import type { Fate } from "../../src/testing/life.ts";
import { cases } from "../random-cases.ts";
import { changes } from "./changed-loops.ts";
import { done, ForkedLoops, type Gone, Stopped } from "./forking.ts";
import { isConcurrent, type Op, program } from "./random-loops.ts";
import { screen } from "./screens.ts";

/** With `LOOP_RUNS` more, or others with `PROPERTY_SEED`. */
const RUNS = Number(env.LOOP_RUNS ?? cases(30, 40));

const fates: fc.Arbitrary<Fate[]> = fc.array(
  fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 0, max: 40 }) }),
  { maxLength: 2 },
);

/** Where a log is cut, and where the processes die that drive the fork. */
const places = fc.array(fc.record({ at: fc.nat(1_000), fates }), { minLength: 4, maxLength: 4 });

/** What had ended by an entry: it is not to be done again. */
function history(log: readonly Entry[], at: number): ReadonlySet<string> {
  const names = new Map(log.flatMap((entry) => (entry.kind === "step.started" ? [[entry.path, entry.name]] : [])));
  return new Set(
    log.flatMap((entry) => (entry.kind === "step.finished" && entry.seq <= at ? [names.get(entry.path) ?? ""] : [])),
  );
}

function expectSameEnd(fork: Gone, source: Gone, ops: readonly Op[], at: number): void {
  const where = `forked at entry ${at} of ${source.log.length}`;
  expect(fork.run.outcome, where).toBe("success");
  const had = history(source.log, at);
  expect(done(fork.effects), where).toEqual(done(source.effects).filter((name) => !had.has(name)));
  const isUnordered = isConcurrent(ops);
  expect(fork.state.finished?.output ?? fork.state.lastLeg?.result, where).toEqual(
    source.state.finished?.output ?? source.state.lastLeg?.result,
  );
  const held = { messages: source.state.messages, state: source.state.committed };
  const expected = screen(held, isUnordered);
  for (const one of [{ messages: fork.state.messages, state: fork.state.committed }, fork.client, fork.late]) {
    expect(screen(one, isUnordered), where).toEqual(expected);
  }
}

test(`${RUNS} random custom loops, forked at random entries by processes that die: what had ended is not done again, all else once, and the fork's clients end where those of the run have`, async () => {
  const met = { forks: 0, deaths: 0 };
  await fc.assert(
    fc.asyncProperty(program, fates, places, async (ops, first, cuts) => {
      const loops = new ForkedLoops(ops);
      const source = await loops.plays(first);
      const names = source.log.flatMap((entry) => (entry.kind === "step.started" ? [entry.name] : []));
      for (const [i, { at: place, fates: planned }] of cuts.entries()) {
        const at = place % source.log.length;
        const fork = await loops.forks(source.run.uid, { at, acknowledge: names, thread: `fork-${i}` }, planned);
        expectSameEnd(fork, source, ops, at);
        met.forks += 1;
        met.deaths += fork.deaths;
        if (i > 0) continue;
        const again = place % fork.log.length;
        const second = await loops.forks(fork.run.uid, { at: again, acknowledge: names, thread: "again" });
        expectSameEnd(second, { ...source, log: fork.log }, ops, again);
      }
      expect(await loops.log(source.run.uid)).toEqual(source.log);
      await loops.close();
    }),
    { numRuns: RUNS, endOnFailure: env.LOOP_RUNS !== undefined },
  );
  expect(met.forks).toBe(RUNS * 4);
  expect(met.deaths).toBeGreaterThan(RUNS / 2);
}, 600_000);

test("a fork of a fork, at any entry of the history that it has copied, shows what agents had done there, and what they begin anew once", async () => {
  const ops: readonly Op[] = [
    { op: "parallel", branches: [[{ op: "spawn", asks: false }], []] },
    { op: "message", deltas: ["a", "b"], inside: [] },
    { op: "parallel", branches: [[{ op: "think", text: "c" }]] },
  ];
  const loops = new ForkedLoops(ops);
  const source = await loops.plays();
  const fork = await loops.forks(source.run.uid, { thread: "fork" });
  for (const { seq } of fork.log) {
    const again = await loops.forks(fork.run.uid, { at: seq, acknowledge: ["0.0.0"], thread: `again-${seq}` });
    expectSameEnd(again, { ...source, log: fork.log }, ops, seq);
  }
  await loops.close();
});

test("a fork from the last entry before new code parts from what is recorded comes to its end under it: what had ended is not done again, all that it does beside once", async () => {
  const met = { forks: 0, parted: 0 };
  await fc.assert(
    fc.asyncProperty(program, fc.nat(1_000), fates, async (ops, place, planned) => {
      for (const change of Object.values(changes)) {
        const other = change(ops, place);
        if (other === undefined) continue;
        const loops = new ForkedLoops(ops, other);
        const source = await loops.plays();
        const names = source.log.flatMap((entry) => (entry.kind === "step.started" ? [entry.name] : []));
        let [from, at] = [source.log, source.log.length - 1];
        const gone = async (uid: string, thread: string): Promise<Gone> => {
          try {
            return await loops.forks(uid, { at, acknowledge: names, thread }, thread === "again" ? planned : []);
          } catch (error) {
            if (!(error instanceof Stopped) || error.forkAt === undefined || thread === "again") throw error;
            [from, at] = [await loops.log(error.run), error.forkAt];
            met.parted += 1;
            return await gone(error.run, "again");
          }
        };
        const fork = await gone(source.run.uid, "fork");
        const where = `forked at entry ${at} of ${from.length}`;
        expect(fork.run.outcome, where).toBe("success");
        const had = history(from, at);
        const anew = new ForkedLoops(other);
        const { effects } = await anew.plays();
        expect(done(fork.effects), where).toEqual(done(effects).filter((name) => !had.has(name)));
        for (const one of [fork.client, fork.late]) {
          expect(screen(one, true), where).toEqual(
            screen({ messages: fork.state.messages, state: fork.state.committed }, true),
          );
        }
        await Promise.all([loops.close(), anew.close()]);
        met.forks += 1;
      }
    }),
    { numRuns: Math.ceil(RUNS / 2), endOnFailure: env.LOOP_RUNS !== undefined },
  );
  expect(met.forks).toBeGreaterThan(RUNS);
  expect(met.parted).toBeGreaterThan(met.forks / 3);
}, 600_000);
