import * as fc from "fast-check";
import fastJsonPatch from "fast-json-patch";
import { create } from "mutative";
import { describe, expect, test } from "vitest";
import { type Json, jsonEqual } from "../../src/protocol/json.ts";
import { apply, diff, estimateBytes, longerThan, type Patch, PatchError } from "../../src/protocol/patch.ts";
import { cases } from "../random-cases.ts";
import { ACCEPTED, REFUSED } from "./json-patch-cases.ts";
import {
  byFastJsonPatch,
  byRfc6902,
  deepFreeze,
  edited,
  edits,
  plainJson,
  startingDocument,
  underRoot,
} from "./random-edits.ts";

const run = (doc: unknown, patch: readonly unknown[]) => apply(deepFreeze(doc) as Json, deepFreeze(patch) as Patch);

describe("apply, on the questions of json-patch-tests", () => {
  test.each(ACCEPTED)("$claim", ({ doc, patch, expected }) => {
    expect(run(doc, patch)).toStrictEqual(expected);
  });

  test.each(REFUSED)("refused: $claim", ({ doc, patch, reason }) => {
    expect(() => run(doc, patch)).toThrow(PatchError);
    expect(() => run(doc, patch)).toThrow(reason);
  });

  test("there is an answer to each of at least 100 questions", () => {
    expect(ACCEPTED.length + REFUSED.length).toBeGreaterThan(100);
  });
});

describe("apply", () => {
  test("an error names the operation, where it stands in the patch, and why", () => {
    const patch: Patch = [
      { op: "add", path: "/a", value: 1 },
      { op: "replace", path: "/b/c", value: 2 },
    ];
    expect(() => apply({}, patch)).toThrow(
      expect.objectContaining({
        code: "PATCH_FAILED",
        index: 1,
        operation: patch[1],
        reason: 'there is no member "b"',
        message: expect.stringContaining('operation 1 of the patch {"op":"replace","path":"/b/c"} cannot be applied'),
      }),
    );
  });

  test("a patch that fails late has changed nothing", () => {
    const doc = { list: [{ n: 1 }], kept: {} };
    const before = structuredClone(doc);
    expect(() =>
      apply(doc, [
        { op: "add", path: "/list/-", value: 2 },
        { op: "replace", path: "/list/0/n", value: 9 },
        { op: "remove", path: "/kept" },
        { op: "test", path: "/list", value: [] },
      ]),
    ).toThrow("operation 3");
    expect(doc).toEqual(before);
  });

  test("only what lies on the way to a change is copied, and once", () => {
    const doc = { changed: { deep: [{ n: 1 }, { n: 2 }] }, same: { x: [] } };
    const result = apply(doc, [
      { op: "replace", path: "/changed/deep/0/n", value: 10 },
      { op: "replace", path: "/changed/deep/0/n", value: 11 },
    ]) as typeof doc;
    expect(result).toEqual({ changed: { deep: [{ n: 11 }, { n: 2 }] }, same: { x: [] } });
    expect(result.same).toBe(doc.same);
    expect(result.changed.deep[1]).toBe(doc.changed.deep[1]);
    expect(doc.changed.deep[0]).toEqual({ n: 1 });
  });

  test("values of the patch are never changed by later operations", () => {
    const value = { n: 1 };
    const result = apply({}, [
      { op: "add", path: "/a", value },
      { op: "add", path: "/b", value },
      { op: "replace", path: "/a/n", value: 2 },
    ]);
    expect(result).toEqual({ a: { n: 2 }, b: { n: 1 } });
    expect(value).toEqual({ n: 1 });
  });

  test("an empty patch, a test and a replacement by the same value return the document itself", () => {
    const doc = { a: { b: 1 } };
    expect(apply(doc, [])).toBe(doc);
    expect(apply(doc, [{ op: "test", path: "/a/b", value: 1 }])).toBe(doc);
    expect(apply(doc, [{ op: "replace", path: "/a/b", value: 1 }])).toBe(doc);
  });

  test("removing the root leaves null, as the client has it", () => {
    expect(apply({ a: 1 }, [{ op: "remove", path: "" }])).toBe(null);
    expect(fastJsonPatch.applyPatch({ a: 1 }, [{ op: "remove", path: "" }], true, false).newDocument).toBe(null);
  });

  test("a member called constructor is a member like any other", () => {
    expect(apply({}, [{ op: "add", path: "/constructor", value: { x: 1 } }])).toEqual({ constructor: { x: 1 } });
  });

  test("random patches are taken and refused as fast-json-patch and rfc6902 do where they agree", () => {
    const seen = { taken: 0, refused: 0 };
    fc.assert(
      fc.property(smallDocument(), randomPatch(), (doc, patch) => {
        const [theirs, alsoTheirs] = [byFastJsonPatch(doc, patch), byRfc6902(doc, patch)];
        if (!jsonEqual(theirs ?? "refused", alsoTheirs ?? "refused") || isLax(doc, patch)) return;
        seen[theirs === undefined ? "refused" : "taken"] += 1;
        expect(byUs(doc, patch)).toStrictEqual(theirs);
      }),
      { numRuns: cases(4_000, 10_000) },
    );
    expect(seen.taken).toBeGreaterThan(cases(200, 500));
    expect(seen.refused).toBeGreaterThan(cases(400, 1_000));
  });
});

describe("diff", () => {
  const task = (id: number) => ({ id, title: `task ${id}`, done: false });
  const tasks = Array.from({ length: 100 }, (_, id) => task(id));
  type Board = { tasks: ReturnType<typeof task>[]; owner: { name: string; tags: string[] } };
  const board: Board = { tasks, owner: { name: "Ada", tags: ["a", "b"] } };
  const changed = (edit: (draft: Board) => void) => diff(board, create(board, edit));

  test("the same and the equal give an empty patch", () => {
    expect(diff(board, board)).toEqual([]);
    expect(diff(board, structuredClone(board))).toEqual([]);
    expect(diff(null, null)).toEqual([]);
  });

  test.each<[claim: string, edit: (draft: Board) => void, patch: unknown]>([
    [
      "a field of one item is one replace",
      (draft) => void Object.assign(draft.tasks[50] ?? {}, { done: true }),
      [{ op: "replace", path: "/tasks/50/done", value: true }],
    ],
    [
      "unshift is one add",
      (draft) => void draft.tasks.unshift(task(-1)),
      [{ op: "add", path: "/tasks/0", value: task(-1) }],
    ],
    [
      "push is one add",
      (draft) => void draft.tasks.push(task(-1)),
      [{ op: "add", path: "/tasks/100", value: task(-1) }],
    ],
    [
      "an insertion in the middle is one add",
      (draft) => void draft.tasks.splice(40, 0, task(-1)),
      [{ op: "add", path: "/tasks/40", value: task(-1) }],
    ],
    ["shift is one remove", (draft) => void draft.tasks.shift(), [{ op: "remove", path: "/tasks/0" }]],
    [
      "two removed neighbours are two removes at one place",
      (draft) => void draft.tasks.splice(10, 2),
      [
        { op: "remove", path: "/tasks/10" },
        { op: "remove", path: "/tasks/10" },
      ],
    ],
    [
      "an item taken from one place to another is one move",
      (draft) => {
        const [first] = draft.tasks.splice(0, 1);
        if (first !== undefined) draft.tasks.splice(49, 0, first);
      },
      [{ op: "move", from: "/tasks/0", path: "/tasks/49" }],
    ],
    [
      "and back to the front",
      (draft) => {
        const last = draft.tasks.pop();
        if (last !== undefined) draft.tasks.unshift(last);
      },
      [{ op: "move", from: "/tasks/99", path: "/tasks/0" }],
    ],
    [
      "an item that was changed and got a new neighbour stays itself",
      (draft) => {
        draft.tasks.unshift(task(-1));
        if (draft.tasks[1] !== undefined) draft.tasks[1].title = "renamed";
      },
      [
        { op: "add", path: "/tasks/0", value: task(-1) },
        { op: "replace", path: "/tasks/1/title", value: "renamed" },
      ],
    ],
    [
      "far changes in place are one replace each",
      (draft) => {
        for (const i of [3, 50, 97]) if (draft.tasks[i] !== undefined) draft.tasks[i].done = true;
      },
      [3, 50, 97].map((i) => ({ op: "replace", path: `/tasks/${i}/done`, value: true })),
    ],
    [
      "an insertion here and a removal there are one operation each",
      (draft) => {
        draft.tasks.splice(80, 1);
        draft.tasks.splice(20, 0, task(-1));
      },
      [
        { op: "add", path: "/tasks/20", value: task(-1) },
        { op: "remove", path: "/tasks/81" },
      ],
    ],
    [
      "strings are told apart by value",
      (draft) => void draft.owner.tags.unshift("z"),
      [{ op: "add", path: "/owner/tags/0", value: "z" }],
    ],
  ])("%s", (_claim, edit, patch) => {
    expect(changed(edit)).toEqual(patch);
  });

  test("a new key is add, one that is gone is remove, and both are escaped", () => {
    const from = { kept: "x".repeat(200), "a/b": 1, "m~n": 2 };
    expect(diff(from, { kept: from.kept, "a/b": 3, "x~/": 4 })).toEqual([
      { op: "replace", path: "/a~1b", value: 3 },
      { op: "add", path: "/x~0~1", value: 4 },
      { op: "remove", path: "/m~0n" },
    ]);
  });

  test("a container is replaced when its operations would be longer", () => {
    const from = { kept: "x".repeat(200), list: [1, 2, 3, 4, 5, 6], point: { x: 1, y: 2, z: 3 } };
    expect(diff(from, { ...from, list: [], point: { x: 4, y: 5, z: 6 } })).toEqual([
      { op: "replace", path: "/list", value: [] },
      { op: "replace", path: "/point", value: { x: 4, y: 5, z: 6 } },
    ]);
  });

  test("another kind of root is a replacement of the root", () => {
    expect(diff({ a: 1 }, [1])).toEqual([{ op: "replace", path: "", value: [1] }]);
    expect(diff([1], null)).toEqual([{ op: "replace", path: "", value: null }]);
    expect(diff("a", "b")).toEqual([{ op: "replace", path: "", value: "b" }]);
  });

  test("undefined is nowhere in a patch", () => {
    const long = "x".repeat(100);
    const from = { long, a: 1, b: 2 };
    const to = { long, a: undefined, b: { c: [undefined], d: undefined }, e: undefined } as unknown as Json;
    expect(diff(from, to)).toStrictEqual([
      { op: "remove", path: "/a" },
      { op: "replace", path: "/b", value: { c: [null] } },
    ]);
  });

  test("no pointer names a prototype, whatever the keys", () => {
    const odd = (n: number) =>
      JSON.parse(`{"long":"${"x".repeat(99)}","in":{"__proto__":{"n":${n}},"constructor":{"prototype":${n}}}}`);
    const patch = diff(odd(1), odd(2));
    expect(patch.map((operation) => operation.path)).toEqual(["/in"]);
    expect(JSON.stringify(apply(odd(1), patch))).toBe(JSON.stringify(odd(2)));
    const named = (n: number) => ({ long: "x".repeat(99), constructor: { prototype: n, other: "x".repeat(99) } });
    const below = diff(named(1), named(2));
    expect(below.map((operation) => operation.path)).toEqual(["/constructor"]);
    expect(byFastJsonPatch(named(1), below)).toEqual(named(2));
    expect(diff(named(1), structuredClone(named(1)))).toEqual([]);
  });

  test("what is shared is never looked into", () => {
    const trap = new Proxy({}, { ownKeys: () => expect.fail("looked into what both share") });
    const from = { shared: trap, list: [trap, 1], n: 1 } as unknown as { n: number };
    expect(diff(from as unknown as Json, { ...from, n: 2 } as unknown as Json)).toEqual([
      { op: "replace", path: "/n", value: 2 },
    ]);
  });

  test("apply(diff(a, b), a) is b on random pairs, for us, fast-json-patch and rfc6902; and never longer than replacing all", () => {
    fc.assert(
      fc.property(randomPair(), ([from, to]) => {
        const patch = diff(from, to);
        expect(apply(from, patch)).toStrictEqual(to);
        expect(byFastJsonPatch(from, patch)).toStrictEqual(to);
        expect(byRfc6902({ root: from }, patch.map(underRoot))).toStrictEqual({ root: to });
        expect(JSON.stringify(patch).length).toBeLessThanOrEqual(
          JSON.stringify([{ op: "replace", path: "", value: to }]).length,
        );
      }),
      { numRuns: cases(6_000, 20_000) },
    );
  }, 120_000);
});

describe("sizes", () => {
  test("the estimate is the length of the JSON where nothing is escaped", () => {
    fc.assert(
      fc.property(plainJson(), (value) => {
        const { length } = JSON.stringify(value);
        expect(estimateBytes(value)).toBe(length);
        expect(longerThan(value, length)).toBe(false);
        expect(longerThan(value, length - 1)).toBe(true);
      }),
    );
  });

  test("a large value is not read further than the limit", () => {
    let read = 0;
    const items = new Proxy(
      Array.from({ length: 1_000_000 }, () => 1),
      {
        get: (target, key) => {
          read++;
          return Reflect.get(target, key);
        },
      },
    );
    expect(longerThan(items, 100)).toBe(true);
    expect(read).toBeLessThan(300);
  });
});

// Second opinions

function byUs(doc: Json, patch: Patch): Json | undefined {
  try {
    return apply(deepFreeze(doc), patch);
  } catch (error) {
    if (error instanceof PatchError) return undefined;
    throw error;
  }
}

/** As the client calls it. */
/** Both let a move or a copy end at any index, "" and those beyond the array too; for the RFC it has to exist or be the next. */
function isLax(doc: Json, patch: Patch): boolean {
  let here: Json | undefined = doc;
  for (const operation of patch) {
    if (here === undefined) return false;
    if ((operation.op === "move" || operation.op === "copy") && byUs(here, [operation]) === undefined) {
      const appended = operation.path.replace(/[^/]*$/, "-");
      if (byUs(here, [{ ...operation, path: appended }]) !== undefined) return true;
    }
    here = byUs(here, [operation]);
  }
  return false;
}

// Random patches

/** Two versions that share structure, as a draft leaves them; or two that have nothing to do with each other. */
function randomPair(): fc.Arbitrary<[Json, Json]> {
  const shared = fc.tuple(startingDocument(), edits()).map(([from, some]): [Json, Json] => [from, edited(from, some)]);
  return fc.oneof({ weight: 4, arbitrary: shared }, { weight: 1, arbitrary: fc.tuple(plainJson(), plainJson()) });
}

function smallDocument(): fc.Arbitrary<Json> {
  return plainJson().map((value) => ({ a: value, b: [1, { a: 2 }, [3]], c: { a: [], b: null } }));
}

function randomPatch(): fc.Arbitrary<Patch> {
  const token = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom("a", "b", "c") },
    { weight: 3, arbitrary: fc.constantFrom("0", "1", "2") },
    { weight: 1, arbitrary: fc.constantFrom("-", "x~1y", "m~0n", "9", "") },
  );
  const pointer = fc.array(token, { minLength: 1, maxLength: 3 }).map((tokens) => `/${tokens.join("/")}`);
  const value = fc.oneof(plainJson(), fc.constantFrom<Json>(1, null, [3], { a: 2 }));
  const operation = fc.oneof(
    fc.record({ op: fc.constantFrom("add" as const, "replace" as const, "test" as const), path: pointer, value }),
    fc.record({ op: fc.constant("remove" as const), path: pointer }),
    fc.record({ op: fc.constantFrom("move" as const, "copy" as const), from: pointer, path: pointer }),
  );
  return fc.array(operation, { minLength: 1, maxLength: 3 }) as fc.Arbitrary<Patch>;
}
