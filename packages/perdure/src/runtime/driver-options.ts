import type { RunState } from "../log/fold.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Lease } from "../store/store.ts";
import type { Agent, LoopAgent } from "./agent-definition.ts";
import type { Want } from "./loop-operations.ts";
import type { DriveObserver } from "./observer.ts";
import type { RunningWrites } from "./running-writes.ts";
import type { SuspectTurn } from "./suspects.ts";

export interface DriverOptions<A extends Agent = LoopAgent> {
  readonly store: EventStore;
  readonly lease: Lease;
  /** When the lease was asked for, by `now`. */
  readonly leasedAt: number;
  readonly agent: A;
  readonly run: RunState;
  /** The thread's runs before this one, oldest first. */
  readonly before: readonly RunState[];
  /** Whether whoever drove this run before is known to be dead, so that nothing of his can land any more. */
  readonly isOwnerDead: boolean;
  /** The epochs in which this very process has lost the run, and lived. */
  readonly lostHere: ReadonlySet<number>;
  /** The runs of this process that have taken processes down, one of which may go on at a time. */
  readonly suspects: SuspectTurn;
  readonly writes: RunningWrites;
  /** Aborted when this process stops driving: what runs is awaited, nothing new is started. */
  readonly stop: AbortSignal;
  /** Aborted when what runs may take no longer. */
  readonly giveUp: AbortSignal;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Whether code of custom loops is watched. */
  readonly development?: boolean;
  /** Whether runs of an agent are driven here. */
  readonly drives: (agent: string) => boolean;
  readonly report: (error: unknown, run: Uid) => void;
  readonly observing?: DriveObserver | undefined;
  /** Code of a custom loop is only held against its record. */
  readonly replaying?: Replaying;
}

/** Code that is run to see whether it would do what it did. */
export interface Replaying {
  /** Whether the record is all that there is: whatever the code does more is something else than it did. */
  readonly isWhole: boolean;
  /** Told of each step that the code begins, or begins again. */
  begins(want: Want): void;
}
