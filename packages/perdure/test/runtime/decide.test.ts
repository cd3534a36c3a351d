/** What a driver does next, for logs of one turn with random calls in random places: properties D1 to D4 of `decide`. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Interrupt, NewEntry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { Effect, Path } from "../../src/protocol/words.ts";
import type { Loop, LoopCall } from "../../src/runtime/agent-definition.ts";
import { type Decision, decide, type Now, type Start } from "../../src/runtime/decide.ts";
import {
  approval,
  at,
  attempt,
  callStarted,
  failed,
  leg,
  logOf,
  modelStep,
  ok,
  request,
  runStarted,
} from "../log/entries.ts";

const places = [
  ...["unbegun", "cleared", "live", "asked", "approved", "rejected", "cut", "unsettled", "settled", "judged"],
  ...["retry-later", "retry-now", "finished"],
] as const;
type Place = (typeof places)[number];
interface Call {
  readonly effect: Effect;
  readonly place: Place;
}

const NOW = 10_000;
const pathOf = (i: number) => `1.${i}` as Path;

function entriesOf({ effect, place }: Call, i: number): NewEntry[] {
  const path = pathOf(i);
  const begun = [callStarted(path, `${effect}-tool`, effect, `c${i}`, "0", i), attempt(path)];
  const isWrite = effect === "write";
  const failedAt = (applied: "no" | "unknown", retryAt: number): NewEntry[] => [
    ...begun,
    { ...failed(path, applied), retryAt },
  ];
  const ask: Interrupt = { ...approval(`I${i}`, path, `c${i}`), expiresAt: null };
  const asked: NewEntry[] = [begun[0] as NewEntry, { kind: "interrupt.opened", interrupt: ask }];
  const answer = (approved: boolean): NewEntry => ({
    ...{ kind: "interrupt.answered", id: ask.id, status: "resolved", payload: { approved }, by: "s" },
  });
  switch (place) {
    case "unbegun":
    case "cleared":
      return [];
    case "live":
    case "cut":
      return begun;
    case "asked":
      return asked;
    case "approved":
    case "rejected":
      return [...asked, answer(place === "approved")];
    case "unsettled":
    case "judged":
      return failedAt(isWrite ? "unknown" : "no", NOW + 5_000);
    case "settled":
      return failedAt(isWrite ? "unknown" : "no", NOW - 1);
    case "retry-later":
      return failedAt("no", NOW + 5_000);
    case "retry-now":
      return failedAt("no", NOW - 1);
    case "finished":
      return [...begun, ok(path, "done")];
    default:
      return place satisfies never;
  }
}

/** What `decide` says of a turn with these calls. */
function decided(calls: readonly Call[], isCancelled: boolean): Decision {
  const made = calls.map(({ effect }, i) => ({ id: `c${i}`, name: `${effect}-tool`, input: {} }));
  const run = fold(
    logOf([
      [runStarted, ...leg(1, "r1", request("r1"))],
      ...modelStep("0", "a0", { calls: made }),
      ...calls.map(entriesOf),
      ...(isCancelled ? [[{ kind: "inbox.taken", item: "cancel", payload: null, by: "s" } as const]] : []),
    ]),
  );
  const loopCalls = made.map((call, index): LoopCall => ({ ...call, path: pathOf(index), model: at("0"), index }));
  const loop = {
    tool: (name: string) => ({ policy: { parallel: name.startsWith("read") } }),
    next: () => ({ next: "calls", calls: loopCalls }),
  } as unknown as Loop;
  const where = (place: Place) => new Set(calls.flatMap((call, i) => (call.place === place ? [pathOf(i)] : [])));
  const now: Now = {
    ...{ at: NOW, inbox: [], live: where("live"), cleared: where("cleared"), judged: where("judged") },
    ...{
      agreed: new Set(calls.map((_, i) => pathOf(i))),
      disagreed: new Set(),
      held: new Map(),
      leftBehind: new Map(),
    },
  };
  return decide(run, loop, now);
}

const someCalls = fc.array(
  fc.record({ effect: fc.constantFrom<Effect>("read", "idempotent", "write"), place: fc.constantFrom(...places) }),
  { minLength: 1, maxLength: 5 },
);
const withoutCut = someCalls.map((calls) =>
  calls.map((call) => (call.place === "cut" ? { ...call, place: "live" as const } : call)),
);

function startsOf(decision: Decision): readonly Exclude<Start, { start: "model" | "own" }>[] {
  return decision.do === "start"
    ? decision.starts.flatMap((start) => (start.start === "model" || start.start === "own" ? [] : [start]))
    : [];
}
const indexOf = ({ call }: { call: LoopCall }) => call.index;
/** Whether a start runs a body, or asks about one. */
const runs = ({ start }: Start) => start === "attempt" || start === "judge";

test("what died with its process is taken back before anything else", () => {
  fc.assert(
    fc.property(someCalls, fc.boolean(), (calls, isCancelled) => {
      fc.pre(calls.some(({ place }) => place === "cut"));
      const cut = calls.flatMap(({ place }, i) => (place === "cut" ? [{ path: pathOf(i), n: 1 }] : []));
      expect(decided(calls, isCancelled)).toEqual({ do: "recover", cut });
    }),
  );
});

test("D1: a finished step, one that runs, and one that waits for a human are never started", () => {
  fc.assert(
    fc.property(withoutCut, fc.boolean(), (calls, isCancelled) => {
      for (const start of startsOf(decided(calls, isCancelled))) {
        const place = calls[indexOf(start)]?.place;
        expect(["finished", "live"]).not.toContain(place);
        if (!isCancelled) expect(place).not.toBe("asked");
      }
    }),
  );
});

test("D2: one effect at a time, in call order, held back by none but what runs and what is unknown", () => {
  fc.assert(
    fc.property(withoutCut, (calls) => {
      const starts = startsOf(decided(calls, false));
      const isEffect = (i: number) => calls[i]?.effect !== "read";
      const begun = starts.filter((start) => runs(start) && isEffect(indexOf(start))).map(indexOf);
      expect(begun.length).toBeLessThanOrEqual(1);
      const isUnknown = ({ effect, place }: Call) => effect === "write" && place === "judged";
      const blockers = calls.flatMap((call, i) => (isEffect(i) && call.place === "live" ? [i] : []));
      if (blockers.length > 0) expect(begun).toEqual([]);
      const firstUnknown = calls.findIndex(isUnknown);
      const ready = calls.flatMap(({ effect, place }, i) => {
        const isJudged = effect === "write" && (place === "unsettled" || place === "settled");
        const isReady = ["cleared", "approved", "retry-now", "settled"].includes(place) || isJudged;
        return isReady && isEffect(i) ? [i] : [];
      });
      const [first] = ready.filter((i) => firstUnknown < 0 || i < firstUnknown);
      if (blockers.length === 0) expect(begun).toEqual(first === undefined ? [] : [first]);
      // Reads and questions to humans are held back by nothing.
      const free = calls.flatMap(({ effect, place }, i) => {
        const isFree = effect === "read" && ["cleared", "approved", "retry-now", "settled"].includes(place);
        return isFree || place === "unbegun" || place === "rejected" ? [i] : [];
      });
      expect(starts.map(indexOf)).toEqual(expect.arrayContaining(free));
    }),
  );
});

test("D3: an unknown write that has not settled is asked about once, and never tried again", () => {
  fc.assert(
    fc.property(withoutCut, fc.boolean(), (calls, isCancelled) => {
      for (const start of startsOf(decided(calls, isCancelled))) {
        const call = calls[indexOf(start)];
        if (call?.effect !== "write") continue;
        if (call.place === "judged") throw new Error("asked twice");
        if (call.place === "unsettled") expect(start).toMatchObject({ start: "judge", isSettled: false });
        if (call.place === "settled") expect(start).toMatchObject({ start: "judge", isSettled: true });
      }
    }),
  );
});

test("D4: after a cancel no body is started, and all that is left is ended", () => {
  fc.assert(
    fc.property(withoutCut, (calls) => {
      const decision = decided(calls, true);
      const starts = startsOf(decision);
      for (const start of starts) {
        const call = calls[indexOf(start)];
        if (start.start === "judge") expect(call?.effect).toBe("write");
        else expect(start).toMatchObject({ start: "settle" });
      }
      const isQuiet = calls.every(({ place }) => place === "finished");
      if (isQuiet) expect(decision).toEqual({ do: "finish", outcome: "cancelled" });
      else expect(["start", "wait"]).toContain(decision.do);
    }),
  );
});
