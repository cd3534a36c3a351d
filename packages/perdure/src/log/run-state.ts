/** What a run comes to: the value of the fold. Everything in it is immutable and may be kept. `messages` is worked out when asked for, so a spread does not have it. */
import type { AGUIEventOf, Message } from "../protocol/events.ts";
import type { HeldMessages } from "../protocol/held-messages.ts";
import type { Json } from "../protocol/json.ts";
import type { Wire } from "../protocol/verify.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Entry, FactKind, Interrupt, LegRequest } from "./entries.ts";
import type { Spending } from "./spending.ts";

/** A fact with its place and time in the log. */
export type Noted<K extends FactKind> = Extract<Entry, { kind: K }>;

/** One try at a step. */
export interface Attempt extends Noted<"step.attempt"> {
  readonly failed?: Noted<"step.failed">;
  /** The id of the question with which it suspended itself. */
  readonly suspended?: string;
}

/** A question that belongs to a step, with its answer. */
export interface Asked {
  readonly interrupt: Interrupt;
  /** How many attempts came before it. */
  readonly attempts: number;
  readonly answer: Noted<"interrupt.answered"> | null;
}

export interface StepState {
  readonly started: Noted<"step.started">;
  /** Id of the open question that it waits for. */
  readonly waits: string | null;
  readonly attempts: readonly Attempt[];
  /** What it says of the business key for which it had to wait. */
  readonly waiting?: Noted<"step.waiting">;
  /** In the order of opening. */
  readonly asked: readonly Asked[];
  readonly finished?: Noted<"step.finished">;
}

/** An attempt that has no outcome yet, and what clients were shown of it. */
export interface Running {
  readonly attempt: Attempt;
  /** The messages and activities that it began or changed, each as it was before; `null`: it was not there. */
  readonly messages: ReadonlyMap<string, Message | null>;
  readonly calls: ReadonlySet<string>;
}

/** A leg that has ended. */
export interface EndedLeg {
  readonly started: Noted<"leg.started">;
  readonly finished: Noted<"leg.finished">;
  /** Of a leg that ended well with one: what RUN_FINISHED says. */
  readonly result?: Json;
}

/** A subagent as clients were told of it. */
export interface Announced {
  readonly started: AGUIEventOf<"SUBAGENT_STARTED">;
  readonly ended: AGUIEventOf<"SUBAGENT_FINISHED" | "SUBAGENT_ERROR"> | null;
}

/** What clients were shown of a child's log. */
export interface ShownChild {
  /** Up to which of its entries. */
  readonly upTo: number;
  /** Its open questions, and those of its own children, by id: the CUSTOM event of each. */
  readonly asks: ReadonlyMap<string, AGUIEventOf<"CUSTOM">>;
}

export interface RunState {
  readonly run: Noted<"run.started">;
  /** The last seq. */
  readonly head: number;

  /** The open one. */
  readonly leg: Noted<"leg.started"> | null;
  readonly lastLeg: EndedLeg | null;
  /** How many have started. */
  readonly legs: number;
  /** Of the newest leg that has one: client tools and context come from it. */
  readonly request: LegRequest | null;
  readonly finished: Noted<"run.finished"> | null;
  /** Why it rests, if it does. */
  readonly parked: string | null;
  /** Nothing is started any more. */
  readonly cancelled: boolean;
  /** Nor is anything waited for. */
  readonly abandoned: boolean;
  readonly spending: Spending;

  readonly steps: ReadonlyMap<Path, StepState>;
  /** Attempts without an outcome, by the path of their step. */
  readonly running: ReadonlyMap<Path, Running>;
  /** Open questions by id, rows of client tools too. */
  readonly interrupts: ReadonlyMap<string, Interrupt>;
  readonly answers: ReadonlyMap<string, Noted<"interrupt.answered">>;
  readonly memos: Readonly<Record<string, Json>>;

  /** What the facts say. */
  readonly committed: Json;
  /** What clients hold. */
  readonly shown: Json;
  /** The messages of a reader who has read everything, the thread's earlier ones included. Reduced when asked for, then kept. */
  readonly messages: readonly Message[];
  /** The messages of the thread before this run. */
  readonly before: HeldMessages;
  /** Those that the run's requests have brought, in the order of their coming. */
  readonly brought: readonly Message[];
  /** {@link messages}, before anybody asked. */
  readonly held: HeldMessages;
  /** The verifier's state, for the next frame of the thread. */
  readonly wire: Wire;
  /**
   * The subagents of the newest leg by id, in the order of their beginning. Those that have ended too: messages name them, and what they began may
   * go on.
   */
  readonly subagents: ReadonlyMap<string, Announced>;
  readonly children: ReadonlyMap<Uid, ShownChild>;
}
