import { PerdureError } from "./errors.ts";
import type { Duration } from "./words.ts";

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** A text or number that is not a {@link Duration}. */
export class DurationError extends PerdureError {
  override readonly name = "DurationError";
  constructor(what: string, found: unknown) {
    super(
      "DURATION_INVALID",
      `${what} is ${typeof found === "string" ? JSON.stringify(found) : String(found)}; ` +
        'it must be a number of milliseconds, not negative, or a number with a unit: "250ms", "30s", "15m", "1h", "2d"',
    );
  }
}

/**
 * Milliseconds of a duration, rounded to whole ones.
 *
 * @param what - how an error names it, for example ``timeout of tool `refund` ``
 * @throws {@link DurationError} for anything that is not a finite duration of zero or more
 */
export function parseDuration(duration: Duration, what = "duration"): number {
  const ms = typeof duration === "number" ? duration : parseText(duration);
  if (!Number.isFinite(ms) || ms < 0 || ms > Number.MAX_SAFE_INTEGER) throw new DurationError(what, duration);
  return Math.round(ms);
}

function parseText(text: unknown): number {
  const parts = typeof text === "string" ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) : null;
  return parts ? Number(parts[1]) * UNITS[parts[2] as keyof typeof UNITS] : Number.NaN;
}
