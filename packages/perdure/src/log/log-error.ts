import { PerdureError } from "../protocol/errors.ts";
import { PatchError } from "../protocol/patch.ts";
import { ProtocolError } from "../protocol/rules.ts";
import type { Uid } from "../protocol/words.ts";

/** An entry, or a reference to one, that makes no sense after what came before it. The log is set aside as it is; nothing is guessed. */
export class LogError extends PerdureError {
  override readonly name = "LogError";
  constructor(
    /** The run, where it is known. */
    readonly run: Uid | null,
    /** The entry in question, or what is wanted of the log. */
    readonly what: string,
    /** Why it cannot be. */
    readonly why: string,
    options?: ErrorOptions,
  ) {
    super(
      "LOG_BROKEN",
      `${what}${run === null ? "" : ` of run ${run}`} does not follow from what the log says before it: ${why}; ` +
        "restore the log from a backup",
      options,
    );
  }
}

/** What folding a stored log has thrown, as the fault of that log. Anything but the fold's own errors stays what it is. */
export function brokenLog(run: Uid, error: unknown): unknown {
  return error instanceof ProtocolError || error instanceof PatchError
    ? new LogError(run, "an entry of its log", error.message, { cause: error })
    : error;
}
