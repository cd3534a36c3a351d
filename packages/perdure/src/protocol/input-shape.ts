import { ContentPartSchema, PartSourceSchema, RunAgentInputSchema } from "@ag-ui/core/schemas";
import { type $ZodType, type $ZodTypes, safeParse } from "zod/v4/core";
import type { Json } from "./json.ts";

/**
 * What a request may hold, read from the schemas of `@ag-ui/core` themselves: they are loose (an unknown member passes) and silent about what a
 * peer meant, so input.ts needs to know their members. Nothing is written down here that the schemas already say.
 */
export type Shape =
  | { readonly kind: "leaf"; readonly problem: (value: Json) => string | undefined }
  | { readonly kind: "object"; readonly members: ReadonlyMap<string, Member> }
  | { readonly kind: "list"; readonly element: Shape }
  | { readonly kind: "textOrList"; readonly list: Shape }
  | {
      readonly kind: "choice";
      /** The member that says which. */
      readonly by: string;
      readonly options: ReadonlyMap<unknown, Shape>;
      /** For a value that is none of the options: content parts and their sources grow with the protocol, roles are a mistake. */
      readonly unknown: "skip" | "refuse";
      readonly isPart: boolean;
    };

export interface Member {
  readonly shape: Shape;
  /** How Python peers write the name. */
  readonly snake: string;
  readonly optional: boolean;
  /** What stands for an absent member. */
  readonly fallback: (() => Json) | undefined;
  readonly isId: boolean;
}

export const INPUT_SHAPE: Shape = readShape(RunAgentInputSchema);

function readShape(schema: $ZodType): Shape {
  const { def } = internals(schema);
  switch (def.type) {
    case "optional":
    case "nullable":
    case "default":
      return readShape(def.innerType);
    case "pipe":
      return readShape(def.in);
    case "array":
      return { kind: "list", element: readShape(def.element) };
    case "object":
      return {
        kind: "object",
        members: new Map(Object.entries(def.shape).map(([name, s]) => [name, readMember(name, s)])),
      };
    case "union": {
      if (!("discriminator" in def)) return readTextOrList(def.options);
      const by = String(def.discriminator);
      const options = new Map<unknown, Shape>();
      for (const option of def.options) {
        for (const value of option._zod.propValues?.[by] ?? []) options.set(value, readShape(option));
      }
      const isPart = schema === ContentPartSchema;
      return {
        kind: "choice",
        by,
        options,
        unknown: isPart || schema === PartSourceSchema ? "skip" : "refuse",
        isPart,
      };
    }
    default:
      // Texts, literals and enums; and open JSON, which is checked and never entered.
      return { kind: "leaf", problem: (value) => safeParse(schema, value).error?.issues[0]?.message };
  }
}

function readMember(name: string, schema: $ZodType): Member {
  const { def } = internals(schema);
  const shape = readShape(schema);
  return {
    shape,
    snake: name.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`),
    optional: def.type === "optional" || def.type === "default",
    fallback: def.type === "default" ? () => structuredClone(def.defaultValue) as Json : undefined,
    isId: shape.kind === "leaf" && (name === "id" || name.endsWith("Id")),
  };
}

/** The one union of the protocol that nothing discriminates: a message's content is a text or a list of parts. */
function readTextOrList(options: readonly $ZodType[]): Shape {
  const list = options.map(readShape).find(({ kind }) => kind === "list");
  if (options.length !== 2 || list === undefined)
    throw new Error("@ag-ui/core has a union that input-shape.ts cannot read");
  return { kind: "textOrList", list };
}

/** Every schema is one of zod's own classes, whose union type lets the compiler follow `def.type`. */
function internals(schema: $ZodType): $ZodTypes["_zod"] {
  return (schema as $ZodTypes)._zod;
}
