/** What a human is asked about a budget, and what becomes of a run that he stops. */
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { NANO } from "../log/spending.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";

/** A limit that leaves no room for what comes next. `usd` in nano-dollars, `time` in milliseconds. */
export interface Shortage {
  /** `overrun`: a provider has used more than was reserved. */
  readonly limit: "steps" | "calls" | "tokens" | "usd" | "time" | "perTool" | "overrun";
  /** For `perTool`. */
  readonly tool?: string;
  readonly used: number;
  readonly allowed: number;
  /** What comes next needs so much. */
  readonly reserved: number;
}

/** The code of a run's error when a human has stopped it at its budget. */
export const BUDGET_EXCEEDED = "BUDGET_EXCEEDED";

export function budgetQuestion(
  { run, spending }: RunState,
  short: readonly Shortage[],
  audience: string | null,
): Interrupt {
  return {
    ...{ id: idAt(run.uid, "" as Path, "budget", spending.asked), path: "" as Path },
    ...{ kind: "budget", reason: "perdure:budget", argsHash: null, audience, expiresAt: null },
    message: `The budget of this run leaves no room for what comes next: ${short.map(sentence).join("; ")}. Raise it, or stop the run.`,
    schema: answerSchemaOf(short),
    metadata: { limits: short.map(shown) as unknown as Json },
  };
}

/** The limits that a question names, as it was recorded. */
export function shortagesOf({ metadata }: Interrupt): readonly Shortage[] {
  const limits = isJsonObject(metadata) && Array.isArray(metadata.limits) ? (metadata.limits as Json[]) : [];
  return limits.flatMap((one): Shortage[] => {
    if (!isJsonObject(one)) return [];
    const { limit, tool, used, allowed, reserved } = one as unknown as Shortage;
    const [u, a, r] =
      limit === "usd" ? [used * NANO, allowed * NANO, reserved * NANO].map(Math.round) : [used, allowed, reserved];
    return [{ limit, ...(tool !== undefined && { tool }), used: u ?? 0, allowed: a ?? 0, reserved: r ?? 0 }];
  });
}

/** Why the run has failed that a human has stopped. */
export function budgetExceeded(question: Interrupt): RecordedError {
  const said = shortagesOf(question).map(sentence).join("; ");
  return {
    code: BUDGET_EXCEEDED,
    message: `The run was stopped at its budget: ${said}.`,
    data: { limits: shownShortages(question) as unknown as Json },
  };
}

/** A {@link Shortage} as people write it: `usd` in dollars. */
export type ShownShortage = Shortage;

export function shownShortages(question: Interrupt): readonly ShownShortage[] {
  return shortagesOf(question).map(shown);
}

function shown({ limit, tool, used, allowed, reserved }: Shortage): ShownShortage {
  const as = (n: number): number => (limit === "usd" ? n / NANO : n);
  return { limit, ...(tool !== undefined && { tool }), used: as(used), allowed: as(allowed), reserved: as(reserved) };
}

function sentence({ limit, tool, used, allowed, reserved }: Shortage): string {
  switch (limit) {
    case "steps":
      return `${used} of ${allowed} model steps are used`;
    case "calls":
      return `${used} of ${allowed} tool calls are used`;
    case "perTool":
      return `${used} of ${allowed} calls of \`${tool}\` are used`;
    case "time":
      return `${seconds(used)} of ${seconds(allowed)} are used`;
    case "tokens":
      return `${used} of ${allowed} tokens are used, and the next model call may need ${reserved}`;
    case "usd":
      return `${dollars(used)} of ${dollars(allowed)} are used, and the next model call may need ${dollars(reserved)}`;
    case "overrun":
      return "a provider has reported more than the upper bound of its call";
    default:
      return limit satisfies never;
  }
}

function seconds(ms: number): string {
  return `${Math.round(ms) / 1_000} s`;
}

function dollars(nano: number): string {
  return `${Number((nano / NANO).toFixed(6))} USD`;
}

const COUNT = { type: "integer", minimum: 0 };
const MORE: { readonly [limit: string]: Json } = {
  ...{ steps: COUNT, calls: COUNT, tokens: COUNT },
  usd: { type: "number", minimum: 0 },
  time: {
    anyOf: [
      { type: "number", minimum: 0 },
      { type: "string", pattern: "^\\d+(\\.\\d+)?(ms|s|m|h|d)$" },
    ],
  },
  perTool: { type: "object", additionalProperties: COUNT },
};

/** What may be added to the limits of a run. */
export const raiseSchema: Json = {
  type: "object",
  properties: MORE,
  additionalProperties: false,
  minProperties: 1,
};

/** The first answer that it shows is to add what would do: a human writes his own. */
function answerSchemaOf(short: readonly Shortage[]): Json {
  const isOverrun = short.some(({ limit }) => limit === "overrun");
  return {
    oneOf: [
      {
        type: "object",
        properties: {
          raise: {
            ...{ type: "object", properties: MORE, additionalProperties: false, examples: [enough(short)] },
            // Whoever has looked at an overrun may let the run go on without more.
            ...(!isOverrun && { minProperties: 1 }),
          },
        },
        ...{ required: ["raise"], additionalProperties: false },
      },
      { type: "object", properties: { stop: { const: true } }, required: ["stop"], additionalProperties: false },
    ],
  };
}

/** The least that lets the run go on by one step, or for as long again. */
function enough(short: readonly Shortage[]): Json {
  const least: { [limit: string]: Json } = {};
  const perTool: { [tool: string]: number } = {};
  for (const one of short) {
    const { limit, tool = "", used, allowed, reserved } = one;
    const missing = Math.max(0, used + reserved - allowed);
    if (limit === "perTool") perTool[tool] = missing;
    else if (limit === "usd") least.usd = Math.ceil(missing / (NANO / 100)) / 100;
    else if (limit === "time") least.time = allowed;
    else if (limit !== "overrun") least[limit] = missing;
  }
  return { ...least, ...(Object.keys(perTool).length > 0 && { perTool }) };
}
