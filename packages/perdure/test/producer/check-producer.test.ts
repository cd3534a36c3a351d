/** The kit against a small server of another hand: it passes as it is, and with one fault it breaks the rule of that fault and no other. */
import { checkProducer, type ProducerInput } from "perdure/testing";
import { describe, expect, test } from "vitest";
import { smallServer } from "./correct-server.ts";
import { FAULTS } from "./faults.ts";

const inputs: readonly ProducerInput[] = [
  { name: "search", says: ["Please search.", "Please search again."] },
  { name: "approval", says: "Please pay." },
];

describe("a server that is right", () => {
  test("passes with nothing failed, and what it does not do is not counted as passed", async () => {
    const report = await checkProducer(smallServer(), { inputs });
    expect(report.findings).toEqual([]);
    expect(report.passed).toBe(true);
    expect(report.notExercised).toEqual([
      ...["protobuf.frames", "run.after-error", "run.cancelled", "run.error-once"],
      ...["chunks.order", "subagents.order", "subagents.owner", "interrupts.expiry", "expected.seen"],
    ]);
  });
});

describe("a server with one fault breaks its rule, and no other", () => {
  test.each(FAULTS)("$name", async ({ fault, breaks }) => {
    const report = await checkProducer(smallServer(fault), { inputs, timeoutMs: 5_000 });
    expect(report.failedRules, report.table()).toEqual(breaks);
  });
});
