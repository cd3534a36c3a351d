/** Milliseconds before the first retry; each further one waits twice as long. */
const FIRST = 200;
const LONGEST = 60_000;

/**
 * When to try again, relative to now: exponential with jitter, so that the clients of a service that comes back do not come at once.
 *
 * @param failures - attempts that have failed, from 1
 * @param retryAfter - what the service itself asked for, in ms; it is waited for at least
 * @param random - in [0, 1)
 * @param bounds - of the waiting, in ms
 */
export function backoff(
  failures: number,
  retryAfter: number | undefined,
  random: number,
  { first, longest }: { readonly first: number; readonly longest: number } = { first: FIRST, longest: LONGEST },
): number {
  const ceiling = Math.min(longest, first * 2 ** (failures - 1));
  return Math.max(retryAfter ?? 0, ceiling / 2 + (random * ceiling) / 2);
}
