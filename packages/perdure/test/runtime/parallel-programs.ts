/**
 * Random programs for calls that run side by side over one state. A program says what each body does between points at which the others may go
 * on, which of those that wait goes on next, how it ends, and where the process dies. No timers: the order is the program's.
 */
import fc from "fast-check";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { applied, HandlerError, notApplied, suspend, tool, unknown } from "../../src/index.ts";
import type { Entry } from "../../src/log/entries.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Uid } from "../../src/protocol/words.ts";
import type { Agent, LoopAgent } from "../../src/runtime/agent-definition.ts";
import { Engine } from "../../src/runtime/engine.ts";
import { memory } from "../../src/store/memory.ts";
import type { Run } from "../../src/store/store.ts";
import { type Death, Mortal, never } from "../../src/testing/mortal-store.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolContext } from "../../src/tool/definition.ts";

export interface Item {
  /** Which attempt put it there. */
  by: string;
  v: number;
  /** Which attempt changed it last. */
  seen?: string;
}
export interface Board {
  items: Item[];
  flags: Record<string, string>;
  log?: string[];
}

type Op = Change | { readonly op: "publish" } | { readonly op: "wait" };
type Change = Place | Flag | { readonly op: "log" };
type Flag = { readonly op: "flag" | "unflag"; readonly key: string };
type Place = { readonly op: "push" | "unshift" | "insert" | "change" | "remove" | "move"; readonly at: number };

/** What one attempt does, and how it ends: `fail` and `retry` are not applied, of `lose` nobody knows. */
export interface Body {
  readonly ops: readonly Op[];
  readonly end: "return" | "fail" | "retry" | "lose" | "suspend" | "die";
}

export interface Call {
  readonly effect: "read" | "idempotent" | "write";
  readonly reduces: boolean;
  /** One for each attempt; further ones do nothing and return. */
  readonly bodies: readonly Body[];
  /** What `reconcile` says. */
  readonly found: "applied" | "not applied" | "unknown";
  /** What a human says where it does not know either. */
  readonly did: "yes" | "no" | "unknown";
}

export interface Program {
  readonly calls: readonly Call[];
  /** Which of the waiting bodies goes on, each time. */
  readonly schedule: readonly number[];
  /** Where processes die, one after the other. */
  readonly deaths: readonly Death[];
  /** At which turn somebody cancels the run. */
  readonly cancelAt: number | null;
}

const at = fc.nat(6);
const op: fc.Arbitrary<Op> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ op: fc.constantFrom("push", "unshift", "insert", "change", "remove", "move"), at }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constantFrom("flag", "unflag"), key: fc.constantFrom("a", "b") }) },
  { weight: 5, arbitrary: fc.record({ op: fc.constantFrom("log", "publish", "publish", "wait", "wait") }) },
) as fc.Arbitrary<Op>;
const body: fc.Arbitrary<Body> = fc.record({
  ops: fc.array(op, { maxLength: 8 }),
  end: fc.oneof(
    { weight: 4, arbitrary: fc.constant("return" as const) },
    { weight: 4, arbitrary: fc.constantFrom<Body["end"]>("fail", "retry", "lose", "suspend", "die") },
  ),
});
const call: fc.Arbitrary<Call> = fc.record({
  effect: fc.constantFrom("read", "idempotent", "write"),
  reduces: fc.boolean(),
  bodies: fc.array(body, { minLength: 1, maxLength: 3 }),
  found: fc.constantFrom("applied", "not applied", "unknown"),
  did: fc.constantFrom("yes", "no", "unknown"),
});
export const program: fc.Arbitrary<Program> = fc.record({
  calls: fc.array(call, { minLength: 2, maxLength: 4 }),
  schedule: fc.array(fc.nat(3), { minLength: 1, maxLength: 12 }),
  deaths: fc.oneof(
    { weight: 2, arbitrary: fc.constant([]) },
    {
      weight: 1,
      arbitrary: fc.array(
        fc.record({
          when: fc.constantFrom("after" as const, "before" as const),
          commits: fc.integer({ min: 1, max: 14 }),
        }),
        { minLength: 1, maxLength: 2 },
      ),
    },
  ),
  cancelAt: fc.oneof({ weight: 1, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.nat(30) }),
});

/** What an attempt has done to the items, whatever becomes of it. */
export interface Trail {
  readonly put: string[];
  readonly removed: string[];
  /** Whose items and marks it has found in its draft. */
  readonly found: Set<string>;
}

export interface Played {
  readonly log: readonly Entry[];
  readonly run: Run;
  readonly trails: ReadonlyMap<string, Trail>;
  readonly deaths: number;
  readonly reported: readonly unknown[];
}

/** One process. */
interface Life {
  readonly mortal: Mortal;
  readonly engine: Engine;
  /** Bodies that wait for their turn. */
  readonly waiting: (() => void)[];
}

/** The program that is being played. Tools and agent are made once: making them takes longer than playing. */
let playing: Play;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const input = z.object({ call: z.number() });
const effects = ["read", "idempotent", "write"] as const;

const tools = effects.flatMap((effect) =>
  [true, false].map((reduces) =>
    tool({
      ...{ name: nameOf(effect, reduces), description: "Works on the board.", effect, settle: 0, parallel: true },
      ...{ input, answer: z.string(), state: z.custom<Board>() },
      call: async ({ call: index }, ctx) => await playing.body(index, ctx),
      resume: async (_, { call: index }, ctx) => (await playing.body(index, ctx)) as Json,
      reconcile: ({ call: index }, ctx) => {
        // It counts for nothing what is done to the state here.
        ctx.state.items.push({ by: "reconcile", v: 0 });
        ctx.publishState();
        const { found } = playing.program.calls[index] as Call;
        return found === "applied" ? applied(index) : found === "not applied" ? notApplied() : unknown();
      },
      ...(reduces && {
        reduce(board: Board, _: unknown, { call: index }: { call: number }) {
          board.items.push({ by: `reduce ${index}`, v: 0 });
        },
      }),
    }),
  ),
);

const desk = agent<Board>({
  name: "desk",
  model: scriptedModel(({ turn: n }) =>
    n > 0
      ? { text: "Done." }
      : {
          calls: playing.program.calls.map(({ effect, reduces }, i) => ({
            name: nameOf(effect, reduces),
            input: { call: i },
          })),
        },
  ),
  tools,
  state: {
    initial: () => ({
      items: Array.from({ length: 4 }, (_, v) => ({ by: "start", v })),
      flags: { a: "start" },
    }),
  },
}) as LoopAgent as Agent;

function nameOf(effect: string, reduces: boolean): string {
  return reduces ? `${effect}_reduces` : effect;
}

const OPERATOR = { tenant: "t", subject: "o", scopes: ["answer", "operator"] };
const PRINCIPAL = { tenant: "t", subject: "s", scopes: ["answer"] };
const PATIENCE = 3_000;

/** Plays a program to the end of its run. */
export async function play(program: Program): Promise<Played> {
  playing = new Play(program);
  return await playing.toItsEnd();
}

class Play {
  readonly #trails = new Map<string, Trail>();
  readonly #reported: unknown[] = [];
  readonly #deathsLeft: Death[];
  readonly #below;
  #at = 1_700_000_000_000;
  #turns = 0;
  #released = 0;
  #deaths = 0;
  #life: Life;

  constructor(readonly program: Program) {
    this.#below = memory({ clock: this.#now, leaseMs: 1e9 });
    this.#deathsLeft = [...program.deaths];
    this.#life = this.#begin();
  }

  readonly #now = (): number => {
    this.#at += 40;
    return this.#at;
  };

  #begin(): Life {
    const mortal = new Mortal(this.#below, this.#deathsLeft.shift() ?? null);
    const engine = new Engine({
      store: mortal.store,
      agents: new Map([["desk", desk]]),
      report: (error) => this.#reported.push(error),
      now: this.#now,
      // No back-off: no timer decides what comes next.
      random: () => -1,
      newUid: () => "run" as Uid,
    });
    return { mortal, engine, waiting: [] };
  }

  async toItsEnd(): Promise<Played> {
    await this.#open();
    let requests = 1;
    for (;;) {
      await this.#letGoOn();
      const resume = await this.#answers();
      const isTaken = await this.#unlessDead(
        this.#life.engine.post(
          desk,
          {
            ...{ threadId: "thread", runId: `r${requests}`, tools: [], context: [], forwardedProps: {}, state: {} },
            messages: [{ id: "u", role: "user", content: "go" }],
            ...(resume.length > 0 && { resume }),
          },
          PRINCIPAL,
        ),
      );
      // A life that died before it told anybody may have taken the request.
      const isRefused =
        isTaken !== "dead" && isTaken.meaning.is === "refuse" && isTaken.meaning.code !== "RUN_ID_REUSED";
      if (isRefused) throw new Error("a request was refused", { cause: isTaken.meaning });
      const run = isTaken === "dead" ? undefined : await this.#untilItRests();
      if (run === undefined) {
        this.#deaths += 1;
        this.#life = this.#begin();
        await this.#open();
        continue;
      }
      if (run.outcome === null) {
        requests += 1;
        continue;
      }
      const log: Entry[] = [];
      for await (const entry of this.#below.read(run.uid, -1)) log.push(entry);
      await this.#life.engine.close();
      return { log, run, trails: this.#trails, deaths: this.#deaths, reported: this.#reported };
    }
  }

  async #open(): Promise<void> {
    while ((await this.#unlessDead(this.#life.engine.open())) === "dead") {
      this.#deaths += 1;
      this.#life = this.#begin();
    }
  }

  async #unlessDead<T>(work: Promise<T>): Promise<T | "dead"> {
    return await Promise.race([work, this.#life.mortal.died.then(() => "dead" as const)]);
  }

  /** @returns undefined when the process has died */
  async #untilItRests(): Promise<Run | undefined> {
    const { mortal, engine, waiting } = this.#life;
    for (let patience = PATIENCE; patience > 0; patience--) {
      await turn();
      if (mortal.isDead) return undefined;
      const run = await this.#below.run("run" as Uid);
      if (run !== null && (run.outcome !== null || (!run.legOpen && run.owner === null && run.readyAt === null)))
        return run;
      if (this.#turns++ === this.program.cancelAt) void engine.cancel("run" as Uid, "s");
      if (waiting.length === 0) continue;
      const { schedule } = this.program;
      const next = (schedule[this.#released++ % schedule.length] ?? 0) % waiting.length;
      waiting.splice(next, 1)[0]?.();
    }
    throw new Error("the run does not come to rest");
  }

  /** The operator has found out what took three processes down. */
  async #letGoOn(): Promise<void> {
    const { items } = await this.#below.questions({ tenant: "t" });
    for (const { interrupt } of items) {
      if (interrupt.kind !== "poisoned") continue;
      const answer = {
        interrupt: interrupt.id,
        status: "resolved",
        payload: { action: "go-on" },
        by: OPERATOR,
      } as const;
      await this.#unlessDead(this.#life.engine.answer(answer));
    }
  }

  async #answers() {
    const { items } = await this.#below.questions({ tenant: "t" });
    return items.map(({ interrupt }) => {
      const index = Number(interrupt.path.split(".").at(-1));
      const { did } = this.program.calls[index] as Call;
      const payload = interrupt.kind === "suspension" ? "go on" : did === "yes" ? { did, output: index } : { did };
      return { interruptId: interrupt.id, status: "resolved" as const, payload };
    });
  }

  /** What one attempt does. */
  async body(index: number, ctx: ToolContext<Board, string | undefined>) {
    const life = this.#life;
    const label = `${ctx.path}#${ctx.attempt}`;
    const trail: Trail = { put: [], removed: [], found: new Set() };
    this.#trails.set(label, trail);
    const { bodies } = this.program.calls[index] as Call;
    const { ops, end } = bodies[ctx.attempt - 1] ?? ({ ops: [], end: "return" } satisfies Body);
    for (const name of labelsIn(ctx.state as unknown as Json)) trail.found.add(name);
    for (const [i, one] of ops.entries()) {
      if (one.op === "publish") ctx.publishState();
      else if (one.op === "wait") await this.#goesOn(life);
      else change(ctx.state, one, { by: label, v: i }, trail);
    }
    if (life.mortal.isDead) await never();
    switch (end) {
      case "fail":
        throw new HandlerError("no", { applied: "no", retryable: false });
      case "retry":
        throw new HandlerError("not now", { applied: "no", retryable: true });
      case "lose":
        throw new Error("connection reset");
      case "die":
        life.mortal.die();
        return await never<number>();
      case "suspend":
        if (!this.#isResumed(label)) return suspend({ message: "Go on?" });
        return index;
      default:
        return index;
    }
  }

  readonly #suspended = new Set<string>();
  /** A call suspends itself once: what goes on from an answer cannot. */
  #isResumed(label: string): boolean {
    const [path = ""] = label.split("#");
    const known = this.#suspended.has(path);
    this.#suspended.add(path);
    return known;
  }

  async #goesOn({ mortal, waiting }: Life): Promise<void> {
    if (mortal.isDead) return await never();
    await new Promise<void>((resolve) => waiting.push(resolve));
    if (mortal.isDead) await never();
  }
}

function change(board: Board, one: Change, made: Item, trail: Trail): void {
  const { items, flags } = board;
  const name = ({ by, v }: Item) => `${by}/${v}`;
  if (one.op === "log") {
    board.log ??= [];
    board.log.push(made.by);
    return;
  }
  if ("key" in one) {
    if (one.op === "flag") flags[one.key] = made.by;
    else delete flags[one.key];
    return;
  }
  const index = one.at % Math.max(items.length, 1);
  const item = items[index];
  if (one.op === "push" || one.op === "unshift" || one.op === "insert") {
    trail.put.push(name(made));
    items.splice(one.op === "push" ? items.length : one.op === "unshift" ? 0 : index, 0, made);
  } else if (item === undefined) return;
  else if (one.op === "change") item.seen = made.by;
  else {
    const [taken] = items.splice(index, 1);
    if (taken === undefined) return;
    if (one.op === "move") items.splice((index * 5 + 1) % (items.length + 1), 0, taken);
    else trail.removed.push(name(taken));
  }
}

/** Who has left something in a state. */
export function labelsIn(state: Json): string[] {
  return JSON.stringify(state).match(/\d[\d.]*#\d+/g) ?? [];
}
