import { env } from "node:process";
import fc from "fast-check";
import { replay } from "perdure/testing";
import { expect, test } from "vitest";
import type { RunFixture } from "../../src/log/fixture.ts";
import type { Fate } from "../../src/testing/life.ts";
import { cases } from "../random-cases.ts";
import { changes } from "./changed-loops.ts";
import { ForkedLoops } from "./forking.ts";
import { Ledger, loopOf, type Op, program } from "./random-loops.ts";

/** With `LOOP_RUNS` more, or others with `PROPERTY_SEED`. */
const RUNS = Number(env.LOOP_RUNS ?? cases(45, 60));

const fates: fc.Arbitrary<Fate[]> = fc.array(
  fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 0, max: 40 }) }),
  { maxLength: 2 },
);

/** Held against a record in a world of its own, in which nothing must happen. */
async function replayed(fixture: RunFixture, ops: readonly Op[]) {
  const world = new Ledger();
  const report = await replay(fixture, { agent: loopOf(ops, world) });
  expect(world.rows).toEqual([]);
  return report;
}

test(`${RUNS} random custom loops, recorded while their processes die and forked: a replay finds nothing in them, does nothing, and finds what was changed`, async () => {
  const met = { replays: 0, changes: 0 };
  await fc.assert(
    fc.asyncProperty(program, fates, fc.nat(1_000), async (ops, planned, place) => {
      const loops = new ForkedLoops(ops);
      const source = await loops.plays(planned);
      const acknowledge = source.log.flatMap((entry) => (entry.kind === "step.started" ? [entry.name] : []));
      const fork = await loops.forks(source.run.uid, { at: place % source.log.length, acknowledge });
      for (const { run } of [source, fork]) {
        const fixture = await loops.fixture(run.uid);
        expect((await replayed(fixture, ops)).toString()).toContain("does and asks");
        met.replays += 1;
        for (const [what, change] of Object.entries(changes)) {
          const other = change(ops, place);
          if (other === undefined) continue;
          const report = await replayed(fixture, other);
          expect(report.equal, `${what} is not found`).toBe(false);
          met.changes += 1;
        }
      }
      await loops.close();
    }),
    { numRuns: RUNS, endOnFailure: env.LOOP_RUNS !== undefined },
  );
  expect(met.replays).toBe(RUNS * 2);
  expect(met.changes).toBeGreaterThan(RUNS * 4);
}, 600_000);
