/**
 * What the fold keeps of a budget beside the steps: for how long the run was active, and what was granted or refused when it was used up.
 *
 * Active is the time in which attempts run, side by side ones once; a child's time is its own run's. An attempt that was cut counts until it was found cut, up to its deadline:
 * how long its process lived, nobody knows.
 */
import { parseDuration } from "../protocol/duration.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Duration, Path } from "../protocol/words.ts";
import type { Entry, Fact, Interrupt } from "./entries.ts";

/** Nano-dollars in a dollar. */
export const NANO = 1_000_000_000;

/** Limits, or what is added to them. A limit that is not there is none. */
export interface Amounts {
  /** Model steps. A step that is tried again is one. */
  readonly steps?: number;
  /** Calls of the server's tools that began. */
  readonly calls?: number;
  /** Input and output together. */
  readonly tokens?: number;
  /** Nano-dollars. */
  readonly usd?: number;
  /** Milliseconds. */
  readonly time?: number;
  /** Calls by tool. */
  readonly perTool?: { readonly [tool: string]: number };
}

/** What the fold keeps beside the steps. */
export interface Spending {
  /** Milliseconds in which attempts have run, but for {@link since}. */
  readonly active: number;
  /** Since when some attempt runs. Milliseconds since the epoch. */
  readonly since: number | null;
  /** How many questions about the budget were asked. */
  readonly asked: number;
  /** What was added to the limits. */
  readonly raised: Amounts;
  /** Where that was done last; -1: never. Whoever did it knew of the overruns before. */
  readonly raisedAt: number;
  /** The question that was answered with "stop". */
  readonly stop: Interrupt | null;
}

export const NOTHING_SPENT: Spending = {
  ...{ active: 0, since: null, asked: 0, raised: {}, raisedAt: -1, stop: null },
};

/**
 * The spending once an entry has been noted.
 *
 * @param running - the attempts that run behind it
 * @param isChild - whether a step is another run
 */
export function afterEntry(
  spending: Spending,
  entry: Exclude<Entry, { kind: "frame" }>,
  running: {
    look(): ReadonlyMap<Path, { readonly attempt: { readonly path: Path; readonly deadline: number | null } }>;
  },
  isChild: (path: Path) => boolean,
): Spending {
  const { since } = spending;
  if (since === null) {
    return entry.kind === "step.attempt" && !isChild(entry.path) ? { ...spending, since: entry.at } : spending;
  }
  const own = [...running.look().values()].filter(({ attempt: { path } }) => !isChild(path));
  // Of the attempts that a crash has cut; each gets its `step.failed` behind it.
  const isCut = entry.kind === "run.resumed";
  if (own.length > 0 && !isCut && entry.kind !== "run.parked") return spending;
  const deadlines = isCut ? own.map(({ attempt }) => attempt.deadline ?? entry.at) : [];
  const until = deadlines.length === 0 ? entry.at : Math.min(entry.at, Math.max(...deadlines));
  return { ...spending, active: spending.active + Math.max(0, until - since), since: null };
}

export function afterRaise(spending: Spending, raise: Amounts, seq: number): Spending {
  return { ...spending, raised: plus(spending.raised, raise), raisedAt: seq };
}

/** @returns what a question's answer adds to the limits; undefined: the run is to stop */
export function readRaise({ status, payload }: Fact<"interrupt.answered">): Amounts | undefined {
  if (status !== "resolved" || !isJsonObject(payload) || payload.stop === true) return undefined;
  return isJsonObject(payload.raise) ? amountsOf(payload.raise) : undefined;
}

/** Amounts as people write them: dollars, and time as a duration. What is none counts for nothing. */
export function amountsOf(written: Json): Amounts {
  if (!isJsonObject(written)) return {};
  const { steps, calls, tokens, usd, time, perTool } = written;
  return {
    ...(isAmount(steps) && { steps }),
    ...(isAmount(calls) && { calls }),
    ...(isAmount(tokens) && { tokens }),
    ...(isAmount(usd) && { usd: Math.round(usd * NANO) }),
    ...durationOf(time),
    ...(isJsonObject(perTool) && { perTool: onlyAmounts(perTool) }),
  };
}

function durationOf(time: Json | undefined): { readonly time?: number } {
  try {
    return time === undefined ? {} : { time: parseDuration(time as Duration) };
  } catch {
    return {};
  }
}

function onlyAmounts(perTool: { readonly [tool: string]: Json }): { readonly [tool: string]: number } {
  return Object.fromEntries(
    Object.entries(perTool).flatMap(([tool, n]): [string, number][] => (isAmount(n) ? [[tool, n]] : [])),
  );
}

function isAmount(value: Json | undefined): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

const PLAIN = ["steps", "calls", "tokens", "usd", "time"] as const;

/** Each of them, both together. */
export function plus(one: Amounts, other: Amounts): Amounts {
  const perTool = { ...one.perTool };
  for (const [tool, n] of Object.entries(other.perTool ?? {})) perTool[tool] = (perTool[tool] ?? 0) + n;
  const plain = PLAIN.flatMap((limit): [string, number][] => {
    const [a, b] = [one[limit], other[limit]];
    return a === undefined && b === undefined ? [] : [[limit, (a ?? 0) + (b ?? 0)]];
  });
  return { ...Object.fromEntries(plain), ...(Object.keys(perTool).length > 0 && { perTool }) };
}

/** Of each limit the lesser one; one that only either has stands. */
export function lesser(one: Amounts, other: Amounts): Amounts {
  const perTool = { ...one.perTool };
  for (const [tool, n] of Object.entries(other.perTool ?? {})) perTool[tool] = Math.min(perTool[tool] ?? n, n);
  const plain = PLAIN.flatMap((limit): [string, number][] => {
    const [a = Number.POSITIVE_INFINITY, b = Number.POSITIVE_INFINITY] = [one[limit], other[limit]];
    const least = Math.min(a, b);
    return Number.isFinite(least) ? [[limit, least]] : [];
  });
  return { ...Object.fromEntries(plain), ...(Object.keys(perTool).length > 0 && { perTool }) };
}
