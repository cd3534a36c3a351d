import type { Fact, NewEntry } from "../log/entries.ts";
import { backoff } from "../protocol/backoff.ts";
import type { OwnStep } from "./agent-definition.ts";
import { failures, orAborted, recordedError, TimeIsUp } from "./attempt-outcome.ts";
import type { ModelBound } from "./budget.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";

/** How often a step is tried whose failure may be over the next time. */
const TRIES = 3;

/**
 * One attempt at a step of the loop's own, which changes nothing outside and shows nothing: recorded before it begins, and with its output, so
 * that what it came to is never asked for twice.
 *
 * @returns what to run; it resolves when the attempt has its outcome
 */
export function ownAttempt(
  { report, now, random }: DriverOptions,
  session: DriveSession,
  { step, reserved, deadline }: { readonly step: OwnStep } & ModelBound,
): (signal: AbortSignal) => Promise<void> {
  const { path, name, input } = step;
  const { state } = session;
  const known = state.steps.get(path);
  const n = (known?.attempts.length ?? 0) + 1;
  const started: NewEntry = {
    ...{ kind: "step.started", path, step: "custom", name, effect: "read" },
    ...{ input: { value: input }, contract: null },
  };
  return async (signal) => {
    session.add([
      ...(known === undefined ? [started] : []),
      {
        kind: "step.attempt",
        path,
        n,
        epoch: session.epoch,
        phase: "call",
        key: null,
        deadline: deadline ?? null,
        ...(reserved && { reserved }),
      },
    ]);
    await session.committed();
    const end: Omit<Fact<"step.finished">, "status"> = { kind: "step.finished", path, via: "call" };
    try {
      const { begun } = await session.begin(() => step.run(signal, reserved?.output));
      const { output, usage } = await orAborted(begun, signal);
      if (!session.isRunning(path, n)) return;
      session.add([{ ...end, status: "ok", output, patch: [], ...(usage !== undefined && { usage }) }]);
    } catch (error) {
      if (!session.isRunning(path, n)) return;
      const isOfTime = error instanceof TimeIsUp;
      if (session.state.cancelled) return session.add([{ ...end, status: "cancelled" }]);
      const recorded = recordedError(error, state.run.uid, report);
      const failed = known === undefined ? 1 : failures(known) + 1;
      if (isOfTime || (step.mayRetry?.(error) && failed < TRIES)) {
        const retryAt = isOfTime ? now() : now() + backoff(failed, undefined, random());
        session.add([{ kind: "step.failed", path, n, error: recorded, applied: "no", retryAt }]);
      } else session.add([{ ...end, status: "error", error: recorded, applied: "no" }]);
    }
  };
}
