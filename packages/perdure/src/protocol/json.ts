import { PerdureError } from "./errors.ts";

/** A value that JSON holds exactly. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** What a value of type `T` is after it went through JSON: methods and `undefined` are gone, `toJSON` was called. */
export type Jsonify<T> = T extends { toJSON(): infer J }
  ? Jsonify<J>
  : T extends null | boolean | number | string
    ? T
    : T extends undefined
      ? null
      : T extends bigint | symbol | ((...args: never[]) => unknown)
        ? never
        : T extends readonly unknown[]
          ? { -readonly [K in keyof T]: Jsonify<T[K]> }
          : T extends object
            ? {
                -readonly [K in keyof T as T[K] extends symbol | ((...args: never[]) => unknown)
                  ? never
                  : K]: JsonifyMember<T[K]>;
              }
            : Json;
type JsonifyMember<T> = undefined extends T ? Jsonify<Exclude<T, undefined>> | undefined : Jsonify<T>;

/** How deep a JSON value may nest. Deeper ones overflow the stacks of the parsers and clones they meet later. */
export const MAX_JSON_DEPTH = 512;

/** A value that JSON cannot hold without loss. `path` is the JSON Pointer to the offending part. */
export class NotJsonError extends PerdureError {
  override readonly name = "NotJsonError";
  constructor(
    what: string,
    /** JSON Pointer (RFC 6901) to the part that JSON cannot hold; "" is the value itself. */
    readonly path: string,
    /** What stands there, for example `a BigInt`. */
    readonly found: string,
  ) {
    super(
      "NOT_JSON",
      `${what} cannot be written as JSON: ${found} at ${path === "" ? "its root" : `"${path}"`}; convert it first`,
    );
  }
}

/**
 * The JSON value that `value` stands for, as a fresh copy that shares nothing with it.
 *
 * `toJSON` is honoured, members that are `undefined` are left out, `undefined` itself and in arrays is `null`.
 *
 * @param value - anything
 * @param what - how an error names the value, for example ``result of tool `refund` ``
 * @throws {@link NotJsonError} for a BigInt, function, symbol, cycle, NaN, Infinity, a Map, Set or binary view (JSON would silently
 * write `{}`), a key `__proto__`, or nesting beyond {@link MAX_JSON_DEPTH}
 */
export function toJson(value: unknown, what = "value"): Json {
  return convert(value, "", "", []);

  function convert(raw: unknown, key: string, path: string, parents: object[]): Json {
    let v = raw;
    if (typeof v === "object" && v !== null && typeof (v as { toJSON?: unknown }).toJSON === "function") {
      v = (v as { toJSON(key: string): unknown }).toJSON(key);
    }
    switch (typeof v) {
      case "string":
      case "boolean":
        return v;
      case "number":
        if (v === 0) return 0; // JSON knows no -0: what is given back live must be what is read after a crash
        if (Number.isFinite(v)) return v;
        throw new NotJsonError(what, path, String(v));
      case "undefined":
        return null;
      case "bigint":
        throw new NotJsonError(what, path, "a BigInt");
      case "function":
      case "symbol":
        throw new NotJsonError(what, path, `a ${typeof v}`);
      case "object":
        break;
    }
    if (v === null) return null;
    const object = v as object;
    if (parents.includes(object)) throw new NotJsonError(what, path, "a reference to one of its own parents");
    if (parents.length >= MAX_JSON_DEPTH) throw new NotJsonError(what, path, `more than ${MAX_JSON_DEPTH} levels`);
    if (object instanceof String || object instanceof Number || object instanceof Boolean) return object.valueOf();
    if (object instanceof Map || object instanceof Set || object instanceof Promise || ArrayBuffer.isView(object)) {
      throw new NotJsonError(what, path, `a ${object.constructor.name}`);
    }
    parents.push(object);
    const result = Array.isArray(object) ? convertArray(object, path, parents) : convertObject(object, path, parents);
    parents.pop();
    return result;
  }

  function convertArray(items: readonly unknown[], path: string, parents: object[]): Json[] {
    return Array.from(items, (item, i) => convert(item, String(i), `${path}/${i}`, parents));
  }

  function convertObject(object: object, path: string, parents: object[]): Json {
    const copy: Record<string, Json> = {};
    for (const [key, member] of Object.entries(object)) {
      if (member === undefined) continue;
      const at = `${path}/${escapePointer(key)}`;
      if (key === "__proto__") throw new NotJsonError(what, at, 'a key "__proto__"');
      copy[key] = convert(member, key, at, parents);
    }
    return copy;
  }
}

/** One reference token of a JSON Pointer, escaped as RFC 6901 section 3 asks. */
export function escapePointer(token: string): string {
  return /[~/]/.test(token) ? token.replaceAll("~", "~0").replaceAll("/", "~1") : token;
}

/** Whether two JSON values are equal, whatever the order of their keys. */
export function jsonEqual(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => jsonEqual(item, b[i]));
  }
  const left = a as { readonly [key: string]: Json };
  const right = b as { readonly [key: string]: Json };
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && jsonEqual(left[key], right[key]))
  );
}

/** Whether `value` is a JSON object: not null, not an array. */
export function isJsonObject(value: unknown): value is { readonly [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
