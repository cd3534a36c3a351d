/** Plays agents under a budget of time, by a clock of their own. */
import { vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { Agent } from "../../src/runtime/agent-definition.ts";
import { type Fate, Life } from "../../src/testing/life.ts";
import { memoryDisk, Outside } from "../../src/testing/outside.ts";
import { type Asked, ReducingClient } from "../../src/testing/script-client.ts";
import { hurryTime } from "./hurried-time.ts";

export interface Timed {
  /** Milliseconds. */
  readonly limit: number;
  /** What the human adds, question by question, before he stops whoever asks. */
  readonly raises: readonly number[];
  readonly fates: readonly Fate[];
}

/** A clock that stands still until all that can happen has, and jumps to the next timer. @returns ends it */
export const jumpingClock = (): (() => void) => hurryTime(1_700_000_000_000);

/** Resolves after `ms`; rejects at once when the signal fires. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** When bodies of runs ran, by the clock of whoever looks at them from outside. */
export class Watch {
  readonly #runs = new Map<string, { readonly from: number; to: number | null }[]>();
  readonly violations: string[] = [];
  /** Milliseconds. */
  allowed: number;
  writesBeyond = 0;

  constructor(limit: number) {
    this.allowed = limit;
  }

  /** Milliseconds in which at least one of a run's bodies ran, those of all runs together. */
  get active(): number {
    let total = 0;
    for (const intervals of this.#runs.values()) {
      let until = 0;
      for (const { from, to } of intervals.toSorted((a, b) => a.from - b.from)) {
        const end = to ?? Date.now();
        total += Math.max(0, end - Math.max(from, until));
        until = Math.max(until, end);
      }
    }
    return total;
  }

  async body<T>(what: string, isWrite: boolean, work: () => Promise<T>, run = ""): Promise<T> {
    if (this.active >= this.allowed) this.violations.push(`${what} begins after ${this.active} ms of ${this.allowed}`);
    const interval = { from: Date.now(), to: null as number | null };
    this.#runs.set(run, [...(this.#runs.get(run) ?? []), interval]);
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
    for (const interval of [...this.#runs.values()].flat()) interval.to ??= Date.now();
  }
}

/** Long enough that it would show if it counted. Milliseconds. */
const LUNCH = 15_000;

export async function playedInTime(plan: Timed, agentOf: (watch: Watch) => Agent) {
  const watch = new Watch(plan.limit);
  const outside = new Outside(memoryDisk());
  Object.assign(outside, { clock: () => Date.now() });
  const fates = [...plan.fates];
  const begin = async (): Promise<Life> => {
    const next = new Life(outside, fates.shift() ?? null, agentOf(watch));
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
