import { expect, test } from "vitest";
import { idProblem, MAX_ID_LENGTH } from "../../src/protocol/ids.ts";

test.each(["a", "run 1", "é/~:\u2028", "😀", "x".repeat(MAX_ID_LENGTH), "__proto__"])("%j is an id", (id) => {
  expect(idProblem(id)).toBeUndefined();
});

test.each([
  ["", /empty/],
  ["x".repeat(MAX_ID_LENGTH + 1), /longer than 1024 UTF-16 units \(it has 1025\)/],
  ["😀".repeat(513), /longer/],
  ["a\nb", /control characters \(U\+000A at 1\)/],
  ["\0", /control characters \(U\+0000 at 0\)/],
  ["a\x7f", /control/],
  ["a\x85b", /control/],
  ["a\ud83d", /lone surrogate \(at 1\)/],
  ["\ude00a", /lone surrogate \(at 0\)/],
])("%j is not an id: the problem says why", (id, why) => {
  expect(idProblem(id)).toMatch(why);
});
