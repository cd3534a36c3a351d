import type { Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { Entry, Fact, InputRef, Interrupt } from "./entries.ts";

/**
 * What two logs of the same story share, however often one of them was interrupted: of each step its kind, name, input, end and output; the
 * order of the model steps; the questions and their answers; the outcome.
 *
 * Left out is what an interruption changes: places, times, epochs, attempts, how an end came about, and the questions that it brings
 * up: about writes that a crash has left unknown, and about steps that took their processes down.
 */
export function essence(entries: Iterable<Entry>): Json {
  const steps = new Map<Path, { readonly [key: string]: Json }>();
  const models: Path[] = [];
  const questions = new Map<string, { readonly [key: string]: Json }>();
  let outcome: Json = null;

  for (const entry of entries) {
    switch (entry.kind) {
      case "step.started": {
        const { path, step, name, input } = entry;
        if (!steps.has(path) && step === "model") models.push(path);
        steps.set(path, { kind: step, name, input: inputOf(input), end: null });
        break;
      }
      case "step.finished": {
        const step = steps.get(entry.path);
        // What a clock or chance has said is another story's.
        const isReading = step?.kind === "clock" || step?.kind === "random";
        steps.set(entry.path, { ...step, end: isReading ? null : endOf(entry) });
        break;
      }
      case "interrupt.opened":
        if (!byInterruption.has(entry.interrupt.kind)) questions.set(entry.interrupt.id, questionOf(entry.interrupt));
        break;
      case "interrupt.answered": {
        const question = questions.get(entry.id);
        const { status, payload = null } = entry;
        if (question !== undefined) questions.set(entry.id, { ...question, answer: { status, payload } });
        break;
      }
      case "run.finished": {
        const { outcome: how, output = null, outputOf = null, error = null, unresolved } = entry;
        outcome = { how, output, outputOf, error: error && { ...error }, unresolved };
        break;
      }
      default:
    }
  }
  return { steps: sorted(steps), models, questions: sorted(questions), outcome };
}

const byInterruption: ReadonlySet<Interrupt["kind"]> = new Set(["unknown-write", "poisoned"]);

/** Where a model's history ended is a place in the log. */
function inputOf(ref: InputRef): Json {
  if (!("history" in ref)) return "value" in ref ? { value: ref.value } : { call: { ...ref.call } };
  const { upTo: _, ...history } = ref.history;
  return { history };
}

function endOf(finished: Fact<"step.finished">): Json {
  switch (finished.status) {
    case "ok":
      return { status: "ok", output: finished.output };
    case "error": {
      const { error, applied, output = null } = finished;
      return { status: "error", error: { ...error }, applied, output };
    }
    case "cancelled":
      return { status: "cancelled" };
    default:
      return finished satisfies never;
  }
}

function questionOf({ path, kind, reason, message }: Interrupt): { readonly [key: string]: Json } {
  return { path, kind, reason, message, answer: null };
}

/** Steps of one turn run side by side: the order in which they began is not part of the story. */
function sorted(map: ReadonlyMap<string, Json>): Json {
  return Object.fromEntries([...map].sort(([a], [b]) => (a < b ? -1 : 1)));
}
