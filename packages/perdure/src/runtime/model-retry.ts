/**
 * Which of its models a step asks next, and when. Both are read off the log alone, so that a crash in the middle of a back-off neither asks
 * earlier nor forgets how often was asked.
 *
 * R1. A model is asked until it has answered, has failed `attempts` times by itself, or has failed with what no time heals; then the next one.
 * R2. An attempt that died with its process costs its model none of its attempts.
 * R3. Only what a model fails with is tried again: our own faults would be the same with the next one.
 */
import type { Attempt, StepState } from "../log/run-state.ts";
import { backoff } from "../protocol/backoff.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { RecordedError } from "../protocol/words.ts";
import { failedByItself } from "./attempt-outcome.ts";
import { ModelError, type RetryAfter } from "./model-error.ts";

/** A model as the log and prices name it: `openai.responses`, `gpt-5`. */
export interface ModelName {
  readonly provider: string;
  readonly modelId: string;
}

/** Whom a model step asks, and how often. */
export interface ModelPolicy {
  /** The model, then its fallbacks. */
  readonly models: readonly ModelName[];
  /** How often each is asked, at most. */
  readonly attempts: number;
}

/** Milliseconds. Whoever has a fallback does not wait for longer than this. */
const LONG_WAIT = 60_000;

/** The index of the model that a step's next attempt asks. Where all are used up, because fewer are allowed now than when it began, the last. */
export function modelToAsk(step: StepState | undefined, policy: ModelPolicy): number {
  const next = attemptsLeft(step?.attempts ?? [], policy).findIndex((left) => left > 0);
  return next < 0 ? policy.models.length - 1 : next;
}

/**
 * What follows a failed attempt.
 *
 * @param asked - the index of the model that was asked
 * @returns what the log says of it, and when the next attempt may begin; undefined when the step has failed
 */
export function afterModelFailure(
  step: StepState | undefined,
  policy: ModelPolicy,
  asked: number,
  error: unknown,
  { now, random }: { readonly now: number; readonly random: number },
): { readonly error: RecordedError; readonly retryAt: number } | undefined {
  if (!(error instanceof ModelError)) return undefined;
  const left = attemptsLeft(step?.attempts ?? [], policy);
  const others = left.some((count, i) => i !== asked && count > 0);
  const askedFor = waitOf(error.retryAfter, now);
  const again = Math.max(0, (left[asked] ?? 0) - 1);
  const isFinal = !error.retryable || (others && (askedFor ?? 0) > LONG_WAIT);
  if ((isFinal || again === 0) && !others) return undefined;
  const wait = isFinal || again === 0 ? 0 : backoff(policy.attempts - again, askedFor, random);
  const { code, message } = error;
  return { error: { code, message, data: { final: isFinal } }, retryAt: now + wait };
}

/** When a step whose last attempt has failed may be tried again, in ms since the epoch; null when nothing holds it back. */
export function retryTime(step: StepState | undefined): number | null {
  return step?.attempts.at(-1)?.failed?.retryAt ?? null;
}

/** How often each model may still be asked. The same model may stand in the list more than once. */
function attemptsLeft(attempts: readonly Attempt[], { models, attempts: most }: ModelPolicy): number[] {
  const left = models.map(() => most);
  for (const attempt of attempts) {
    if (!failedByItself(attempt)) continue;
    const asked = models.findIndex((model, i) => (left[i] ?? 0) > 0 && isSame(model, attempt.model));
    // A model that is not in the list any more has used up nobody's attempts.
    if (asked >= 0) left[asked] = isFinal(attempt.failed?.error) ? 0 : (left[asked] ?? 1) - 1;
  }
  return left;
}

function isSame(model: ModelName, asked: ModelName | undefined): boolean {
  return asked !== undefined && model.provider === asked.provider && model.modelId === asked.modelId;
}

function isFinal(error: RecordedError | undefined): boolean {
  return isJsonObject(error?.data) && error.data.final === true;
}

function waitOf(after: RetryAfter | undefined, now: number): number | undefined {
  if (after === undefined) return undefined;
  return "ms" in after ? after.ms : Math.max(0, after.at - now);
}
