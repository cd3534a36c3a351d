import { vi } from "vitest";

/** Turns of the event loop that a timer leaves to everything else before it rings. */
const TURNS = 20;

/**
 * Time that nobody waits for: whatever timer is next rings as soon as all else has had some turns, whether it stands for milliseconds or for
 * hours. So a deadline passes while a body is in the middle of something, and a play is the same each time. @returns ends it
 */
export function hurryTime(): () => void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
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
