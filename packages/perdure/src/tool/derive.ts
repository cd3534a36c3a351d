import { canonicalJson } from "../protocol/canonical.ts";
import { deriveJsonSchema } from "../protocol/derive-schema.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Schema } from "../protocol/schema.ts";
import type { ToolDefinition } from "./definition.ts";
import type { DynTool } from "./dyn-tool.ts";
import { ToolDefinitionError } from "./errors.ts";

type Schemas = Pick<DynTool, "inputSchema" | "outputSchema" | "answerSchema">;

/** @throws {@link ToolDefinitionError} when the model or a human could not be told what to send */
export function deriveSchemas(tool: ToolDefinition): Schemas {
  const inputSchema = derive("input", tool.input);
  if (!isJsonObject(inputSchema) || !describesObject(inputSchema)) {
    throw new ToolDefinitionError(
      tool.name,
      "its input must be an object, for a model calls tools with named arguments",
    );
  }
  // Without `resume` the answer is the output, so it is what the output's schema accepts.
  const answer = tool.answer ?? (tool.resume ? undefined : tool.output);
  return {
    inputSchema,
    outputSchema: tool.output ? attempt(tool.output, "output") : null,
    answerSchema: tool.answer ? derive("answer", tool.answer) : answer ? attempt(answer, "input") : null,
  };

  function derive(member: string, schema: Schema): Json {
    try {
      return deriveJsonSchema(schema, "input");
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new ToolDefinitionError(tool.name, `there is no JSON Schema of its ${member}: ${why}`, { cause });
    }
  }

  function attempt(schema: Schema, side: "input" | "output"): Json | null {
    try {
      return deriveJsonSchema(schema, side);
    } catch {
      return null; // An output may be a Date or a transform that JSON Schema has no word for: it is validated all the same, only not shown.
    }
  }
}

function describesObject({ type = "object" }: { readonly [key: string]: Json }): boolean {
  return type === "object" || (Array.isArray(type) && type.includes("object"));
}

/**
 * What a recorded call of the tool depends on, as text. It is not hashed here: that needs a library or the platform's crypto, and this room
 * runs anywhere; whoever records it hashes it.
 */
export function deriveContract({ name, effect }: ToolDefinition, schemas: Schemas): string {
  return canonicalJson({
    name,
    effect,
    input: schemas.inputSchema,
    output: schemas.outputSchema,
    answer: schemas.answerSchema,
  });
}
