/** The kit against a small server of another hand: it passes as it is, and with one fault it breaks the rule of that fault and no other. */
import { checkProducer, PRODUCER_RULES, type ProducerInput, ProducerReportError } from "perdure/testing";
import { describe, expect, test } from "vitest";
import { deferred } from "../http/rig.ts";
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
    expect(() => report.assertPassed()).not.toThrow();
  });
});

describe("a server with one fault breaks its rule, and no other", () => {
  test.each(FAULTS)("$name", async ({ fault, breaks, skip = [], timeoutMs = 5_000 }) => {
    const server = smallServer(typeof fault === "function" ? fault() : fault);
    const report = await checkProducer(server, { inputs, skip, timeoutMs });
    expect(report.failedRules, report.table()).toEqual(breaks);
    const isError = breaks.some((rule) => PRODUCER_RULES[rule].severity === "error");
    expect(report.passed).toBe(!isError);
    if (isError) expect(() => report.assertPassed()).toThrow(ProducerReportError);
  });

  test("a run that was stopped and says that it succeeded", async () => {
    const stopped = deferred();
    const server = smallServer({
      async respond(respond, _, body) {
        const { headers, body: stream } = respond();
        if (stream === null || !body.includes("Wait")) return new Response(stream, { headers });
        const text = await new Response(stream).text();
        const at = text.indexOf("\n\n", text.indexOf("RUN_STARTED")) + 2;
        const encoder = new TextEncoder();
        const held = new ReadableStream({
          async start(controller) {
            controller.enqueue(encoder.encode(text.slice(0, at)));
            await stopped.promise;
            controller.enqueue(encoder.encode(text.slice(at)));
            controller.close();
          },
        });
        return new Response(held, { headers });
      },
    });
    const report = await checkProducer(server, { cancel: { says: "Wait.", stop: async () => stopped.resolve() } });
    expect(report.failedRules).toEqual(["run.cancelled"]);
  });

  test("what was expected and is not seen", async () => {
    const report = await checkProducer(smallServer(), { expect: ["text", "interrupts", "subagents"] });
    expect(report.failedRules).toEqual(["expected.seen"]);
    expect(report.findings.map(({ input }) => input)).toEqual(["interrupts", "subagents"]);
  });

  test("no rule is without a fault that breaks it", () => {
    const broken = new Set<string>([...FAULTS.flatMap(({ breaks }) => breaks), "run.cancelled", "expected.seen"]);
    expect(Object.keys(PRODUCER_RULES).filter((rule) => !broken.has(rule))).toEqual([]);
  });
});

describe("what is asked", () => {
  test("only the rules that are wanted, and no request that none of them needs", async () => {
    const all = await checkProducer(smallServer());
    const some = await checkProducer(smallServer(), { only: ["run.ending", "input.not-json"] });
    expect(some.rules.map(({ id, status }) => [id, status])).toEqual([
      ["run.ending", "passed"],
      ["input.not-json", "passed"],
    ]);
    expect(some.requests).toBeLessThan(all.requests / 2);
    await expect(checkProducer(smallServer(), { skip: ["run.beauty" as "run.ending"] })).rejects.toMatchObject({
      code: "UNKNOWN_RULE",
    });
  });

  test("a server that serves nothing fails, and refusing what is malformed is no credit to it", async () => {
    const report = await checkProducer(() => new Response("no such page", { status: 404 }));
    expect(report.failedRules).toEqual(["http.status"]);
    expect(report.passed).toBe(false);
    expect(report.notExercised).toContain("input.malformed");
    expect(report.findings[0]?.message).toBe("the status is 404: no such page");
  });

  test("a handler that throws, or never answers, is a finding", async () => {
    const thrown = await checkProducer(() => Promise.reject(new Error("out of luck")));
    expect(thrown.findings[0]?.message).toBe("there was no answer: out of luck");
    const silent = await checkProducer(() => new Promise<Response>(() => {}), { timeoutMs: 50 });
    expect(silent.findings[0]?.message).toBe("there was no answer: no end within 50 ms");
  });

  test("a signal ends it", async () => {
    const reason = new Error("enough");
    const stop = new AbortController();
    const server = smallServer({
      respond(respond) {
        stop.abort(reason);
        return respond();
      },
    });
    await expect(checkProducer(server, { signal: stop.signal })).rejects.toBe(reason);
  });
});
