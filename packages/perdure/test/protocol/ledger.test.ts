import * as fc from "fast-check";
import { expect, test, vi } from "vitest";
import { Ledger } from "../../src/protocol/ledger.ts";

test("a ledger answers as a map would, and every earlier one still does", () => {
  const writes = fc.array(fc.tuple(fc.constantFrom("a", "b", "c", "d", "e", "f", "g", "h"), fc.nat()), {
    maxLength: 60,
  });
  fc.assert(
    fc.property(writes, (list) => {
      const history: [Ledger<number>, Map<string, number>][] = [[Ledger.empty(), new Map()]];
      for (const [id, value] of list) {
        const [ledger, map] = history.at(-1) ?? [Ledger.empty<number>(), new Map<string, number>()];
        history.push([ledger.set(id, value), new Map(map).set(id, value)]);
      }
      for (const [ledger, map] of history) {
        for (const id of "abcdefghijk") expect(ledger.get(id)).toBe(map.get(id));
        expect(ledger.toMap()).toEqual(map);
      }
    }),
  );
});

test("adding one of many ids copies few of them", () => {
  // What is copied on average by 4,096 additions is what the levels are merged through: log2(4,096) = 12 times, and no more.
  let ledger = Ledger.empty<number>();
  const copied = vi.spyOn(Map.prototype, "set");
  for (let i = 0; i < 4096; i++) ledger = ledger.set(String(i), i);
  const count = copied.mock.calls.length;
  copied.mockRestore();
  expect(ledger.get("0")).toBe(0);
  expect(count).toBeLessThanOrEqual(4096 * 13);
});
