/** A limit for what may come to no end. It frees whoever waits; what he waited for may still be going on. */

/** Looks at the progress while nothing may happen. More than two, so that what is itself given up after one patience is given up first. */
const LOOKS_WITHOUT_PROGRESS = 3;
/** How many times his patience somebody waits for what does go on. */
const LONGEST_PLAY = 10;

/** How somebody waits. */
export interface Waiting {
  /** How long nothing may happen. Milliseconds. */
  readonly patience: number;
  /** Grows with all that happens. */
  readonly progress: () => number;
  /** What is thrown when it is too long. */
  readonly stuck: (why: string) => Error;
}

export async function patiently<T>(going: Promise<T>, { patience, progress, stuck }: Waiting): Promise<T> {
  let timer: ReturnType<typeof setInterval> | undefined;
  const late = new Promise<never>((_, reject) => {
    let seen = progress();
    let idle = 0;
    let looks = 0;
    timer = setInterval(() => {
      idle = progress() === seen ? idle + 1 : 0;
      seen = progress();
      looks += 1;
      if (idle === LOOKS_WITHOUT_PROGRESS) reject(stuck(`nothing has happened for ${patience} ms`));
      if (looks === 2 * LONGEST_PLAY)
        reject(stuck(`it goes on and on, and has no end after ${LONGEST_PLAY * patience} ms`));
    }, patience / 2);
  });
  try {
    return await Promise.race([going, late]);
  } finally {
    clearInterval(timer);
  }
}
