import type { StandardSchemaV1 } from "@standard-schema/spec";

/** Any Standard Schema: zod, valibot, arktype and others. */
export type Schema<Input = unknown, Output = Input> = StandardSchemaV1<Input, Output>;

/** What a schema's validation returns. */
export type Infer<S extends Schema> = StandardSchemaV1.InferOutput<S>;

/** What a schema accepts. */
export type InferInput<S extends Schema> = StandardSchemaV1.InferInput<S>;
