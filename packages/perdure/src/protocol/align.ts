/**
 * Which elements of two versions of an array are the same ones.
 *
 * A1. An element that was not changed is the same reference, or the same primitive, in both: a longest run of those is *kept*, the others have
 *     *moved*.
 * A2. One that was changed is another reference. It is known by its `id` member, if both have one; else by what it has in common with one that
 *     stood between the same kept elements, and by its place, if as many stand there now as before. Objects with little in common are
 *     two: rather both stay than one is lost.
 * A3. Primitives have no identity and no inside. Equal ones are told apart by their order; one in another's place has replaced it; where their
 *     number between kept elements has changed, the old ones were removed and the new ones inserted.
 */
import { isJsonObject, type Json } from "./json.ts";

type JsonArray = readonly Json[];

/** A stretch without kept elements: what stood there before, `from[fromStart]` to before `fromEnd`, and what stands there now. */
export interface Gap {
  readonly fromStart: number;
  readonly fromEnd: number;
  readonly toStart: number;
  readonly toEnd: number;
}

export function gapsBetween(from: JsonArray, to: JsonArray): Gap[] {
  const shorter = Math.min(from.length, to.length);
  let start = 0;
  while (start < shorter && from[start] === to[start]) start++;
  let end = 0;
  while (end < shorter - start && from[from.length - 1 - end] === to[to.length - 1 - end]) end++;

  const middle: Gap = { fromStart: start, fromEnd: from.length - end, toStart: start, toEnd: to.length - end };
  const gaps: Gap[] = [];
  let fromStart = start;
  let toStart = start;
  for (const [fromEnd, toEnd] of [...keptIn(from, to, middle), [middle.fromEnd, middle.toEnd] as const]) {
    if (fromStart < fromEnd || toStart < toEnd) gaps.push({ fromStart, fromEnd, toStart, toEnd });
    fromStart = fromEnd + 1;
    toStart = toEnd + 1;
  }
  return gaps;
}

type Kept = readonly [fromIndex: number, toIndex: number];

/** Elements of both stretches that stay, in order. */
function keptIn(from: JsonArray, to: JsonArray, middle: Gap): Kept[] {
  return keptInPlace(from, to, middle) ?? longestCommonRun(from, to, middle);
}

/** The elements that stand where they stood, if all others are new; so that many changes in place need no search. */
function keptInPlace(from: JsonArray, to: JsonArray, { fromStart, fromEnd, toStart, toEnd }: Gap): Kept[] | undefined {
  if (fromStart === fromEnd || toStart === toEnd) return [];
  if (fromEnd - fromStart !== toEnd - toStart) return undefined;
  const kept: Kept[] = [];
  const gone = new Set<Json | undefined>();
  for (let i = fromStart; i < fromEnd; i++) {
    if (from[i] === to[i]) kept.push([i, i]);
    else gone.add(from[i]);
  }
  for (let i = toStart; i < toEnd; i++) if (from[i] !== to[i] && gone.has(to[i])) return undefined;
  return kept;
}

/** The longest increasing run of elements found on both sides (patience sorting). */
function longestCommonRun(from: JsonArray, to: JsonArray, { fromStart, fromEnd, toStart, toEnd }: Gap): Kept[] {
  const places = new Map<Json | undefined, number[]>();
  for (let i = fromEnd - 1; i >= fromStart; i--) {
    const known = places.get(from[i]);
    if (known === undefined) places.set(from[i], [i]);
    else known.push(i);
  }
  interface Link {
    readonly kept: Kept;
    readonly before: Link | undefined;
  }
  // ends[n] closes the run of n + 1 elements whose last place in `from` is the smallest.
  const ends: Link[] = [];
  for (let toIndex = toStart; toIndex < toEnd; toIndex++) {
    const fromIndex = places.get(to[toIndex])?.pop();
    if (fromIndex === undefined) continue;
    let low = 0;
    let high = ends.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if ((ends[mid]?.kept[0] ?? 0) < fromIndex) low = mid + 1;
      else high = mid;
    }
    ends[low] = { kept: [fromIndex, toIndex], before: ends[low - 1] };
  }
  const run: Kept[] = [];
  for (let link = ends.at(-1); link !== undefined; link = link.before) run.push(link.kept);
  return run.reverse();
}

/** The share of members of `b` that `a` has too. */
export function likeness(a: Json | undefined, b: Json | undefined): number {
  if (!isJsonObject(a) || !isJsonObject(b)) return 0;
  let members = 0;
  let same = 0;
  for (const key in b) {
    members++;
    if (a[key] === b[key]) same++;
  }
  return members === 0 ? 0 : same / members;
}

/** Where the elements of a version come from. */
export interface Origins {
  /** For each element of the new version, its index in the old one; -1: it was inserted. */
  readonly of: readonly number[];
  /** For each element of the old version, its index in the new one; -1: it was removed. */
  readonly to: readonly number[];
  /** Indices, in the new version, of elements that stand in another order than before. */
  readonly moved: ReadonlySet<number>;
}

export function origins(from: JsonArray, to: JsonArray): Origins {
  const finder = new OriginFinder(from, to);
  const gaps = gapsBetween(from, to);
  finder.keep(gaps);
  finder.match(unchanged);
  for (const gap of gaps) finder.pair(gap);
  finder.match(idOf);
  return finder;
}

class OriginFinder implements Origins {
  readonly of: number[];
  readonly to: number[];
  readonly moved = new Set<number>();
  readonly #old: JsonArray;
  readonly #new: JsonArray;

  constructor(from: JsonArray, to: JsonArray) {
    this.#old = from;
    this.#new = to;
    this.of = new Array<number>(to.length).fill(-1);
    this.to = new Array<number>(from.length).fill(-1);
  }

  /** What lies between the gaps has stayed. */
  keep(gaps: readonly Gap[]): void {
    let fromIndex = 0;
    let toIndex = 0;
    for (const gap of [...gaps, undefined]) {
      const end = gap?.fromStart ?? this.#old.length;
      while (fromIndex < end) this.#join(fromIndex++, toIndex++);
      if (gap === undefined) return;
      fromIndex = gap.fromEnd;
      toIndex = gap.toEnd;
    }
  }

  /** Joins what has the same mark, wherever it stands. */
  match(markOf: (value: Json) => Json | undefined): void {
    const places = new Map<Json, number[]>();
    for (let i = this.#old.length - 1; i >= 0; i--) {
      const mark = this.to[i] === -1 ? markOf(this.#old[i] ?? null) : undefined;
      if (mark === undefined) continue;
      const known = places.get(mark);
      if (known === undefined) places.set(mark, [i]);
      else known.push(i);
    }
    if (places.size === 0) return;
    for (let j = 0; j < this.#new.length; j++) {
      const mark = this.of[j] === -1 ? markOf(this.#new[j] ?? null) : undefined;
      const i = mark === undefined ? undefined : places.get(mark)?.pop();
      if (i === undefined) continue;
      this.#join(i, j);
      this.moved.add(j);
    }
  }

  /** Joins what was changed between two kept elements, in order. */
  pair(gap: Gap): void {
    const olds = indices(gap.fromStart, gap.fromEnd, this.to);
    const news = indices(gap.toStart, gap.toEnd, this.of);
    if (olds.length * news.length > LARGE_GAP) {
      for (let k = 0; k < Math.min(olds.length, news.length); k++) {
        const [i, j] = [olds[k] ?? 0, news[k] ?? 0];
        if (this.#closeness(i, j, olds.length === news.length) > 0) this.#join(i, j);
      }
      return;
    }
    const placeOf = new Map([...olds.entries()].map(([k, i]) => [i, news[k]]));
    const isInPlace = (i: number, j: number): boolean => olds.length === news.length && placeOf.get(i) === j;
    for (const [i, j] of closestPairs(olds, news, (i, j) => this.#closeness(i, j, isInPlace(i, j)))) this.#join(i, j);
  }

  /** @param isInPlace - it stands where the other stood: that speaks for one that is as near as others, and for what has no inside */
  #closeness(i: number, j: number, isInPlace: boolean): number {
    const [a, b] = [this.#old[i] ?? null, this.#new[j] ?? null];
    const near = kinship(a, b);
    if (!isInPlace || (near === 0 && isJsonObject(a) && isJsonObject(b))) return near;
    return near + FAINT;
  }

  #join(fromIndex: number, toIndex: number): void {
    this.of[toIndex] = fromIndex;
    this.to[fromIndex] = toIndex;
  }
}

/** Pairs that are looked at in one gap. Beyond it elements are paired by place. */
const LARGE_GAP = 10_000;

function indices(start: number, end: number, joined: readonly number[]): number[] {
  const free: number[] = [];
  for (let i = start; i < end; i++) if (joined[i] === -1) free.push(i);
  return free;
}

function unchanged(value: Json): Json {
  return value;
}

function idOf(value: Json): Json | undefined {
  if (!isJsonObject(value) || !Object.hasOwn(value, "id")) return undefined;
  const { id } = value;
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}

/** How much speaks for `b` being `a`, changed inside. 0: nothing. */
function kinship(a: Json, b: Json): number {
  if (Array.isArray(a) && Array.isArray(b)) return FAINT;
  const [idA, idB] = [idOf(a), idOf(b)];
  if (idA !== undefined && idB !== undefined) return idA === idB ? 2 : 0;
  if (!isJsonObject(a) || !isJsonObject(b)) return 0;
  let [equal, all, members] = [0, 0, 0];
  for (const key in b) {
    const weight = weightOf(b[key]);
    members++;
    all += weight;
    if (!Object.hasOwn(a, key)) continue;
    if (a[key] === b[key]) equal += weight;
    else if (isInside(a[key], b[key])) equal += weight / 2;
  }
  // One that is empty may yet have become the other.
  if (members === 0 || Object.keys(a).length === 0) return FAINT;
  // Squared: one pair that is nearly equal says more than two that have a default in common.
  const share = (equal / all) ** 2;
  return share < ALIKE ? 0 : share;
}

/** Less than that, two have in common by chance: taken for one, the removal of the first would take the other away. */
const ALIKE = 0.15;

const FAINT = 0.01;

/** Whether one may have become the other by a change inside. */
function isInside(a: Json | undefined, b: Json | undefined): boolean {
  return (Array.isArray(a) && Array.isArray(b)) || (isJsonObject(a) && isJsonObject(b));
}

/** How much an equal member says: a name or a kept object much, a flag or a zero little. */
function weightOf(value: Json | undefined): number {
  if (typeof value === "string") return value === "" ? 1 : 4;
  if (typeof value === "number") return Math.abs(value) > 1 ? 2 : 1;
  return typeof value === "object" && value !== null ? 4 : 1;
}

/** The pairs, in order on both sides, that have most in common. */
function closestPairs(
  olds: readonly number[],
  news: readonly number[],
  kinshipOf: (i: number, j: number) => number,
): [number, number][] {
  const width = news.length + 1;
  // best[k * width + l]: what the first k and the first l have in common at most.
  const best = new Float64Array((olds.length + 1) * width);
  const at = (k: number, l: number) => best[k * width + l] ?? 0;
  for (let k = 1; k <= olds.length; k++) {
    for (let l = 1; l <= news.length; l++) {
      const near = kinshipOf(olds[k - 1] ?? 0, news[l - 1] ?? 0);
      const paired = near > 0 ? at(k - 1, l - 1) + near : 0;
      best[k * width + l] = Math.max(at(k - 1, l), at(k, l - 1), paired);
    }
  }
  const pairs: [number, number][] = [];
  let [k, l] = [olds.length, news.length];
  while (k > 0 && l > 0) {
    if (at(k, l) === at(k, l - 1)) l--;
    else if (at(k, l) === at(k - 1, l)) k--;
    else pairs.push([olds[--k] ?? 0, news[--l] ?? 0]);
  }
  return pairs.reverse();
}
