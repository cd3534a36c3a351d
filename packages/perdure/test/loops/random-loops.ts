/** Random custom loops: what code can do with a context between and inside its steps, as data, and an interpreter for it. */
import fc from "fast-check";
import {
  type Agent,
  agent,
  agentTool,
  applied,
  HandlerError,
  type LoopContext,
  notApplied,
  StepFailed,
  type ToolContext,
  tool,
} from "perdure";
import type { Json } from "perdure/protocol";
import { cutHere } from "perdure/testing";
import { z } from "zod";

export interface Board {
  readonly [name: string]: unknown;
}

type Effect = "read" | "idempotent" | "write";

export type Op =
  | { readonly op: "say" | "think"; readonly text: string }
  | { readonly op: "message"; readonly deltas: readonly string[]; readonly inside: readonly Op[] }
  | { readonly op: "toolCall"; readonly args: readonly string[]; readonly inside: readonly Op[] }
  | { readonly op: "activity"; readonly updates: readonly number[]; readonly inside: readonly Op[] }
  | { readonly op: "step" | "subagent"; readonly name: string; readonly body: readonly Op[] }
  | { readonly op: "set"; readonly value: number; readonly publish: boolean }
  | { readonly op: "custom" }
  | {
      readonly op: "call";
      readonly effect: Effect;
      readonly show: boolean;
      readonly ends: Ends;
      readonly looks: boolean;
    }
  | { readonly op: "once"; readonly effect: Effect; readonly ends: Ends; readonly looks: boolean }
  | { readonly op: "spawn"; readonly asks: boolean }
  | { readonly op: "ask" | "client" | "receive" | "sleep" | "reading" | "pause" | "idle" }
  | { readonly op: "parallel"; readonly branches: readonly (readonly Op[])[] }
  | { readonly op: "race"; readonly quick: readonly Op[]; readonly slow: readonly Op[] };

/** How a body ends: with a result that it has put into the state, or by a failure before it did anything. */
type Ends = "ok" | "publishing" | "fails" | "retries";

const effect = fc.constantFrom<Effect[]>("read", "idempotent", "write", "write");
const ends = fc.constantFrom<Ends[]>("ok", "ok", "publishing", "fails", "retries");
const text = fc.string({ unit: "binary", maxLength: 6 });
const call: fc.Arbitrary<Op> = fc.record({
  ...{ op: fc.constant("call" as const), effect, show: fc.boolean(), ends, looks: fc.boolean() },
});
const once: fc.Arbitrary<Op> = fc.record({ op: fc.constant("once" as const), effect, ends, looks: fc.boolean() });
const wait: fc.Arbitrary<Op> = fc.record({
  op: fc.constantFrom("ask" as const, "client" as const, "receive" as const, "sleep" as const),
});
const spawn: fc.Arbitrary<Op> = fc.record({ op: fc.constant("spawn" as const), asks: fc.boolean() });
const reading: fc.Arbitrary<Op> = fc.record({
  op: fc.constantFrom("reading" as const, "pause" as const, "idle" as const),
});
const set: fc.Arbitrary<Op> = fc.record({
  ...{ op: fc.constant("set" as const), value: fc.nat(9), publish: fc.boolean() },
});
const inside: fc.Arbitrary<Op[]> = fc.array(fc.oneof(call, once, set, reading), { maxLength: 2 });
/** Of a lane that is to win its race at once. */
const quick: fc.Arbitrary<Op[]> = fc.array(
  fc.constantFrom<Op[]>(
    { op: "once", effect: "read", ends: "ok", looks: false },
    { op: "call", effect: "read", show: true, ends: "ok", looks: false },
    { op: "set", value: 1, publish: true },
  ),
  { minLength: 1, maxLength: 2 },
);

function ops(deep: number): fc.Arbitrary<Op[]> {
  const flat: fc.Arbitrary<Op>[] = [
    fc.record({ op: fc.constantFrom("say" as const, "think" as const), text }),
    fc.record({ op: fc.constant("message" as const), deltas: fc.array(text, { maxLength: 3 }), inside }),
    fc.record({
      ...{
        op: fc.constant("toolCall" as const),
        args: fc.constantFrom(["{}"], ['{"a":', "1}"], ['{"a":"\\u', '00e9"}']),
      },
      inside,
    }),
    fc.record({ op: fc.constant("activity" as const), updates: fc.array(fc.nat(5), { maxLength: 2 }), inside }),
    set,
    fc.record({ op: fc.constant("custom" as const) }),
    reading,
  ];
  const steps: fc.Arbitrary<Op>[] = [call, once, wait, spawn];
  const nested: fc.Arbitrary<Op>[] =
    deep === 0
      ? []
      : [
          fc.record({
            ...{ op: fc.constantFrom("step" as const, "subagent" as const), name: fc.constantFrom("plan", "act") },
            body: ops(deep - 1),
          }),
          fc.record({
            ...{
              op: fc.constant("parallel" as const),
              branches: fc.array(ops(deep - 1), { minLength: 1, maxLength: 3 }),
            },
          }),
          fc.record({ op: fc.constant("race" as const), quick, slow: ops(deep - 1) }),
        ];
  return fc.array(
    fc.oneof(
      ...flat.map((arbitrary) => ({ arbitrary, weight: 2 })),
      ...steps.map((arbitrary) => ({ arbitrary, weight: 5 })),
      ...nested.map((arbitrary) => ({ arbitrary, weight: 3 })),
    ),
    { maxLength: 5 },
  );
}

export const program: fc.Arbitrary<Op[]> = ops(2);

/** Whether some of it runs side by side: then the order in which it shows is nobody's. */
export function isConcurrent(program: readonly Op[]): boolean {
  return program.some((op) => {
    if (op.op === "parallel" || op.op === "race") return true;
    return isConcurrent(op.op === "step" || op.op === "subagent" ? op.body : "inside" in op ? op.inside : []);
  });
}

/** What the front end of a program runs, and what it says then. */
export const CLIENT_TOOL = { name: "theirs", description: "The client's.", parameters: { type: "object" } };
export const client = {
  tools: [CLIENT_TOOL],
  results: { [CLIENT_TOOL.name]: (input: Json) => `theirs: ${JSON.stringify(input)}` },
  signals: { word: { said: true } },
};

/** The outside: it counts, and nothing keeps it from being done twice but its own keys. */
export class Ledger {
  readonly rows: string[] = [];
  /** How often the code was begun. */
  lives = 0;

  async act(row: string): Promise<void> {
    await cutHere();
    this.rows.push(row);
    await cutHere();
  }

  looksUp(row: string, output: string) {
    return this.rows.includes(row) ? applied(output) : notApplied();
  }

  async actOnce(row: string): Promise<boolean> {
    await cutHere();
    const isFirst = !this.rows.includes(row);
    if (isFirst) this.rows.push(row);
    await cutHere();
    return isFirst;
  }
}

export function loopOf(program: readonly Op[], ledger: Ledger): Agent {
  const helpers = [helperOf(ledger, false), helperOf(ledger, true)] as const;
  return agent<Board>({
    name: "random",
    state: { initial: () => ({}) },
    agents: helpers,
    run: async (ctx) => {
      const player = new Player(ledger, helpers);
      await player.play(ctx, program, "p");
      return player.results;
    },
  }) as Agent;
}

/** Does one thing, once, and asks whether that was right, if it is one that asks. */
function helperOf(ledger: Ledger, asks: boolean): Agent {
  return agent<Json>({
    name: asks ? "asking-helper" : "helper",
    async run(ctx) {
      const at = ctx.lastUserText();
      ctx.say(`Helping ${at}.`);
      await ctx.once("act", { settle: 0, reconcile: async () => ledger.looksUp(`done ${at} helped`, at) }, async () => {
        await ledger.act(`done ${at} helped`);
        return at;
      });
      return asks ? await ctx.ask({ message: at, schema: z.string() }) : at;
    },
  }) as Agent;
}

type Ctx = LoopContext<Board>;
type Attempt = {
  readonly attempt: number;
  readonly idempotencyKey: string | undefined;
  updateState(change: (board: Board) => void): void;
} & Pick<ToolContext<Board>, "subagent">;

class Player {
  readonly results: Record<string, string> = {};

  private readonly life: number;

  constructor(
    private readonly ledger: Ledger,
    private readonly helpers: readonly [Agent, Agent],
  ) {
    this.life = ledger.lives++;
  }

  async play(ctx: Ctx, program: readonly Op[], at: string): Promise<void> {
    for (const [i, op] of program.entries()) await this.#one(ctx, op, `${at}-${i}`);
  }

  async #one(ctx: Ctx, op: Op, at: string): Promise<void> {
    switch (op.op) {
      case "say":
        return void ctx.say(op.text);
      case "think":
        return void ctx.think(op.text);
      case "message": {
        using message = ctx.message();
        for (const delta of op.deltas) message.delta(delta);
        await this.play(ctx, op.inside, at);
        return message.delta(`end of ${at}`);
      }
      case "toolCall": {
        using shown = ctx.toolCall("shown");
        for (const [i, piece] of op.args.entries()) {
          shown.args(piece);
          if (i === 0) await this.play(ctx, op.inside, at);
        }
        shown.resultJson({ at });
        return;
      }
      case "activity": {
        using activity = ctx.activity("PLAN", { items: [] as number[] });
        for (const n of op.updates) activity.update((draft) => void draft.items.unshift(n));
        await this.play(ctx, op.inside, at);
        return activity.update((draft) => void draft.items.push(-1));
      }
      case "step":
        return await ctx.step(op.name, () => this.play(ctx, op.body, at));
      case "subagent":
        return await ctx.subagent({ name: op.name }, (sub) => this.play(sub, op.body, at));
      case "set":
        put(ctx.state, at, op.value);
        if (op.publish) ctx.publishState();
        return;
      case "custom":
        return ctx.custom("app.at", at);
      case "call":
        return await this.#settled(at, () => ctx.call(this.#tool(op, at), { at }, { show: op.show }));
      case "once":
        return await this.#settled(at, () =>
          ctx.once(
            at,
            {
              ...{ effect: op.effect, settle: 0 },
              ...(op.looks && { reconcile: () => this.#reconcile(at) }),
            },
            (attempt) => this.#body(op, at, attempt as Attempt),
          ),
        );
      case "ask":
        return await this.#settled(at, () => ctx.ask({ message: at, schema: z.string() }));
      case "receive":
        return await this.#settled(at, () => ctx.receive("word"));
      case "client":
        return await this.#settled(at, () => ctx.call(ctx.clientTool(CLIENT_TOOL.name) ?? CLIENT_TOOL, { at }));
      case "spawn":
        return await this.#settled(at, () => {
          const helper = agentTool(this.helpers[op.asks ? 1 : 0], { name: at, description: "Helps." });
          return ctx.call(helper, { task: at });
        });
      case "sleep":
        return await ctx.sleep("90s");
      case "reading":
        // What they say is another story's each time; that they say it again is not.
        if (ctx.now() !== ctx.now() + 0 && ctx.random() > 1) throw new Error("a reading is no number");
        ctx.uuid();
        return;
      case "pause":
        return await Promise.resolve();
      case "idle":
        // Something that is no step, and takes another time in each life: lanes come to what is next in another order.
        for (let turns = lengthOf(at, this.life); turns > 0; turns--) await new Promise(setImmediate);
        return;
      case "parallel":
        await ctx.parallel(op.branches.map((branch, b) => (lane) => this.play(lane, branch, `${at}-${b}`)));
        return;
      case "race":
        return await ctx.race([
          (lane) => this.play(lane, op.quick, `${at}-q`),
          async (lane) => {
            await lane.sleep("3d");
            await this.play(lane, op.slow, `${at}-s`);
          },
        ]);
      default:
        return op satisfies never;
    }
  }

  async #settled(at: string, step: () => Promise<unknown>): Promise<void> {
    try {
      this.results[at] = JSON.stringify(await step());
    } catch (error) {
      if (!(error instanceof StepFailed)) throw error;
      this.results[at] = `${error.code} ${error.applied}`;
    }
  }

  #tool({ effect, ends, looks }: Op & { op: "call" }, at: string) {
    return tool({
      ...{ name: at, description: "Acts.", effect, settle: 0, input: z.object({ at: z.string() }) },
      state: z.custom<Board>(),
      call: (_, ctx) => this.#body({ effect, ends }, at, ctx as unknown as Attempt),
      ...(looks && { reconcile: () => this.#reconcile(at) }),
      reduce: (board: Board) => put(board, `${at} reduced`, 1),
    });
  }

  async #body({ effect, ends }: { effect: Effect; ends: Ends }, at: string, ctx: Attempt): Promise<string> {
    // What a write makes of the state by itself is lost where its outcome is looked up.
    if (ends === "publishing" && effect !== "write") {
      ctx.updateState((board) => put(board, `${at} body`, 2));
      await ctx.subagent({ name: "mole" }, async (mole) => void mole.say(`In ${at}.`));
    }
    if (ends === "fails") throw new HandlerError("no", { applied: "no", code: "NO" });
    if (ends === "retries" && (await this.ledger.actOnce(`outage ${at}`))) {
      throw new HandlerError("not now", { applied: "no", retryable: true, code: "NOT_NOW" });
    }
    if (effect === "write") await this.ledger.act(`done ${at}`);
    if (effect === "idempotent") await this.ledger.actOnce(`done ${at} ${ctx.idempotencyKey}`);
    return at;
  }

  async #reconcile(at: string) {
    return this.ledger.looksUp(`done ${at}`, at);
  }
}

/** From 0 to 6, as if by chance, and yet the same whenever the program is played. */
function lengthOf(at: string, life: number): number {
  let hash = life * 31;
  for (const letter of at) hash = (hash * 33 + letter.charCodeAt(0)) % 9973;
  return hash % 7;
}

function put(board: Board, key: string, value: unknown): void {
  (board as Record<string, unknown>)[key] = value;
}
