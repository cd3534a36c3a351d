/** Answers to questions whose shape is known only by their JSON Schema. */
import { isJsonObject, type Json } from "../protocol/json.ts";
import { validateSync } from "../protocol/validate.ts";
import { JsonSchemaError, jsonSchema } from "../tool/json-schema.ts";

/** A value that fits the schema; undefined when none is found. */
export function fitting(schema: Json): Json | undefined {
  return isJsonObject(schema)
    ? [sample(schema, 0), { approved: true }, true, "yes", {}].find((value) => fits(schema, value))
    : undefined;
}

/** A value that does not fit the schema; undefined where all do. */
export function breaking(schema: Json): Json | undefined {
  if (!isJsonObject(schema)) return undefined;
  return ["not what was asked for", 7, {}, []].find((value) => fits(schema, value) === false);
}

/** Undefined for a schema that cannot be used. */
function fits(schema: { readonly [key: string]: Json }, value: Json | undefined): boolean | undefined {
  if (value === undefined) return false;
  try {
    return validateSync(jsonSchema(schema), value).ok;
  } catch (error) {
    if (error instanceof JsonSchemaError) return undefined;
    throw error;
  }
}

const DEEPEST = 8;

function sample(schema: Json, depth: number): Json | undefined {
  if (!isJsonObject(schema) || depth > DEEPEST) return undefined;
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  for (const list of [schema.examples, schema.enum]) if (Array.isArray(list) && list.length > 0) return list[0];
  for (const list of [schema.anyOf, schema.oneOf, schema.allOf]) {
    if (Array.isArray(list) && list.length > 0) return sample(list[0] as Json, depth + 1);
  }
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "boolean":
      return true;
    case "string":
      return "conformance".padEnd(Number(schema.minLength ?? 0), "-");
    case "integer":
    case "number":
      return Number(
        schema.minimum ?? (schema.exclusiveMinimum === undefined ? 1 : Number(schema.exclusiveMinimum) + 1),
      );
    case "array":
      return Array.from(
        { length: Number(schema.minItems ?? 0) },
        () => sample(schema.items as Json, depth + 1) ?? null,
      );
    case "null":
      return null;
    default:
      return sampleObject(schema, depth);
  }
}

function sampleObject(schema: { readonly [key: string]: Json }, depth: number): Json {
  const { properties, required } = schema;
  if (!isJsonObject(properties)) return {};
  const names = Array.isArray(required) ? required : Object.keys(properties);
  const members = names.flatMap((name): [string, Json][] => {
    const value = typeof name === "string" ? sample(properties[name] as Json, depth + 1) : undefined;
    return value === undefined ? [] : [[String(name), value]];
  });
  return Object.fromEntries(members);
}
