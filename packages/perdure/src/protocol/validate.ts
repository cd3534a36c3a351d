import type { StandardSchemaV1 } from "@standard-schema/spec";
import { escapePointer } from "./json.ts";
import type { Infer, Schema } from "./schema.ts";

/** A place in a value and what is wrong there. */
export interface Issue {
  /** JSON Pointer (RFC 6901) into the value; "" is the value itself. */
  readonly path: string;
  readonly message: string;
}

/** What validation found: the schema's output, or why there is none. */
export type Validated<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/** Validates a value against any Standard Schema, also an asynchronous one. */
export async function validate<S extends Schema>(schema: S, value: unknown): Promise<Validated<Infer<S>>> {
  return settle(await schema["~standard"].validate(value));
}

/**
 * Validates where nobody can wait.
 *
 * @throws TypeError for a schema that validates asynchronously
 */
export function validateSync<S extends Schema>(schema: S, value: unknown): Validated<Infer<S>> {
  const result = schema["~standard"].validate(value);
  if (result instanceof Promise)
    throw new TypeError("this schema validates asynchronously; use one that does not here");
  return settle(result);
}

function settle<T>(result: StandardSchemaV1.Result<unknown>): Validated<T> {
  if (result.issues === undefined) return { ok: true, value: result.value as T };
  return {
    ok: false,
    issues: result.issues.map(({ path, message }) => ({ path: (path ?? []).map(token).join(""), message })),
  };
}

function token(segment: PropertyKey | StandardSchemaV1.PathSegment): string {
  return `/${escapePointer(String(typeof segment === "object" ? segment.key : segment))}`;
}

/** Issues as one line of an error message. */
export function listIssues(issues: readonly Issue[]): string {
  return issues.map((issue) => (issue.path === "" ? issue.message : `${issue.path}: ${issue.message}`)).join("; ");
}
