/**
 * Steps that take their process with them. Who did it is not written anywhere: what ran when a process died is all the log says, so it is
 * counted per step, and whatever has died twice goes on alone.
 *
 * U1. One death slows nobody.
 * U2. Of the suspects of one process one at a time begins steps; all other runs go on beside it.
 * U3. A step that dies once more after that waits for an operator, with the cause. His word to go on counts from anew.
 */
import type { Interrupt } from "../log/entries.ts";
import type { RunState, StepState } from "../log/fold.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { Inbox } from "../store/store.ts";
import { isDeath } from "./attempt-outcome.ts";
import { questionId } from "./call-entries.ts";

const SUSPECT = 2;
const POISONED = 3;

/** The scope that an operator's decisions need. */
const OPERATOR_SCOPE = "operator";

/** How often processes have died in this step since an operator last let it go on. */
function deaths({ attempts, asked }: StepState): number {
  const since = asked.findLast(({ interrupt }) => interrupt.kind === "poisoned")?.attempts ?? 0;
  return attempts.slice(since).filter(({ failed }) => failed !== undefined && isDeath(failed.error)).length;
}

function unfinished({ steps }: RunState, least: number): StepState[] {
  return [...steps.values()].filter((step) => step.finished === undefined && deaths(step) >= least);
}

export function isSuspect(run: RunState): boolean {
  return unfinished(run, SUSPECT).length > 0;
}

/** The steps about which an operator has to be asked now. */
export function poisonedSteps(run: RunState): readonly Path[] {
  return unfinished(run, POISONED).map(({ started }) => started.path);
}

/** Whether the step waits for an operator's word. */
export function isPoisoned(step: StepState | undefined): boolean {
  const last = step?.asked.at(-1);
  return last?.interrupt.kind === "poisoned" && last.answer === null;
}

/** What an operator is asked about a poisoned step. */
export function poisonedQuestion(run: RunState, step: StepState): Interrupt {
  const { path, step: kind, name, toolCallId } = step.started;
  const id = questionId(run, path, "poisoned");
  const times = deaths(step);
  const what = kind === "tool" ? `tool \`${name}\`` : kind;
  return {
    ...{ id, path, kind: "poisoned", reason: "perdure:poisoned" },
    message:
      `step ${path} (${what}) was running when its process died, ${times} times in a row, the last time as the only suspect; ` +
      `find out why, then answer interrupt ${id}: action "go-on" or "abandon"`,
    ...(toolCallId !== undefined && { toolCallId }),
    schema: {
      type: "object",
      properties: { action: { enum: ["go-on", "abandon"] } },
      required: ["action"],
      additionalProperties: false,
    },
    ...{ argsHash: null, audience: OPERATOR_SCOPE, expiresAt: null },
    metadata: { step: path, name, deaths: times },
  };
}

/** Whether an operator's answer gives the run up. */
export function isAbandoning(run: RunState, { interrupt, payload }: Extract<Inbox, { kind: "answer" }>): boolean {
  const kind = run.interrupts.get(interrupt)?.kind;
  if (kind !== "poisoned" && kind !== "diverged") return false;
  const said: Json = payload ?? null;
  return isJsonObject(said) && said.action === "abandon";
}

/** Which of a process's suspects may begin steps. */
export class SuspectTurn {
  #at: Uid | undefined;
  /** Who waits, in order, and how each is told to ask again. */
  readonly #waiting = new Map<Uid, () => void>();

  /** @param wake - called when a run that was refused should ask again @returns whether it is the run's turn */
  take(run: Uid, wake: () => void): boolean {
    this.#at ??= run;
    if (this.#at === run) this.#waiting.delete(run);
    else this.#waiting.set(run, wake);
    return this.#at === run;
  }

  /** The run is no suspect any more, or rests. */
  leave(run: Uid): void {
    this.#waiting.delete(run);
    if (this.#at === run) this.#at = undefined;
    if (this.#at !== undefined) return;
    const [next] = this.#waiting.values();
    next?.();
  }
}
