import { type } from "arktype";
import * as v from "valibot";
import { describe, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Json } from "../../src/protocol/json.ts";
import type { ToolDefinition, ToolHandler, ToolInput, ToolMeta, ToolOutput } from "../../src/tool/definition.ts";
import { erase } from "../../src/tool/erase.ts";
import { jsonSchema } from "../../src/tool/json-schema.ts";
import { applied, notApplied, suspend, unknown } from "../../src/tool/outcome.ts";
import { registry } from "../../src/tool/registry.ts";
import { tool } from "../../src/tool/tool.ts";

// What these tests say is checked by the compiler: each `@ts-expect-error` fails the type check once the line under it compiles.

const Desk = z.object({ refunds: z.array(z.string()) });
const base = {
  name: "refund",
  description: "Refund an order.",
  input: z.object({ orderId: z.string(), cents: z.coerce.number<string>() }),
  output: z.object({ refundId: z.string() }),
} as const;

describe("what the schemas say", () => {
  test("types every function of a tool", () => {
    const refund = tool({
      ...base,
      effect: "write",
      state: Desk,
      answer: z.object({ ok: z.boolean() }),
      idempotencyKey: ({ orderId }) => ["refund", orderId],
      approval: ({ cents }) => cents > 5_000 && { message: `Refund ${cents / 100} EUR?`, audience: "refund:approve" },
      async call(input, ctx) {
        expectTypeOf(input).toEqualTypeOf<{ orderId: string; cents: number }>();
        expectTypeOf(ctx.state).toEqualTypeOf<{ refunds: string[] }>();
        expectTypeOf(ctx.idempotencyKey).toEqualTypeOf<string>();
        if (input.cents > 100) return suspend({ message: "Sure?", expiresIn: "1h" });
        return { refundId: "R1" };
      },
      async resume(answer, input, ctx) {
        expectTypeOf(answer).toEqualTypeOf<{ ok: boolean }>();
        expectTypeOf(input.cents).toEqualTypeOf<number>();
        expectTypeOf(ctx.attempt).toEqualTypeOf<number>();
        return { refundId: "R2" };
      },
      async reconcile({ orderId }) {
        return orderId === "" ? unknown("no order") : orderId === "1" ? applied({ refundId: "R1" }) : notApplied();
      },
      reduce(desk, output, input) {
        expectTypeOf(desk).toEqualTypeOf<{ refunds: string[] }>();
        expectTypeOf(output).toEqualTypeOf<{ refundId: string }>();
        expectTypeOf(input.orderId).toEqualTypeOf<string>();
        desk.refunds.push(output.refundId);
      },
    });
    expectTypeOf<ToolInput<typeof refund>>().toEqualTypeOf<{ orderId: string; cents: string }>();
    expectTypeOf<ToolOutput<typeof refund>>().toEqualTypeOf<{ refundId: string }>();
    expectTypeOf(refund).toExtend<ToolMeta>();
    expectTypeOf(refund).toExtend<
      ToolHandler<
        { orderId: string; cents: number },
        { refundId: string },
        { ok: boolean },
        { refunds: string[] },
        string
      >
    >();
    expectTypeOf(refund).toExtend<ToolDefinition>();
    void (() => registry([refund, erase(refund)]));
  });

  test("are those of zod, valibot, arktype and of a run-time JSON Schema alike", () => {
    const read = { name: "look", description: "Look.", effect: "read" } as const;
    const input = { name: "a", n: 1 };
    type Input = typeof input;
    const call = (_: Input) => input;
    const Valibot = v.object({ name: v.string(), n: v.number() });
    const Ark = type({ name: "string", n: "number" });
    const asJson = jsonSchema<Input>({ type: "object" });
    // No call: only the types are of interest, and valibot's own schema has no JSON Schema.
    const define = () => [
      tool({ ...read, input: Valibot, output: Valibot, call }),
      tool({ ...read, input: Ark, output: Ark, call }),
      tool({ ...read, input: asJson, output: asJson, call }),
    ];
    expectTypeOf(define).returns.items.toExtend<ToolDefinition>();
    // @ts-expect-error: n is a number
    void (() => tool({ ...read, input: Valibot, call: (input: { name: string; n: string }) => input }));
    // @ts-expect-error: n is a number
    void (() => tool({ ...read, input: Ark, call: (input: { name: string; n: string }) => input }));
  });

  test("have defaults: any JSON as output and answer, JSON as state, a key that a read may not have", () => {
    const look = tool({
      name: "look",
      description: "Look.",
      effect: "read",
      input: z.object({}),
      call(_, ctx) {
        expectTypeOf(ctx.idempotencyKey).toEqualTypeOf<string | undefined>();
        expectTypeOf(ctx.state).toEqualTypeOf<Json>();
        return { whatever: 1 };
      },
      resume(answer) {
        expectTypeOf(answer).toEqualTypeOf<Json>();
        return answer;
      },
    });
    expectTypeOf<ToolOutput<typeof look>>().toEqualTypeOf<Json>();
  });

  test("give reduce the output as the log holds it, and the caller too", () => {
    const at = tool({
      name: "at",
      description: "When.",
      effect: "read",
      input: z.object({}),
      output: z.object({ at: z.date() }),
      call: () => ({ at: new Date(0) }),
      reduce(_, { at }) {
        expectTypeOf(at).toEqualTypeOf<string>();
      },
    });
    expectTypeOf<ToolOutput<typeof at>>().toEqualTypeOf<{ at: string }>();
  });
});

describe("does not compile", () => {
  const call = async () => ({ refundId: "R1" });
  const never = (..._: unknown[]) => {};

  test("a call that returns something else than the output", () => {
    // @ts-expect-error: refundId is a string
    never(() => tool({ ...base, effect: "write", call: async () => ({ refundId: 1 }) }));
    // @ts-expect-error: refundId is missing
    never(() => tool({ ...base, effect: "write", call: async () => ({}) }));
    // @ts-expect-error: a suspension is made by suspend() alone
    never(() => tool({ ...base, effect: "write", call: async () => ({ message: "Sure?" }) }));
  });

  test("a handler for another input", () => {
    // @ts-expect-error: cents is a number after validation
    never(() => tool({ ...base, effect: "write", call: async (_: { cents: string }) => ({ refundId: "R1" }) }));
    // @ts-expect-error: there is no amount
    never(() => tool({ ...base, effect: "write", call: async ({ amount }) => ({ refundId: String(amount) }) }));
  });

  test("a reconcile whose output does not fit", () => {
    // @ts-expect-error: refundId is a string
    never(() => tool({ ...base, effect: "write", call, reconcile: async () => applied({ refundId: 1 }) }));
    // @ts-expect-error: an output is not a judgement
    never(() => tool({ ...base, effect: "write", call, reconcile: async () => ({ refundId: "R1" }) }));
  });

  test("a resume for another answer, or with another output", () => {
    const answer = z.boolean();
    // @ts-expect-error: the answer is a boolean
    never(() => tool({ ...base, effect: "write", answer, call, resume: async (_: string) => ({ refundId: "R1" }) }));
    // @ts-expect-error: refundId is a string
    never(() => tool({ ...base, effect: "write", answer, call, resume: async () => ({ refundId: 1 }) }));
    // @ts-expect-error: only call suspends
    never(() => tool({ ...base, effect: "write", answer, call, resume: async () => suspend({ message: "Again?" }) }));
  });

  test("an approval of another shape", () => {
    // @ts-expect-error: a message is needed
    never(() => tool({ ...base, effect: "write", call, approval: { risk: "high" } }));
    // @ts-expect-error: no such risk
    never(() => tool({ ...base, effect: "write", call, approval: { message: "Sure?", risk: "extreme" } }));
    // @ts-expect-error: "yes" is not an approval
    never(() => tool({ ...base, effect: "write", call, approval: () => "yes" }));
  });

  test("a reduce for another state or output", () => {
    // @ts-expect-error: the desk has no orders
    never(() => tool({ ...base, effect: "write", state: Desk, call, reduce: (desk) => void desk.orders }));
    // @ts-expect-error: the draft is a Desk
    never(() => tool({ ...base, effect: "write", state: Desk, call, reduce: (_: { orders: string[] }) => {} }));
    // @ts-expect-error: refundId is a string
    never(() => tool({ ...base, effect: "write", call, reduce: (_, output: { refundId: number }) => void output }));
  });

  test("a misspelt effect, a missing input, a missing call, a duration without a unit", () => {
    // @ts-expect-error: no such effect
    never(() => tool({ ...base, effect: "wrote", call }));
    // @ts-expect-error: input is missing
    never(() => tool({ name: "a", description: "A.", effect: "read", call }));
    // @ts-expect-error: call is missing
    never(() => tool({ ...base, effect: "read" }));
    // @ts-expect-error: no unit
    never(() => tool({ ...base, effect: "read", call, timeout: "30" }));
    // @ts-expect-error: an effect is one of three, not any string
    never((effect: string) => tool({ ...base, effect, call }));
  });

  test("giving a read's optional key where a key is needed", () => {
    const pay = (_: { idempotencyKey: string }) => ({ refundId: "R1" });
    never(() => tool({ ...base, effect: "idempotent", call: (_, { idempotencyKey }) => pay({ idempotencyKey }) }));
    // @ts-expect-error: a read may have no key
    never(() => tool({ ...base, effect: "read", call: (_, { idempotencyKey }) => pay({ idempotencyKey }) }));
  });
});
