/** Promise 2, one driver: whatever two or three drivers of one store do between any two of their appends, while leases run out. */

import fc from "fast-check";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { createRuntimeFrom } from "../../src/http/create-runtime.ts";
import { agent, memory } from "../../src/index.ts";
import { essence } from "../../src/log/essence.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { Lease } from "../../src/store/store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import { cases } from "../random-cases.ts";
import { asking, saying } from "./asking.ts";
import { LEASE, Race, stopTime } from "./race.ts";

let goOn: () => void;
beforeEach(() => {
  goOn = stopTime();
});
afterEach(() => goOn());

/** How time may pass: within a lease, over its last part, over its end. */
const SPANS = [1_000, 9_000, 27_500, 31_000];
const PATIENCE = 1_500;
const INTERLEAVINGS = cases(400, 1_000);

/** Plays a race by `picks`, and then in order. */
async function raced(processes: number, picks: readonly number[]) {
  const race = new Race(processes);
  await race.begin();
  await race.quiet();
  for (let i = 0; race.run.outcome === null; i++) {
    if (i > PATIENCE) throw new Error(`the run does not end: ${JSON.stringify(race.run)}`);
    const pick = picks[i];
    if (race.held.length > 0 && (pick === undefined || pick < 88)) await race.release((pick ?? 0) % race.held.length);
    else if (pick !== undefined || !(await race.answer())) await race.pass(SPANS[(pick ?? 1) % SPANS.length] ?? LEASE);
    else await race.quiet();
  }
  // Bodies that were left behind go on when everything else has come to an end.
  for (;;) {
    const next = race.held.findIndex(({ body }) => body === undefined);
    if (next < 0) break;
    await race.release(next);
  }
  const leftBehind = race.bodies.filter(({ isOver, epoch }) => !isOver && epoch < race.run.epoch);
  const unaware = leftBehind.filter(({ ctx }) => !ctx.signal.aborted).map(({ name, epoch }) => ({ name, epoch }));
  while (race.held.length > 0) await race.release(0);
  const log = await race.log();
  const { epoch } = race.run;
  await race.close();
  return { race, log, epoch, unaware };
}

test("one driver alone: the story as it should be", async () => {
  const { race, log } = await raced(1, []);
  expect(race.ledger.toSorted()).toEqual(["mail", "pay"]);
  expect(log.at(-1)).toMatchObject({ kind: "run.finished", outcome: "success" });
  expect(race.reported).toEqual([]);
});

test("in every interleaving of drivers and time there is one driver, and the run ends as if there had been no other", async () => {
  const alone = essence((await raced(1, [])).log);
  let takeovers = 0;
  let stale = 0;
  let fenced = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 2, max: 3 }),
      fc.array(fc.nat(99), { minLength: 20, maxLength: 160, size: "max" }),
      async (processes, picks) => {
        const { race, log, epoch, unaware } = await raced(processes, picks);
        // A stale driver appends nothing,
        expect(race.appends.filter((one) => one.is !== "fenced" && one.epoch !== one.epochOfRun)).toEqual([]);
        // begins nothing,
        expect(race.bodies.filter((body) => body.epoch !== body.epochOfRun)).toEqual([]);
        // and its bodies are told: by their signal, and by whatever they try.
        expect(unaware).toEqual([]);
        expect(race.toldStale.filter((told) => told !== "RunInterrupted")).toEqual([]);
        // The outside has got each write once.
        expect(race.ledger.toSorted()).toEqual(["mail", "pay"]);
        expect(essence(log)).toEqual(alone);
        takeovers += epoch - 1;
        stale += race.toldStale.length;
        fenced += race.appends.filter(({ is }) => is === "fenced").length;
      },
    ),
    { numRuns: INTERLEAVINGS },
  );
  // Else the property says nothing.
  expect(Math.min(takeovers, fenced)).toBeGreaterThan(INTERLEAVINGS);
  expect(stale).toBeGreaterThan(INTERLEAVINGS / 10);
}, 300_000);

test("a driver that loses its run while it reads its mail starts nothing and goes; whoever claims the run next ends it", async () => {
  const below = memory();
  let renewals = 0;
  let readings = 0;
  const store = new Proxy(below, {
    get(target, name) {
      if (name === "renew") return async (lease: Lease) => (++renewals === 1 ? null : await target.renew(lease));
      if (name === "inbox") {
        return async (uid: Uid) => {
          if (++readings === 1) await new Promise((resolve) => setTimeout(resolve, LEASE / 2));
          return await target.inbox(uid);
        };
      }
      const member: unknown = Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  let asked = 0;
  const model = scriptedModel(() => {
    asked++;
    return { text: "Hi." };
  });
  let rounds = 0;
  const now = () => {
    if (++rounds > 1_000) throw new Error("nothing else in this process gets a turn");
    return Date.now();
  };
  const runtime = createRuntimeFrom({ now }, { agents: [agent({ name: "desk", model })], store, onError: () => {} });
  onTestFinished(() => runtime.close());
  const stream = asking(runtime)("/agents/desk", saying("Hi."));
  await vi.advanceTimersByTimeAsync(LEASE);
  expect((await stream).text).toContain("RUN_FINISHED");
  expect({ renewals, asked }).toEqual({ renewals: 1, asked: 1 });
  expect(rounds).toBeLessThan(100);
});
