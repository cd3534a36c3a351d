/** Tools that are known only at run time have to be known before anything is decided about a call that was recorded: what it does to the world they say. */
import { orAborted } from "./attempt-outcome.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { anyOf } from "./signals.ts";

/**
 * Waits for the tools of the calls of a run that goes on. A run that is to be cancelled, or stops, does not need them.
 *
 * @throws what keeps them away: the run is given back then, and claimed again after a while
 */
export async function toolsOfCalls(
  { agent, before, stop, report, lease }: DriverOptions,
  session: DriveSession,
): Promise<void> {
  const { loop } = agent;
  if (loop.refresh === undefined || loop.next(session.state, before).next !== "calls") return;
  const either = anyOf(stop, session.signal);
  try {
    await orAborted(loop.refresh(either.signal), either.signal);
  } catch (error) {
    if (stop.aborted || session.signal.aborted) return;
    const { state } = session;
    const isCancelled =
      state.cancelled || (await session.mail()).some(({ kind }) => kind === "cancel" || kind === "abandon");
    if (!isCancelled) throw error;
    report(error, lease.uid);
  } finally {
    either.release();
  }
}
