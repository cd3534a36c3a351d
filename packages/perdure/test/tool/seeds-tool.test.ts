import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Json } from "../../src/protocol/json.ts";
import { toolContext } from "../../src/testing/tool-context.ts";
import type { ToolHandler, ToolMeta } from "../../src/tool/definition.ts";
import type { DynTool } from "../../src/tool/dyn-tool.ts";
import { erase } from "../../src/tool/erase.ts";
import { HandlerError, InvalidInput, InvalidOutput, MissingIdempotencyKey } from "../../src/tool/errors.ts";
import { suspend } from "../../src/tool/outcome.ts";
import { registry } from "../../src/tool/registry.ts";
import { tool } from "../../src/tool/tool.ts";

// One test for each row of the table "The behaviour half of a tool" in the list of what the project was asked to have.

const Add = { name: "add", description: "Add two numbers.", effect: "read" } as const satisfies ToolMeta;
const Numbers = z.object({ a: z.number(), b: z.number() });

const refund = tool({
  name: "refund",
  description: "Refund an order, in cents.",
  effect: "write",
  input: z.object({ orderId: z.string(), cents: z.number().int().positive() }),
  output: z.object({ refundId: z.string() }),
  answer: z.object({ ok: z.boolean() }),
  async call({ orderId, cents }, ctx) {
    if (orderId === "gone") throw new HandlerError("no such order", { applied: "no", code: "NO_ORDER" });
    if (cents > 5_000) return suspend({ message: `Refund ${cents} cents?`, reason: "shop:large", expiresIn: "1h" });
    return { refundId: `${orderId}/${ctx.idempotencyKey}/${ctx.attempt}` };
  },
  async resume({ ok }, { orderId }) {
    return { refundId: ok ? orderId : "none" };
  },
});

describe("the behaviour half of a tool", () => {
  test("metadata and behaviour are two halves; tool() infers both from the schemas", () => {
    const half: ToolHandler<{ a: number; b: number }, number> = { call: ({ a, b }) => a + b };
    const add = tool({ ...Add, ...half, input: Numbers, output: z.number() });
    expect(add).toMatchObject(Add);
    expectTypeOf(add).toExtend<ToolMeta & ToolHandler<{ a: number; b: number }, number>>();
    expectTypeOf<Parameters<(typeof refund)["call"]>[0]>().toEqualTypeOf<{ orderId: string; cents: number }>();
  });

  test("the input has a JSON Schema, derived and handed to the model; nobody overrides the derivation", () => {
    expect(erase(refund).inputSchema).toEqual({
      type: "object",
      properties: {
        orderId: { type: "string" },
        cents: { type: "integer", exclusiveMinimum: 0, maximum: Number.MAX_SAFE_INTEGER },
      },
      required: ["orderId", "cents"],
    });
    const overridden = { ...refund, inputSchema: { type: "object" }, input_schema: () => ({}) };
    expect(erase(overridden).inputSchema).toEqual(erase(refund).inputSchema);
  });

  test("an output that JSON cannot hold is a typed error when the tool returns, not a lossy record", async () => {
    const big = tool({ ...Add, input: z.object({}), call: () => ({ total: 10n }) });
    const failure = await erase(big)
      .callJson({}, toolContext())
      .catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(InvalidOutput);
    expect(failure).toMatchObject({ code: "OUTPUT_INVALID", issues: [{ path: "/total" }] });
  });

  test("handlers are erased to DynTool and dispatched by JSON, with no global state and an AbortSignal", async () => {
    const seen: AbortSignal[] = [];
    const add = erase(
      tool({
        ...Add,
        input: Numbers,
        output: z.number(),
        call({ a, b }, { signal }) {
          seen.push(signal);
          return a + b;
        },
      }),
    );
    const { signal } = new AbortController();
    const [one, two] = await Promise.all([
      add.callJson({ a: 1, b: 2 }, toolContext({ signal })),
      add.callJson({ a: 3, b: 4 }, toolContext()),
    ]);
    expect([one, two]).toEqual([
      { type: "output", output: 3 },
      { type: "output", output: 7 },
    ]);
    expect(seen[0]).toBe(signal);
    expect(seen[1]).toBeInstanceOf(AbortSignal);
  });

  test("call runs the tool for one attempt, whose idempotency key and number its context carries", async () => {
    const ctx = toolContext({ idempotencyKey: "k1", attempt: 3 });
    const outcome = await erase(refund).callJson({ orderId: "7", cents: 1 }, ctx);
    expect(outcome).toEqual({ type: "output", output: { refundId: "7/k1/3" } });
  });

  test("call returns an outcome: the output, or a suspension that parks the run for a human", async () => {
    const erased = erase(refund);
    const ctx = toolContext({ idempotencyKey: "k1" });
    const input = { orderId: "7", cents: 9_900 };
    expect(await erased.callJson(input, ctx)).toEqual({
      type: "suspend",
      message: "Refund 9900 cents?",
      reason: "shop:large",
      expiresIn: 3_600_000,
    });
    expect(await erased.resumeJson({ ok: true }, input, ctx)).toEqual({ refundId: "7" });
  });

  test("its error is the tool's own failure; a mismatch with the schema never reaches the handler", async () => {
    const erased = erase(refund);
    const ctx = toolContext({ idempotencyKey: "k1" });
    const failure = (input: Json, context = ctx) => erased.callJson(input, context).catch((error: unknown) => error);
    expect(await failure({ orderId: "gone", cents: 1 })).toBeInstanceOf(HandlerError);
    expect(await failure({ orderId: "gone", cents: "1" })).toBeInstanceOf(InvalidInput);
    expect(
      await erased.callJson({ orderId: "gone", cents: 1 }, toolContext()).catch((error: unknown) => error),
    ).toBeInstanceOf(MissingIdempotencyKey);
  });

  test("the typed tool keeps its types, collections hold the erased one", () => {
    const tools: readonly DynTool[] = [...registry([refund, erase(tool({ ...Add, input: Numbers, call: () => 0 }))])];
    expect(tools.map(({ name, effect }) => [name, effect])).toEqual([
      ["refund", "write"],
      ["add", "read"],
    ]);
    expectTypeOf<Parameters<(typeof refund)["call"]>[0]>().not.toBeUnknown();
  });
});
