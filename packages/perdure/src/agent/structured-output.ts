/**
 * The structured answer of an agent: what a model is told of it, and how what it gives becomes the run's output.
 *
 * O1. An answer counts once its validation is recorded: the call of the answer tool, or a step of its own for an answer in text. Schemas are
 *     the user's code, so nothing of them is asked again when the log is read.
 * O2. Each answer that does not fit is in every later prompt with what was wrong about it, so that the history has neither a call without a
 *     result nor a model that was asked twice in a row.
 */
import { deriveJsonSchema } from "../protocol/derive-schema.ts";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import type { Schema } from "../protocol/schema.ts";
import { describeIssues, type Issue, validate } from "../protocol/validate.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import { erase } from "../tool/erase.ts";
import { HandlerError } from "../tool/errors.ts";
import type { LanguageModel, ResponseFormat } from "./model-port.ts";

/** The tool by which a model answers that is not asked for JSON as such. */
export const ANSWER_TOOL = "final_answer";

/** The step in which an answer that was given as text is read. */
export const ANSWER_STEP = "output";

/** Code of an answer that does not fit, and of a run that got none that does. */
export const OUTPUT_INVALID = "OUTPUT_INVALID";

export type OutputMode = "auto" | "json" | "tool";

export interface StructuredOutput {
  readonly mode: "json" | "tool";
  /** How many answers that do not fit are sent back. */
  readonly repairs: number;
  /** Takes answers given by call, whatever the mode: the deployment before may have asked for them so. */
  readonly tool: DynTool;
  readonly format: ResponseFormat;
  /**
   * The output that a text gives.
   *
   * @throws {@link HandlerError} `OUTPUT_INVALID`, written for the model
   */
  readText(text: string): Promise<Json>;
}

/**
 * @param repairs - whole, from 0
 * @throws Error when there is no JSON Schema of it
 */
export function structuredOutput(
  schema: Schema,
  { mode, repairs, model }: { readonly mode: OutputMode; readonly repairs: number; readonly model: LanguageModel },
): StructuredOutput {
  const own = deriveJsonSchema(schema, "input");
  const isObject = isJsonObject(own) && own.type === "object";
  const asked = isObject ? own : enveloped(own);
  const taken = isObject ? schema : envelope(schema, asked);
  const byJson = mode === "json" || (mode === "auto" && supportsJson(model));
  return {
    mode: byJson ? "json" : "tool",
    repairs,
    tool: erase({
      name: ANSWER_TOOL,
      description: "Gives the final answer. Call it once, alone, when everything else is done.",
      effect: "read",
      input: taken,
      call: async (output: unknown) => output,
    }),
    format: { type: "json", schema: asked, name: ANSWER_STEP },
    async readText(text) {
      if (!byJson) throw invalid(`the answer has to be given by calling \`${ANSWER_TOOL}\`, and was given as text`);
      const checked = await validate(taken, parsed(text));
      if (!checked.ok) throw invalid(misfit(checked.issues));
      return toJson(checked.value, "the output");
    },
  };
}

/** Only some providers' objects say so, and the specification does not ask them to. */
function supportsJson(model: LanguageModel): boolean {
  return "supportsStructuredOutputs" in model && model.supportsStructuredOutputs === true;
}

/** What a model is told about a text that was no answer. */
export function repairRequest(message: string): string {
  return `That was no valid answer: ${message}. Answer again.`;
}

function misfit(issues: readonly Issue[]): string {
  return `the answer does not fit the schema of the output: ${describeIssues(issues)}`;
}

function invalid(why: string, cause?: unknown): HandlerError {
  return new HandlerError(why, { applied: "no", code: OUTPUT_INVALID, ...(cause !== undefined && { cause }) });
}

/** Some models cannot be kept from fencing their JSON. */
function parsed(text: string): unknown {
  const fenced = /^```(?:json)?\s*\n(.*)\n\s*```$/s.exec(text.trim());
  try {
    return JSON.parse(fenced?.[1] ?? text);
  } catch {
    throw invalid("the answer is not JSON");
  }
}

/** Arguments of a call are an object, and so is what providers take as a schema: another answer is a member of one. */
function enveloped(schema: Json): Json {
  if (!isJsonObject(schema)) return { type: "object", properties: { answer: schema }, required: ["answer"] };
  // References are from the root, so what they refer to stays there.
  const { $defs, definitions, ...answer } = schema;
  if (JSON.stringify(answer).includes('"$ref":"#"')) {
    throw new Error("it refers to itself as a whole; make it an object with a member that does");
  }
  return {
    type: "object",
    properties: { answer },
    required: ["answer"],
    additionalProperties: false,
    ...($defs !== undefined && { $defs }),
    ...(definitions !== undefined && { definitions }),
  };
}

function envelope(schema: Schema, jsonSchema: Json): Schema {
  const convert = (): Record<string, unknown> => jsonSchema as Record<string, unknown>;
  const standard = {
    version: 1 as const,
    vendor: "perdure",
    jsonSchema: { input: convert, output: convert },
    validate(value: unknown) {
      if (!isJsonObject(value) || value.answer === undefined) return { issues: [{ message: 'it has no "answer"' }] };
      return schema["~standard"].validate(value.answer);
    },
  };
  return { "~standard": standard };
}
