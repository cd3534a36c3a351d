/**
 * Values that agent code has made, as JSON that is nobody else's. What was ours before stays the very same object: identity is what tells the
 * elements of a list apart ({@link rebase}), and comparing by reference is what makes patches short.
 */
import { gapsBetween, origins } from "./align.ts";
import { isJsonObject, type Json, NotJsonError, toJson } from "./json.ts";

/**
 * `value` as JSON, like {@link toJson}, but sharing with `ours` every part that it holds at the same place, or anywhere in the same list.
 *
 * @param ours - JSON that no agent code can change
 * @param value - made from `ours` by copying on write
 * @param what - how an error names the value
 * @throws {@link NotJsonError} for what JSON cannot hold
 */
export function ownJson(ours: Json, value: unknown, what: string): Json {
  try {
    return own(ours, value);
  } catch (error) {
    // Of a part that was reached from here it knows the path from here only.
    if (error instanceof NotJsonError) toJson(value, what);
    throw error;
  }
}

function own(ours: Json | undefined, value: unknown): Json {
  if (value === ours) return ours as Json;
  if (Array.isArray(value)) return Array.isArray(ours) ? ownElements(ours, value) : toJson(value);
  return isJsonObject(ours) && isPlainObject(value) ? ownMembers(ours, value) : toJson(value);
}

function ownElements(ours: readonly Json[], value: readonly unknown[]): Json[] {
  const elements = value as readonly Json[];
  const gaps = gapsBetween(ours, elements);
  const isInsertion = gaps.length === 1 && gaps[0]?.fromStart === gaps[0]?.fromEnd;
  const { of } = isInsertion ? NEW : origins(ours, elements);
  const owned = elements.slice();
  for (const { toStart, toEnd } of gaps) {
    for (let j = toStart; j < toEnd; j++) {
      const i = of[j] ?? -1;
      owned[j] = i === -1 ? toJson(value[j]) : own(ours[i], value[j]);
    }
  }
  return owned;
}

/** Of a list that has only got longer nobody needs to know more. */
const NEW = { of: [] } as const;

function ownMembers(ours: { readonly [key: string]: Json }, value: { readonly [key: string]: unknown }): Json {
  const copy: { [key: string]: Json } = {};
  for (const [key, member] of Object.entries(value)) {
    if (member === undefined) continue;
    copy[key] = own(Object.hasOwn(ours, key) ? ours[key] : undefined, member);
  }
  return copy;
}

/** An object whose JSON is its members: no class of its own, nothing that JSON refuses. */
function isPlainObject(value: unknown): value is { readonly [key: string]: unknown } {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === Object.prototype || prototype === null;
  return isPlain && !("toJSON" in value) && !Object.hasOwn(value, "__proto__");
}
