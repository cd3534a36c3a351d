import type { StandardSchemaV1 } from "@standard-schema/spec";

/** Any Standard Schema: zod, valibot, arktype and others. */
export type Schema<Input = unknown, Output = Input> = StandardSchemaV1<Input, Output>;

/** What a schema's validation returns. */
export type Infer<S extends Schema> = StandardSchemaV1.InferOutput<S>;

/** What a schema accepts. */
export type InferInput<S extends Schema> = StandardSchemaV1.InferInput<S>;

/** What is told of a value that stands where a schema should. */
export const NO_SCHEMA = "is no Standard Schema; use zod 4, arktype or valibot, or jsonSchema({ … }) for a JSON Schema";

export function isSchema(value: unknown): value is Schema {
  // Schemas of arktype are functions.
  if (value === null || (typeof value !== "object" && typeof value !== "function")) return false;
  const standard: unknown = Reflect.get(value, "~standard");
  return typeof standard === "object" && standard !== null && "validate" in standard;
}
