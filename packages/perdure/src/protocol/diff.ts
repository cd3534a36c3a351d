/**
 * Finds the patch between two versions of a value that share what did not change, as copy-on-write drafts leave them.
 *
 * 1. What is the same reference is not looked into: one comparison. So the cost is that of the containers on the way to the changes.
 * 2. Object members are told apart by key, array elements by identity: a longest run of kept elements is found, what lies between is paired up
 *    and compared, the rest is inserted or removed. One `unshift` is one `add`, whatever the length.
 * 3. No container's operations are longer than replacing it would be.
 * 4. Two versions that share nothing give a correct patch too, if not the shortest. Equal ones give an empty one.
 * 5. Pointers are escaped, a new key is `add`, `undefined` is nowhere: such a member counts as absent, such an element as `null`.
 */
import { type Gap, gapsBetween, likeness } from "./align.ts";
import type { JsonPatchOperation } from "./events.ts";
import { escapePointer, isJsonObject, type Json, jsonEqual } from "./json.ts";
import { estimateBytes, longerThan } from "./size.ts";

type JsonArray = readonly Json[];
type JsonObject = { readonly [key: string]: Json };

/**
 * The patch that makes `to` of `from`. Its values are parts of `to`, not copies.
 *
 * @param from - what the reader holds; never changed in place from now on
 * @param to - what it shall hold; never changed in place from now on
 */
export function diff(from: Json, to: Json): readonly JsonPatchOperation[] {
  const patch = new PatchWriter();
  diffValue(patch, "", from, to);
  return patch.operations;
}

/** What an operation costs beside its pointers and its value: `{"op":"replace","path":"","value":},` and so on. */
const FRAME_BYTES = { add: 32, remove: 26, replace: 36, move: 33 };

class PatchWriter {
  readonly operations: JsonPatchOperation[] = [];
  #bytes = 0;

  add(path: string, value: Json): void {
    this.operations.push({ op: "add", path, value: withoutUndefined(value) });
    this.#bytes += FRAME_BYTES.add + path.length + estimateBytes(value);
  }

  replace(path: string, value: Json): void {
    this.operations.push({ op: "replace", path, value: withoutUndefined(value) });
    this.#bytes += FRAME_BYTES.replace + path.length + estimateBytes(value);
  }

  remove(path: string): void {
    this.operations.push({ op: "remove", path });
    this.#bytes += FRAME_BYTES.remove + path.length;
  }

  move(from: string, path: string): void {
    this.operations.push({ op: "move", from, path });
    this.#bytes += FRAME_BYTES.move + from.length + path.length;
  }

  /** Lets `write` describe how the container at `path` became `value`, of `members` parts; takes one `replace` instead if that is shorter. */
  container(path: string, value: Json, members: number, write: () => void): void {
    const operations = this.operations.length;
    const bytes = this.#bytes;
    write();
    const spent = this.#bytes - bytes;
    const allowed = spent - FRAME_BYTES.replace - path.length;
    // A member takes two bytes or more, so most containers need not even be looked at.
    if (spent === 0 || 2 * members > allowed || longerThan(value, allowed)) return;
    this.operations.length = operations;
    this.#bytes = bytes;
    this.replace(path, value);
  }
}

function diffValue(patch: PatchWriter, path: string, from: Json, to: Json): void {
  if (from === to) return;
  if (isJsonObject(from) && isJsonObject(to) && !Object.hasOwn(from, "__proto__") && !Object.hasOwn(to, "__proto__")) {
    const keys = keysOf(to);
    patch.container(path, to, keys.length, () => diffObject(patch, path, from, to, keys));
  } else if (isArray(from) && isArray(to)) {
    patch.container(path, to, to.length, () => diffArray(patch, path, from, to));
  } else {
    patch.replace(path, to);
  }
}

function diffObject(patch: PatchWriter, path: string, from: JsonObject, to: JsonObject, keys: readonly string[]): void {
  const oldKeys = keysOf(from);
  let sameKeys = keys.length === oldKeys.length;
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] ?? "";
    if (key !== oldKeys[i]) sameKeys = false;
    if (from[key] !== to[key]) diffMember(patch, path, from, to, key);
  }
  if (sameKeys) return;
  for (const key of oldKeys) if (!Object.hasOwn(to, key)) diffMember(patch, path, from, to, key);
}

const LARGE_OBJECT = 100;
const keysOfLarge = new WeakMap<JsonObject, readonly string[]>();

/**
 * Listing a large object's keys takes as long as comparing its members, and `to` is most often the next call's `from`. This is why a value
 * that went through here must not be changed any more.
 */
function keysOf(object: JsonObject): readonly string[] {
  const known = keysOfLarge.get(object);
  if (known !== undefined) return known;
  const keys = Object.keys(object);
  if (keys.length >= LARGE_OBJECT) keysOfLarge.set(object, keys);
  return keys;
}

function diffMember(patch: PatchWriter, path: string, from: JsonObject, to: JsonObject, key: string): void {
  const old = Object.hasOwn(from, key) ? from[key] : undefined;
  const value = Object.hasOwn(to, key) ? to[key] : undefined;
  const at = `${path}/${escapePointer(key)}`;
  if (value === undefined) {
    if (old !== undefined) patch.remove(at);
  } else if (old === undefined) {
    patch.add(at, value);
  } else if (key !== "constructor") {
    diffValue(patch, at, old, value);
  } else if (!jsonEqual(old, value)) {
    // Clients refuse a pointer that goes on to `constructor/prototype`, so nothing below this key is ever named.
    patch.replace(at, value);
  }
}

function diffArray(patch: PatchWriter, path: string, from: JsonArray, to: JsonArray): void {
  const gaps = gapsBetween(from, to);
  const moved = singleMove(from, to, gaps);
  if (moved !== undefined) {
    patch.move(`${path}/${moved.from}`, `${path}/${moved.to}`);
    return;
  }
  // Everything left of a gap is already as in `to` when its operations are applied, so positions in `to` are the ones to name.
  for (const gap of gaps) diffGap(patch, path, from, to, gap);
}

/** One element taken out here and put back there, and nothing else changed. */
function singleMove(from: JsonArray, to: JsonArray, gaps: readonly Gap[]): { from: number; to: number } | undefined {
  const [a, b] = gaps;
  if (a === undefined || b === undefined || gaps.length > 2) return undefined;
  const isTaken = (gap: Gap) => gap.fromEnd - gap.fromStart === 1 && gap.toStart === gap.toEnd;
  const isPut = (gap: Gap) => gap.fromStart === gap.fromEnd && gap.toEnd - gap.toStart === 1;
  const [taken, put] = isTaken(a) && isPut(b) ? [a, b] : isTaken(b) && isPut(a) ? [b, a] : [];
  if (taken === undefined || put === undefined || from[taken.fromStart] !== to[put.toStart]) return undefined;
  return { from: taken.fromStart, to: put.toStart };
}

function diffGap(patch: PatchWriter, path: string, from: JsonArray, to: JsonArray, gap: Gap): void {
  const before = gap.fromEnd - gap.fromStart;
  const after = gap.toEnd - gap.toStart;
  const pairs = Math.min(before, after);
  // An element that was changed and got a new neighbour: pair it with itself, not with the neighbour.
  const atEnd =
    before !== after &&
    likeness(from[gap.fromEnd - 1], to[gap.toEnd - 1]) > likeness(from[gap.fromStart], to[gap.toStart]);
  const firstPair = atEnd ? after - pairs : 0;
  const surplus = gap.toStart + (atEnd ? 0 : pairs);
  for (let i = pairs; i < before; i++) patch.remove(`${path}/${surplus}`);
  for (let i = 0; i < after - pairs; i++) patch.add(`${path}/${surplus + i}`, to[surplus + i] ?? null);
  for (let i = 0; i < pairs; i++) {
    const at = gap.toStart + firstPair + i;
    const old = atEnd ? gap.fromEnd - pairs + i : gap.fromStart + i;
    diffValue(patch, `${path}/${at}`, from[old] ?? null, to[at] ?? null);
  }
}

/** `value` itself unless `undefined` is somewhere in it: writing it would leave the operation without a value. */
function withoutUndefined(value: Json): Json {
  return holdsUndefined(value) ? JSON.parse(JSON.stringify(value) ?? "null") : value;
}

function holdsUndefined(value: Json | undefined): boolean {
  if (typeof value !== "object" || value === null) return value === undefined;
  if (!isJsonObject(value)) return value.some(holdsUndefined);
  for (const key in value) if (holdsUndefined(value[key])) return true;
  return false;
}

function isArray(value: Json): value is JsonArray {
  return Array.isArray(value);
}
