/** Whom a model step asks, and how patiently: the same for agents with a model and for the calls of custom loops. */
import { parseDuration } from "../protocol/duration.ts";
import type { Duration } from "../protocol/words.ts";
import { AgentDefinitionError } from "./definition-error.ts";
import { type LanguageModel, type ModelTimeouts, modelProblem } from "./model-port.ts";

export interface ModelOptions {
  /** Any language model object of the AI SDK. */
  readonly model: LanguageModel;
  /**
   * Asked in this order for the answer that the model before has not given: its attempts are used up, or it refuses (a wrong key, no such model, a
   * request that it does not take, an answer that its provider withheld). Each step begins with `model` again.
   */
  readonly fallbacks?: readonly LanguageModel[];
  /**
   * How often a model is asked again for one answer after a connection error, 408, 409, 429, 5xx, a time-out, or an answer that broke off: with
   * exponential back-off, and not before the provider's `Retry-After`. Default 2, for each model.
   */
  readonly maxRetries?: number;
  /** How long a model may be silent before its answer counts as failed, for example `"60s"`. Default for both: 5 minutes. */
  readonly timeouts?: {
    /** From the request to the first piece of the answer: text, reasoning or a call. */
    readonly firstToken?: Duration;
    /** From one piece of the answer to the next. */
    readonly betweenTokens?: Duration;
  };
}

interface AskedModels {
  /** The model, then its fallbacks. */
  readonly models: readonly LanguageModel[];
  /** How often each is asked for one answer, at most. */
  readonly attempts: number;
  readonly timeouts: ModelTimeouts;
}

/** As it stands once it was taken apart. */
type Given = Pick<ModelOptions, "model"> & { readonly [K in keyof ModelOptions]: ModelOptions[K] | undefined };

/** What Node's fetch itself waits for the beginning of an answer, and for its next bytes. */
const SILENCE = "5m";

/**
 * @param whose - how errors name the options, as in `agent "desk"`
 * @throws {@link AgentDefinitionError}, {@link DurationError}
 */
export function readModelOptions(options: Given, whose: string): AskedModels {
  const { model, fallbacks = [], maxRetries = 2, timeouts = {} } = options;
  const models = [model, ...fallbacks];
  for (const [i, given] of models.entries()) {
    const problem = modelProblem(given);
    const which = i === 0 ? "model" : `fallbacks[${i - 1}]`;
    if (problem !== undefined) throw new AgentDefinitionError(`${which} of ${whose} ${problem}`);
  }
  if (!Number.isSafeInteger(maxRetries) || maxRetries < 0) {
    throw new AgentDefinitionError(
      `${whose} has maxRetries: ${String(maxRetries)}; it is a whole number from 0, which asks each model once`,
    );
  }
  const limit = (of: keyof typeof timeouts): number =>
    parseDuration(timeouts[of] ?? SILENCE, `timeouts.${of} of ${whose}`);
  return {
    ...{ models, attempts: 1 + maxRetries },
    timeouts: { firstToken: limit("firstToken"), betweenTokens: limit("betweenTokens") },
  };
}
