/** Random documents and edits of them, and the appliers of others. */
import * as fc from "fast-check";
import fastJsonPatch from "fast-json-patch";
import { create } from "mutative";
import * as rfc6902 from "rfc6902";
import type { Json } from "../../src/protocol/json.ts";
import type { Patch } from "../../src/protocol/patch.ts";

export function byFastJsonPatch(doc: Json, patch: Patch): Json | undefined {
  try {
    return fastJsonPatch.applyPatch(doc, clone(patch) as never, true, false).newDocument;
  } catch {
    return undefined;
  }
}

/** Changes in place and has no way to change the root, so callers wrap it. */
export function byRfc6902(doc: Json, patch: Patch): Json | undefined {
  const copy = clone(doc);
  try {
    const errors = rfc6902.applyPatch(copy, clone(patch) as never);
    return errors.every((error) => error === null) ? copy : undefined;
  } catch {
    return undefined;
  }
}

export function underRoot(operation: Patch[number]): Patch[number] {
  const path = `/root${operation.path}`;
  return "from" in operation ? { ...operation, path, from: `/root${operation.from}` } : { ...operation, path };
}

/** Unlike `structuredClone` it also parts what hangs in two places, which an applier that changes in place would change in both. */
export function clone<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

export function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null) {
    Object.freeze(value);
    Object.values(value).forEach(deepFreeze);
  }
  return value;
}

function key(): fc.Arbitrary<string> {
  return fc.constantFrom("a", "b", "c", "d", "x/y", "m~n", "", "long key");
}

export function plainJson(): fc.Arbitrary<Json> {
  return json(fc.oneof(fc.integer(), fc.boolean(), fc.constant(null), fc.constantFrom("", "x", "some text")));
}

function json(leaf: fc.Arbitrary<Json>): fc.Arbitrary<Json> {
  return fc.letrec<{ value: Json }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 4, depthSize: "small" },
      leaf,
      fc.array(tie("value"), { maxLength: 6 }),
      fc.dictionary(key(), tie("value"), { maxKeys: 5, noNullPrototype: true }),
    ),
  })).value as fc.Arbitrary<Json>;
}

interface Edit {
  readonly kind: "set" | "delete" | "insert" | "remove" | "move" | "reverse" | "duplicate";
  readonly steps: readonly number[];
  readonly at: number;
  readonly to: number;
  readonly key: string;
  readonly value: Json;
}

export function edits(): fc.Arbitrary<readonly Edit[]> {
  const edit: fc.Arbitrary<Edit> = fc.record({
    kind: fc.constantFrom("set", "set", "delete", "insert", "insert", "remove", "move", "reverse", "duplicate"),
    steps: fc.array(fc.nat(20), { maxLength: 3 }),
    at: fc.nat(20),
    to: fc.nat(20),
    key: key(),
    value: plainJson(),
  });
  return fc.array(edit, { maxLength: 8 });
}

export function startingDocument(): fc.Arbitrary<Json> {
  return fc
    .tuple(plainJson(), fc.array(plainJson(), { minLength: 3, maxLength: 12 }))
    .map(([a, list]) => ({ a, list, b: { list } }));
}

/** The document after the edits, sharing with it what they did not touch. */
export function edited(from: Json, some: readonly Edit[]): Json {
  return create(deepFreeze(from) as object, (draft) => {
    for (const one of some) play(draft as Draft, one);
  }) as Json;
}

type Draft = Json[] | { [key: string]: Json };

function play(root: Draft, { kind, steps, at, to, key, value }: Edit): void {
  let here: Draft = root;
  for (const step of steps) {
    const below: Json[] = Object.values(here).filter((member) => typeof member === "object" && member !== null);
    const next = below[step % Math.max(below.length, 1)];
    if (next !== undefined) here = next as Draft;
  }
  if (!Array.isArray(here)) {
    const keys = Object.keys(here);
    const known = keys[at % Math.max(keys.length, 1)] ?? key;
    if (kind === "delete" || kind === "remove") delete here[known];
    else if (kind === "duplicate") here[key] = clone(here[known] ?? null);
    else here[kind === "insert" ? key : known] = value;
    return;
  }
  const index = at % (here.length + 1);
  switch (kind) {
    case "set":
      if (index < here.length) here[index] = value;
      return;
    case "insert":
      here.splice(index, 0, value);
      return;
    case "move":
      here.splice(to % (here.length + 1), 0, ...here.splice(index, 1));
      return;
    case "reverse":
      here.reverse();
      return;
    case "duplicate":
      here.push(...here.slice(index, index + 2));
      return;
    default:
      here.splice(index, 1 + (to % 2));
  }
}
