import { expect, test } from "vitest";
import { judge, spreadOf } from "./judge.ts";

const exactly = (value: number) => ({ median: value, min: value / 2, max: value * 2 });
/** Ours takes 3 µs, the other 2 µs. */
const measured = [
  { name: "ours", ns: exactly(3000), ratio: exactly(1) },
  { name: "other", ns: exactly(2000), ratio: exactly(1.5) },
];

test("the median of an even number of rounds lies between the two in the middle", () => {
  expect(spreadOf([4, 1, 3, 2])).toEqual({ median: 2.5, min: 1, max: 4 });
  expect(spreadOf([10, 9, 2])).toEqual({ median: 9, min: 2, max: 10 });
});

test("a bound is kept by a median that meets it exactly, and missed by one just beyond", () => {
  expect(judge({ slowerThan: "other", atMost: 1.5 }, measured).passed).toBe(true);
  expect(judge({ slowerThan: "other", atMost: 1.49 }, measured).passed).toBe(false);
  expect(judge({ fasterThan: "other", atLeast: 0.66 }, measured).passed).toBe(true);
  expect(judge({ fasterThan: "other", atLeast: 0.67 }, measured).passed).toBe(false);
  expect(judge({ atMostMicroseconds: 3 }, measured).passed).toBe(true);
  expect(judge({ atMostMicroseconds: 2.9 }, measured).passed).toBe(false);
});

test("a rate counts what each job makes", () => {
  const bound = { of: "events", each: 30 };
  expect(judge({ ...bound, atLeastPerSecond: 9_999_999 }, measured).passed).toBe(true);
  expect(judge({ ...bound, atLeastPerSecond: 10_000_001 }, measured)).toMatchObject({
    passed: false,
    claim: "at least 10,000,001 events/s",
  });
});

test("the spread of a turned ratio is turned too", () => {
  expect(judge({ fasterThan: "other", atLeast: 1 }, measured).value).toEqual({
    median: 1 / 1.5,
    min: 1 / 3,
    max: 1 / 0.75,
  });
});

test("a bound against something that was not measured is an error, not a pass", () => {
  expect(() => judge({ fasterThan: "nothing", atLeast: 1 }, measured)).toThrow('"nothing"');
});
