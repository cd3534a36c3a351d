import * as fc from "fast-check";
import { create } from "mutative";
import { describe, expect, test } from "vitest";
import type { Json } from "../../src/protocol/json.ts";
import { apply, type Rebased, rebase } from "../../src/protocol/patch.ts";
import { cases } from "../random-cases.ts";
import {
  byFastJsonPatch,
  byRfc6902,
  clone,
  deepFreeze,
  edited,
  edits,
  plainJson,
  startingDocument,
  underRoot,
} from "./random-edits.ts";

/** Two versions of one value, made by two drafts; or three values that have nothing to do with each other. */
const triple = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(startingDocument(), edits(), edits())
      .map(([base, mine, theirs]): [Json, Json, Json] => [base, edited(base, mine), edited(base, theirs)]),
  },
  { weight: 1, arbitrary: fc.tuple(plainJson(), plainJson(), plainJson()).map((three) => deepFreeze(three)) },
);

describe("rebase, on random triples", () => {
  const check = (property: (base: Json, mine: Json, theirs: Json) => void) =>
    fc.assert(
      fc.property(triple, (three) => property(...three)),
      { numRuns: cases(2_000, 6_000) },
    );

  test("onto what it began with gives what was made of it, and drops nothing", () => {
    check((base, mine) => {
      const { state, dropped, patch } = rebase(base, mine, base);
      expect(state).toBe(mine);
      expect(dropped).toEqual([]);
      expect(apply(base, patch)).toStrictEqual(mine);
    });
  });

  test("of nothing gives what others have, and an empty patch", () => {
    check((base, _, theirs) => {
      const { state, ...rest } = rebase(base, base, theirs);
      expect(state).toBe(theirs);
      expect(rest).toEqual({ patch: [], dropped: [] });
    });
  });

  test("has a patch that leads there, for us, fast-json-patch and rfc6902", () => {
    let isMerged = 0;
    check((base, mine, theirs) => {
      const { state, patch } = rebase(base, mine, theirs);
      if (state !== mine && state !== theirs) isMerged++;
      expect(apply(theirs, patch)).toStrictEqual(state);
      expect(byFastJsonPatch(theirs, patch)).toStrictEqual(state);
      expect(byRfc6902({ root: theirs }, patch.map(underRoot))).toStrictEqual({ root: state });
    });
    expect(isMerged).toBeGreaterThan(cases(600, 2_000));
  }, 60_000);

  test("takes any values, also copies that share nothing, and what it says is JSON, always the same", () => {
    let isDropped = 0;
    check((base, mine, theirs) => {
      for (const result of [rebase(base, mine, theirs), rebase(clone(base), clone(mine), clone(theirs))]) {
        if (result.dropped.length > 0) isDropped++;
        expect(clone(result)).toEqual(result);
      }
      expect(rebase(base, mine, theirs)).toStrictEqual(rebase(base, mine, theirs));
    });
    expect(isDropped).toBeGreaterThan(cases(160, 500));
  });
});

// Disjoint changes

interface Item {
  name: string;
  n: number;
  note: string;
}
interface Board {
  items: Item[];
  flags: Record<string, number>;
}
type Side = "A" | "B";
interface Deed {
  readonly side: Side;
  readonly deed: "change" | "remove" | "insert" | "both" | "none";
}

const item = (name: string): Item => ({ name, n: 0, note: "" });

/** What one side does to the items and members that are its own. */
function does(board: Board, side: Side, items: readonly Deed[], flags: readonly Deed[]): void {
  const place = (name: string) => board.items.findIndex((one) => one.name === name);
  for (const [i, { side: owner, deed }] of items.entries()) {
    if (owner !== side) continue;
    const found = board.items[place(`${i}`)];
    if (found !== undefined && (deed === "change" || deed === "both")) found.n += 1;
    if (deed === "remove") board.items.splice(place(`${i}`), 1);
    if (deed === "insert" || deed === "both") board.items.splice(place(`${i}`) + 1, 0, item(`${side}${i}`));
  }
  for (const [i, { side: owner, deed }] of flags.entries()) {
    if (owner !== side) continue;
    if (deed === "change" || deed === "both") board.flags[`old${i}`] = 1;
    if (deed === "remove") delete board.flags[`old${i}`];
    if (deed === "insert" || deed === "both") board.flags[`new${i}`] = i;
  }
}

describe("changes in different places", () => {
  const deeds = fc.array(
    fc.record({
      side: fc.constantFrom("A" as const, "B" as const),
      deed: fc.constantFrom("change", "remove", "insert", "both", "none"),
    }),
    { minLength: 1, maxLength: 9 },
  ) as fc.Arbitrary<Deed[]>;

  test("are all there, whichever is rebased onto the other: 6,000 boards", () => {
    fc.assert(
      fc.property(deeds, deeds, (items, flags) => {
        const base: Board = {
          items: items.map((_, i) => item(`${i}`)),
          flags: Object.fromEntries(flags.map((_, i) => [`old${i}`, 0])),
        };
        const [a, b] = (["A", "B"] as const).map(
          (side) => create(base, (draft) => does(draft, side, items, flags)) as unknown as Json,
        ) as [Json, Json];
        const both = structuredClone(base);
        does(both, "A", items, flags);
        does(both, "B", items, flags);
        for (const [mine, theirs] of [
          [a, b],
          [b, a],
        ] as const) {
          const { state, dropped } = rebase(base as unknown as Json, mine, theirs);
          expect(state).toEqual(both);
          expect(dropped).toEqual([]);
        }
      }),
      { numRuns: cases(2_000, 6_000) },
    );
  });

  test("at one place of a list are all there too, those of others first: 6,000 lists", () => {
    const value: fc.Arbitrary<Json> = fc.oneof(
      fc.constantFrom<Json[]>("x", 1, null),
      fc.nat(2).map((a): Json => ({ a })),
    );
    const values = fc.array(value, { maxLength: 4 });
    fc.assert(
      fc.property(values, values, values, fc.nat(4), (base, ours, others, at) => {
        const index = Math.min(at, base.length);
        const [mine, theirs] = [base.toSpliced(index, 0, ...ours), base.toSpliced(index, 0, ...others)];
        // Equal primitives are told apart by their order alone: which of them are the new ones nobody can tell.
        const isClear = base.every((one) => typeof one === "object" && one !== null);
        const { state } = rebase(base, mine, theirs);
        expect(state).toHaveLength(base.length + ours.length + others.length);
        const both = [...base.slice(0, index), ...others, ...ours, ...base.slice(index)];
        if (isClear) expect(state).toEqual(both);
      }),
      { numRuns: cases(2_000, 6_000) },
    );
  });
});

describe("rebase", () => {
  const task = (name: string) => ({ name, done: false, tags: [] as string[] });
  const base = { tasks: ["a", "b", "c"].map(task), step: "idle", scores: [0, 0, 0] };
  type Desk = typeof base & { found?: string[]; owner?: Record<string, string> };
  const after = (change: (desk: Desk) => void) =>
    create(base, (desk) => {
      change(desk as Desk);
    }) as unknown as Json;
  const rebased = (mine: (desk: Desk) => void, theirs: (desk: Desk) => void): Rebased & { state: Desk } =>
    rebase(base, after(mine), after(theirs)) as never;
  const names = ({ state }: { state: Desk }) => state.tasks.map(({ name }) => name).join("");

  test("keeps the element that each of two siblings has pushed", () => {
    const result = rebased(
      (desk) => void desk.tasks.push(task("m")),
      (desk) => void desk.tasks.push(task("t")),
    );
    expect(names(result)).toBe("abctm");
    expect(result.patch).toEqual([{ op: "add", path: "/tasks/4", value: task("m") }]);
  });

  test("keeps both also where the list was begun by each of them", () => {
    const push = (value: string) => (desk: Desk) => {
      desk.found ??= [];
      desk.found.push(value);
    };
    expect(rebased(push("m"), push("t")).state.found).toEqual(["t", "m"]);
    const own = (key: string) => (desk: Desk) => {
      desk.owner = { ...desk.owner, [key]: key };
    };
    expect(rebased(own("m"), own("t")).state.owner).toEqual({ t: "t", m: "m" });
  });

  test("finds an element that others have put elsewhere, and changes it there", () => {
    const result = rebased(
      (desk) => Object.assign(desk.tasks[2] ?? {}, { done: true }),
      (desk) => {
        const [last] = desk.tasks.splice(2, 1);
        if (last !== undefined) desk.tasks.unshift(task("t"), last);
      },
    );
    expect(names(result)).toBe("tcab");
    expect(result.patch).toEqual([{ op: "replace", path: "/tasks/1/done", value: true }]);
    expect(result.dropped).toEqual([]);
  });

  test("puts an element elsewhere with what others have changed in it", () => {
    const result = rebased(
      (desk) => {
        const [first] = desk.tasks.splice(0, 1);
        if (first !== undefined) desk.tasks.push(first);
      },
      (desk) => Object.assign(desk.tasks[0] ?? {}, { done: true }),
    );
    expect(names(result)).toBe("bca");
    expect(result.state.tasks[2]?.done).toBe(true);
  });

  test("drops and lists a change inside an element that others have removed", () => {
    const result = rebased(
      (desk) => {
        Object.assign(desk.tasks[1] ?? {}, { done: true });
        desk.step = "busy";
      },
      (desk) => void desk.tasks.splice(1, 1),
    );
    expect(names(result)).toBe("ac");
    expect(result.state.step).toBe("busy");
    expect(result.dropped).toEqual([{ op: "replace", path: "/tasks/1/done", value: true }]);
  });

  test("drops and lists a move of an element that others have removed", () => {
    const result = rebased(
      (desk) => void desk.tasks.unshift(...desk.tasks.splice(2, 1)),
      (desk) => void desk.tasks.pop(),
    );
    expect(names(result)).toBe("ab");
    expect(result.dropped).toEqual([{ op: "move", from: "/tasks/2", path: "/tasks/0" }]);
  });

  test("removes an element that others have changed, and takes one that is gone already for removed", () => {
    const remove = (desk: Desk) => void desk.tasks.splice(1, 1);
    const changed = rebased(remove, (desk) => Object.assign(desk.tasks[1] ?? {}, { done: true }));
    expect(names(changed)).toBe("ac");
    expect(rebased(remove, remove)).toMatchObject({ patch: [], dropped: [] });
  });

  test("knows an element that was changed and got new neighbours", () => {
    const result = rebased(
      (desk) => {
        desk.tasks.splice(0, 1);
        Object.assign(desk.tasks[0] ?? {}, { done: true });
        desk.tasks.splice(1, 0, task("m"), task("n"));
      },
      (desk) => void desk.tasks[1]?.tags.push("t"),
    );
    expect(names(result)).toBe("bmnc");
    expect(result.state.tasks[0]).toEqual({ name: "b", done: true, tags: ["t"] });
    expect(result.dropped).toEqual([]);
  });

  test("knows elements by their ids, whatever became of them", () => {
    const items = [
      { id: 1, a: 1 },
      { id: 2, a: 1 },
    ];
    const mine = [
      { id: 2, a: 5 },
      { id: 3, a: 1 },
      { id: 1, a: 1 },
    ];
    const theirs = [
      { id: 1, a: 1, b: 2 },
      { id: 2, a: 1, b: 2 },
    ];
    expect(rebase(items, mine, theirs).state).toEqual([
      { id: 2, a: 5, b: 2 },
      { id: 3, a: 1 },
      { id: 1, a: 1, b: 2 },
    ]);
  });

  test("replaces a primitive in its place, so that a row of counters stays one", () => {
    const set = (i: number, n: number) => (desk: Desk) => {
      desk.scores[i] = n;
    };
    expect(rebased(set(0, 1), set(1, 2)).state.scores).toEqual([1, 2, 0]);
    expect(rebased(set(2, 1), set(0, 2)).state.scores).toEqual([2, 0, 1]);
    expect(rebased(set(1, 1), set(1, 2)).state.scores).toEqual([0, 1, 0]);
  });

  test("lets the later one have a member that both have set", () => {
    const set = (step: string) => (desk: Desk) => {
      desk.step = step;
    };
    expect(rebased(set("mine"), set("theirs")).state.step).toBe("mine");
  });

  test("drops and lists what it did to a member that is gone, or has become something else", () => {
    const from = { a: { x: 1, y: 1 }, b: 1 };
    const mine = { ...from, a: { x: 2, y: 1 } };
    const dropped = [{ op: "replace", path: "/a/x", value: 2 }];
    expect(rebase(from, mine, { b: 1 })).toEqual({ state: { b: 1 }, patch: [], dropped });
    expect(rebase(from, mine, { ...from, a: "gone" })).toEqual({ state: { a: "gone", b: 1 }, patch: [], dropped });
    expect(rebase(from, { ...from, b: 2 }, { a: from.a }).dropped).toEqual([{ op: "replace", path: "/b", value: 2 }]);
  });

  test("escapes the pointers of what it drops", () => {
    const from = { "a/b": [{ "m~n": { x: 1 } }] };
    const mine = { "a/b": [{ "m~n": { x: 2 } }] };
    expect(rebase(from, mine, { "a/b": [] }).dropped).toEqual([{ op: "replace", path: "/a~1b/0/m~0n/x", value: 2 }]);
  });

  test("takes a member called __proto__ for nothing but a part of a value", () => {
    const odd = (n: number) => JSON.parse(`{"list":[{"__proto__":{"n":${n}},"x":1}]}`) as Json;
    const { state, patch } = rebase(odd(1), odd(2), odd(3));
    expect(JSON.stringify(state)).toBe(JSON.stringify(odd(2)));
    expect(JSON.stringify(apply(odd(3), patch))).toBe(JSON.stringify(odd(2)));
    expect(({} as { n?: number }).n).toBeUndefined();
  });

  test("shares with what others have all that it does not change", () => {
    const theirs = after((desk) => void desk.tasks.push(task("t"))) as unknown as Desk;
    const { state } = rebase(
      base,
      after((desk) => Object.assign(desk, { step: "busy" })),
      theirs as unknown as Json,
    );
    expect((state as unknown as Desk).tasks).toBe(theirs.tasks);
  });
});
