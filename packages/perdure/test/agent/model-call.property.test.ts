import fc from "fast-check";
import { expect, test } from "vitest";
import { partsOf, readModelOutput } from "../../src/agent/model-output.ts";
import type { Json } from "../../src/protocol/json.ts";
import { finish, modelOf, run } from "./model-of.ts";

// A stream as a provider could send it: blocks and calls whose parts are interleaved, some never ended, some with parts after their end.

interface Strand {
  readonly kind: "text" | "reasoning" | "call";
  readonly id: string;
  readonly text: string;
  readonly ended: boolean;
  readonly late: boolean;
}

const args = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 })).map((value) => JSON.stringify(value)),
  },
  fc.constantFrom("", '{"a":', "[1]", "null", "nonsense"),
);

const strand = fc.oneof(
  fc.record({
    kind: fc.constantFrom("text" as const, "reasoning" as const),
    text: fc.string({ unit: "grapheme", maxLength: 12 }),
  }),
  fc.record({ kind: fc.constant("call" as const), text: args }),
);
const strands = fc
  .array(fc.tuple(strand, fc.boolean(), fc.boolean()), { maxLength: 6 })
  .map((drawn) => drawn.map(([{ kind, text }, ended, late], i): Strand => ({ kind, id: `p${i}`, text, ended, late })));

/** The strand's parts, its text cut after each of `cuts`. */
function partsOfStrand({ kind, id, text, ended, late }: Strand, cuts: readonly number[]): object[] {
  const at = [...new Set(cuts.map((cut) => cut % (text.length + 1)))].sort((a, b) => a - b);
  const pieces = [0, ...at].map((from, i) => text.slice(from, at[i]));
  const prefix = kind === "call" ? "tool-input" : kind;
  return [
    { type: `${prefix}-start`, id, toolName: "t" },
    ...pieces.map((delta) => ({ type: `${prefix}-delta`, id, delta })),
    ...(ended ? [{ type: `${prefix}-end`, id, toolName: "t" }] : []),
    ...(ended && late ? [{ type: `${prefix}-delta`, id, delta: "LATE" }] : []),
    ...(kind === "call" && ended ? [{ type: "tool-call", toolCallId: id, toolName: "t", input: text }] : []),
  ];
}

/** One of the ways to weave the strands' parts into one stream; a part never overtakes one of its own strand. */
function woven(queues: object[][], picks: readonly number[]): object[] {
  const left = queues.map((queue) => [...queue]);
  const stream: object[] = [];
  for (let i = 0; left.some((queue) => queue.length > 0); i++) {
    const waiting = left.filter((queue) => queue.length > 0);
    const part = waiting[(picks[i % picks.length] ?? 0) % waiting.length]?.shift();
    if (part !== undefined) stream.push(part);
  }
  return stream;
}

const reason = fc.constantFrom("stop", "length", "tool-calls", "content-filter", "other");
const cuts = fc.array(fc.nat(60), { maxLength: 8 });
const picks = fc.array(fc.nat(9), { minLength: 1, maxLength: 12 });

test("however its deltas are cut, a stream gives the same answer", async () => {
  await fc.assert(
    fc.asyncProperty(strands, reason, cuts, cuts, async (drawn, unified, some, others) => {
      const stream = (by: readonly number[]) => [...drawn.flatMap((s) => partsOfStrand(s, by)), finish(unified)];
      const [one, two] = [await run(modelOf(stream(some))), await run(modelOf(stream(others)))];
      expect(one.output).toEqual(two.output);
      expect([...one.emitter.blocks]).toEqual([...two.emitter.blocks]);
    }),
    { numRuns: 500 },
  );
});

test("whatever is interleaved, each block is ended, what was shown is what is recorded, and the record can be read", async () => {
  await fc.assert(
    fc.asyncProperty(strands, reason, cuts, picks, async (drawn, unified, by, order) => {
      const { output, emitter } = await run(
        modelOf([
          ...woven(
            drawn.map((s) => partsOfStrand(s, by)),
            order,
          ),
          finish(unified),
        ]),
      );
      expect(emitter.open.size).toBe(0);
      const shown = (kind: string) =>
        [...emitter.blocks].flatMap(([id, { text }]) => (id.startsWith(kind) ? [text] : []));
      const of = (kind: Strand["kind"]) => drawn.filter((s) => s.kind === kind);
      expect(shown("text").join("")).toBe(output.text);
      expect(shown("text").sort()).toEqual(
        of("text")
          .flatMap(({ text }) => text || [])
          .sort(),
      );
      expect(shown("reasoning").sort()).toEqual(output.reasoning.map(({ text }) => text).sort());
      expect(shown("call").sort()).toEqual(
        of("call")
          .map(({ text }) => text)
          .sort(),
      );
      for (const { id, input, invalid } of output.calls) {
        const args = emitter.blocks.get(id)?.text ?? "";
        expect(input).toEqual(invalid === undefined ? JSON.parse(args || "{}") : args);
      }
      expect(output.calls.filter(({ invalid }) => invalid === undefined)).toHaveLength(
        of("call").filter(({ text, ended }) => ended && isObject(text)).length,
      );
      const recorded = readModelOutput(JSON.parse(JSON.stringify({ ...output, usage: undefined })) as Json);
      const texts = [...partsOf(recorded)].flatMap((part) => (part.type === "text" ? [part.text] : []));
      expect(texts.join("")).toBe(output.text);
      expect([...partsOf(recorded)]).toHaveLength(output.order.length);
    }),
    { numRuns: 1000 },
  );
});

function isObject(text: string): boolean {
  if (text === "") return true;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) && !hasPoisonedKey(value);
  } catch {
    return false;
  }
}

/** A value `"__proto__"` is harmless; a key of that name, at any depth, is not. */
function hasPoisonedKey(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  return Object.keys(value).includes("__proto__") || Object.values(value).some(hasPoisonedKey);
}
