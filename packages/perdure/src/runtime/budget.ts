/**
 * Whether a run may begin what it wants next. Pure: of its log, of its agent's limits, and of what others with whom it shares them have used.
 *
 * B1. A limit is asked before a step begins, never after: what does not fit waits for a human, all else goes on.
 * B2. One question at a time, with all limits that are reached. It is withdrawn when they no longer are.
 * B3. A step that has begun counts once for `steps`, `calls` and `perTool`, however often it is tried.
 */
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { type Amounts, plus } from "../log/spending.ts";
import { type Charge, chargeOf, type Reserved, type Spent, spentBy, together } from "../log/spent.ts";
import type { Path } from "../protocol/words.ts";
import { budgetQuestion, type Shortage } from "./budget-question.ts";

/** What a model call may still use. `null`: as much as it likes. */
export interface Left {
  readonly tokens: number | null;
  /** Nano-dollars. */
  readonly usd: number | null;
}

/** What a run of an agent may use, and what its model calls may. */
export interface LoopBudget {
  readonly limits: Amounts;
  /** The name that a tool has now, by any that it has had: `perTool` counts under it. */
  toolName(name: string): string;
  /** The scope that whoever answers its questions needs, beside `answer`. */
  readonly audience: string | null;
  /** Pure: the upper bound of the model call that comes next at `path`, within what is left where that is possible. */
  reserve(call: {
    readonly run: RunState;
    readonly before: readonly RunState[];
    readonly path: Path;
    readonly left: Left;
  }): Reserved;
}

export interface GateNow {
  /** Milliseconds since the epoch. */
  readonly at: number;
  /** Steps whose bodies run in this driver. */
  readonly live: ReadonlySet<Path>;
  /** The thread's runs before this one. Default: none. */
  readonly before?: readonly RunState[];
  /** What runs have used with which this one shares its limits. Default: there are none. */
  readonly elsewhere?: readonly Spent[];
}

/** What keeps one attempt at a model within its budget. */
export interface ModelBound {
  readonly reserved?: Reserved;
  /** When the time of the run is up. Milliseconds since the epoch. */
  readonly deadline?: number;
}

/** What a gate says: begin; wait until something that runs has ended; wait for a human. */
export interface Pass {
  readonly may: "begin" | "wait" | "ask";
}

const WAIT: Pass = { may: "wait" };
const BEGIN: Pass = { may: "begin" };

/** Made for one decision: it knows what it has let through. */
export class BudgetGate {
  readonly #run: RunState;
  readonly #budget: LoopBudget;
  readonly #now: GateNow;
  readonly #limits: Amounts;
  readonly #spent: Spent;
  readonly #short = new Map<string, Shortage>();
  readonly #let: string[] = [];

  constructor(run: RunState, budget: LoopBudget, now: GateNow) {
    this.#run = run;
    this.#budget = budget;
    this.#now = now;
    this.#limits = plus(budget.limits, granted(budget.limits, run.spending.raised));
    this.#spent = underNames(together([spentBy(run, now.at), ...(now.elsewhere ?? [])]), budget);
  }

  /** A model step, tried for the first time or again. */
  model(path: Path): Pass & ModelBound {
    const isNew = (this.#run.steps.get(path)?.attempts.length ?? 0) === 0;
    const { steps } = this.#limits;
    const short: Shortage[] = [...this.#timeShort()];
    if (isNew && steps !== undefined && this.#spent.steps >= steps) {
      short.push({ limit: "steps", used: this.#spent.steps, allowed: steps, reserved: 1 });
    }
    const { tokens, usd, time } = this.#limits;
    const deadline = time === undefined ? {} : { deadline: this.#now.at + time - this.#spent.time };
    if (tokens === undefined && usd === undefined) return { ...this.#passOrAsk(short), ...deadline };
    if (this.#spent.isOverrun) short.push(...this.#overrun());
    const reserved = this.#budget.reserve({ run: this.#run, before: this.#now.before ?? [], path, left: this.#left() });
    const beyond = this.#beyond(chargeOf(reserved));
    // What others reserve they may give back.
    if (beyond.length > 0 && this.#spent.reserved.tokens > 0) return WAIT;
    short.push(...beyond);
    return { ...this.#passOrAsk(short), ...deadline, reserved };
  }

  /** An attempt at a call. */
  call(path: Path, name: string): Pass {
    const tool = this.#budget.toolName(name);
    const short: Shortage[] = [...this.#timeShort()];
    const isNew = (this.#run.steps.get(path)?.attempts.length ?? 0) === 0;
    if (!isNew) return this.#passOrAsk(short);
    // A call that is live has perhaps not begun yet, and may never.
    const pending = this.#pending();
    const { calls, perTool = {} } = this.#limits;
    const own = Object.hasOwn(perTool, tool) ? perTool[tool] : undefined;
    const used = this.#spent.perTool.get(tool) ?? 0;
    if (calls !== undefined && this.#spent.calls >= calls) {
      short.push({ limit: "calls", used: this.#spent.calls, allowed: calls, reserved: 1 });
    }
    if (own !== undefined && used >= own) short.push({ limit: "perTool", tool, used, allowed: own, reserved: 1 });
    if (short.length > 0) return this.#passOrAsk(short);
    const isHeld =
      (calls !== undefined && this.#spent.calls + pending.length >= calls) ||
      (own !== undefined && used + pending.filter((name) => name === tool || name === ANY).length >= own);
    if (isHeld) return WAIT;
    this.#let.push(tool);
    return BEGIN;
  }

  /** Finding out what became of an attempt, behind which the next one follows at once. */
  again(): Pass {
    return this.#passOrAsk(this.#timeShort());
  }

  /** The question to ask now; null where there is nothing to ask, or it is asked already. */
  get question(): Interrupt | null {
    const isAsked = [...this.#run.interrupts.values()].some(({ kind }) => kind === "budget");
    if (this.#short.size === 0 || isAsked) return null;
    return budgetQuestion(this.#run, [...this.#short.values()], this.#budget.audience);
  }

  /** Whether a question that was asked before is still one. */
  isStill({ limit, tool, reserved }: Shortage): boolean {
    if (limit === "overrun") return this.#spent.isOverrun;
    const allowed = limit === "perTool" ? this.#limits.perTool?.[tool ?? ""] : this.#limits[limit];
    if (allowed === undefined) return false;
    const used = limit === "perTool" ? (this.#spent.perTool.get(tool ?? "") ?? 0) : this.#spent[limit];
    return used + reserved > allowed;
  }

  /** When the time is up that the run may be active; null while nothing runs, or there is no such limit. */
  get endsAt(): number | null {
    const { time } = this.#limits;
    if (time === undefined || this.#run.spending.since === null) return null;
    return this.#now.at + time - this.#spent.time;
  }

  #timeShort(): Shortage[] {
    const { time } = this.#limits;
    if (time === undefined || this.#spent.time < time) return [];
    return [{ limit: "time", used: this.#spent.time, allowed: time, reserved: 1 }];
  }

  #left(): Left {
    const of = (limit: "tokens" | "usd"): number | null => {
      const allowed = this.#limits[limit];
      return allowed === undefined ? null : allowed - this.#spent[limit] - this.#spent.reserved[limit];
    };
    return { tokens: of("tokens"), usd: of("usd") };
  }

  #beyond(charge: Charge): Shortage[] {
    return (["tokens", "usd"] as const).flatMap((limit): Shortage[] => {
      const allowed = this.#limits[limit];
      const used = this.#spent[limit];
      const isIn = allowed === undefined || used + this.#spent.reserved[limit] + charge[limit] <= allowed;
      return isIn ? [] : [{ limit, used, allowed, reserved: charge[limit] }];
    });
  }

  #overrun(): Shortage[] {
    const limit = this.#limits.tokens === undefined ? "usd" : "tokens";
    return [{ limit: "overrun", used: this.#spent[limit], allowed: this.#limits[limit] ?? 0, reserved: 0 }];
  }

  /** The tools of calls that may begin at any moment. */
  #pending(): string[] {
    const live = [...this.#now.live].flatMap((path) => {
      const step = this.#run.steps.get(path);
      // What it is, its driver knows; whatever it is, the next decision knows more.
      if (step === undefined) return [ANY];
      return step.started.step === "tool" && step.attempts.length === 0
        ? [this.#budget.toolName(step.started.name)]
        : [];
    });
    return [...this.#let, ...live];
  }

  #passOrAsk(short: readonly Shortage[]): Pass {
    for (const one of short) this.#short.set(`${one.limit} ${one.tool ?? ""}`, one);
    return short.length === 0 ? BEGIN : { may: "ask" };
  }
}

/** A live call of which the log knows nothing yet. */
const ANY = "";

function underNames(spent: Spent, budget: LoopBudget): Spent {
  const perTool = new Map<string, number>();
  for (const [name, n] of spent.perTool) {
    const tool = budget.toolName(name);
    perTool.set(tool, (perTool.get(tool) ?? 0) + n);
  }
  return { ...spent, perTool };
}

/** Of what was added, what there is a limit for: adding to none makes none. */
function granted(limits: Amounts, raised: Amounts): Amounts {
  const perTool = Object.entries(raised.perTool ?? {}).filter(([tool]) => Object.hasOwn(limits.perTool ?? {}, tool));
  const plain = (["steps", "calls", "tokens", "usd", "time"] as const).flatMap((limit): [string, number][] =>
    limits[limit] === undefined || raised[limit] === undefined ? [] : [[limit, raised[limit]]],
  );
  return { ...Object.fromEntries(plain), perTool: Object.fromEntries(perTool) };
}
