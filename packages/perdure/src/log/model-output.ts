import { isJsonObject, type Json } from "../protocol/json.ts";
import type { InputRef } from "./entries.ts";
import { LogError } from "./log-error.ts";
import type { RunState, StepState } from "./run-state.ts";

/** What the log asks of a model step's output. The loop that wrote it keeps more in it. */
export interface ModelOutput {
  /** The assistant message that holds its text and carries its calls; `null` when it said nothing. */
  readonly messageId: string | null;
  readonly text: string;
  readonly calls: readonly ModelCall[];
}

export interface ModelCall {
  /** The id on the wire: ours, not the provider's. */
  readonly id: string;
  readonly name: string;
  /** The arguments as the model wrote them. */
  readonly input: Json;
}

/**
 * What a finished model step has said.
 *
 * @throws {@link LogError} when the step has not finished well, or its output is not a model's
 */
export function modelOutput(step: StepState): ModelOutput {
  const { started, finished } = step;
  const output = finished?.status === "ok" ? finished.output : undefined;
  if (isModelOutput(output)) return output;
  const why = finished === undefined ? "it has not finished" : "its output is not a model's";
  throw new LogError(null, `what model step ${started.path} has said`, why);
}

function isModelOutput(output: Json | undefined): output is Json & ModelOutput {
  if (!isJsonObject(output)) return false;
  const { messageId, text, calls } = output;
  if (messageId !== null && typeof messageId !== "string") return false;
  return typeof text === "string" && Array.isArray(calls) && calls.every(isModelCall);
}

function isModelCall(call: Json): boolean {
  return isJsonObject(call) && typeof call.id === "string" && typeof call.name === "string" && call.input !== undefined;
}

/**
 * The input that a step was given: a value, or the arguments that a model wrote. A model's own input is its history, which only its loop
 * can put together.
 *
 * @throws {@link LogError} when the log does not have it
 */
export function resolveInput(state: Pick<RunState, "run" | "steps">, ref: InputRef): Json {
  if ("value" in ref) return ref.value;
  const what = "call" in ref ? `call ${ref.call.index} of model step ${ref.call.model}` : "a model step's history";
  if (!("call" in ref)) throw new LogError(state.run.uid, what, "it is not a value, the agent's loop puts it together");
  const step = state.steps.get(ref.call.model);
  if (step === undefined) throw new LogError(state.run.uid, what, "there is no such step");
  const call = modelOutput(step).calls[ref.call.index];
  if (call === undefined) throw new LogError(state.run.uid, what, "the model made no such call");
  return call.input;
}
