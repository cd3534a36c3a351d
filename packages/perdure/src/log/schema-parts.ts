/** What schemas of the log are made of. */
import { z } from "zod";
import type { Json } from "../protocol/json.ts";

/** An unknown member is a fault. */
export const object = <S extends z.core.$ZodShape>(shape: S) => z.strictObject(shape).readonly();

export const list = <S extends z.ZodType>(item: S) => z.array(item).readonly();

/** A member that may be missing. By zod's own `exactOptional` each that is costs what a fault costs; in JSON none is `undefined`. */
export const optional = <S extends z.ZodType>(schema: S) => z.optional(schema) as z.ZodType as z.ZodExactOptional<S>;

/** It is JSON already, so all that is left to ask is whether the member is there. */
export const json = z.custom<Json>((value) => value !== undefined, "is missing");
