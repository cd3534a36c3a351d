/** How long a run may be active. The clock is the test's own: it stands still until all that can happen has, and jumps to the next timer. */
import { env } from "node:process";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { z } from "zod";
import { agent, type LanguageModel, tool } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { memoryDisk, Outside } from "../../src/testing/outside.ts";
import { type Asked, ReducingClient } from "../../src/testing/script-client.ts";

/** Turns of the event loop that everything else gets before the clock moves. */
const TURNS = 20;

let endOfHurry = (): void => {};
beforeEach(() => {
  let isOver = false;
  endOfHurry = () => {
    isOver = true;
  };
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"], now: 1_700_000_000_000 });
  let turns = 0;
  const turn = (): void => {
    if (isOver) return;
    turns += 1;
    if (turns % TURNS === 0) vi.advanceTimersToNextTimer();
    setImmediate(turn);
  };
  setImmediate(turn);
});
afterEach(() => {
  endOfHurry();
  vi.useRealTimers();
});

/** Resolves after `ms`; rejects at once when the signal fires. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

interface CallPlan {
  readonly effect: "read" | "write";
  readonly ms: number;
  readonly isApproved: boolean;
}
interface TimePlan {
  /** How long the model takes for each turn, and what it calls then. */
  readonly turns: readonly { readonly ms: number; readonly calls: readonly CallPlan[] }[];
  /** Milliseconds. */
  readonly limit: number;
  /** What the human adds, question by question, before he stops the run. */
  readonly raises: readonly number[];
  readonly fates: readonly Fate[];
}

const randomTime: fc.Arbitrary<TimePlan> = fc.record({
  turns: fc.array(
    fc.record({
      ms: fc.nat(3_000),
      calls: fc.array(
        fc.record({
          effect: fc.constantFrom("read" as const, "write" as const),
          ms: fc.nat(3_000),
          isApproved: fc.boolean(),
        }),
        { minLength: 1, maxLength: 3 },
      ),
    }),
    { maxLength: 3 },
  ),
  limit: fc.nat(9_000),
  raises: fc.array(fc.integer({ min: 1, max: 9_000 }), { maxLength: 3 }),
  fates: fc.array(
    fc.record({ when: fc.constantFrom("after" as const, "before" as const), commits: fc.integer({ min: 1, max: 12 }) }),
    { maxLength: 2 },
  ),
});

/** When bodies ran, by the clock of whoever looks at them from outside. */
class Watch {
  readonly #intervals: { readonly from: number; to: number | null; readonly isWrite: boolean }[] = [];
  readonly violations: string[] = [];
  /** Milliseconds. */
  allowed: number;
  writesBeyond = 0;

  constructor(limit: number) {
    this.allowed = limit;
  }

  /** Milliseconds in which at least one of them ran. */
  get active(): number {
    let total = 0;
    let until = 0;
    for (const { from, to } of this.#intervals.toSorted((a, b) => a.from - b.from)) {
      const end = to ?? Date.now();
      total += Math.max(0, end - Math.max(from, until));
      until = Math.max(until, end);
    }
    return total;
  }

  async body<T>(what: string, isWrite: boolean, work: () => Promise<T>): Promise<T> {
    if (this.active >= this.allowed) this.violations.push(`${what} begins after ${this.active} ms of ${this.allowed}`);
    const interval = { from: Date.now(), to: null as number | null, isWrite };
    this.#intervals.push(interval);
    try {
      return await work();
    } finally {
      // What a dead process still does is no time of the run's.
      interval.to ??= Date.now();
      if (this.active > this.allowed) {
        if (isWrite) this.writesBeyond += 1;
        else this.violations.push(`${what} ends after ${this.active} ms of ${this.allowed}`);
      }
    }
  }

  died(): void {
    for (const interval of this.#intervals) interval.to ??= Date.now();
  }
}

function timed(plan: TimePlan, watch: Watch): LoopAgent {
  const model: LanguageModel = {
    ...{ specificationVersion: "v3", provider: "fake", modelId: "model" },
    async doStream({ prompt, abortSignal }) {
      const turn = prompt.filter((message) => (message as { role: string }).role === "assistant").length;
      const { ms = 100, calls = [] } = plan.turns[turn] ?? {};
      await watch.body(`model step ${turn}`, false, () => sleep(ms, abortSignal));
      const parts: object[] = [
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "0" },
        { type: "text-delta", id: "0", delta: "So." },
        { type: "text-end", id: "0" },
        ...calls.map(({ effect, isApproved }, i) => ({
          ...{ type: "tool-call", toolCallId: `${turn}.${i}`, toolName: isApproved ? `${effect}_approved` : effect },
          input: JSON.stringify({ turn, i }),
        })),
        { type: "finish", finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop" }, usage: {} },
      ];
      return {
        stream: new ReadableStream({
          start(controller) {
            for (const part of parts) controller.enqueue(part);
            controller.close();
          },
        }),
      };
    },
  };
  const made = (effect: "read" | "write", isApproved: boolean) =>
    tool({
      name: isApproved ? `${effect}_approved` : effect,
      description: "Takes its time.",
      effect,
      settle: 0,
      approval: isApproved,
      input: z.object({ turn: z.number(), i: z.number() }),
      async call({ turn, i }, { signal }) {
        const ms = plan.turns[turn]?.calls[i]?.ms ?? 0;
        await watch.body(`${effect} ${turn}.${i}`, effect === "write", () => sleep(ms, signal));
        return "done";
      },
      reconcile: () => ({ applied: "no" as const }),
    });
  const tools = (["read", "write"] as const).flatMap((effect) => [made(effect, false), made(effect, true)]);
  return agent({ name: "timed", model, tools, budget: { time: plan.limit } }) as LoopAgent;
}

/** Long enough that it would show if it counted. Milliseconds. */
const LUNCH = 15_000;

async function playedInTime(plan: TimePlan) {
  const watch = new Watch(plan.limit);
  const outside = new Outside(memoryDisk());
  Object.assign(outside, { clock: () => Date.now() });
  const fates = [...plan.fates];
  const begin = async (): Promise<Life> => {
    const next = new Life(outside, fates.shift() ?? null, timed(plan, watch));
    void next.mortal.died.then(() => watch.died());
    await Promise.race([next.runtime.open(), next.mortal.died]);
    return next;
  };
  let life = await begin();
  const alive = async (): Promise<Life> => {
    while (life.mortal.isDead) {
      life.mortal.bury();
      deaths += 1;
      life = await begin();
    }
    return life;
  };
  let [deaths, questions, isStopped] = [0, 0, false];
  const client = new ReducingClient("timed", (url, init) => life.fetch(url, init));
  client.add({ id: "u", role: "user", content: "go" });
  const given = new Map<string, { readonly status: "resolved"; readonly payload: object }>();
  for (let n = 1, asked: Asked = { runId: "r1", resume: [], tools: [], turn: {} }; ; ) {
    await alive();
    const ran = await client.run(asked);
    if (ran === "cut") {
      if (!life.mortal.isDead) throw new Error(`cut, and alive: ${String(life.reported)}`);
      continue;
    }
    if (ran.questions.length === 0) break;
    await sleep(LUNCH);
    const resume = ran.questions.map(({ id, metadata }) => {
      const isBudget = (metadata as { kind: string }).kind === "budget";
      const raise = isBudget && !given.has(id) ? plan.raises[questions] : undefined;
      const payload = isBudget
        ? raise === undefined
          ? { stop: true }
          : { raise: { time: raise } }
        : { approved: true };
      if (!given.has(id) && isBudget) {
        questions += 1;
        watch.allowed += raise ?? 0;
        isStopped ||= raise === undefined;
      }
      if (!given.has(id)) given.set(id, { status: "resolved", payload });
      return { interruptId: id, ...(given.get(id) as { status: "resolved"; payload: object }) };
    });
    n += 1;
    asked = { ...asked, runId: `r${n}`, resume: resume as unknown as Asked["resume"] };
  }
  const log: Entry[] = [];
  for await (const entry of (await alive()).mortal.below.read("run-1" as Uid, -1)) log.push(entry);
  await life.runtime.close();
  vi.clearAllTimers();
  return { watch, log, deaths, questions, isStopped };
}

const plain = { turns: [{ ms: 1_000, calls: [] }], limit: 5_000, raises: [], fates: [] } as const;
const calls = (...made: (readonly [CallPlan["effect"], number, boolean?])[]): CallPlan[] =>
  made.map(([effect, ms, isApproved = false]) => ({ effect, ms, isApproved }));

test("a model call is cut in the very millisecond in which the time is up, and asked again when there is more", async () => {
  const plan = { ...plain, turns: [{ ms: 9_000, calls: [] }], raises: [8_999, 9_001] };
  const { watch, log, questions } = await playedInTime(plan);
  expect(watch.violations).toEqual([]);
  expect(questions).toBe(2);
  const cuts = log.flatMap((entry, i) => {
    if (entry.kind !== "step.failed") return [];
    const begun = log.slice(0, i).findLast(({ kind }) => kind === "step.attempt");
    return [{ code: entry.error.code, ms: entry.at - (begun?.at ?? 0) }];
  });
  expect(cuts).toEqual([
    { code: "BUDGET_TIME", ms: 5_000 },
    { code: "BUDGET_TIME", ms: 8_999 },
  ]);
});

test("the time that a human takes does not count, and calls that run side by side count once", async () => {
  const { watch, questions } = await playedInTime({
    ...plain,
    turns: [{ ms: 1_000, calls: calls(["read", 2_000, true], ["read", 2_000, true], ["read", 1_500]) }],
    limit: 4_601,
  });
  // 1,000 of the model; 1,500 of the call that waits for nobody; 2,000 of those that are approved; 100 of the last word.
  expect(watch.active).toBe(4_600);
  expect({ questions, violations: watch.violations }).toEqual({ questions: 0, violations: [] });
});

test("a write that runs is left to end, and nothing follows", async () => {
  const { watch, log, isStopped } = await playedInTime({
    ...plain,
    turns: [{ ms: 1_000, calls: calls(["write", 7_000], ["write", 10], ["read", 6_000]) }],
  });
  expect({ beyond: watch.writesBeyond, violations: watch.violations, isStopped }).toEqual({
    ...{ beyond: 1, violations: [], isStopped: true },
  });
  const ends = log.flatMap((entry) =>
    entry.kind === "step.finished" && entry.path.startsWith("1.") ? [`${entry.path} ${entry.status}`] : [],
  );
  expect(ends.toSorted()).toEqual(["1.0 ok", "1.1 cancelled", "1.2 cancelled"]);
});

test("500 random runs: nothing begins when the time is up, and what can be stopped ends in that millisecond, whoever dies", async () => {
  const met: { [what: string]: number } = {};
  await fc.assert(
    fc.asyncProperty(randomTime, async (plan) => {
      const { watch, deaths, questions, isStopped } = await playedInTime(plan);
      expect(watch.violations).toEqual([]);
      const found = { deaths, questions, stops: Number(isStopped), writesBeyond: watch.writesBeyond };
      for (const [what, n] of Object.entries(found)) met[what] = (met[what] ?? 0) + n;
    }),
    { numRuns: 500 },
  );
  if (env.PROPERTY_SEED !== undefined) return;
  const least = { deaths: 100, questions: 200, stops: 50, writesBeyond: 20 };
  for (const [what, n] of Object.entries(least)) expect(met[what], what).toBeGreaterThanOrEqual(n);
}, 600_000);
