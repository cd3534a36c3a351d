/** Whoever looks on at what runs do: for traces. What is told here has been done; nothing waits for it, and nothing of it may throw. */
import type { NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import type { Path } from "../protocol/words.ts";
import type { Agent } from "./agent-definition.ts";
import type { Driven } from "./driven.ts";

export interface Observer {
  /** Runs `work`, which answers a request. */
  answers<T>(headers: Headers, work: () => T): T;
  /** A run begins. @returns labels for it, by which later drivers find what belongs to it */
  begins(run: {
    readonly uid: string;
    readonly agent: string;
    readonly thread: string;
  }): Readonly<Record<string, string>>;
  /** A driver has taken a run up, and drives it until {@link DriveObserver.ends}. */
  drives(drive: ObservedDrive): DriveObserver;
}

export interface ObservedDrive {
  readonly agent: Agent;
  readonly epoch: number;
  readonly run: RunState;
  /** The thread's runs before this one, oldest first. */
  readonly before: readonly RunState[];
}

export interface DriveObserver {
  /** These are durable. @param at - ms since the epoch @param run - the run with them, and perhaps with what follows */
  appended(entries: readonly NewEntry[], at: number, run: RunState): void;
  /** Begins a body of the step at `path`. */
  inside<T>(path: Path, body: () => T): T;
  ends(how: Driven): void;
}
