import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";

/** The thing asked for is not there, or was refused. */
export const REFUSED = 1;
/** The command line makes no sense. */
export const USAGE = 2;

/** What ends a command: told on standard error, with a stable exit code. */
export class CommandError extends PerdureError {
  override readonly name = "CommandError";
  constructor(
    code: string,
    message: string,
    readonly more: {
      readonly exitCode?: typeof REFUSED | typeof USAGE;
      readonly details?: Json;
      /** What to run next, without the flags that say where. */
      readonly next?: readonly string[];
      readonly cause?: unknown;
    } = {},
  ) {
    super(code, message, { cause: more.cause });
  }

  get exitCode(): number {
    return this.more.exitCode ?? REFUSED;
  }
}

export function usage(message: string): CommandError {
  return new CommandError("USAGE", message, { exitCode: USAGE });
}

export function noRun(uid: string): CommandError {
  return new CommandError("RUN_NOT_FOUND", `there is no run ${uid}`, { next: ["ls"] });
}

export function noInterrupt(id: string): CommandError {
  return new CommandError("INTERRUPT_NOT_FOUND", `there is no interrupt ${id}`, { next: ["inbox"] });
}
