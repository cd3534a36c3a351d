import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Entry, NewEntry } from "../../src/log/entries.ts";
import { encodeEntry } from "../../src/log/entries.ts";
import { fold, type RunState, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import { transcriptOf } from "../../src/log/transcript.ts";
import { frame, leg, legEnd, logOf, request, runStarted, text, user } from "./entries.ts";
import { play, type Turn, turns } from "./play.ts";
import { traces } from "./traces.ts";

/** The same stories in long words: worth a reference. */
const wordy = (story: readonly Turn[]): Turn[] =>
  story.map((one) => ({
    ...one,
    parts: long(one.parts),
    tries: one.tries.map((cut) => ({ ...cut, parts: long(cut.parts) })),
  }));
const long = (parts: Turn["parts"]): Turn["parts"] =>
  parts.map((part) =>
    part.part === "call"
      ? { ...part, input: { a: "argument ".repeat(20) } }
      : { ...part, deltas: part.deltas.map((d) => d.repeat(60)) },
  );

const story = fc.oneof(turns, turns.map(wordy));

function prunedLog(log: readonly Entry[], before?: RunState): Entry[] {
  const state = fold(log, before);
  const { entry } = encodeEntry(transcriptOf(state));
  const read = JSON.parse(JSON.stringify(entry)) as NewEntry;
  return [...log.filter(({ kind }) => kind !== "frame"), { ...read, seq: state.head + 1, at: 0 }];
}

const shown = (state: RunState): string => JSON.stringify(prelude(state, { threadId: "t", runId: "r" }));

/** A next turn that says something, and shows all that there is. */
const nextTurn = logOf([
  [
    { ...runStarted, uid: "V" as typeof runStarted.uid, turn: 1 },
    ...leg(1, "r9", request("r9", { messages: [user("u9", "and now?")] })),
    ...text("0.0", "V:0:m0", "Now this."),
    { kind: "frame", path: "" as never, ref: { of: "MESSAGES_SNAPSHOT" } },
    ...legEnd(1, { type: "success", pendingToolCallIds: [] }),
    { kind: "run.finished", outcome: "success", unresolved: [] },
  ],
]);

describe("a transcript in place of a run's frames", () => {
  test("shows every reader the same bytes, and the thread goes on in the same way", () => {
    fc.assert(
      fc.property(story, (one) => {
        const log = logOf(play(one).batches);
        const [whole, pruned] = [fold(log), fold(prunedLog(log))];
        expect(shown(pruned)).toBe(shown(whole));
        expect(pruned.committed).toEqual(whole.committed);
        const events = [whole, pruned].map((before) => [...rendered(nextTurn, before)].map(({ event }) => event));
        expect(events[1]).toEqual(events[0]);
        expect(shown(fold(nextTurn, pruned))).toBe(shown(fold(nextTurn, whole)));
      }),
      { numRuns: 100 },
    );
  });

  test("stands for them also where some were read before they went", () => {
    fc.assert(
      fc.property(story, fc.nat(), (one, cut) => {
        const log = logOf(play(one).batches);
        const pruned = prunedLog(log);
        const at = cut % log.length;
        const mixed = [...log.slice(0, at), ...pruned.filter(({ seq }) => seq >= at)];
        expect(shown(fold(mixed))).toBe(shown(fold(log)));
      }),
      { numRuns: 60 },
    );
  });

  test.each(traces.map(({ name, batches }) => [name, batches] as const))("of the trace %s", (_, batches) => {
    const log = logOf(batches);
    if (!log.some(({ kind }) => kind === "run.finished")) return;
    expect(shown(fold(prunedLog(log)))).toBe(shown(fold(log)));
  });

  test("refers to the thread before it, whether that was pruned or not", () => {
    fc.assert(
      fc.property(story, (one) => {
        const first = logOf(play(one).batches);
        const whole = fold(first);
        const pruned = prunedLog(nextTurn, whole);
        const transcript = pruned.at(-1);
        expect(transcript?.kind === "transcript" && transcript.messages[0]).toEqual({ kept: "all" });
        for (const before of [whole, fold(prunedLog(first))]) {
          expect(shown(fold(pruned, before))).toBe(shown(fold(nextTurn, whole)));
        }
      }),
      { numRuns: 30 },
    );
  });

  test("keeps nothing twice that a request or a step has", () => {
    const one: Turn = {
      parts: [
        { part: "reasoning", deltas: ["r".repeat(10_000)] },
        { part: "text", deltas: ["t".repeat(10_000)] },
        { part: "call", input: { a: "c".repeat(10_000) }, pieces: 1 },
      ],
      ...{ tries: [], tools: [[]], toolCuts: [] },
    };
    const log = logOf(play([one]).batches);
    const { text: stored } = encodeEntry(transcriptOf(fold(log)));
    // Nobody but the frames has the reasoning: the outputs of these stories do not.
    expect(stored.match(/r{10000}/)).not.toBeNull();
    expect(stored.match(/t{1000}|c{1000}/)).toBeNull();
  });

  test("holds what a body has done to messages of earlier turns, in the order in which clients have them", () => {
    const before = fold(logOf(play([]).batches), { messages: ["a", "b", "c", "d"].map((id) => user(id, id)) });
    const kept = [user("a", "a"), user("c", "changed"), user("d", "d"), user("u", "go")];
    const log = logOf([
      [
        { ...runStarted, turn: 1 },
        ...leg(1, "r2", request("r2")),
        frame("", { type: "MESSAGES_SNAPSHOT", messages: kept }),
        frame("", { type: "STATE_SNAPSHOT", snapshot: { only: "shown" } }),
        ...legEnd(1, { type: "success", pendingToolCallIds: [] }),
        { kind: "run.finished", outcome: "success", unresolved: [] },
      ],
    ]);
    const pruned = prunedLog(log, before);
    expect(pruned.at(-1)).toMatchObject({
      messages: [{ kept: { from: 0, to: 1 } }, { message: { content: "changed" } }, { kept: { from: 3, to: 5 } }],
      shown: { only: "shown" },
    });
    expect(shown(fold(pruned, before))).toBe(shown(fold(log, before)));
  });

  test("that refers to what is not there is a broken log", () => {
    const broken = (item: object) => () =>
      fold(
        logOf([
          [runStarted, ...leg(1, "r1", request("r1")).slice(0, 1), { kind: "transcript", messages: [item as never] }],
        ]),
      );
    for (const item of [
      { kept: { from: 0, to: 2 } },
      { brought: 3 },
      { message: user("u", ""), texts: [{ at: ["content"], of: { result: "7" } }] },
      { message: user("u", ""), texts: [{ at: ["content"], of: { output: "7", in: ["text"] } }] },
      { message: user("u", ""), texts: [{ at: ["content"], of: { brought: 0, in: ["content"] } }] },
    ]) {
      expect(broken(item), JSON.stringify(item)).toThrow(/transcript.*does not follow/);
    }
  });
});
