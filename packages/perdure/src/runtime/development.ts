/**
 * Development mode: tells what the code of a custom loop does that will not be the same when it is run again. Whose code is running is known from
 * the asynchronous context, which the bodies of steps do not share: they are run by the driver.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { PerdureError } from "../protocol/errors.ts";
import { isCalledByUs, placeInCode } from "./place-in-code.ts";

/** Code of a custom loop does something that is not the same every time. */
export class NotDeterministic extends PerdureError {
  override readonly name = "NotDeterministic";
  constructor(
    /** For example `Date.now()`. */
    readonly what: string,
    /** Where in the code. */
    readonly at: string,
    use: string,
  ) {
    super(
      "NOT_DETERMINISTIC",
      `${what} in the code of a loop, at ${at}: it says something else when the code is run again; use ${use}`,
    );
  }
}

/** Code of a custom loop has ended without waiting for a step that it began. */
export class StepNotAwaited extends PerdureError {
  override readonly name = "StepNotAwaited";
  constructor(
    readonly path: string,
    readonly step: string,
    readonly at: string | null,
  ) {
    super(
      "STEP_NOT_AWAITED",
      `step "${step}" (${path}), begun at ${at ?? "an unknown place"}, was not awaited: what becomes of it is lost; await it`,
    );
  }
}

/** A function that says something else each time, and what code of a loop uses in its place. */
interface Careless {
  readonly what: string;
  readonly use: string;
  readonly called: () => unknown;
}

const watched = new AsyncLocalStorage<(careless: Careless) => void>();
let isPatched = false;

/** Runs code of a loop, and reports each place in it once. */
export function watchLoop<T>(code: () => T, report: (error: NotDeterministic) => void): T {
  patch();
  const told = new Set<string>();
  return watched.run(({ what, use, called }) => {
    if (isCalledByUs(called)) return;
    const at = placeInCode() ?? "an unknown place";
    if (told.has(`${what} ${at}`)) return;
    told.add(`${what} ${at}`);
    report(new NotDeterministic(what, at, use));
  }, code);
}

/** Once in a process: outside of a loop's code the functions are what they were. */
function patch(): void {
  if (isPatched) return;
  isPatched = true;
  const { now } = Date;
  const { random } = Math;
  Date.now = function called() {
    watched.getStore()?.({ what: "Date.now()", use: "ctx.now()", called });
    return now.call(Date);
  };
  Math.random = function called() {
    watched.getStore()?.({ what: "Math.random()", use: "ctx.random()", called });
    return random.call(Math);
  };
}
