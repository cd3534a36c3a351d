import { toStandardJsonSchema } from "@valibot/to-json-schema";
import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Json } from "../../src/protocol/json.ts";
import type { Schema } from "../../src/protocol/schema.ts";
import { toolContext } from "../../src/testing/tool-context.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { erase } from "../../src/tool/erase.ts";
import { InvalidInput, InvalidOutput, ToolDefinitionError } from "../../src/tool/errors.ts";
import { jsonSchema } from "../../src/tool/json-schema.ts";
import { registry } from "../../src/tool/registry.ts";
import { tool } from "../../src/tool/tool.ts";

const base = { name: "t", description: "T.", effect: "read", input: z.object({}), call: () => null } as const;
const define = (more: { [K in keyof ToolDefinition]?: unknown }) => tool({ ...base, ...more } as ToolDefinition);

describe("the schemas of each library validate in and out, and give the model its JSON Schema", () => {
  const shape = {
    type: "object",
    properties: { n: { type: "string" }, tag: { type: "string" } },
    required: ["n"],
  };
  const libraries: Record<string, { input: Schema; output: Schema }> = {
    zod: {
      input: z.object({ n: z.string().transform(Number), tag: z.string().optional() }),
      output: z.object({ n: z.number() }),
    },
    valibot: {
      input: toStandardJsonSchema(
        v.object({ n: v.pipe(v.string(), v.transform(Number)), tag: v.optional(v.string()) }),
      ),
      output: toStandardJsonSchema(v.object({ n: v.number() })),
    },
    arktype: {
      input: type({ n: type("string").pipe(Number), "tag?": "string" }),
      output: type({ n: "number" }),
    },
  };

  test.each(Object.entries(libraries))("%s", async (_, { input, output }) => {
    const returned: unknown[] = [];
    const erased = erase(
      define({
        input,
        output,
        call: (value: unknown) => {
          returned.push(value);
          return value;
        },
      }),
    );
    expect(erased.inputSchema).toEqual(shape);
    expect(erased.outputSchema).toMatchObject({
      type: "object",
      properties: { n: { type: "number" } },
      required: ["n"],
    });
    expect(await erased.callJson({ n: "7" }, toolContext())).toEqual({ type: "output", output: { n: 7 } });
    expect(returned).toEqual([{ n: 7 }]);
    await expect(erased.callJson({ n: 7 }, toolContext())).rejects.toThrow(InvalidInput);
    await expect(erased.callJson({ n: 7 }, toolContext())).rejects.toMatchObject({ issues: [{ path: "/n" }] });

    const wrong = erase(define({ input, output, call: () => ({ n: "7" }) }));
    await expect(wrong.callJson({ n: "7" }, toolContext())).rejects.toThrow(InvalidOutput);
    await expect(wrong.callJson({ n: "7" }, toolContext())).rejects.toMatchObject({ issues: [{ path: "/n" }] });
  });

  test("a run-time JSON Schema", async () => {
    const erased = erase(define({ input: jsonSchema(shape), output: jsonSchema({ type: "number" }), call: () => 7 }));
    expect(erased.inputSchema).toEqual(shape);
    expect(await erased.callJson({ n: "7" }, toolContext())).toEqual({ type: "output", output: 7 });
    await expect(erased.callJson({ n: 7 }, toolContext())).rejects.toMatchObject({ issues: [{ path: "/n" }] });
  });
});

describe("a schema without a JSON Schema", () => {
  const standard = (vendor: string): Schema => ({
    "~standard": { version: 1, vendor, validate: (value) => ({ value }) },
  });

  test.each([
    ["a library that has none", standard("other"), /library \(other\) gives no JSON Schema; use one that implements/],
    ["valibot without its converter", v.object({}), /wrap it: toStandardJsonSchema/],
    ["a type that JSON Schema cannot express", z.object({ at: z.date() }), /Date cannot be represented in JSON Schema/],
    [
      "something that is no schema",
      { type: "object" },
      /no Standard Schema; use zod 4, arktype or valibot, or jsonSchema/,
    ],
    ["nothing", undefined, /its input is no Standard Schema/],
  ])("as input is refused with what to do: %s", (_, input, message) => {
    expect(() => define({ input })).toThrow(ToolDefinitionError);
    expect(() => define({ input })).toThrow(message);
  });

  test("as answer is refused, for a human has to be told what to send", () => {
    expect(() => define({ answer: z.date() })).toThrow(/no JSON Schema of its answer: Date cannot/);
  });

  test("as output is legal: it is validated all the same, only not shown", () => {
    expect(erase(define({ output: z.date() })).outputSchema).toBeNull();
  });

  test.each([
    ["a text", z.string()],
    ["a list", z.array(z.string())],
    ["a text or a number", jsonSchema({ type: ["string", "number"] })],
  ])("that is no object is refused as input: %s", (_, input) => {
    expect(() => define({ input })).toThrow(/must be an object, for a model calls tools with named arguments/);
  });
});

describe("a definition", () => {
  test.each([
    [{ name: "has space" }, /"has space" must be 1 to 64 of A-Z a-z 0-9 _ -/],
    [{ name: "" }, /must be 1 to 64/],
    [{ name: "x".repeat(65) }, /must be 1 to 64/],
    [{ name: "naïve" }, /must be 1 to 64/],
    [{ name: "a\n" }, /must be 1 to 64/],
    [{ name: undefined }, /must be 1 to 64/],
    [{ aliases: ["old.name"] }, /"old.name" must be 1 to 64/],
    [{ description: " " }, /needs a description/],
    [{ effect: "wrote" }, /its effect is "wrote"; it must be "read" \(.*"idempotent".*"write"/],
    [{ effect: "toString" }, /its effect is "toString"/],
    [{ call: undefined }, /needs a `call`/],
    [{ timeout: "30" }, /timeout is "30"/],
    [{ settle: -1 }, /settle is -1/],
    [{ keyWait: Number.NaN }, /keyWait is NaN/],
    [{ retry: { attempts: 0 } }, /retry.attempts is 0/],
    [{ retry: { attempts: 1.5 } }, /retry.attempts is 1.5/],
  ])("with %o is refused where it is made", (more, message) => {
    expect(() => define(more)).toThrow(ToolDefinitionError);
    expect(() => define(more)).toThrow(message);
    expect(() => define(more)).toThrow(expect.objectContaining({ code: "TOOL_DEFINITION" }));
  });

  test("has limits in milliseconds, with defaults", () => {
    const limits = { timeout: 300_000, settle: 10_000, keyWait: 60_000, attempts: 3 };
    expect(erase(define({})).policy).toEqual({ ...limits, parallel: true });
    expect(erase(define({ effect: "idempotent" })).policy).toEqual({ ...limits, parallel: false });
    const own = { effect: "write", timeout: "30s", settle: 0, keyWait: "2m", parallel: true, retry: { attempts: 1 } };
    expect(erase(define(own)).policy).toEqual({
      timeout: 30_000,
      settle: 0,
      keyWait: 120_000,
      parallel: true,
      attempts: 1,
    });
  });

  test("is called as a method, so that a class may be one", async () => {
    class Counter {
      readonly name = "count";
      readonly description = "Count.";
      readonly effect = "read";
      readonly input = z.object({});
      #count = 0;
      call() {
        return ++this.#count;
      }
    }
    const count = erase(tool(new Counter()));
    await count.callJson({}, toolContext());
    expect(await count.callJson({}, toolContext())).toEqual({ type: "output", output: 2 });
  });
});

describe("a contract", () => {
  const contract = (more: { [K in keyof ToolDefinition]?: unknown }) => erase(define(more)).contract;

  test("is the canonical text of name, effect and schemas", () => {
    const input = jsonSchema({ type: "object", required: ["a"] });
    const same = jsonSchema({
      required: ["a"],
      type: "object",
      $schema: "https://json-schema.org/draft/2020-12/schema",
    });
    expect(contract({ input })).toBe(
      '{"answer":null,"effect":"read","input":{"required":["a"],"type":"object"},"name":"t","output":null}',
    );
    expect(contract({ input: same })).toBe(contract({ input }));
  });

  test("changes with each of them, and with nothing else", () => {
    const others = [
      { name: "u" },
      { effect: "write" },
      { input: z.object({ a: z.string() }) },
      { output: z.string() },
      { answer: z.string() },
    ];
    const texts = new Set([{}, ...others].map(contract));
    expect(texts.size).toBe(6);
    const rest = { description: "Other.", timeout: 1, aliases: ["old"], call: () => 7, reduce: () => {} };
    expect(contract(rest)).toBe(contract({}));
  });
});

describe("a registry", () => {
  const named = (name: string, ...aliases: string[]) => define({ name, aliases });

  test("finds typed and erased tools by name and by former name, in the order given", () => {
    const tools = registry([named("b", "old-b"), erase(named("a")), named("__proto__")]);
    expect([...tools].map(({ name }) => name)).toEqual(["b", "a", "__proto__"]);
    expect(tools.size).toBe(3);
    expect(tools.get("old-b")).toBe(tools.get("b"));
    expect(tools.get("c")).toBeUndefined();
    expect(tools.get("toString")).toBeUndefined();
  });

  test.each([
    ["two names", [named("a"), named("a")], /the name "a" is taken by tool `a`/],
    ["a name and an alias", [named("a"), named("b", "a")], /tool `b`: the name "a" is taken by tool `a`/],
    ["an alias and a name", [named("a", "b"), named("b")], /tool `b`: the name "b" is taken by tool `a`/],
    ["two aliases", [named("a", "c"), named("b", "c")], /the name "c" is taken/],
    ["a tool's own alias", [named("a", "a")], /the name "a" is taken by itself/],
  ])("refuses %s that are equal", (_, tools, message) => {
    expect(() => registry(tools)).toThrow(ToolDefinitionError);
    expect(() => registry(tools)).toThrow(message);
  });

  test("checks the names of erased tools from elsewhere", () => {
    expect(() => registry([{ ...erase(named("a")), name: "a.b" }])).toThrow(/"a.b" must be 1 to 64/);
  });
});

describe("toolContext", () => {
  test("keeps what a tool emits, and its state", async () => {
    const initial = { items: ["a"] };
    const ctx = toolContext({ state: initial, toolCallId: "c1" });
    const list = tool({
      ...base,
      state: z.object({ items: z.array(z.string()) }),
      async call(_, ctx) {
        ctx.publishState();
        ctx.updateState((draft) => draft.items.push("b"));
        ctx.state.items.push("c");
        ctx.publishState();
        using plan = ctx.activity("PLAN", { steps: 1 });
        plan.update((draft) => draft.steps++);
        ctx.progress(0.5);
        ctx.log("half", { of: 2 });
        return null;
      },
    });
    await list.call({}, ctx);
    expect(ctx.state).toEqual({ items: ["a", "b", "c"] });
    expect(initial).toEqual({ items: ["a"] });
    const activity = { type: "ACTIVITY_SNAPSHOT", messageId: "c1:activity-0", activityType: "PLAN" };
    expect(ctx.events).toEqual([
      { type: "STATE_SNAPSHOT", snapshot: { items: ["a", "b"] } },
      { type: "STATE_SNAPSHOT", snapshot: { items: ["a", "b", "c"] } },
      { ...activity, content: { steps: 1 } },
      { ...activity, content: { steps: 2 } },
      { type: "CUSTOM", name: "perdure.progress", value: { toolCallId: "c1", value: 0.5 } },
    ]);
    expect(ctx.logged).toEqual([{ message: "half", data: { of: 2 } }]);
  });

  test("refuses the run's own lifecycle, an ended activity, and what JSON cannot hold", () => {
    const ctx = toolContext();
    expect(() => ctx.emit({ type: "RUN_FINISHED" } as never)).toThrow(/RUN_FINISHED is the runner's to send/);
    const plan = ctx.activity("PLAN", { steps: 1 });
    plan.end();
    plan.end();
    expect(() => plan.update(() => {})).toThrow(/has ended/);
    expect(() => ctx.progress({ n: 1n as unknown as Json })).toThrow(/a BigInt/);
  });
});
