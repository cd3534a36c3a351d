import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Folding, fold, type RunState, rendered } from "../../src/log/fold.ts";
import { modelOutput, resolveInput } from "../../src/log/model-output.ts";
import { newTranscript, reduce } from "../../src/protocol/reduce.ts";
import { pendingToolCalls } from "../../src/protocol/verify.ts";
import {
  approval,
  at,
  attempt,
  type Batch,
  callStarted,
  cancelled,
  clientCallStarted,
  failed,
  frame,
  leg,
  legEnd,
  logOf,
  modelStarted,
  modelStep,
  ok,
  ref,
  request,
  result,
  runStarted,
  stateStart,
  text,
  user,
} from "./entries.ts";
import { Play, play, turns } from "./play.ts";
import { traces } from "./traces.ts";

/** The state as plain data: what is worked out when asked for is asked for. */
const plain = ({ held: _, messages, wire, ...rest }: RunState) => ({
  ...rest,
  messages,
  pending: pendingToolCalls(wire),
});

const call = { id: "c", name: "refund", input: { cents: 1 } };

function begun(...batches: readonly Batch[]): Play {
  const run = new Play();
  run.begin();
  for (const batch of batches) run.append(...batch);
  return run;
}

const resultOf = (run: Play) => run.state.messages.findLast(({ role }) => role === "tool")?.content;

describe("the fold", () => {
  test("of a rest onto the fold of what was before is the fold of the whole, and leaves the one before as it was", () => {
    fc.assert(
      fc.property(turns, fc.array(fc.nat(), { minLength: 1, maxLength: 4 }), (story, cuts) => {
        const log = logOf(play(story).batches);
        const places = cuts.map((cut) => 1 + (cut % log.length)).sort((a, b) => a - b);
        let state: RunState | undefined;
        const before: [RunState, ReturnType<typeof plain>][] = [];
        let from = 0;
        for (const place of [...places, log.length]) {
          state = fold(log.slice(from, place), state);
          before.push([state, structuredClone(plain(state))]);
          from = place;
        }
        expect(state && plain(state)).toEqual(plain(fold(log)));
        for (const [kept, copy] of before) expect(plain(kept)).toEqual(copy);
      }),
      { numRuns: 60 },
    );
  });

  test("gives each frame the same bytes every time, read at once or entry by entry", () => {
    for (const log of [...traces.map(({ batches }) => logOf(batches))]) {
      const once = [...rendered(log)].map((sent) => JSON.stringify(sent));
      const folding = new Folding();
      const onebyone = log.flatMap((entry) => {
        const event = folding.add(entry);
        expect(folding.state.head).toBe(entry.seq);
        return event === undefined ? [] : [JSON.stringify({ seq: entry.seq, event })];
      });
      expect(onebyone).toEqual(once);
    }
  });

  test("holds the messages and the state that the protocol's reducer makes of the frames", () => {
    fc.assert(
      fc.property(turns, (story) => {
        const log = logOf(play(story).batches);
        const held = [...rendered(log)].map(({ event }) => event).reduce(reduce, newTranscript());
        const { messages, shown } = fold(log);
        expect(messages).toEqual(held.messages);
        expect(shown).toEqual(held.state);
      }),
      { numRuns: 100 },
    );
  });

  test("commits a step's patch when it has finished well, and shows it when its frame says so", () => {
    const patch = [{ op: "add" as const, path: "/n", value: 1 }];
    const run = begun([callStarted("1.0", "count", "read", "c", "0"), attempt("1.0")]);
    run.append(frame("1.0", { type: "STATE_DELTA", delta: patch }));
    expect(run.state).toMatchObject({ committed: { began: true }, shown: { began: true, n: 1 } });
    run.append(ok("1.0", null, "call", patch));
    expect(run.state.committed).toEqual(run.state.shown);
  });

  test("starts with the first request's state, or with what the runtime says in its place", () => {
    const start = (state: Parameters<typeof stateStart>[0] | undefined, ...between: Batch) =>
      fold(logOf([[runStarted, ...leg(1, "r1", request("r1", state === undefined ? {} : { state }), ...between)]]));
    expect(start({ a: 1 })).toMatchObject({ committed: { a: 1 }, shown: { a: 1 } });
    expect(start(null)).toMatchObject({ committed: {}, shown: {} });
    expect(start(undefined, stateStart({ b: 2 }))).toMatchObject({ committed: { b: 2 }, shown: {} });
  });

  test("keeps what a suspended attempt has committed and shown; a crash later takes back only what came after", () => {
    const suspension = { ...approval("I", "1.0", "c"), kind: "suspension" as const };
    const patch = [{ op: "add" as const, path: "/n", value: 1 }];
    const run = begun([callStarted("1.0", "count", "read", "c", "0"), attempt("1.0")]);
    run.append({ kind: "interrupt.opened", interrupt: suspension, patch });
    expect(run.state.running.size).toBe(0);
    expect(run.state.committed).toEqual({ began: true, n: 1 });
    expect(run.state.steps.get(at("1.0"))).toMatchObject({ waits: "I", attempts: [{ n: 1, suspended: "I" }] });
    run.append({ kind: "interrupt.answered", id: "I", status: "resolved", payload: false, by: "s" });
    run.append({ ...attempt("1.0", 2), phase: "resume" });
    expect(run.state.steps.get(at("1.0"))).toMatchObject({ waits: null, asked: [{ answer: { payload: false } }] });
    expect([...run.state.running.keys()]).toEqual(["1.0"]);
  });

  test("takes a client's result that came while the leg was open into the transcript, once", () => {
    const paint = { id: "c", name: "paint", input: {} };
    const tools = [{ name: "paint", description: "", parameters: {} }];
    const run = new Play();
    run.append(runStarted, ...leg(1, "r1", request("r1", { tools })));
    for (const batch of modelStep("0", "a", { calls: [paint] })) run.append(...batch);
    run.append(clientCallStarted("1.0", "paint", "c", "0"));
    expect([...run.state.interrupts.values()]).toMatchObject([{ id: "c", kind: "client-tool" }]);
    run.append(ok("1.0", "red", "client"));
    expect(run.state.interrupts.size).toBe(0);
    expect(run.state.messages.filter(({ role }) => role === "tool")).toMatchObject([
      { toolCallId: "c", content: "red" },
    ]);
    // Else this would be refused: the call has no result that the verifier knows of.
    run.append(...legEnd(1, { type: "success", pendingToolCallIds: [] }));
  });

  test("goes on with the thread: its messages and ids stay, the rest of the earlier run does not", () => {
    const first = fold(logOf(traces[0]?.batches ?? []));
    const next = fold(
      logOf([[{ ...runStarted, turn: 1 }, ...leg(1, "r9", request("r9", { messages: [user("u2", "and order 3?")] }))]]),
      first,
    );
    expect(next.messages).toEqual([...first.messages, user("u2", "and order 3?")]);
    expect(next).toMatchObject({ head: 2, finished: null, legs: 1, lastLeg: null });
    expect(next.steps.size + next.answers.size).toBe(0);
    const reused = logOf([[{ ...runStarted, turn: 1 }, ...leg(1, "r1", request("r1"))]]);
    expect(() => fold(reused, first)).toThrow(/run-id-reused/);
  });

  test("can begin with the messages of a thread whose runs are not at hand", () => {
    const history = { messages: [user("u0", "hello")] };
    const log = logOf([[runStarted, ...leg(1, "r1", request("r1", { messages: [user("u", "go")] }))]]);
    expect(fold(log, history).messages.map(({ id }) => id)).toEqual(["u0", "u"]);
  });

  test("takes a transcript in place of frames that were pruned", () => {
    const messages = [user("u", "go"), { id: "a", role: "assistant" as const, content: "Gone." }];
    const [started] = leg(1, "r1", request("r1", { messages: [user("u", "go")] }));
    const items = [
      { brought: 0 },
      { message: { ...messages[1], content: "Gone." } as (typeof messages)[1], texts: [] },
    ];
    const state = fold(logOf([[runStarted, started as Batch[number]], [{ kind: "transcript", messages: items }]]));
    expect(state.messages).toEqual(messages);
  });

  test("says that a run was cancelled, abandoned, parked", () => {
    const taken = (item: "cancel" | "abandon") => ({ kind: "inbox.taken", item, payload: null, by: "s" }) as const;
    const run = begun([taken("cancel")], [taken("abandon")], [{ kind: "run.parked", why: "time" }]);
    expect(run.state).toMatchObject({ cancelled: true, abandoned: true, parked: "time" });
    run.append({ kind: "run.resumed", why: "time", epoch: 2 });
    expect(run.state.parked).toBeNull();
  });

  test.each<[string, readonly Batch[], RegExp]>([
    ["a log that does not begin", [leg(1, "r1", null)], /begins with run.started/],
    ["an attempt at a step that never started", [[runStarted], [attempt("0")]], /step.attempt of step 0.*no such step/],
    ["a step that has started", [[runStarted], [modelStarted("0")], [modelStarted("0")]], /has started already/],
    ["a leg beside another", [[runStarted], leg(1, "r1", null), leg(2, "r2", null)], /leg 1 is open/],
    [
      "a failure of an attempt that does not run",
      [[runStarted], [modelStarted("0"), failed("0")]],
      /attempt 1 is not running/,
    ],
    [
      "a second end of a step",
      [[runStarted], [modelStarted("0"), cancelled("0")], [cancelled("0")]],
      /finished already/,
    ],
    [
      "an answer without a question",
      [[runStarted], [{ kind: "interrupt.answered", id: "I", status: "resolved", by: "s" }]],
      /no such question/,
    ],
    ["the end of a leg that is not open", [[runStarted], legEnd(3, { type: "cancelled" })], /leg 3 is not open/],
    [
      "a terminal frame before its fact",
      [[runStarted, ...leg(1, "r1", null), ref("", { of: "RUN_FINISHED", leg: 1 })]],
      /leg 1 has not ended/,
    ],
    [
      "a result before its step has finished",
      [
        [runStarted, ...leg(1, "r1", null)],
        [callStarted("0", "x", "read", "c", "0"), result("0")],
      ],
      /is not a call that has finished/,
    ],
    [
      "a patch that does not fit",
      [[runStarted], [{ kind: "state", path: at(""), patch: [{ op: "remove", path: "/a" }] }]],
      /cannot be applied/,
    ],
    [
      "a frame that the protocol forbids",
      [[runStarted, ...leg(1, "r1", null)], [frame("0", { type: "TEXT_MESSAGE_END", messageId: "m" })]],
      /no text "m" is open/,
    ],
  ])("refuses %s", (_, batches, message) => {
    expect(() => fold(logOf(batches))).toThrow(message);
  });

  test("refuses an entry that was there before", () => {
    const log = logOf([[runStarted], leg(1, "r1", null)]);
    expect(() => fold(log.slice(1), fold(log))).toThrow(/entry 2 came before it/);
  });
});

describe("the result of a call", () => {
  const ended = (end: Batch, edited?: object) => {
    const run = begun(...modelStep("0", "a", { calls: [call] }));
    const tried = edited === undefined ? attempt("1.0") : { ...attempt("1.0"), edited: { ...edited } };
    run.append(callStarted("1.0", "refund", "write", "c", "0"), tried);
    run.append(...end, result("1.0"));
    return resultOf(run);
  };
  const error = { code: "NO_MONEY", message: "there is none" };
  const wrong = { kind: "step.finished", path: at("1.0"), via: "call", status: "error", error } as const;

  test("is text as it is, and JSON text of everything else", () => {
    expect(ended([ok("1.0", "done")])).toBe("done");
    expect(ended([ok("1.0", { refundId: "R" })])).toBe('{"refundId":"R"}');
    expect(ended([ok("1.0", null)])).toBe("null");
  });

  test("tells what went wrong, and whether it was done nevertheless", () => {
    expect(ended([{ ...wrong, applied: "no" }])).toBe('{"error":{"code":"NO_MONEY","message":"there is none"}}');
    expect(ended([{ ...wrong, applied: "yes", output: 1 }])).toContain('"applied":"yes","output":1');
    expect(ended([{ ...wrong, applied: "unknown" }])).toBe("may have been applied");
    expect(ended([cancelled("1.0")])).toBe("cancelled");
  });

  test("says that a human has changed the arguments, and to what", () => {
    expect(ended([ok("1.0", "done")], { cents: 2 })).toBe('{"output":"done","argumentsEditedByHuman":{"cents":2}}');
  });
});

describe("the input of a step", () => {
  const { state } = begun(...modelStep("0", "a", { calls: [call] }));

  test("is its value, or what the model wrote", () => {
    expect(resolveInput(state, { value: 3 })).toBe(3);
    expect(resolveInput(state, { call: { model: at("0"), index: 0 } })).toEqual({ cents: 1 });
  });

  test("is an error where the model made no such call, or said nothing yet", () => {
    expect(() => resolveInput(state, { call: { model: at("0"), index: 1 } })).toThrow(/the model made no such call/);
    expect(() => resolveInput(state, { call: { model: at("9"), index: 0 } })).toThrow(/there is no such step/);
    const { state: early } = begun([modelStarted("0"), attempt("0")], text("0.0", "a", "Hm"));
    const step = early.steps.get(at("0"));
    expect(() => step && modelOutput(step)).toThrow(/has not finished/);
  });
});
