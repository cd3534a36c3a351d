/**
 * What two states differ in, part by part: members of objects by key, elements of arrays by what they are, wherever they stand. So the same change
 * is the same also where others have changed what is around it.
 */
import { escapePointer, isJsonObject, type Json, jsonEqual } from "../protocol/json.ts";

/** Changes that are known, each as often as it was made. */
export class KnownChanges {
  readonly #left = new Map<string, number>();

  add(before: Json, after: Json): void {
    this.#note("", before, after);
  }

  /** `mine` as if the known changes were not among those that it makes of `base`. */
  without(base: Json, mine: Json): Json {
    return this.#rest("", base, mine) ?? base;
  }

  #note(path: string, before: Json | undefined, after: Json): void {
    if (before !== undefined && jsonEqual(before, after)) return;
    if (isPlain(after) && (isPlain(before) || (before === undefined && !isEmpty(after)))) {
      const old = isPlain(before) ? before : {};
      for (const [key, value] of Object.entries(after)) this.#note(at(path, key), member(old, key), value);
      for (const key of Object.keys(old)) if (!Object.hasOwn(after, key)) this.#put(removal(at(path, key)));
    } else if (isList(after) && (isList(before) || (before === undefined && !isEmpty(after)))) {
      for (const one of missingIn(isList(before) ? before : [], after)) this.#put(element(path, one));
    } else this.#put(value(path, after));
  }

  /** @returns undefined when `mine` would not be there but for what is known */
  #rest(path: string, base: Json | undefined, mine: Json): Json | undefined {
    if (base !== undefined && jsonEqual(base, mine)) return base;
    if (isPlain(mine) && (isPlain(base) || (base === undefined && !isEmpty(mine)))) {
      const old = isPlain(base) ? base : {};
      const rest: { [key: string]: Json } = {};
      for (const [key, one] of Object.entries(mine)) {
        const left = this.#rest(at(path, key), member(old, key), one);
        if (left !== undefined) rest[key] = left;
      }
      for (const [key, one] of Object.entries(old)) {
        if (!Object.hasOwn(mine, key) && this.#take(removal(at(path, key)))) rest[key] = one;
      }
      return base === undefined && isEmpty(rest) ? undefined : rest;
    }
    if (isList(mine) && (isList(base) || (base === undefined && !isEmpty(mine)))) {
      const known = missingIn(isList(base) ? base : [], mine).filter((one) => this.#take(element(path, one)));
      // The last ones: what was there before stands before it, as a rule.
      const rest = missingIn(known.toReversed(), [...mine].reverse()).reverse();
      return base === undefined && isEmpty(rest) ? undefined : rest;
    }
    return this.#take(value(path, mine)) ? base : mine;
  }

  #put(change: string): void {
    this.#left.set(change, (this.#left.get(change) ?? 0) + 1);
  }

  #take(change: string): boolean {
    const left = this.#left.get(change) ?? 0;
    if (left > 0) this.#left.set(change, left - 1);
    return left > 0;
  }
}

/** The elements of `list` that `known` does not have, or not as often. */
function missingIn(known: readonly Json[], list: readonly Json[]): Json[] {
  const counts = new Map<string, number>();
  for (const one of known) counts.set(JSON.stringify(one), (counts.get(JSON.stringify(one)) ?? 0) + 1);
  return list.filter((one) => {
    const count = counts.get(JSON.stringify(one)) ?? 0;
    if (count > 0) counts.set(JSON.stringify(one), count - 1);
    return count === 0;
  });
}

const at = (path: string, key: string): string => `${path}/${escapePointer(key)}`;
const value = (path: string, to: Json): string => `${path} = ${JSON.stringify(to)}`;
const element = (path: string, one: Json): string => `${path} + ${JSON.stringify(one)}`;
const removal = (path: string): string => `${path} -`;

function isPlain(json: Json | undefined): json is { readonly [key: string]: Json } {
  return isJsonObject(json);
}

function isList(json: Json | undefined): json is readonly Json[] {
  return Array.isArray(json);
}

function isEmpty(json: object): boolean {
  return Object.keys(json).length === 0;
}

function member(object: { readonly [key: string]: Json }, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}
