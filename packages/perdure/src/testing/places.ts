/**
 * The places inside bodies at which a process can die.
 *
 * Whose body is running is known from the asynchronous context, so that a fake of the outside world needs no handle to say where it is.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Path, Uid } from "../protocol/words.ts";

/** The user's code that is running. */
export interface Body {
  readonly run: Uid | null;
  /** Null where a tool is asked before its step has begun. */
  readonly step: Path | null;
  /** Null for the model; the name of a step of the loop's own. */
  readonly tool: string | null;
  readonly phase: "model" | "own" | "loop" | "approval" | "call" | "resume" | "reconcile";
}

/** A place in a body. One that a body comes to again is the same place, the nth time. */
export interface Place {
  readonly key: string;
  readonly body: Body | null;
  readonly point: "before" | "operation" | "mark" | "after";
  /** Of an operation or a mark. */
  readonly name: string | null;
}

/** A body that runs in some process. */
export interface Inhabitant {
  readonly body: Body;
  /** Resolves when the process may go on; never in one that is dead. */
  at(place: Place): Promise<void>;
}

const inhabitants = new AsyncLocalStorage<Inhabitant>();

export function inhabit<T>(inhabitant: Inhabitant, work: () => T): T {
  return inhabitants.run(inhabitant, work);
}

export function placeIn(body: Body, point: Place["point"], name: string | null = null): Place {
  const { run, step, tool, phase } = body;
  return { key: [run, step, tool, phase, point, name].join(" "), body, point, name };
}

/**
 * Marks a place at which {@link crashMatrix} kills the process, for good: the promise never resolves there, and nothing behind it happens.
 * Outside of a matrix it does nothing, so it may stay in a fake.
 *
 * Put `await cutHere()` before and behind each effect of your fake. A body that a cut left running goes on to its end or to its next mark,
 * whichever comes first; so with marks around every effect a dead process does nothing any more.
 *
 * @param name - how the report names the place; a name is one place, wherever it is passed. Default: the body's own unnamed place
 */
export async function cutHere(name?: string): Promise<void> {
  const inhabitant = inhabitants.getStore();
  if (inhabitant === undefined) return;
  const { body } = inhabitant;
  const place = placeIn(body, "mark", name ?? null);
  await inhabitant.at(name === undefined ? place : { ...place, key: name });
}
