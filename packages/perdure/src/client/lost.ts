import { backoff } from "../protocol/backoff.ts";
import { ConnectionLostError } from "./errors.ts";

/** What stood in the way of a request or has cut a stream, and may pass. */
export class Lost extends Error {
  override readonly name = "Lost";
  constructor(
    message: string,
    options: ErrorOptions & {
      /** What the server itself asked for. Milliseconds. */
      readonly retryAfter?: number | undefined;
    } = {},
  ) {
    super(message, options);
    this.retryAfter = options.retryAfter;
  }
  readonly retryAfter: number | undefined;
}

export interface ReconnectOptions {
  /** How often in a row it is tried again without anything new before it is given up. Default 10; 0: never, `Infinity`: for ever. */
  readonly maxAttempts?: number;
  /** Milliseconds before the first time; each further one waits twice as long, less up to a half, at random. Default 250. */
  readonly initialDelayMs?: number;
  /** Milliseconds; default 15,000. A `Retry-After` of the server's may be longer. */
  readonly maxDelayMs?: number;
}

/** Said before each wait. */
export interface Reconnecting {
  /** From 1; begins again when something new has come. */
  readonly attempt: number;
  readonly delayMs: number;
  /** Why it is necessary. */
  readonly cause: Error;
}

export interface PatienceOptions extends ReconnectOptions {
  readonly onWait?: ((info: Reconnecting) => void) | undefined;
  readonly sleep?: ((ms: number, signal: AbortSignal) => Promise<void>) | undefined;
  readonly random?: (() => number) | undefined;
}

/** Decides whether and when something that was lost is tried again. */
export class Patience {
  #failures = 0;

  constructor(private readonly options: PatienceOptions) {}

  /** Something new has come: what was lost until now does not count any more. */
  reset(): void {
    this.#failures = 0;
  }

  /**
   * Does it until it is not lost.
   *
   * @throws {@link ConnectionLostError} when the attempts are used up
   */
  async persist<T>(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!(error instanceof Lost) || signal.aborted) throw error;
        await this.#wait(error, signal);
      }
    }
  }

  async #wait(cause: Lost, signal: AbortSignal): Promise<void> {
    const { maxAttempts = 10, initialDelayMs = 250, maxDelayMs = 15_000 } = this.options;
    const { onWait, sleep = pause, random = Math.random } = this.options;
    if (this.#failures >= maxAttempts) throw new ConnectionLostError(this.#failures, cause);
    const attempt = ++this.#failures;
    const bounds = { first: initialDelayMs, longest: maxDelayMs };
    const delayMs = Math.round(backoff(attempt, cause.retryAfter, random(), bounds));
    onWait?.({ attempt, delayMs, cause });
    await sleep(delayMs, signal);
    signal.throwIfAborted();
  }
}

/** The longest that a timer takes; past it, it would fire at once. Milliseconds. */
export const LONGEST_TIMER = 0x7fffffff;

/** Resolves after `ms`, or when the signal fires. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, Math.min(ms, LONGEST_TIMER));
    signal.addEventListener("abort", done);
  });
}
