/**
 * Random agents: turns of calls of every effect, which fail, ask, suspend, publish, outrun their time and end late, in a world that dies and is
 * answered anywhere. Everything that is to be the same after a death is data here, or stands in the ledger.
 */
import fc from "fast-check";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { applied, HandlerError, notApplied, suspend, tool, unknown } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { Fate } from "../../src/testing/life.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolContext, ToolDefinition } from "../../src/tool/definition.ts";
import { type Crowd, OFFICER, randomCrowd } from "./random-people.ts";
import { RandomWorld } from "./random-world.ts";
import type { World } from "./world.ts";

/** A body that outruns its time. */
export interface Outrun {
  /** Whether it does what it is for: before its deadline, behind it, or not at all this time. */
  readonly acts: "before" | "behind" | "never";
  /** What it makes of its signal: it heeds it at once, or ignores it and ends later, or never. */
  readonly ends: "heeding" | "output" | "not applied" | "error" | "never";
  /** Turns of the event loop between its deadline and its late end. */
  readonly turns: number;
  /** Effects that a human may have to be asked about outrun their time once. */
  readonly often: "once" | "always";
}

/** How a call behaves. */
export interface CallPlan {
  readonly effect: "read" | "idempotent" | "write";
  readonly key: boolean;
  readonly parallel: boolean;
  readonly reconcile: "none" | "looks" | "cannot tell" | "fails" | "lies";
  readonly approval: "none" | "approve" | "reject" | "edit";
  /** Whether the approval asks for a scope. */
  readonly audience: boolean;
  readonly suspends: "no" | "resume" | "answer";
  /** What its first attempt that gets there fails with; `for ever`: every attempt. */
  readonly fails: "no" | "retryable" | "for ever" | "unknown, done" | "unknown, not done";
  readonly outruns: Outrun | null;
  readonly publishes: boolean;
}

export interface Plan {
  readonly turns: readonly (readonly CallPlan[])[];
  /** Where lives end, beside those that a commit ends. */
  readonly fates: readonly (
    | { readonly when: "after" | "before"; readonly commits: number }
    | { readonly body: number }
  )[];
  /** Which appends the disk refuses, all lives counted: the driver loses its run, and its bodies run on beside the next one. */
  readonly faults: readonly number[];
  readonly crowd: Crowd;
}

export type NamedCall = CallPlan & { readonly name: string };

/** Does one thing, at once, alone and for good; no human is needed. */
export const plainCall: CallPlan = {
  ...{ effect: "write", key: false, parallel: false, reconcile: "none", approval: "none", audience: false },
  ...{ suspends: "no", fails: "no", outruns: null, publishes: false },
};

const mostly = <T, R>(common: T, rare: fc.Arbitrary<R>): fc.Arbitrary<T | R> =>
  fc.oneof({ arbitrary: fc.constant(common), weight: 3 }, { arbitrary: rare, weight: 2 });

const outrun: fc.Arbitrary<Outrun> = fc.record({
  acts: fc.constantFrom("before", "behind", "never"),
  ends: fc.constantFrom("heeding", "output", "output", "not applied", "error", "never"),
  turns: fc.nat(160),
  often: mostly("once" as const, fc.constant("always" as const)),
});

const callPlan: fc.Arbitrary<CallPlan> = fc
  .record({
    effect: fc.constantFrom("read" as const, "idempotent" as const, "write" as const, "write" as const),
    key: fc.boolean(),
    parallel: mostly(false, fc.constant(true)),
    reconcile: fc.constantFrom("none", "none", "looks", "looks", "cannot tell", "fails", "lies"),
    approval: mostly("none" as const, fc.constantFrom("approve", "reject", "edit")),
    audience: fc.boolean(),
    suspends: mostly("no" as const, fc.constantFrom("resume", "answer")),
    fails: mostly("no" as const, fc.constantFrom("retryable", "for ever", "unknown, done", "unknown, not done")),
    outruns: mostly(null, outrun),
    publishes: fc.boolean(),
  })
  .map((plan: CallPlan) => sensible(plan));

/** Without what a plan cannot mean. */
function sensible(plan: CallPlan): CallPlan {
  const { effect, suspends, fails, outruns } = plan;
  const isWrite = effect === "write";
  // Only a write can be unknown, and only one that does something itself can fail at it.
  const canFail = suspends !== "answer" && (isWrite || !fails.startsWith("unknown"));
  return { ...plan, fails: canFail ? fails : "no", outruns: outruns && sensibleOutrun(plan, outruns) };
}

function sensibleOutrun({ effect, suspends }: CallPlan, { acts, ends, often, turns }: Outrun): Outrun {
  // Nobody says that nothing was done when it was; and who only asks does nothing.
  const isIdle = suspends === "answer";
  // Who says that it was done has done it, and who heeds his signal does nothing behind it.
  const wrong = { heeding: "behind", output: "never", error: null, never: "behind" };
  return {
    ends,
    turns,
    acts: isIdle || ends === "not applied" ? "never" : acts === wrong[ends] ? "before" : acts,
    often: effect === "write" ? "once" : often,
  };
}

export const randomPlan: fc.Arbitrary<Plan> = fc.record({
  turns: fc.array(fc.array(callPlan, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 2 }),
  fates: fc.array(
    fc.oneof(
      fc.record({
        when: fc.constantFrom("after" as const, "before" as const),
        commits: fc.integer({ min: 1, max: 20 }),
      }),
      fc.record({ body: fc.nat(60) }),
    ),
    { maxLength: 4 },
  ),
  faults: mostly([], fc.array(fc.integer({ min: 2, max: 40 }), { minLength: 1, maxLength: 2 })),
  crowd: randomCrowd,
});

interface Board {
  readonly [name: string]: string;
}

/** The calls of a plan, in the order of the model's turns, each a tool of its own. */
export function callsOf({ turns }: Pick<Plan, "turns">): readonly NamedCall[] {
  return turns.flatMap((turn, i) => turn.map((plan, j) => ({ ...plan, name: `t${i}c${j}` })));
}

/** What the ledger holds once a call has done what it is for. */
export const rowOf = (name: string): string => `done ${name}`;

/** What a body returns whose time was over, where nothing is to come of that. */
export const TOO_LATE = "too late";

const places = (name: string): readonly string[] =>
  ["begins", "has acted", "returns", "outruns its time", "is late"].map((place) => `${name}: ${place}`);

/** The fates of a plan for the bodies that it has. */
export function fatesOf(plan: Plan): readonly Fate[] {
  const all = callsOf(plan).flatMap(({ name }) => places(name));
  return plan.fates.map((fate) => ("when" in fate ? fate : { at: all[fate.body % all.length] ?? "", nth: 1 }));
}

export function agentOf(plan: Plan, world: World): LoopAgent {
  const lives = RandomWorld.of(world);
  lives.begins();
  return agent<Board>({
    name: "random",
    model: scriptedModel([
      ...plan.turns.map((turn, i) => ({
        text: `Turn ${i}.`,
        calls: turn.map((_, j) => ({ name: `t${i}c${j}`, input: { name: `t${i}c${j}`, note: "as asked" } })),
      })),
      { text: "Done." },
    ]),
    tools: callsOf(plan).map((call) => new RandomTool(call, world, lives).definition()),
    state: { initial: () => ({}) },
  }) as LoopAgent;
}

const Output = z.object({ ok: z.string() });
type Output = z.infer<typeof Output>;
type Ctx = ToolContext<Board, string | undefined>;

/** One attempt's time limit, which no body waits for that is not to outrun it. Milliseconds. */
export const SHORT = 5_000;

class RandomTool {
  constructor(
    private readonly plan: NamedCall,
    private readonly world: World,
    private readonly lives: RandomWorld,
  ) {}

  definition(): ToolDefinition {
    const { name, effect, key, parallel, reconcile, approval, audience, suspends, outruns } = this.plan;
    return tool({
      name,
      description: `Does ${name}.`,
      effect,
      settle: 0,
      parallel: parallel || effect === "read",
      ...(outruns && { timeout: SHORT }),
      input: z.object({ name: z.string(), note: z.string() }),
      output: Output,
      ...(suspends === "resume" && { answer: Output }),
      state: z.custom<Board>(),
      ...(approval !== "none" && { approval: { message: `Run \`${name}\`?`, ...(audience && { audience: OFFICER }) } }),
      ...(key && effect !== "read" && { idempotencyKey: () => ["random", name] }),
      call: ({ note }: { note: string }, ctx: Ctx) => this.#alive(() => this.#call(note, ctx)),
      ...(suspends === "resume" && {
        resume: (_: Output, __: unknown, ctx: Ctx) => this.#alive(() => this.#work(ctx)),
      }),
      ...(reconcile !== "none" && { reconcile: (_: unknown, ctx: Ctx) => this.#reconcile(ctx) }),
      reduce(board: Board, { ok }: Output) {
        (board as Record<string, string>)[ok] = "done";
      },
    }) as ToolDefinition;
  }

  async #alive<T>(body: () => Promise<T>): Promise<T> {
    const ended = this.lives.running(this.plan.name);
    try {
      return await body();
    } finally {
      ended();
    }
  }

  async #call(note: string, ctx: Ctx) {
    const { name, publishes, suspends } = this.plan;
    if (publishes) this.#publish(ctx, `${note}…`);
    if (suspends === "no") return await this.#work(ctx);
    await this.world.at(`${name}: begins`);
    if (suspends === "answer") await this.#outrun(ctx, async () => {});
    return suspend({ message: `What of \`${name}\`?` });
  }

  async #work(ctx: Ctx): Promise<Output> {
    const { world } = this;
    const { name, fails } = this.plan;
    await world.at(`${name}: begins`);
    if (fails === "for ever") throw new HandlerError("it never works", { applied: "no", code: "NEVER" });
    if (fails === "retryable" && (await world.actOnce(`outage of ${name}`))) {
      throw new HandlerError("not now", { applied: "no", retryable: true, code: "NOT_NOW" });
    }
    if (fails === "unknown, not done" && (await world.actOnce(`lost request of ${name}`)))
      throw new Error("connection reset");
    const late = await this.#outrun(ctx, () => this.#act(ctx));
    if (late !== undefined) return late;
    await this.#act(ctx);
    await world.at(`${name}: has acted`);
    if (fails === "unknown, done" && (await world.actOnce(`lost answer of ${name}`)))
      throw new Error("connection reset");
    await world.at(`${name}: returns`);
    return { ok: name };
  }

  async #act({ idempotencyKey }: Ctx): Promise<void> {
    const { name, effect } = this.plan;
    if (effect === "write") await this.world.act(rowOf(name));
    else if (effect === "idempotent") await this.world.actOnce(`${rowOf(name)} ${idempotencyKey}`);
  }

  /** @returns what it ends with once its time is over, or undefined when it does not outrun it */
  async #outrun(ctx: Ctx, act: () => Promise<void>): Promise<Output | undefined> {
    const { world, lives } = this;
    const { name, effect, suspends, outruns } = this.plan;
    if (outruns === null) return undefined;
    const { acts, ends, often, turns } = outruns;
    const isFirst = await world.actOnce(`delay of ${name}`);
    if (!isFirst && often === "once") return undefined;
    await world.at(`${name}: outruns its time`);
    if (acts === "before") await act();
    await fired(ctx.signal);
    lives.outruns += 1;
    if (ends === "heeding") throw ctx.signal.reason;
    if (ends === "never") return await lives.hangs(name);
    for (let left = turns; left > 0; left--) {
      lives.endsIn(name, left);
      await new Promise((resolve) => setImmediate(resolve));
      await world.at(`${name}: is late`);
    }
    if (acts === "behind") await act();
    // In the tick of its deadline it is not late yet.
    if (turns > 0) this.#publishLate(ctx);
    if (ends === "error") throw new Error("gone");
    if (ends === "not applied") throw new HandlerError("nothing was done", { applied: "no", code: "NOTHING" });
    // A late question is none.
    return { ok: effect === "write" && suspends !== "answer" ? lives.landed(name) : TOO_LATE };
  }

  #publish(ctx: Ctx, note: string): void {
    ctx.updateState((board) => {
      (board as Record<string, string>)[this.plan.name] = note;
    });
    ctx.publishState();
  }

  /** Whether it is told that nobody listens any more is its driver's affair. */
  #publishLate(ctx: Ctx): void {
    try {
      this.#publish(ctx, TOO_LATE);
    } catch (error) {
      if ((error as Error).name !== "RunInterrupted") throw error;
    }
  }

  async #reconcile({ attempt }: Ctx) {
    const { name, reconcile } = this.plan;
    const isDone = this.world.count(rowOf(name)) > 0;
    if (reconcile === "fails") throw new HandlerError("503", { retryable: true });
    if (reconcile === "cannot tell") return unknown();
    if (reconcile === "looks") return isDone ? applied({ ok: name }) : notApplied();
    if (isDone) this.lives.lied(name, `reconcile of attempt ${attempt}`);
    return notApplied();
  }
}

function fired(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
