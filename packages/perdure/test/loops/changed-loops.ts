/** What somebody may make of a program between two deploys. */
import type { Op } from "./random-loops.ts";

/** Another program, or undefined: nobody could tell. */
type Change = (ops: readonly Op[], at: number) => readonly Op[] | undefined;

const TOLD: ReadonlySet<Op["op"]> = new Set([
  ...(["say", "think", "message", "toolCall", "activity", "custom", "call", "once", "ask", "sleep"] as const),
]);

export const changes: { readonly [what: string]: Change } = {
  "one step more": (ops, at) => ops.toSpliced(at % (ops.length + 1), 0, { op: "sleep" }),
  "one event more": (ops, at) => ops.toSpliced(at % (ops.length + 1), 0, { op: "custom" }),
  "one thing less": (ops, at) => {
    const told = ops.flatMap(({ op }, i) => (TOLD.has(op) ? [i] : []));
    const index = told[at % Math.max(1, told.length)];
    return index === undefined ? undefined : ops.toSpliced(index, 1);
  },
  "another text": (ops, at) => {
    const said = ops.flatMap((op, i) => (op.op === "say" || op.op === "think" ? [{ op, i }] : []));
    const one = said[at % Math.max(1, said.length)];
    return one && ops.with(one.i, { ...one.op, text: `${one.op.text}!` });
  },
  "another effect": (ops, at) => {
    const steps = ops.flatMap((op, i) => (op.op === "call" || op.op === "once" ? [{ op, i }] : []));
    const one = steps[at % Math.max(1, steps.length)];
    return one && ops.with(one.i, { ...one.op, effect: one.op.effect === "read" ? "write" : "read" });
  },
};
