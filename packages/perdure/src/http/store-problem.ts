import { EntryError } from "../log/entries.ts";
import { LogError } from "../log/log-error.ts";
import { PayloadTooLargeError } from "../protocol/payload.ts";
import { CommitFailedError, EntryMissingError, StoreDamagedError, StoreError } from "../store/errors.ts";
import { problem } from "./problem.ts";

/**
 * What a client is told when the store is the cause: the code, and what to do about it. Paths and causes stay in the server's own log.
 *
 * @returns undefined when something else is wrong
 */
export function storeProblem(error: unknown): Response | undefined {
  if (error instanceof PayloadTooLargeError) return problem(413, error.code, error.message);
  if (error instanceof EntryError || error instanceof LogError || isDamage(error)) {
    return problem(
      500,
      error.code,
      "the log of this run cannot be read, so it is set aside and everything else goes on; its `aside` in GET /runs/:uid says why",
    );
  }
  if (error instanceof CommitFailedError) {
    return problem(
      503,
      error.code,
      "the server could not keep this request, and has done nothing of it; send it again later",
    );
  }
  if (error instanceof StoreError) {
    return problem(503, error.code, "the server has no store to work with; its log says why");
  }
  return undefined;
}

function isDamage(error: unknown): error is StoreDamagedError | EntryMissingError {
  return error instanceof StoreDamagedError || error instanceof EntryMissingError;
}
