/** Says whether measured times keep a promised bound. */

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** What is promised of the first contender. Ratios name another one. */
export type Bound =
  | { readonly slowerThan: string; readonly atMost: number }
  | { readonly fasterThan: string; readonly atLeast: number }
  | { readonly atMostMicroseconds: number }
  /** `each`: how many of them one job makes. */
  | { readonly atLeastPerSecond: number; readonly of: string; readonly each: number };

export interface Verdict {
  /** The bound in words. */
  readonly claim: string;
  /** What was measured, in the bound's unit. */
  readonly value: Spread;
  readonly passed: boolean;
}

/** A contender's nanoseconds for one job, and how many times these ours take. */
interface Measured {
  readonly name: string;
  readonly ns: Spread;
  readonly ratio: Spread;
}

/**
 * Judges the median; the spread is for the reader.
 *
 * @param measured ours first
 * @throws when the bound names a contender that was not measured
 */
export function judge(bound: Bound, measured: readonly Measured[]): Verdict {
  if ("slowerThan" in bound) {
    const value = find(measured, bound.slowerThan).ratio;
    return {
      claim: `at most ${bound.atMost}x the time of ${bound.slowerThan}`,
      value,
      passed: value.median <= bound.atMost,
    };
  }
  if ("fasterThan" in bound) {
    const value = inverse(find(measured, bound.fasterThan).ratio);
    return {
      claim: `at least ${bound.atLeast}x faster than ${bound.fasterThan}`,
      value,
      passed: value.median >= bound.atLeast,
    };
  }
  const ours = find(measured, measured[0]?.name).ns;
  if ("atMostMicroseconds" in bound) {
    const value = scale(ours, 1e-3);
    return { claim: `at most ${bound.atMostMicroseconds} µs`, value, passed: value.median <= bound.atMostMicroseconds };
  }
  const value = scale(inverse(ours), 1e9 * bound.each);
  const claim = `at least ${bound.atLeastPerSecond.toLocaleString("en")} ${bound.of}/s`;
  return { claim, value, passed: value.median >= bound.atLeastPerSecond };
}

/** A figure that must not be larger than promised; the median is judged. */
export function atMost(claim: string, value: Spread, bound: number): Verdict {
  return { claim: `${claim} at most ${bound}`, value, passed: value.median <= bound };
}

/** @param values at least one */
export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (index: number) => sorted[index] ?? Number.NaN;
  const middle = (sorted.length - 1) / 2;
  return { median: (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2, min: at(0), max: at(sorted.length - 1) };
}

function find(measured: readonly Measured[], name: string | undefined): Measured {
  const found = measured.find((contender) => contender.name === name);
  if (found === undefined) throw new Error(`A bound names "${name}", which was not measured.`);
  return found;
}

function inverse({ median, min, max }: Spread): Spread {
  return { median: 1 / median, min: 1 / max, max: 1 / min };
}

function scale({ median, min, max }: Spread, by: number): Spread {
  return { median: median * by, min: min * by, max: max * by };
}
