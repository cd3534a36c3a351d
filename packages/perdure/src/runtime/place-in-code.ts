/** Which line of whose code has called, as a stack tells it. */

/** The line of the user's code that has called us; null where the stack does not tell. */
export function placeInCode(): string | null {
  const own = callersOf(placeInCode).find((line) => !line.includes("node:") && !OURS.test(line));
  return own?.trim().replace(/^at /, "") ?? null;
}

/** Whether it is our code that has called a function which is being called now. */
export function isCalledByUs(called: () => unknown): boolean {
  return OURS.test(callersOf(called)[0] ?? "");
}

/** The lines of the stack behind a function: whatever file it is in, once it was built. */
function callersOf(called: () => unknown): readonly string[] {
  const { stackTraceLimit } = Error;
  const here: { stack?: string } = {};
  // Between the user's line and this one there may be a whole message.
  Error.stackTraceLimit = 50;
  Error.captureStackTrace(here, called);
  Error.stackTraceLimit = stackTraceLimit;
  return (here.stack ?? "").split("\n").filter((line) => /:\d+:\d+\)?$/.test(line));
}

/** Files of this package, as source and as it is published. */
const OURS = /[/\\]perdure[/\\](src|dist)[/\\]|node_modules[/\\]perdure[/\\]/;
