import { vi } from "vitest";

/** Turns of the event loop that a timer leaves to everything else before it rings. */
const TURNS = 20;

/**
 * Time that nobody waits for: whatever timer is next rings as soon as all else has had some turns, whether it stands for milliseconds or for
 * hours. So a deadline passes while a body is in the middle of something, and a play is the same each time.
 *
 * @param from - what the clock says at the beginning, ms since the epoch, and it stands still between timers; none: it is the real one
 * @returns ends it
 */
export function hurryTime(from?: number): () => void {
  vi.useFakeTimers(
    from === undefined
      ? { toFake: ["setTimeout", "clearTimeout"] }
      : { toFake: ["setTimeout", "clearTimeout", "Date"], now: from },
  );
  let isOver = false;
  let turns = 0;
  const turn = (): void => {
    if (isOver) return;
    turns += 1;
    if (turns % TURNS === 0) vi.advanceTimersToNextTimer();
    setImmediate(turn);
  };
  setImmediate(turn);
  return () => {
    isOver = true;
    vi.useRealTimers();
  };
}
