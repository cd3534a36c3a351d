import { escapePointer } from "./json.ts";
import type { Infer, Schema } from "./schema.ts";

/** One thing that is wrong with a value. */
export interface Issue {
  /** JSON Pointer (RFC 6901) to the part in question; "" is the value itself. */
  readonly path: string;
  readonly message: string;
}

export type Validated<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly issues: readonly Issue[] };

/**
 * What a schema says about a value: a promise only where the schema itself is asynchronous.
 *
 * @throws what the schema throws; a schema reports by issues, so that is a bug in it
 */
export function validate<S extends Schema>(
  schema: S,
  value: unknown,
): Validated<Infer<S>> | Promise<Validated<Infer<S>>> {
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then(toValidated<S>) : toValidated<S>(result);
}

/**
 * What a schema says where nobody can wait.
 *
 * @throws TypeError for a schema that validates asynchronously
 */
export function validateSync<S extends Schema>(schema: S, value: unknown): Validated<Infer<S>> {
  const validated = validate(schema, value);
  if (validated instanceof Promise)
    throw new TypeError(
      "this schema validates asynchronously, as zod's do when a function in them throws; a synchronous one that reports issues is needed here",
    );
  return validated;
}

type Result = Awaited<ReturnType<Schema["~standard"]["validate"]>>;

function toValidated<S extends Schema>(result: Result): Validated<Infer<S>> {
  // The schema's own types say that what it lets through is its output.
  if (!result.issues) return { ok: true, value: result.value as Infer<S> };
  return { ok: false, issues: result.issues.map(({ message, path }) => ({ path: toPointer(path ?? []), message })) };
}

function toPointer(path: readonly (PropertyKey | { readonly key: PropertyKey })[]): string {
  return path.map((part) => `/${escapePointer(String(typeof part === "object" ? part.key : part))}`).join("");
}

/** Issues as one line for an error's message: the first few, each with its place. */
export function describeIssues(issues: readonly Issue[]): string {
  const shown = issues.slice(0, 8).map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  return issues.length > 8 ? `${shown.join("; ")}; and ${issues.length - 8} more` : shown.join("; ");
}
