/** How a body's attempt may end beside returning and failing by itself. */
import { publicError } from "../emit/errors.ts";
import type { StepState } from "../log/fold.ts";
import type { Attempt } from "../log/run-state.ts";
import { PerdureError } from "../protocol/errors.ts";
import { jsonEqual } from "../protocol/json.ts";
import type { RecordedError, Uid } from "../protocol/words.ts";
import { HandlerError, InvalidInput, InvalidOutput } from "../tool/errors.ts";

/** What an attempt that died with its process has failed with. */
export const CUT: RecordedError = { code: "CUT", message: "the process that ran it died" };

/** What an attempt has failed with whose process lost the run and lives: its store failed, for example. */
export const LOST: RecordedError = { code: "CUT", message: "the process that ran it lost the run" };

/** What an attempt has failed with that an operator cut. */
export const GIVEN_UP: RecordedError = { code: "CUT", message: "the run was abandoned" };

/** Code of the failure of an attempt that nobody made here: another run has left it open. Such an attempt has no deadline. */
export const INHERITED = "INHERITED";

export function isDeath(error: RecordedError): boolean {
  return isSame(error, CUT);
}

/** How often a step has failed by itself. A cut is no fault of the tool's and costs it none of its attempts, nor is what others left. */
export function failures({ attempts }: StepState): number {
  return attempts.filter(failedByItself).length;
}

export function failedByItself({ failed, deadline }: Attempt): boolean {
  if (failed === undefined || [CUT, LOST, GIVEN_UP].some((cut) => isSame(failed.error, cut))) return false;
  return failed.error.code !== INHERITED || deadline !== null;
}

function isSame(error: RecordedError, other: RecordedError): boolean {
  return jsonEqual({ ...error }, { ...other });
}

/** A step was stopped because its run was cancelled. */
export class Cancelled extends PerdureError {
  override readonly name = "Cancelled";
  constructor() {
    super("CANCELLED", "the run was cancelled");
  }
}

/** An attempt took longer than its tool allows. */
export class TimedOut extends PerdureError {
  override readonly name = "TimedOut";
  constructor() {
    super("TIMEOUT", "it took too long");
  }
}

/** A body ended after its step had got another outcome. Its result is not recorded. */
export class LateOutcome extends PerdureError {
  override readonly name = "LateOutcome";
  constructor(tool: string, path: string) {
    super("LATE_OUTCOME", `tool \`${tool}\` (step ${path}) ended after its step had: what it returned is not recorded`);
  }
}

/** A line that a tool wrote to the server's log. */
export class ToolLog extends PerdureError {
  override readonly name = "ToolLog";
  constructor(
    tool: string,
    message: string,
    readonly data: unknown,
  ) {
    super("TOOL_LOG", `tool \`${tool}\`: ${message}`);
  }
}

/** Rejects when the signal fires first; the body is left behind then. */
export async function orAborted<T>(body: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(isTimeout(signal.reason) ? new TimedOut() : signal.reason);
  });
  if (signal.aborted) stop();
  else signal.addEventListener("abort", stop, { once: true });
  try {
    return await Promise.race([body, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === "TimeoutError";
}

/** What log, model and client may know of a failure; the cause goes to whoever runs the server. */
export function recordedError(error: unknown, run: Uid, report: (error: unknown, run: Uid) => void): RecordedError {
  if (error instanceof Cancelled || error instanceof TimedOut) return { code: error.code, message: error.message };
  if (error instanceof HandlerError || error instanceof InvalidInput || error instanceof InvalidOutput) {
    if (error.cause !== undefined) report(error, run);
    return { code: error.code, message: error.message };
  }
  report(error, run);
  return publicError(error);
}
