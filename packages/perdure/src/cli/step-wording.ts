/** Steps, as sentences name them. */
import type { RunState, StepState } from "../log/fold.ts";
import { resolveInput } from "../log/model-output.ts";
import { editedArguments } from "../log/tool-result.ts";
import { ago, jsonText, sentence, short } from "./wording.ts";

/** A call with its arguments, those that a human has put in place of the model's if any: `refund {"cents":9000} (step 3)`. */
export function callOf(state: RunState, step: StepState | undefined): string {
  if (step === undefined) return "a call that the log does not have";
  return `${argumentsOf(state, step)} (step ${step.started.path})`;
}

function argumentsOf(state: RunState, step: StepState): string {
  const name = short(step.started.name, 64);
  try {
    return `${name} ${jsonText(editedArguments(step) ?? resolveInput(state, step.started.input))}`;
  } catch {
    return name; // its input is not a value, or its model step cannot be read; its name says enough
  }
}

/** A step of any kind: `the write refund {"cents":9000} (step 3)`. */
export function stepOf(state: RunState, step: StepState): string {
  const { step: kind, path, effect, name } = step.started;
  switch (kind) {
    case "model":
      return `the model call ${short(name, 64)} (step ${path})`;
    case "tool":
      return `the ${effect} ${callOf(state, step)}`;
    default:
      return `the ${kind} ${short(name, 64)} (step ${path})`;
  }
}

/**
 * How often it failed, and how and when the last time.
 *
 * @param subject - how the sentence names it; by default in full
 */
export function failuresOf(state: RunState, step: StepState, now: number, subject = stepOf(state, step)): string {
  const failed = step.attempts.flatMap((attempt) => attempt.failed ?? []);
  const last = failed.at(-1);
  if (last === undefined) return "";
  const times = failed.length === 1 ? "once" : `${failed.length} times, the last time`;
  const how = `${last.error.code}: ${short(last.error.message, 300)}`;
  return sentence(`${upper(subject)} failed ${times} ${ago(last.at, now)} with ${how}`);
}

/** How it ended for good with an error. */
export function endOf(state: RunState, step: StepState): string {
  const { finished, attempts } = step;
  if (finished?.status !== "error") return "";
  const tries = attempts.length === 1 ? "its only attempt" : `${attempts.length} attempts`;
  return sentence(
    `${upper(stepOf(state, step))} ended with ${finished.error.code}, after ${tries}: ${short(finished.error.message, 300)}`,
  );
}

export function upper(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The key under which its last attempt acted. */
export function keyOf(step: StepState | undefined): string | undefined {
  return step?.attempts.at(-1)?.key ?? undefined;
}
