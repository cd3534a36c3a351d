/** How properties of budgets are played: with nobody who waits for timers, and with a count of what has happened. */
import { env } from "node:process";
import { afterAll, beforeAll, beforeEach, expect, vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { chargeOf } from "../../src/log/spent.ts";
import type { Agent } from "../../src/runtime/agent-definition.ts";
import { play } from "../../src/testing/play.ts";
import { quietClient } from "../protocol/published-client.ts";
import { Books, budgetAnswer, type Thrifty } from "./budget-ledger.ts";
import { hurryTime } from "./hurried-time.ts";
import { type Story, staged, type World } from "./world.ts";

/** For a whole file. */
export function hurried(): void {
  quietClient();
  beforeEach(() => {
    vi.spyOn(console, "error").mockImplementation(() => {});
  });
  let endOfHurry = (): void => {};
  beforeAll(() => {
    endOfHurry = hurryTime();
  });
  afterAll(() => endOfHurry());
}

export async function playedUnder<P extends Thrifty>(plan: P, agent: (plan: P, world: World) => Agent, says: string) {
  const story: Story = {
    ...{ name: "a thrifty agent", fails: true, says },
    agent: (world) => agent(plan, world),
    answers: (question, { world }) => budgetAnswer(plan, question, world),
  };
  // The published client takes a run that has failed for a request to be sent again.
  const { client: _, ...stage } = staged(story);
  const ended = await play(stage, plan.fates);
  vi.clearAllTimers();
  return { ...ended, log: ended.logs.flat(), books: Books.of(ended.world) };
}

/** The limits that questions of a log have named. */
export function limitsAsked(log: readonly Entry[]): readonly string[] {
  return log.flatMap((entry) => {
    if (entry.kind !== "interrupt.opened" || entry.interrupt.kind !== "budget") return [];
    const { limits } = entry.interrupt.metadata as unknown as { limits: { limit: string }[] };
    return limits.map(({ limit }) => limit);
  });
}

const isBudgets = (id: string): boolean => /:b\d+$/.test(id);

/** Model attempts that began between an overrun and a human's word to go on. */
export function behindOverruns(log: readonly Entry[]): number[] {
  const reserved = new Map<string, { tokens: number }>();
  let isOverrun = false;
  return log.flatMap((entry) => {
    if (entry.kind === "step.attempt" && entry.reserved !== undefined) {
      reserved.set(entry.path, chargeOf(entry.reserved));
      return isOverrun ? [entry.seq] : [];
    }
    if (entry.kind === "step.finished") {
      const [{ inputTokens = 0, outputTokens = 0 } = {}] = entry.usage ?? [];
      const bound = reserved.get(entry.path);
      if (bound !== undefined && inputTokens + outputTokens > bound.tokens) isOverrun = true;
    }
    if (entry.kind === "interrupt.answered" && isBudgets(entry.id)) isOverrun = false;
    return [];
  });
}

/** What a property has met: else it may have tested nothing of what it is about. */
export class Met {
  readonly #counts: { [what: string]: number } = {};

  add(what: string, n = 1): void {
    this.#counts[what] = (this.#counts[what] ?? 0) + n;
  }

  addAll(found: { readonly [what: string]: number }): void {
    for (const [what, n] of Object.entries(found)) this.add(what, n);
  }

  /**
   * Unless the seed is somebody's own.
   *
   * @param share - of the runs that `least` is meant for
   */
  expectAtLeast(least: { readonly [what: string]: number }, share = 1): void {
    if (env.PROPERTY_SEED !== undefined) return;
    for (const [what, n] of Object.entries(least)) expect(this.#counts[what], what).toBeGreaterThanOrEqual(n * share);
  }
}
