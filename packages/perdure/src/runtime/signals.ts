/**
 * Signals that can be let go of. `AbortSignal.any` and `AbortSignal.timeout` keep whoever listens to them until they fire: with a signal that
 * lives as long as the process, that is for ever.
 */
import { setMaxListeners } from "node:events";

export interface Held {
  readonly signal: AbortSignal;
  /** From now on it does not fire any more. */
  release(): void;
}

/** Fires with the first of `signals`. */
export function anyOf(...signals: readonly AbortSignal[]): Held {
  return firedBy(new AbortController(), ...signals);
}

/** Fires a controller's signal with the first of `signals`, too. */
export function firedBy(controller: AbortController, ...signals: readonly AbortSignal[]): Held {
  const listeners = signals.map((signal) => {
    const listener = (): void => controller.abort(signal.reason);
    // Thousands may listen to one that stands for the server.
    setMaxListeners(0, signal);
    if (signal.aborted) listener();
    else signal.addEventListener("abort", listener, { once: true });
    return { signal, listener };
  });
  return {
    signal: controller.signal,
    release() {
      for (const { signal, listener } of listeners) signal.removeEventListener("abort", listener);
    },
  };
}

/** Resolves after `ms`, or when the signal fires. */
export async function elapsed(ms: number, signal: AbortSignal): Promise<void> {
  const limit = timeLimit(ms);
  const either = anyOf(signal, limit.signal);
  if (!either.signal.aborted) {
    await new Promise<void>((resolve) => either.signal.addEventListener("abort", () => resolve(), { once: true }));
  }
  either.release();
  limit.release();
}

/** Fires after `ms` with a `TimeoutError`, as `AbortSignal.timeout` does. */
export function timeLimit(ms: number): Held {
  const controller = new AbortController();
  const timer = setTimeout(
    () => controller.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError")),
    Math.min(ms, 0x7fffffff),
  );
  timer.unref();
  return { signal: controller.signal, release: () => clearTimeout(timer) };
}
