import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Json, MAX_JSON_DEPTH } from "../../src/protocol/json.ts";
import type { Effect } from "../../src/protocol/words.ts";
import { toolContext } from "../../src/testing/tool-context.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { erase } from "../../src/tool/erase.ts";
import {
  HandlerError,
  InvalidAnswer,
  InvalidInput,
  InvalidOutput,
  MissingIdempotencyKey,
  ReduceError,
  ToolDefinitionError,
} from "../../src/tool/errors.ts";
import { applied, notApplied, suspend, unknown } from "../../src/tool/outcome.ts";

const ctx = toolContext({ idempotencyKey: "k1" });
const Any = z.record(z.string(), z.unknown());

/** A tool that returns what the test says, with any members changed. */
function define(call: ToolDefinition["call"], more: Partial<ToolDefinition> = {}) {
  return erase({ name: "t", description: "T.", effect: "write", input: Any, call, ...more });
}

async function thrown(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    (value) => expect.fail(`resolved with ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
}

describe("an input", () => {
  test("reaches the handler validated and transformed", async () => {
    const input = z.object({ n: z.string().transform(Number), unit: z.string().default("cm") });
    const tool = define((value) => value, { input });
    expect(await tool.callJson({ n: "7" }, ctx)).toEqual({ type: "output", output: { n: 7, unit: "cm" } });
  });

  test("may be validated asynchronously", async () => {
    const input = z.object({ id: z.string().refine(async (id) => id !== "gone", "is gone") });
    const tool = define((value) => value, { input });
    expect(await tool.callJson({ id: "a" }, ctx)).toEqual({ type: "output", output: { id: "a" } });
    expect(await thrown(tool.callJson({ id: "gone" }, ctx))).toMatchObject({
      code: "INVALID_INPUT",
      issues: [{ path: "/id", message: "is gone" }],
    });
  });

  test("that does not fit is InvalidInput with every issue and its place, and the body does not run", async () => {
    let ran = 0;
    const input = z.object({ "a/b": z.array(z.object({ n: z.number() })), c: z.boolean() });
    const tool = define(() => ran++, { input });
    const error = await thrown(tool.callJson({ "a/b": [{ n: 1 }, { n: "2" }] }, ctx));
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ tool: "t", issues: [{ path: "/a~1b/1/n" }, { path: "/c" }] });
    expect(String(error)).toMatch(/tool `t`: \/a~1b\/1\/n: .*; \/c: .*; correct them and call it again/);
    expect(ran).toBe(0);
  });

  test("validated asynchronously is refused before the body where reduce or idempotencyKey need it at once", async () => {
    let ran = 0;
    const input = z.object({}).refine(async () => true);
    for (const more of [{ reduce: () => {} }, { idempotencyKey: () => [] }]) {
      const tool = define(() => ran++, { input, ...more });
      expect(await thrown(tool.callJson({}, ctx))).toBeInstanceOf(ToolDefinitionError);
    }
    expect(ran).toBe(0);
  });

  test("whose schema throws is a failure in which nothing was applied", async () => {
    const bug = new TypeError("bug");
    const input = z.object({}).refine(() => {
      throw bug;
    });
    const error = await thrown(define(() => 1, { input }).callJson({}, ctx));
    expect(error).toBeInstanceOf(HandlerError);
    expect(error).toMatchObject({ applied: "no", cause: bug });
  });
});

const nested = (depth: number): Json => (depth === 0 ? 0 : [nested(depth - 1)]);
const cyclic: Record<string, unknown> = { a: {} };
(cyclic.a as Record<string, unknown>).back = cyclic;
const hostile: readonly [string, unknown, string, RegExp][] = [
  ["deep", { a: nested(MAX_JSON_DEPTH) }, `/a${"/0".repeat(MAX_JSON_DEPTH - 1)}`, /more than 512 levels/],
  ["huge", { a: "x".repeat(5_000_000) }, "", /5000008 bytes of JSON; 4194304 are allowed/],
  ["huge in UTF-8 alone", { a: "€".repeat(2_000_000) }, "", /6000008 bytes/],
  ["with a key __proto__", JSON.parse('{"a":{"__proto__":{"admin":true}}}'), "/a/__proto__", /__proto__/],
  ["with a BigInt", { a: 1n }, "/a", /a BigInt/],
  ["cyclic", cyclic, "/a/back", /its own parents/],
  ["with NaN", { a: [Number.NaN] }, "/a/0", /NaN/],
  ["with a function", { f() {} }, "/f", /a function/],
  ["with a Map", { m: new Map() }, "/m", /a Map/],
  [
    "whose toJSON throws",
    {
      toJSON() {
        throw new Error("no");
      },
    },
    "",
    /cannot be read as JSON/,
  ],
];

describe("hostile values", () => {
  test.each(hostile)("an input %s is InvalidInput, saying where and what", async (_, value, path, message) => {
    const error = await thrown(define(() => 1).callJson(value as Json, ctx));
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ issues: [{ path, message: expect.stringMatching(message) }] });
  });

  test.each(hostile)(
    "an output %s is InvalidOutput: applied, with what could be kept",
    async (_, value, path, message) => {
      const error = await thrown(define(() => value).callJson({}, ctx));
      expect(error).toBeInstanceOf(InvalidOutput);
      expect(error).toMatchObject({ applied: "yes", issues: [{ path, message: expect.stringMatching(message) }] });
      const kept = JSON.stringify((error as InvalidOutput).kept);
      expect(kept.length).toBeGreaterThan(2);
      expect(kept.length).toBeLessThan(140_000);
    },
  );

  test.each(hostile)("an answer %s is InvalidAnswer", async (_, value, path) => {
    const tool = define(() => suspend({ message: "?" }));
    const error = await thrown(tool.resumeJson(value as Json, {}, ctx));
    expect(error).toBeInstanceOf(InvalidAnswer);
    expect(error).toMatchObject({ issues: [{ path }] });
  });

  test("what is kept of an output says what stood where JSON has no word", async () => {
    const value = { id: 7n, at: new Date(0), tags: new Set(["a"]), self: cyclic, f: () => 1, bytes: new Uint8Array(3) };
    const error = await thrown(define(() => value).callJson({}, ctx));
    expect((error as InvalidOutput).kept).toEqual({
      id: "7",
      at: "1970-01-01T00:00:00.000Z",
      tags: ["a"],
      self: { a: { back: "[circular]" } },
      f: "[function]",
      bytes: "[Uint8Array of 3 bytes]",
    });
  });

  test("what JSON writes otherwise is given back as it is read: -0 is 0", async () => {
    expect(await define(() => [-0, { n: -0 }]).callJson({}, ctx)).toStrictEqual({
      type: "output",
      output: [0, { n: 0 }],
    });
  });

  test("whatever a body returns, the outcome is JSON or a typed error", async () => {
    const arbitrary = fc.anything({
      withBigInt: true,
      withMap: true,
      withSet: true,
      withTypedArray: true,
      withDate: true,
    });
    await fc.assert(
      fc.asyncProperty(arbitrary, async (value) => {
        const outcome = await define(() => value)
          .callJson({}, ctx)
          .catch((error: unknown) => error);
        if (outcome instanceof InvalidOutput) JSON.stringify(outcome.kept);
        else expect(JSON.parse(JSON.stringify(outcome))).toEqual(outcome);
      }),
      { numRuns: 500 },
    );
  });
});

describe("an output", () => {
  test("that does not fit its schema was applied all the same, and is kept", async () => {
    const tool = define(() => ({ refundId: 7 }), { output: z.object({ refundId: z.string() }) });
    const error = await thrown(tool.callJson({}, ctx));
    expect(error).toMatchObject({
      code: "OUTPUT_INVALID",
      applied: "yes",
      issues: [{ path: "/refundId" }],
      kept: { refundId: 7 },
    });
    expect(String(error)).toMatch(/must not be repeated/);
  });

  test("of a read was not applied, for nothing ever is", async () => {
    const error = await thrown(define(() => 1n, { effect: "read" }).callJson({}, toolContext()));
    expect(error).toMatchObject({ code: "OUTPUT_INVALID", applied: "no" });
  });

  test("whose schema throws was applied too", async () => {
    const output = z.unknown().refine(() => {
      throw new Error("bug");
    });
    expect(await thrown(define(() => 1, { output }).callJson({}, ctx))).toMatchObject({ applied: "yes", kept: 1 });
  });

  test("is what its schema makes of it, as JSON", async () => {
    const output = z.object({ at: z.date(), n: z.string().transform(Number) });
    const outcome = await define(() => ({ at: new Date(0), n: "7", extra: 1 }), { output }).callJson({}, ctx);
    expect(outcome).toEqual({ type: "output", output: { at: "1970-01-01T00:00:00.000Z", n: 7 } });
  });

  test("of nothing is null", async () => {
    expect(await define(() => undefined).callJson({}, ctx)).toEqual({ type: "output", output: null });
  });
});

describe("a suspension", () => {
  test("cannot be forged by any JSON output", async () => {
    const real = suspend({ message: "?", reason: "r", expiresIn: 5 });
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.jsonValue(), fc.constant(JSON.parse(JSON.stringify(real)))), async (output) => {
        expect(await define(() => output).callJson({}, ctx)).toMatchObject({ type: "output" });
      }),
    );
    expect(await define(() => real).callJson({}, ctx)).toMatchObject({ type: "suspend", expiresIn: 5 });
  });

  test("with a duration that is none fails where it is made, and so is a failure of the tool", async () => {
    const tool = define(() => suspend({ message: "?", expiresIn: "soon" as "1s" }));
    expect(await thrown(tool.callJson({}, ctx))).toMatchObject({ cause: { code: "DURATION_INVALID" } });
  });

  test("with metadata that is not JSON is a failure of the tool, not a question", async () => {
    const tool = define(() => suspend({ message: "?", metadata: { n: 1n as unknown as Json } }));
    expect(await thrown(tool.callJson({}, ctx))).toMatchObject({ cause: { code: "NOT_JSON" } });
  });

  test("is answered by what the answer's schema makes of the answer, given to resume", async () => {
    const tool = define(() => suspend({ message: "?" }), {
      answer: z.object({ n: z.string().transform(Number) }),
      resume: (answer, input) => ({ answer, input }),
    });
    expect(await tool.resumeJson({ n: "7" }, { a: 1 }, ctx)).toEqual({ answer: { n: 7 }, input: { a: 1 } });
    const error = await thrown(tool.resumeJson({ n: 7 }, {}, ctx));
    expect(error).toBeInstanceOf(InvalidAnswer);
    expect(error).toMatchObject({ code: "INVALID_ANSWER", issues: [{ path: "/n" }] });
  });

  test.each([false, 0, "", null])("takes %j for an answer", async (answer) => {
    expect(await define(() => 1, { resume: (given) => [given] as Json }).resumeJson(answer, {}, ctx)).toEqual([answer]);
    expect(await define(() => 1).resumeJson(answer, {}, ctx)).toEqual(answer);
  });

  test("without resume is answered by the output itself; one that does not fit leaves the question open", async () => {
    const tool = define(() => suspend({ message: "?" }), { output: z.object({ n: z.number() }) });
    expect(tool.answerSchema).toMatchObject({ properties: { n: { type: "number" } } });
    expect(await tool.resumeJson({ n: 7 }, {}, ctx)).toEqual({ n: 7 });
    expect(await thrown(tool.resumeJson({ n: "7" }, {}, ctx))).toBeInstanceOf(InvalidAnswer);
  });

  test("of resume is an output that cannot be recorded", async () => {
    const tool = define(() => 1, { resume: () => suspend({ message: "again?" }) });
    expect(await thrown(tool.resumeJson(1, {}, ctx))).toMatchObject({
      code: "OUTPUT_INVALID",
      issues: [{ message: expect.stringMatching(/only `call` can suspend/) }],
    });
  });
});

describe("a failure", () => {
  const effects: readonly [Effect, string, boolean][] = [
    ["read", "no", true],
    ["idempotent", "unknown", true],
    ["write", "unknown", false],
  ];
  test.each(effects)("of a %s that says nothing is applied: %s, retryable: %s", async (effect, applied, retryable) => {
    const cause = new Error("password=hunter2");
    const bodies: ToolDefinition["call"][] = [
      () => {
        throw cause;
      },
      async () => {
        throw cause;
      },
    ];
    for (const body of bodies) {
      const error = await thrown(define(body, { effect }).callJson({}, ctx));
      expect(error).toBeInstanceOf(HandlerError);
      expect(error).toMatchObject({ code: "TOOL_FAILED", applied, retryable, cause });
      expect(String(error)).not.toContain("hunter2");
    }
  });

  test("that says itself what happened is passed on as it is", async () => {
    const own = new HandlerError("no money", { applied: "no", retryable: true, code: "BROKE", retryAfter: "2s" });
    const body = () => {
      throw own;
    };
    expect(await thrown(define(body).callJson({}, ctx))).toBe(own);
    expect(own).toMatchObject({
      message: "no money",
      applied: "no",
      retryable: true,
      code: "BROKE",
      retryAfter: 2_000,
    });
  });

  test("is unknown and final unless it says otherwise, and never unknown for a read", async () => {
    const own = new HandlerError("odd", { code: "ODD", retryable: true, retryAfter: 5 });
    expect(new HandlerError("odd")).toMatchObject({ applied: "unknown", retryable: false, retryAfter: undefined });
    const body = () => {
      throw own;
    };
    const error = await thrown(define(body, { effect: "read" }).callJson({}, toolContext()));
    expect(error).toMatchObject({
      message: "odd",
      code: "ODD",
      applied: "no",
      retryable: true,
      retryAfter: 5,
      cause: own,
    });
  });

  test.each([undefined, null, "text", 7])("is a HandlerError when %j is thrown", async (value) => {
    const error = await thrown(define(() => Promise.reject(value)).callJson({}, ctx));
    expect(error).toBeInstanceOf(HandlerError);
  });
});

describe("an idempotency key", () => {
  test.each(["idempotent", "write"] as const)("is required for the effect %s, before anything runs", async (effect) => {
    let ran = 0;
    const body = () => ran++;
    const tool = define(body, { effect, resume: body, reconcile: () => applied(body()) });
    for (const without of [toolContext(), toolContext({ idempotencyKey: "" })]) {
      for (const call of [
        tool.callJson(1n as unknown as Json, without),
        tool.resumeJson(1, {}, without),
        tool.reconcileJson({}, without),
      ]) {
        const error = await thrown(call);
        expect(error).toBeInstanceOf(MissingIdempotencyKey);
        expect(error).toMatchObject({ code: "MISSING_IDEMPOTENCY_KEY", tool: "t" });
      }
    }
    expect(ran).toBe(0);
  });

  test("is not required for a read", async () => {
    expect(await define(() => 1, { effect: "read" }).callJson({}, toolContext())).toEqual({
      type: "output",
      output: 1,
    });
  });

  test("of the business is the canonical text of its parts, null where the tool has none", () => {
    const key = (parts: readonly Json[]) => define(() => 1, { idempotencyKey: () => parts }).keyFor({});
    expect(key(["refund", { b: 1, a: [true, null] }])).toBe('["refund",{"a":[true,null],"b":1}]');
    expect(key([{ a: 1, b: 2 }])).toBe(key([{ b: 2, a: 1 }]));
    expect(key(["\ud800", "😀"])).toBe('["\ufffd","😀"]');
    expect(define(() => 1).keyFor({})).toBeNull();
  });

  test("of the business is made of the validated input", () => {
    const tool = define(() => 1, {
      input: z.object({ email: z.string().toLowerCase() }),
      idempotencyKey: (input) => [(input as { email: string }).email],
    });
    expect(tool.keyFor({ email: "A@B.C" })).toBe('["a@b.c"]');
    expect(() => tool.keyFor({})).toThrow(InvalidInput);
  });

  test.each([
    ["that lacks a part", () => ["refund", undefined]],
    ["that is no list", () => "refund"],
    ["that JSON cannot hold", () => [1n]],
    [
      "whose function throws",
      () => {
        throw new Error("bug");
      },
    ],
  ])("of the business %s is a failure in which nothing was applied", (_, idempotencyKey) => {
    const tool = define(() => 1, { idempotencyKey: idempotencyKey as unknown as () => Json[] });
    expect(() => tool.keyFor({})).toThrow(HandlerError);
    expect(() => tool.keyFor({})).toThrow(expect.objectContaining({ applied: "no" }));
  });
});

describe("reconcile", () => {
  const judged = (reconcile: ToolDefinition["reconcile"], output?: z.ZodType) =>
    define(() => 1, { ...(reconcile && { reconcile }), ...(output && { output }) }).reconcileJson({ a: 1 }, ctx);

  test("gives its judgement, with the output validated and as JSON", async () => {
    expect(await judged(async () => applied(new Date(0)), z.date())).toEqual({
      applied: "yes",
      output: "1970-01-01T00:00:00.000Z",
    });
    expect(await judged(notApplied)).toEqual({ applied: "no" });
    expect(await judged(() => unknown("no answer"))).toEqual({ applied: "unknown", note: "no answer" });
    expect(await thrown(judged(() => applied(7), z.string()))).toBeInstanceOf(InvalidOutput);
  });

  test("is never guessed: without one, or without a judgement, the call stays unknown", async () => {
    expect(await judged(undefined)).toMatchObject({ applied: "unknown" });
    for (const nothing of [undefined, null, {}, { applied: true }, "yes"]) {
      expect(await judged(() => nothing as never)).toMatchObject({ applied: "unknown" });
    }
  });

  test("that throws leaves the write unknown", async () => {
    expect(await thrown(judged(() => Promise.reject(new Error("down"))))).toMatchObject({ applied: "unknown" });
  });
});

describe("reduce", () => {
  const define2 = (reduce: ToolDefinition["reduce"]) =>
    define(() => 1, { input: z.object({ n: z.string().transform(Number) }), ...(reduce && { reduce }) });

  test("changes the draft by the recorded output and the validated input", () => {
    const draft = { list: [] as unknown[] };
    define2((state, output, input) => {
      (state as typeof draft).list.push(output, input);
    }).reduceJson(draft as unknown as Json, "out", { n: "7" });
    expect(draft).toEqual({ list: ["out", { n: 7 }] });
  });

  test("that is absent changes nothing", () => {
    const draft = {};
    define2(undefined).reduceJson(draft, 1, { n: "7" });
    expect(draft).toEqual({});
  });

  test("that throws or is asynchronous is a ReduceError, and no rejection is left unhandled", () => {
    const bug = new Error("bug");
    const throwing = define2(() => {
      throw bug;
    });
    const asynchronous = define2((async () => {
      throw bug;
    }) as unknown as () => void);
    expect(() => throwing.reduceJson({}, 1, { n: "7" })).toThrow(ReduceError);
    expect(() => throwing.reduceJson({}, 1, { n: "7" })).toThrow(expect.objectContaining({ cause: bug }));
    expect(() => asynchronous.reduceJson({}, 1, { n: "7" })).toThrow(/asynchronous/);
  });
});

describe("an approval", () => {
  const approval = (value: unknown) =>
    define(() => 1, { approval: value as NonNullable<ToolDefinition["approval"]> }).approvalFor({ cents: 1 });

  test("is a value, or what a function says of the validated input; none by default", async () => {
    expect(await approval(undefined)).toBe(false);
    expect(await approval(true)).toBe(true);
    expect(await approval(({ cents }: { cents: number }) => cents > 0 && { message: "?" })).toEqual({ message: "?" });
    expect(await approval(async () => false)).toBe(false);
  });

  test.each([undefined, null, 0, "", "yes", {}, []])("fails closed: %j is no approval", async (value) => {
    expect(await thrown(approval(() => value))).toMatchObject({ code: "TOOL_FAILED", applied: "no" });
  });

  test("whose function throws is a failure in which nothing was applied", async () => {
    expect(await thrown(approval(() => Promise.reject(new Error("down"))))).toMatchObject({ applied: "no" });
  });
});
