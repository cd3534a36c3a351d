/**
 * What a run leaves of its budget to a child, when that begins: a part of what is left, as nobody knows what it will need.
 *
 * A1. Of what is left each child of the turn that has not begun yet gets the same, rounded up where it is whole numbers. What one has not used
 *     when it ends is free again, for those that have not begun, and for its parent.
 * A2. Calls that the turn asks of the run's own tools are kept aside, so that none of them waits for a child.
 * A3. Of the time those get one part together.
 */
import type { Fact } from "../log/entries.ts";
import type { Amounts } from "../log/spending.ts";
import type { Spent } from "../log/spent.ts";

export type Allotment = NonNullable<Fact<"run.started">["allotted"]>;

/** What else the turn of a child asks for. */
export interface Turn {
  /** The children that may begin, this one too. */
  readonly children: number;
  /** The tools of its other calls that have not begun, those of children too. */
  readonly others: readonly string[];
  /** Whether tools of the run's own run, or will. */
  readonly hasTools: boolean;
}

/** @param child - `name`: its own, as a tool */
export function shareOf(
  { steps, calls, tokens, usd, time, perTool }: Amounts,
  spent: Spent,
  { name, children, others, hasTools }: Turn & { readonly name: string },
): Amounts {
  const { reserved } = spent;
  const whole = (left: number): number => Math.max(0, Math.ceil(left / children));
  const part = (left: number, parts = children): number => Math.max(0, Math.floor(left / parts));
  const ofTool = ([tool, limit]: [string, number]): [string, number] => {
    const used = (spent.perTool.get(tool) ?? 0) + (reserved.perTool.get(tool) ?? 0);
    return [tool, whole(limit - used - [name, ...others].filter((other) => other === tool).length)];
  };
  return {
    ...(steps !== undefined && { steps: whole(steps - spent.steps - reserved.steps) }),
    ...(calls !== undefined && { calls: whole(calls - spent.calls - reserved.calls - 1 - others.length) }),
    ...(tokens !== undefined && { tokens: part(tokens - spent.tokens - reserved.tokens) }),
    ...(usd !== undefined && { usd: part(usd - spent.usd - reserved.usd) }),
    ...(time !== undefined && { time: part(time - spent.time - reserved.time, children + (hasTools ? 1 : 0)) }),
    ...(perTool !== undefined && { perTool: Object.fromEntries(Object.entries(perTool).map(ofTool)) }),
  };
}

/** Whether a child can begin anything with it. */
export function isRoom({ steps = 1, tokens = 1, usd = 1, time = 1 }: Amounts): boolean {
  return Math.min(steps, tokens, usd, time) >= 1;
}
