/**
 * Puts what one made of a value onto what others have made of it meanwhile.
 *
 * M1. Objects go by key, arrays by the identity of their elements ({@link origins}): what both changed in different places is all there.
 * M2. What is inserted stands behind the element that it stood behind; what others inserted there stands before it.
 * M3. Where both changed the same member, mine counts: it comes later.
 * M4. A change whose target others have removed, or made something else of, is dropped and listed; a removal of what is gone is not one.
 * M5. Two that each began a list or an object where there was none have begun the same one: the parts of both are in it.
 */
import { origins } from "./align.ts";
import { diff } from "./diff.ts";
import type { JsonPatchOperation } from "./events.ts";
import { escapePointer, isJsonObject, type Json, jsonEqual } from "./json.ts";

export interface Rebased {
  readonly state: Json;
  /** What leads from `theirs` to `state`. */
  readonly patch: readonly JsonPatchOperation[];
  /** The changes that found their target gone, each as it was made: pointers are those of `base` while it was being changed. */
  readonly dropped: readonly JsonPatchOperation[];
}

/**
 * What `mine` and `theirs` both made of `base`, as one value. It shares structure with all three, and never throws.
 *
 * Identity is what tells elements of arrays apart, so both versions should have been made by copying on write; copies of everything are told
 * apart by their `id` members, or by place.
 *
 * @param base - what both began with
 * @param mine - what is to be put onto `theirs`
 * @param theirs - what counts now
 */
export function rebase(base: Json, mine: Json, theirs: Json): Rebased {
  if (mine === base) return { state: theirs, patch: [], dropped: [] };
  const dropped: JsonPatchOperation[] = [];
  const state = new Merge(dropped).value("", base, mine, theirs);
  return { state, patch: diff(theirs, state), dropped };
}

type JsonArray = readonly Json[];
type JsonObject = { readonly [key: string]: Json };

const NOTHING: JsonObject = {};

class Merge {
  constructor(private readonly dropped: JsonPatchOperation[]) {}

  /** @param base - undefined: there was nothing */
  value(path: string, base: Json | undefined, mine: Json, theirs: Json): Json {
    if (mine === base || mine === theirs) return theirs;
    if (theirs === base) return mine;
    if (isPlain(mine) && isPlain(theirs)) {
      return this.#object(path, isPlain(base) ? base : NOTHING, mine, theirs);
    }
    if (isArray(mine) && isArray(theirs)) return this.#array(path, isArray(base) ? base : [], mine, theirs);
    if ((isPlain(mine) && isPlain(base)) || (isArray(mine) && isArray(base))) {
      this.#drop(path, base, mine);
      return theirs;
    }
    return jsonEqual(mine, base) ? theirs : mine;
  }

  #object(path: string, base: JsonObject, mine: JsonObject, theirs: JsonObject): JsonObject {
    const merged: { [key: string]: Json } = { ...theirs };
    let isTheirs = true;
    const set = (key: string, value: Json | undefined): void => {
      if (value === member(theirs, key)) return;
      isTheirs = false;
      if (value === undefined) delete merged[key];
      else merged[key] = value;
    };
    for (const key of Object.keys(mine)) {
      const [old, own, other] = [member(base, key), member(mine, key), member(theirs, key)];
      if (own === old || own === undefined) continue;
      const at = `${path}/${escapePointer(key)}`;
      if (other !== undefined) set(key, this.value(at, old, own, other));
      else if (old === undefined) set(key, own);
      else this.#drop(at, old, own);
    }
    for (const key of Object.keys(base)) if (!Object.hasOwn(mine, key)) set(key, undefined);
    return isTheirs ? theirs : merged;
  }

  #array(path: string, base: JsonArray, mine: JsonArray, theirs: JsonArray): JsonArray {
    const [own, other] = [origins(base, mine), origins(base, theirs)];
    const merged = (i: number, j: number, k: number): Json =>
      this.value(`${path}/${i}`, base[i] ?? null, mine[j] ?? null, theirs[k] ?? null);

    // What I put somewhere, by the index in `base` of what it stands behind; -1: the beginning.
    const put = new Map<number, Json[]>();
    let behind = -1;
    for (const [j, value] of mine.entries()) {
      const i = own.of[j] ?? -1;
      const k = i === -1 ? -1 : (other.to[i] ?? -1);
      if (i !== -1 && k === -1) {
        if (own.moved.has(j)) this.dropped.push({ op: "move", from: `${path}/${i}`, path: `${path}/${j}` });
        this.#drop(`${path}/${own.moved.has(j) ? j : i}`, base[i] ?? null, value);
      } else if (i === -1 || own.moved.has(j)) {
        const known = put.get(behind);
        const placed = i === -1 ? value : merged(i, j, k);
        if (known === undefined) put.set(behind, [placed]);
        else known.push(placed);
      } else behind = i;
    }

    const result: Json[] = [];
    let waiting = put.get(-1) ?? [];
    for (const [k, value] of theirs.entries()) {
      const i = other.of[k] ?? -1;
      const isPutByThem = i === -1 || other.moved.has(k);
      if (!isPutByThem) {
        for (const one of waiting) result.push(one);
        waiting = [];
      }
      const j = i === -1 ? -1 : (own.to[i] ?? -1);
      if (i === -1) result.push(value);
      else if (j !== -1 && !own.moved.has(j)) {
        result.push(merged(i, j, k));
        waiting = [...waiting, ...(put.get(i) ?? [])];
      }
    }
    for (const one of waiting) result.push(one);
    return isSame(result, theirs) ? theirs : isSame(result, mine) ? mine : result;
  }

  #drop(path: string, from: Json, to: Json): void {
    for (const operation of diff(from, to)) {
      this.dropped.push({
        ...operation,
        path: path + operation.path,
        ...("from" in operation && { from: path + operation.from }),
      });
    }
  }
}

/** An object whose members can be named one by one. */
function isPlain(value: Json | undefined): value is JsonObject {
  return isJsonObject(value) && !Object.hasOwn(value, "__proto__");
}

function isArray(value: Json | undefined): value is JsonArray {
  return Array.isArray(value);
}

function member(object: JsonObject, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

function isSame(a: JsonArray, b: JsonArray): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}
