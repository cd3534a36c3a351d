/** What the operations of a custom loop reject with. */
import type { Interrupt } from "../log/entries.ts";
import type { Difference } from "../log/matching.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import { budgetExceeded, type ShownShortage, shownShortages } from "./budget-question.ts";

/** A step has ended without a result: its tool failed, was refused, or nobody knows what came of it. */
export class StepFailed extends PerdureError {
  override readonly name = "StepFailed";
  /** What was recorded of the failure, as models and clients may read it. */
  readonly told: string;
  constructor(
    /** The tool's name, or the step's own. */
    readonly step: string,
    readonly path: Path,
    { code, message }: RecordedError,
    /** Whether it took effect. `yes`: it did, but what it returned could not be recorded. */
    readonly applied: "no" | "yes" | "unknown",
    /** What could be kept of its output, where it took effect. */
    readonly output?: Json,
  ) {
    super(code, `step "${step}" (${path}) failed: ${message}`);
    this.told = message;
  }
}

/** Nobody answers a question: it was cancelled, or its time is over. */
export class AskCancelled extends PerdureError {
  override readonly name = "AskCancelled";
  constructor(
    readonly path: Path,
    readonly because: "cancelled" | "expired",
    message: string,
  ) {
    super(because === "expired" ? "ASK_EXPIRED" : "ASK_CANCELLED", `question ${path} has no answer: ${message}`);
  }
}

/** The lane has lost its race: it begins no steps any more. Let it pass. */
export class RaceLost extends PerdureError {
  override readonly name = "RaceLost";
  constructor(readonly path: Path) {
    super("RACE_LOST", `lane ${path} has lost its race: nothing more is begun in it`);
  }
}

/**
 * A human has stopped the run at its budget: what it waits for does not come, and nothing is begun any more. Code may catch it to say what it has,
 * and return; a run whose code lets it pass fails with the same code.
 */
export class BudgetExceeded extends PerdureError {
  override readonly name = "BudgetExceeded";
  /** The limits that left no room, in the words of `budget`: dollars, and milliseconds. */
  readonly limits: readonly ShownShortage[];
  constructor(question: Interrupt) {
    const { code, message } = budgetExceeded(question);
    super(code, message);
    this.limits = shownShortages(question);
  }
}

/** Code that is run again does something else than it did. The run waits for an operator; nothing of what it does now counts. */
export class Diverged extends PerdureError {
  override readonly name = "Diverged";
  constructor(
    readonly difference: Difference,
    /** Where in the code. */
    readonly at: string | null,
    /** `step PATH`, `lane PATH` or `state`: what of the record it is that the code does not do. */
    readonly place: string,
  ) {
    const { what, recorded, wanted, next } = difference;
    const where = at === null ? "" : ` at ${at}`;
    super(
      "DIVERGED",
      `the code of this loop does something else than it did: ${what} was recorded as ${brief(recorded)}, and now is ${brief(wanted)}${where}; ${next}`,
    );
  }
}

/** A step has got another input than the one that is recorded, and that does no harm: it has ended, or only reads. */
export class InputChanged extends PerdureError {
  override readonly name = "InputChanged";
  constructor(
    readonly path: Path,
    readonly recorded: Json,
    readonly wanted: Json,
    isFinished: boolean,
  ) {
    const what = isFinished ? "its recorded outcome stands" : "it runs with the new one";
    super(
      "INPUT_CHANGED",
      `step ${path} began with ${brief(recorded)} and is asked for with ${brief(wanted)}; ${what}`,
    );
  }
}

/** A durable operation where there is no log. */
export class NeedsStore extends PerdureError {
  override readonly name = "NeedsStore";
  constructor(operation: string) {
    super(
      "AGENT_NEEDS_STORE",
      `${operation} is recorded: serve the agent with createRuntime, over memory() if need be`,
    );
  }
}

const LONGEST = 200;

function brief(value: Json): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
