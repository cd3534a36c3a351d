import type { StandardJSONSchemaV1 } from "@standard-schema/spec";
import { isJsonObject, type Json, toJson } from "./json.ts";
import type { Schema } from "./schema.ts";

const TARGET = "draft-2020-12";

/**
 * The JSON Schema (draft 2020-12) of a Standard Schema, through Standard JSON Schema.
 *
 * @param side - `input`: what is accepted; `output`: what validation returns
 * @throws Error with what to do, when the schema has none or cannot express itself
 */
export function deriveJsonSchema(schema: Schema, side: "input" | "output"): Json {
  const standard: Schema["~standard"] & { readonly jsonSchema?: Partial<StandardJSONSchemaV1.Converter> } =
    schema["~standard"];
  const convert = standard.jsonSchema?.[side];
  if (!convert) throw new Error(`its library (${standard.vendor}) gives no JSON Schema; ${advice(standard.vendor)}`);
  const derived = toJson(convert({ target: TARGET }), "the JSON Schema");
  if (!isJsonObject(derived)) return derived;
  // Every model API assumes the current draft, and some refuse the keyword; another draft has to stay visible.
  const { $schema, ...rest } = derived;
  return typeof $schema !== "string" || $schema.includes("/2020-12/") ? rest : derived;
}

function advice(vendor: string): string {
  if (vendor === "valibot") return "wrap it: toStandardJsonSchema(schema) of @valibot/to-json-schema";
  if (vendor === "zod") return "use zod 4.2 or later";
  return "use one that implements Standard JSON Schema (zod 4, arktype, valibot with its converter), or jsonSchema({ … })";
}
