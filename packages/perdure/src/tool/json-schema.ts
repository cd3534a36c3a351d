import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";
import { Check, Compile, Errors, Meta } from "typebox/schema";
import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject, type Json, NotJsonError, toJson } from "../protocol/json.ts";
import { describeIssues, type Issue } from "../protocol/validate.ts";
import { findReferenceProblem } from "./schema-refs.ts";

/** A JSON Schema that cannot be used as one: it is malformed, or refers to what it does not hold. */
export class JsonSchemaError extends PerdureError {
  override readonly name = "JsonSchemaError";
  constructor(why: string, options?: ErrorOptions) {
    super("JSON_SCHEMA_INVALID", `this JSON Schema cannot be used: ${why}`, options);
  }
}

/** A JSON Schema as a Standard Schema, which validates and hands itself out again. */
export interface JsonSchema<T = Json> extends StandardSchemaV1<T, T>, StandardJSONSchemaV1<T, T> {
  readonly "~standard": StandardSchemaV1.Props<T, T> & StandardJSONSchemaV1.Props<T, T>;
}

/**
 * A Standard Schema from a JSON Schema that is known only at run time, as those of MCP tools and of answers are.
 *
 * Drafts 3 to 2020-12 by `$schema`; without one 2020-12, or draft 7 where it only fits that. `format` is checked where it is known.
 *
 * @typeParam T - what the schema describes; nothing checks that it does
 * @param schema - the schema; a copy is kept
 * @throws {@link JsonSchemaError} when it is malformed, of an unknown draft, or refers to something that it does not hold
 */
export function jsonSchema<T = Json>(schema: object | boolean): JsonSchema<T> {
  const own = readSchema(schema);
  const validator = compile(own);

  return {
    "~standard": {
      version: 1,
      vendor: "perdure",
      validate(value) {
        const json = readValue(value);
        if (!json.ok) return { issues: json.issues };
        // The schema is what says that the value is a T.
        if (validator.Check(json.value)) return { value: json.value as T };
        return {
          issues: explain(validator.Errors(json.value)[1]).map(({ path, message }) => ({
            path: tokens(path),
            message,
          })),
        };
      },
      jsonSchema: { input: handOut, output: handOut },
    },
  };

  function handOut({ target }: StandardJSONSchemaV1.Options): Record<string, unknown> {
    if (target !== "draft-2020-12") throw new JsonSchemaError(`it is not converted to ${target}`);
    return isJsonObject(own) ? own : own ? {} : { not: {} };
  }
}

type OwnSchema = boolean | { readonly [key: string]: Json };

function readSchema(schema: object | boolean): OwnSchema {
  let own: Json;
  try {
    own = toJson(schema, "the schema");
  } catch (cause) {
    throw new JsonSchemaError(cause instanceof NotJsonError ? cause.message : "it cannot be read", { cause });
  }
  if (typeof own !== "boolean" && !isJsonObject(own))
    throw new JsonSchemaError("it is neither an object nor a boolean");
  const problem = findMalformed(own) ?? findReferenceProblem(own);
  if (problem !== undefined) throw new JsonSchemaError(problem);
  return own;
}

const bare = (dialect: string) => dialect.replace(/^https?:/, "").replace(/#$/, "");
const META = new Map(Object.entries(Meta).map(([dialect, meta]) => [bare(dialect), meta]));
const [DRAFT_2020_12, DRAFT_7] = ["//json-schema.org/draft/2020-12/schema", "//json-schema.org/draft-07/schema"];

function findMalformed(schema: OwnSchema): string | undefined {
  const dialect = isJsonObject(schema) ? schema.$schema : undefined;
  const named = typeof dialect === "string" ? [bare(dialect)] : [DRAFT_2020_12, DRAFT_7];
  const metas = named.flatMap((name) => META.get(name) ?? []);
  const [meta] = metas;
  if (meta === undefined) return `its $schema ${JSON.stringify(dialect)} is not a draft that is known here`;
  if (metas.some((candidate) => Check(candidate, schema))) return undefined;
  return describeIssues(explain(Errors(meta, schema)[1]));
}

function compile(schema: OwnSchema): ReturnType<typeof Compile> {
  try {
    return Compile(schema);
  } catch (cause) {
    throw new JsonSchemaError(cause instanceof Error ? cause.message : "it cannot be compiled", { cause });
  }
}

function readValue(
  value: unknown,
): { ok: true; value: Json } | { ok: false; issues: readonly StandardSchemaV1.Issue[] } {
  try {
    return { ok: true, value: toJson(value) };
  } catch (error) {
    if (!(error instanceof NotJsonError)) throw error;
    return { ok: false, issues: [{ message: `must be JSON, not ${error.found}`, path: tokens(error.path) }] };
  }
}

interface TypeboxError {
  readonly keyword: string;
  readonly instancePath: string;
  readonly message: string;
  readonly params: object;
}

/** The validator's errors as issues: an extra member is named once, not also as one that "false" refuses. */
function explain(errors: readonly TypeboxError[]): Issue[] {
  const told = errors.filter(({ keyword }) => keyword !== "boolean");
  return (told.length > 0 ? told : errors).map(({ keyword, instancePath, message, params }) => {
    const names =
      keyword === "additionalProperties" && "additionalProperties" in params ? params.additionalProperties : [];
    const extra = Array.isArray(names) && names.length > 0 ? `: ${names.join(", ")}` : "";
    return { path: instancePath, message: `${message}${extra}` };
  });
}

function tokens(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}
