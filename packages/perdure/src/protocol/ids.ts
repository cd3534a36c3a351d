import type { Path } from "./words.ts";

/** How long an id of the wire may be, in UTF-16 units. Ids become keys of rows and indexes; longer ones are an attack or a mistake. */
export const MAX_ID_LENGTH = 1024;

/**
 * Why `id` cannot be an id on the wire (of a thread, run, message, tool call, interrupt …), or `undefined` when it can.
 *
 * Control characters would forge lines in logs and in the stream; a lone surrogate changes when it is written as UTF-8,
 * so that two ids that differ here would be one there.
 *
 * @returns the rest of a sentence that begins with the id's name, for example `must not be empty`
 */
export function idProblem(id: string): string | undefined {
  if (id === "") return "must not be empty";
  if (id.length > MAX_ID_LENGTH) return `must not be longer than ${MAX_ID_LENGTH} UTF-16 units (it has ${id.length})`;
  const control = /\p{Cc}/u.exec(id);
  if (control) {
    const code = control[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    return `must not contain control characters (U+${code} at ${control.index})`;
  }
  const lone = /\p{Cs}/u.exec(id);
  if (lone) return `must not contain a lone surrogate (at ${lone.index})`;
  return undefined;
}

/** Kinds of things that get an id of their own, each with its letter: ids of different kinds never meet. */
const letters = {
  message: "m",
  reasoning: "r",
  call: "c",
  result: "t",
  activity: "a",
  interrupt: "i",
  subagent: "s",
  // Questions that only an interruption brings up: the numbers of the others do not depend on it.
  unknown: "u",
  operator: "o",
  budget: "b",
} as const;
export type IdKind = keyof typeof letters;

/** The `ordinal`-th id of its kind at a place: the same in every attempt. `prefix` names the run, and keeps runs apart. */
export function idAt(prefix: string, path: Path, kind: IdKind, ordinal: number): string {
  return `${prefix}:${path === "" ? "" : `${path}:`}${letters[kind]}${ordinal}`;
}

const RUN_MADE = /^[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:([^:]+:)?[a-z]\d+$/;

/** Whether an id has the form of those that runs make, also such as none has made yet: what a client makes may not have one. */
export function isRunMade(id: string): boolean {
  return RUN_MADE.test(id);
}

/** Whether `lane` is the one at `path` or one inside it. */
export function isWithin(lane: Path, path: Path): boolean {
  return path === "" || lane === path || lane.startsWith(`${path}.`);
}
