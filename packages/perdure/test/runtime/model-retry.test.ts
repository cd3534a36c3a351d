/** Whom a model step asks next, and when, for random failures in random order: properties R1 to R3 of `model-retry.ts`. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { NewEntry } from "../../src/log/entries.ts";
import { fold } from "../../src/log/fold.ts";
import type { StepState } from "../../src/log/run-state.ts";
import { CUT } from "../../src/runtime/attempt-outcome.ts";
import { ModelError } from "../../src/runtime/model-error.ts";
import { afterModelFailure, type ModelPolicy, modelToAsk } from "../../src/runtime/model-retry.ts";
import { at, leg, logOf, request, runStarted } from "../log/entries.ts";

const NOW = 1_000_000;

type Failure = "passing" | "for good" | "asks to wait" | "death" | "ours";

interface Ended {
  /** Which model each attempt asked, by index. */
  readonly asked: readonly number[];
  /** How long after its failure each attempt may be followed by the next. */
  readonly waits: readonly number[];
  readonly isOver: boolean;
}

/** Fails a step again and again, each time with what comes next, until it has failed for good. The step is read back from its log each time. */
function failing(policy: ModelPolicy, failures: readonly Failure[], random = 0): Ended {
  const path = at("0");
  const log: NewEntry[] = [
    runStarted,
    ...leg(1, "r1", request("r1")),
    {
      ...{ kind: "step.started", path, step: "model", name: "model", effect: "read", contract: null },
      input: { history: { upTo: 0, instructions: "h" as never, tools: "h" as never, settings: {} } },
    },
  ];
  const asked: number[] = [];
  const waits: number[] = [];
  for (const [i, failure] of failures.entries()) {
    const step = fold(logOf([log])).steps.get(path) as StepState;
    const model = modelToAsk(step, policy);
    const name = policy.models[model];
    if (name === undefined) throw new Error("there is no such model");
    asked.push(model);
    log.push({
      ...{ kind: "step.attempt", path, n: i + 1, epoch: 1, phase: "call", key: null, deadline: null },
      model: name,
    });
    const failed = { kind: "step.failed", path, n: i + 1, applied: "no" } as const;
    if (failure === "death") {
      log.push({ ...failed, error: CUT, retryAt: NOW });
      waits.push(0);
      continue;
    }
    const after = afterModelFailure(step, policy, model, errorOf(failure), { now: NOW, random });
    if (after === undefined) return { asked, waits, isOver: true };
    waits.push(after.retryAt - NOW);
    log.push({ ...failed, ...after });
  }
  return { asked, waits, isOver: false };
}

function errorOf(failure: Exclude<Failure, "death">): Error {
  switch (failure) {
    case "passing":
      return new ModelError("MODEL_UNAVAILABLE", "no", true);
    case "asks to wait":
      return new ModelError("MODEL_RATE_LIMITED", "later", true, undefined, { ms: 90_000 });
    case "for good":
      return new ModelError("MODEL_REFUSED", "never", false);
    default:
      return new RangeError("a fault of ours");
  }
}

const policy = fc.record({
  // Few names, so that one stands there twice.
  models: fc.array(fc.record({ provider: fc.constantFrom("a", "b"), modelId: fc.constant("m") }), {
    minLength: 1,
    maxLength: 4,
  }),
  attempts: fc.integer({ min: 1, max: 4 }),
});
const anyFailure = fc.constantFrom<Failure>("passing", "for good", "asks to wait", "death");
const many = fc.array(anyFailure, { minLength: 60, maxLength: 60 });

test("R1: each model is asked at most so often, in the order of the list, and then the step has failed", () => {
  fc.assert(
    fc.property(policy, many, (policy, failures) => {
      const { asked } = failing(policy, failures);
      const own = asked.filter((_, i) => failures[i] !== "death");
      expect(own).toEqual(own.toSorted((a, b) => a - b));
      for (const [i] of policy.models.entries()) {
        expect(own.filter((model) => model === i).length).toBeLessThanOrEqual(policy.attempts);
      }
      const passing = failing(
        policy,
        failures.map(() => "passing"),
      );
      expect(passing.isOver).toBe(true);
      expect(passing.asked).toEqual(policy.models.flatMap((_, i) => Array<number>(policy.attempts).fill(i)));
    }),
  );
});

test("R2: processes that die in between change neither whom it asks, nor how often, nor how long it waits", () => {
  fc.assert(
    fc.property(policy, many, fc.double({ min: 0, max: 0.99, noNaN: true }), (policy, failures, random) => {
      const withDeaths = failing(policy, failures, random);
      const alive = failures.filter((failure) => failure !== "death");
      const without = failing(policy, alive, random);
      const lived = (list: readonly number[]) => list.filter((_, i) => failures[i] !== "death");
      const ends = Math.min(lived(withDeaths.asked).length, without.asked.length);
      expect(lived(withDeaths.asked).slice(0, ends)).toEqual(without.asked.slice(0, ends));
      expect(lived(withDeaths.waits).slice(0, ends - 1)).toEqual(without.waits.slice(0, ends - 1));
    }),
  );
});

test("R3: a fault of our own is tried with no model again", () => {
  fc.assert(
    fc.property(policy, (policy) => {
      expect(failing(policy, ["ours"])).toEqual({ asked: [0], waits: [], isOver: true });
    }),
  );
});

const two: ModelPolicy = { models: ["a", "b"].map((provider) => ({ provider, modelId: "m" })), attempts: 3 };
const one: ModelPolicy = { ...two, models: two.models.slice(0, 1) };

test("back-off doubles, and the first attempt at a fallback waits for nobody", () => {
  expect(failing(two, Array<Failure>(6).fill("passing"))).toEqual({
    asked: [0, 0, 0, 1, 1, 1],
    waits: [100, 200, 0, 100, 200],
    isOver: true,
  });
});

test("what a provider asks for is waited for, but not by whoever has somebody else to ask", () => {
  expect(failing(one, ["asks to wait", "passing"]).waits).toEqual([90_000, 200]);
  expect(failing(two, ["asks to wait", "passing"])).toMatchObject({ asked: [0, 1], waits: [0, 100] });
});

test("a time of day is waited for, and one that has passed is now", () => {
  const at = (when: number) => {
    const error = new ModelError("MODEL_RATE_LIMITED", "later", true, undefined, { at: when });
    return afterModelFailure(undefined, one, 0, error, { now: NOW, random: 0 })?.retryAt;
  };
  expect(at(NOW + 30_000)).toBe(NOW + 30_000);
  expect(at(NOW - 30_000)).toBe(NOW + 100);
});

test("a step whose models are all used up, because fewer attempts are allowed now, asks the last one once more", () => {
  const step = { attempts: [1, 2].map((n) => attempt(n)) } as unknown as StepState;
  expect(modelToAsk(step, { ...one, attempts: 2 })).toBe(0);
  expect(modelToAsk(step, { ...two, attempts: 2 })).toBe(1);
});

const attempt = (n: number) => ({
  ...{ kind: "step.attempt", n, deadline: null, model: { provider: "a", modelId: "m" } },
  failed: { kind: "step.failed", error: { code: "MODEL_CUT", message: "cut" }, retryAt: NOW },
});
