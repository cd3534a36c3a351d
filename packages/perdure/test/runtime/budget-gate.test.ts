/** What a budget says to things that begin at the same time, where the log alone does not show it. */
import { expect, it } from "vitest";
import { fold } from "../../src/log/fold.ts";
import { BudgetGate, type LoopBudget } from "../../src/runtime/budget.ts";
import { at, leg, logOf, request, runStarted } from "../log/entries.ts";

const run = fold(logOf([[runStarted], leg(1, "r1", request("r1"))]));
const gateOf = (limits: LoopBudget["limits"]) => {
  const reserve = () => ({ input: 60, output: 40 });
  const budget = { limits, unpriced: [], audience: null, toolName: (name: string) => name, reserve };
  const gate = BudgetGate.of(run, budget, { at: 0, live: new Set() });
  if (gate === null) throw new Error("nothing is limited");
  return gate;
};
it("children among whom what is left cannot be divided are asked for, and do not begin for nothing, over and over", () => {
  const gate = gateOf({ tokens: 1 });
  const turn = { children: 2, others: [], hasTools: false };
  expect(gate.allot("clerk", turn)).toBeUndefined();
  expect(gate.child(at("0"), "clerk", turn)).toEqual({ may: "ask" });
  expect(gate.question?.metadata).toEqual({ limits: [{ limit: "tokens", used: 0, allowed: 1, reserved: 2 }] });
});

it("models in lanes side by side reserve together, and what has no room waits for what is reserved", () => {
  const gate = gateOf({ tokens: 250 });
  const passes = ["0.0.0", "0.1.0", "0.2.0"].map((path) => gate.model(at(path)).may);
  expect(passes).toEqual(["begin", "begin", "wait"]);
  expect({ holds: gate.holds, question: gate.question }).toEqual({ holds: true, question: null });
});

it("of the last step one of two lanes has the use, and nobody is asked before it has begun", () => {
  const gate = gateOf({ steps: 1 });
  expect(["0.0.0", "0.1.0"].map((path) => gate.model(at(path)).may)).toEqual(["begin", "wait"]);
  expect(gate.question).toBeNull();
});

it("a child is left what models beside it have not reserved", () => {
  const gate = gateOf({ tokens: 250, steps: 3 });
  gate.model(at("0.0.0"));
  const allotted = gate.allot("clerk", { children: 1, others: [], hasTools: true });
  expect(allotted?.limits).toEqual({ tokens: 150, steps: 2 });
});
