import fc from "fast-check";
import { expect, test } from "vitest";
import { normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { fold, type RunState } from "../../src/log/fold.ts";
import type { Run } from "../../src/store/store.ts";
import { cases } from "../random-cases.ts";
import { type Talk, Talking, talk } from "./forking.ts";

/** Each run of a thread folded onto the one before it. */
async function folded(talking: Talking, runs: readonly Run[]): Promise<RunState[]> {
  const states: RunState[] = [];
  for (const { uid } of runs) states.push(fold(await talking.log(uid), states.at(-1)));
  return states;
}

/**
 * What calls of one turn have done to the state stands in the order in which they ended. What only the body does to it, or shows, is lost where
 * another run has done the call already.
 */
function transcript({ messages, committed }: RunState, { turns }: Talk) {
  const isKept = (note: unknown): boolean => {
    if (typeof note !== "string") return true;
    const [, t, m, c] = /^(?:Of )?t(\d+)m(\d+)c(\d+)(?: begins|\.)$/.exec(note) ?? [];
    return t === undefined || turns[Number(t)]?.[Number(m)]?.[Number(c)]?.key === false;
  };
  const notes = (committed as { notes: string[] }).notes.filter(isKept).sort();
  return normaliseTranscript({ messages: messages.filter(({ content }) => isKept(content)), state: { notes } });
}

/** Where a log is cut. */
const places = fc.array(fc.nat(1_000), { minLength: 8, maxLength: 8 });

test("a fork at any entry goes on to the same end: nothing of its history runs again, the model gets a history that the strictest provider takes, and the other run stays as it is; so does a fork of that fork", async () => {
  const met = { forks: 0, ofLaterTurns: 0, pruned: 0, shown: 0 };
  await fc.assert(
    fc.asyncProperty(talk, fc.boolean(), places, async (plan, isPruned, at) => {
      const talking = new Talking(plan);
      const runs = await talking.talks("t");
      const states = await folded(talking, runs);
      if (isPruned) for (const { uid } of runs) await talking.runtime.prune(uid);
      const turn = runs.length - 1;
      const [run, state] = [runs[turn], states[turn]];
      if (run === undefined || state === undefined) throw new Error("nobody has said anything");
      const log = await talking.log(run.uid);
      const acknowledge = talking.names;
      for (const place of at) {
        const seq = log[place % log.length]?.seq ?? 0;
        const done = talking.ledger.length;
        const fork = await talking.runtime.fork(run.uid, { at: seq, acknowledge });
        const ended = await talking.toTheEnd(fork.thread);
        expect(ended.uid).toBe(fork.uid);
        const entries = await talking.log(ended.uid);
        const where = `forked at ${seq}`;
        expect(ended.outcome, where).toBe("success");
        const after = fold(entries);
        expect(transcript(after, plan), where).toEqual(transcript(state, plan));
        const history = log.flatMap((entry) =>
          entry.kind === "step.finished" && entry.seq <= seq ? [entry.path] : [],
        );
        for (const effect of talking.ledger.slice(done)) {
          expect(effect.run, where).toBe(fork.uid);
          expect(history, `${where}: ${effect.name}`).not.toContain(effect.path);
        }
        expect(new Set(talking.ledger.slice(done).map(({ path }) => path)).size, where).toBe(
          talking.ledger.length - done,
        );
        met.forks += 1;
        met.pruned += isPruned ? 1 : 0;
        met.ofLaterTurns += turn > 0 ? 1 : 0;
        met.shown += after.messages.some(({ subagentRunId }) => subagentRunId !== undefined) ? 1 : 0;

        const second = entries[place % entries.length]?.seq ?? 0;
        const again = await talking.runtime.fork(fork.uid, { at: second, acknowledge });
        const last = fold(await talking.log((await talking.toTheEnd(again.thread)).uid));
        expect(transcript(last, plan), `${where}, and that at ${second}`).toEqual(transcript(after, plan));
      }
      expect(await talking.log(run.uid)).toEqual(log);
      expect(talking.offences).toEqual([]);
      await talking.runtime.close();
    }),
    { numRuns: cases(16, 100), endOnFailure: true },
  );
  expect(met.forks).toBeGreaterThan(100);
  expect(met.shown).toBeGreaterThan(10);
}, 180_000);
