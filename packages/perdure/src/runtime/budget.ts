/**
 * Whether a run may begin what it wants next. Pure: of its log, of its agent's limits, and of what its parent has left to it.
 *
 * B1. A limit is asked before a step begins, never after: what does not fit waits for a human, all else goes on.
 * B2. One question at a time, with all limits that are reached. It is withdrawn when they no longer are.
 * B3. A step that has begun counts once for `steps`, `calls` and `perTool`, however often it is tried.
 * B4. A child takes its part of what is left with it, in the entry with which it begins (`allotment.ts`). So runs that share a budget need not
 *     know of each other: what one may use is nobody else's until it has ended.
 */
import type { Interrupt } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { type Amounts, lesser, plus } from "../log/spending.ts";
import { type Charge, chargeOf, type Reserved, type Spent, spentBy, type Used } from "../log/spent.ts";
import type { Path } from "../protocol/words.ts";
import { type Allotment, isRoom, shareOf, type Turn } from "./allotment.ts";
import { budgetQuestion, type Shortage } from "./budget-question.ts";

/** What a model call may still use. `null`: as much as it likes. */
export interface Left {
  readonly tokens: number | null;
  /** Nano-dollars. */
  readonly usd: number | null;
}

/** What a run of an agent may use. */
export interface RunBudget {
  /** The agent's own. None: its runs are bound by what their callers allot to them. */
  readonly limits: Amounts;
  /** The models whose price is not known, of this agent and of all that it calls. */
  readonly unpriced: readonly string[];
  /** The name that a tool has now, by any that it has had: `perTool` counts under it. */
  toolName(name: string): string;
  /** The scope that whoever answers its questions needs, beside `answer`. */
  readonly audience: string | null;
}

/** The same, as the driver of a run needs it: with what its model calls may use. */
export interface LoopBudget extends RunBudget {
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

const NO_CHARGE: Charge = { tokens: 0, usd: 0 };
const BEGIN: Pass = { may: "begin" };

/** Made for one decision: it knows what it has let through. */
export class BudgetGate {
  readonly #run: RunState;
  readonly #budget: LoopBudget;
  readonly #now: GateNow;
  readonly #limits: Amounts;
  /** What model calls that were let through may use counts as reserved. */
  #spent: Spent;
  readonly #short = new Map<string, Shortage>();
  /** The tools of the calls that were let through. */
  readonly #let: string[] = [];
  #holds = false;

  /** @returns null where nothing is limited */
  static of(run: RunState, budget: LoopBudget | null | undefined, now: GateNow): BudgetGate | null {
    if (!budget) return null;
    const limits = limitsOf(run, budget);
    return Object.keys(limits).length === 0 ? null : new BudgetGate(run, budget, now, limits);
  }

  private constructor(run: RunState, budget: LoopBudget, now: GateNow, limits: Amounts) {
    this.#run = run;
    this.#budget = budget;
    this.#now = now;
    const spent = spentBy(run, now.at);
    this.#limits = plus(limits, granted(limits, plus(run.spending.raised, spent.raised)));
    this.#spent = { ...spent, ...underNames(spent, budget), reserved: underNames(spent.reserved, budget) };
  }

  /** A model step, tried for the first time or again. */
  model(path: Path): Pass & ModelBound {
    const isNew = (this.#run.steps.get(path)?.attempts.length ?? 0) === 0;
    const { steps } = this.#limits;
    const short: Shortage[] = [...this.#timeShort()];
    if (isNew && steps !== undefined && this.#spent.steps >= steps) {
      short.push({ limit: "steps", used: this.#spent.steps, allowed: steps, reserved: 1 });
    }
    const isHeld = isNew && steps !== undefined && this.#spent.steps + this.#spent.reserved.steps >= steps;
    if (short.length === 0 && isHeld) return this.#wait();
    const pass = this.#asking(short, (left) =>
      this.#budget.reserve({ run: this.#run, before: this.#now.before ?? [], path, left }),
    );
    if (pass.may === "begin") this.#grant(isNew, pass.reserved);
    return pass;
  }

  /** The next decision finds in the log what begins now; what else begins with it has to leave it that. */
  #grant(isStep: boolean, bound: Reserved | undefined): void {
    const { tokens, usd } = bound === undefined ? NO_CHARGE : chargeOf(bound);
    const { reserved } = this.#spent;
    const steps = reserved.steps + (isStep ? 1 : 0);
    this.#spent = {
      ...this.#spent,
      reserved: { ...reserved, steps, tokens: reserved.tokens + tokens, usd: reserved.usd + usd },
    };
  }

  /** A step of the loop's own, which may ask a model. */
  own(reserve: ((left: Left) => Reserved) | undefined): Pass & ModelBound {
    return this.#asking(this.#timeShort(), reserve);
  }

  #asking(short: Shortage[], reserve: ((left: Left) => Reserved) | undefined): Pass & ModelBound {
    const { tokens, usd, time } = this.#limits;
    if (short.length === 0 && this.#isTimeTaken) return this.#wait();
    const ends = (limit: number): number => this.#now.at + limit - this.#spent.time - this.#spent.reserved.time;
    const deadline = time === undefined ? {} : { deadline: ends(time) };
    const isFree = tokens === undefined && usd === undefined;
    if (isFree || reserve === undefined) return { ...this.#passOrAsk(short), ...deadline };
    short.push(...this.#overrun());
    const reserved = reserve(this.#left());
    const beyond = this.#beyond(chargeOf(reserved));
    // What others reserve they may give back.
    if (beyond.length > 0 && this.#spent.reserved.tokens + this.#spent.reserved.usd > 0) return this.#wait();
    short.push(...beyond);
    return { ...this.#passOrAsk(short), ...deadline, reserved };
  }

  /** An attempt at a call. */
  call(path: Path, name: string): Pass {
    const pass = this.#call(path, name);
    if (pass.may === "begin") this.#let.push(this.#budget.toolName(name));
    return pass;
  }

  /** A call that is another run. */
  child(path: Path, name: string, turn: Turn): Pass {
    const pass = this.#call(path, name);
    if (pass.may === "begin" && this.#spent.isOverrun) return this.#passOrAsk(this.#overrun());
    const share = this.#share(name, turn);
    if (pass.may !== "begin" || isRoom(share)) {
      if (pass.may === "begin") this.#let.push(this.#budget.toolName(name));
      return pass;
    }
    const { steps, tokens, usd, time } = this.#spent.reserved;
    if (steps + tokens + usd + time > 0) return this.#wait();
    return this.#passOrAsk(this.#exhausted(share, turn));
  }

  /** What a child may use that begins now; undefined where that is nothing. */
  allot(name: string, turn: Turn): Allotment | undefined {
    const limits = this.#share(name, turn);
    return isRoom(limits) ? { limits, audience: this.#audience } : undefined;
  }

  #share(name: string, turn: Turn): Amounts {
    return shareOf(this.#limits, this.#spent, {
      ...{ ...turn, others: turn.others.map((other) => this.#budget.toolName(other)) },
      name: this.#budget.toolName(name),
    });
  }

  #call(path: Path, name: string): Pass {
    const tool = this.#budget.toolName(name);
    const short: Shortage[] = [...this.#timeShort()];
    const isNew = (this.#run.steps.get(path)?.attempts.length ?? 0) === 0;
    if (short.length === 0 && this.#isTimeTaken) return this.#wait();
    if (!isNew) return this.#passOrAsk(short);
    // A call that is live has perhaps not begun yet, and may never.
    const pending = this.#pending();
    const { calls, perTool = {} } = this.#limits;
    const own = Object.hasOwn(perTool, tool) ? perTool[tool] : undefined;
    const used = this.#spent.perTool.get(tool) ?? 0;
    const reserved = this.#spent.reserved.perTool.get(tool) ?? 0;
    if (calls !== undefined && this.#spent.calls >= calls) {
      short.push({ limit: "calls", used: this.#spent.calls, allowed: calls, reserved: 1 });
    }
    if (own !== undefined && used >= own) short.push({ limit: "perTool", tool, used, allowed: own, reserved: 1 });
    if (short.length > 0) return this.#passOrAsk(short);
    const isHeld =
      (calls !== undefined && this.#spent.calls + this.#spent.reserved.calls + pending.length >= calls) ||
      (own !== undefined && used + reserved + pending.filter((name) => name === tool || name === ANY).length >= own);
    return isHeld ? this.#wait() : BEGIN;
  }

  /** What takes nothing but time: a step that code of a custom loop runs itself; finding out what became of an attempt, for the next one may follow at once. */
  timed(): Pass {
    const short = this.#timeShort();
    return short.length === 0 && this.#isTimeTaken ? this.#wait() : this.#passOrAsk(short);
  }

  /** Whether something has to wait. */
  get holds(): boolean {
    return this.#holds;
  }

  /** The question to ask now; null where there is nothing to ask, or it is asked already. */
  get question(): Interrupt | null {
    const isAsked = [...this.#run.interrupts.values()].some(({ kind }) => kind === "budget");
    if (this.#short.size === 0 || isAsked) return null;
    return budgetQuestion(this.#run, [...this.#short.values()], this.#audience);
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
    return this.#now.at + time - this.#spent.time - this.#spent.reserved.time;
  }

  get #audience(): string | null {
    return audienceOf(this.#run, this.#budget);
  }

  /** Whether children have what is left of the time. */
  get #isTimeTaken(): boolean {
    const { time } = this.#limits;
    return time !== undefined && this.#spent.time + this.#spent.reserved.time >= time;
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

  /** The limits that leave a child nothing to begin with. */
  #exhausted(share: Amounts, { children, hasTools }: Turn): Shortage[] {
    const least = { steps: 1, tokens: children, usd: children, time: children + (hasTools ? 1 : 0) };
    return (["steps", "tokens", "usd", "time"] as const).flatMap((limit): Shortage[] => {
      const allowed = this.#limits[limit];
      const isRoomy = (share[limit] ?? 1) >= 1;
      return allowed === undefined || isRoomy
        ? []
        : [{ limit, used: this.#spent[limit], allowed, reserved: least[limit] }];
    });
  }

  #overrun(): Shortage[] {
    if (!this.#spent.isOverrun) return [];
    const limit = this.#limits.tokens === undefined ? "usd" : "tokens";
    return [{ limit: "overrun", used: this.#spent[limit], allowed: this.#limits[limit] ?? 0, reserved: 0 }];
  }

  /** The tools of calls that may begin at any moment. */
  #pending(): string[] {
    const live = [...this.#now.live].flatMap((path) => {
      const step = this.#run.steps.get(path);
      // What it is, its driver knows; whatever it is, the next decision knows more.
      if (step === undefined) return [ANY];
      return (step.started.step === "tool" || step.started.step === "child") && step.attempts.length === 0
        ? [this.#budget.toolName(step.started.name)]
        : [];
    });
    return [...this.#let, ...live];
  }

  #passOrAsk(short: readonly Shortage[]): Pass {
    for (const one of short) this.#short.set(`${one.limit} ${one.tool ?? ""}`, one);
    this.#holds ||= short.length > 0;
    return short.length === 0 ? BEGIN : { may: "ask" };
  }

  #wait(): Pass {
    this.#holds = true;
    return { may: "wait" };
  }
}

/** A live call of which the log knows nothing yet. */
const ANY = "";

/** What a run may use, before anything is added: its agent's limits, and what its parent has left to it. */
export function limitsOf({ run }: Pick<RunState, "run">, budget: RunBudget): Amounts {
  if (run.allotted === undefined) return budget.limits;
  const { perTool, ...limits } = run.allotted.limits;
  return lesser(budget.limits, perTool === undefined ? limits : { ...limits, perTool: byName(perTool, budget) });
}

/** The scope that whoever raises the limits of a run needs: its parent's, for it is that one's budget. */
export function audienceOf({ run }: Pick<RunState, "run">, budget: RunBudget): string | null {
  return run.allotted?.audience ?? budget.audience;
}

function byName(perTool: NonNullable<Amounts["perTool"]>, budget: RunBudget): NonNullable<Amounts["perTool"]> {
  return Object.fromEntries(Object.entries(perTool).map(([tool, n]) => [budget.toolName(tool), n]));
}

function underNames<U extends Used>(spent: U, budget: RunBudget): U {
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
