/** Random agents: turns of calls of every effect, which fail, ask, suspend and publish, in a world that dies and is answered anywhere. */
import fc from "fast-check";
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import type { Reply } from "../../src/emit/types.ts";
import { applied, HandlerError, notApplied, suspend, tool } from "../../src/index.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { Fate } from "../../src/testing/life.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import type { Story, World } from "./world.ts";

/** How a call behaves. Everything that is to be the same after a death is data here, or stands in the ledger. */
export interface CallPlan {
  readonly effect: "read" | "idempotent" | "write";
  readonly key: boolean;
  readonly reconcile: boolean;
  readonly approval: "none" | "approve" | "reject" | "edit";
  readonly suspends: "no" | "resume" | "answer";
  /** What its first attempt that gets there fails with; `for ever`: every attempt. */
  readonly fails: "no" | "retryable" | "for ever" | "unknown, done" | "unknown, not done";
  readonly publishes: boolean;
}

export interface Plan {
  readonly turns: readonly (readonly CallPlan[])[];
  /** Where lives end, beside those that a commit ends. */
  readonly fates: readonly (
    | { readonly when: "after" | "before"; readonly commits: number }
    | { readonly body: number }
  )[];
  /** For each question, by its number: whether it is answered in the inbox first, and whether the human cannot tell about a write. */
  readonly humans: readonly { readonly inInbox: boolean; readonly cannotTell: boolean }[];
}

const callPlan: fc.Arbitrary<CallPlan> = fc
  .record({
    effect: fc.constantFrom("read" as const, "idempotent" as const, "write" as const),
    key: fc.boolean(),
    reconcile: fc.boolean(),
    approval: fc.constantFrom("none" as const, "none" as const, "approve" as const, "reject" as const, "edit" as const),
    suspends: fc.constantFrom("no" as const, "no" as const, "no" as const, "resume" as const, "answer" as const),
    fails: fc.constantFrom(
      ...(["no", "no", "no", "no", "retryable", "for ever", "unknown, done", "unknown, not done"] as const),
    ),
    publishes: fc.boolean(),
  })
  // Only a write can be unknown, and only one that does something itself can fail at it.
  .map((plan) => ({ ...plan, fails: plan.effect !== "write" && plan.fails.startsWith("unknown") ? "no" : plan.fails }))
  .map((plan) => ({ ...plan, fails: plan.suspends === "answer" ? "no" : plan.fails }));

export const randomPlan: fc.Arbitrary<Plan> = fc.record({
  turns: fc.array(fc.array(callPlan, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 2 }),
  fates: fc.array(
    fc.oneof(
      fc.record({
        when: fc.constantFrom("after" as const, "before" as const),
        commits: fc.integer({ min: 1, max: 20 }),
      }),
      fc.record({ body: fc.nat(40) }),
    ),
    { maxLength: 4 },
  ),
  humans: fc.array(fc.record({ inInbox: fc.boolean(), cannotTell: fc.boolean() }), { minLength: 1, maxLength: 6 }),
});

interface Board {
  readonly [name: string]: string;
}

/** The calls of a plan, in the order of the model's turns, each a tool of its own. */
export function callsOf({ turns }: Plan): readonly (CallPlan & { readonly name: string })[] {
  return turns.flatMap((turn, i) => turn.map((plan, j) => ({ ...plan, name: `t${i}c${j}` })));
}

/** What the ledger holds once a call has done what it is for. */
export const rowOf = (name: string): string => `done ${name}`;

const places = (name: string): readonly string[] => [`${name}: begins`, `${name}: has acted`, `${name}: returns`];

/** @param asked - is told of each question that the client shows */
export function storyOf(plan: Plan, asked: (question: ScriptQuestion) => void): Story {
  const calls = callsOf(plan);
  return {
    name: "a random agent",
    fails: true,
    agent: (world) => agentOf(plan, world),
    answers(question, { world }) {
      asked(question);
      return answerTo(plan, question, world);
    },
    inInbox: (question) => humanFor(plan, question).inInbox && !isGivenUp(plan, question),
    says: calls.map(({ name }) => name).join(" "),
  };
}

/** The fates of a plan for the bodies that it has. */
export function fatesOf(plan: Plan): readonly Fate[] {
  const all = callsOf(plan).flatMap(({ name }) => places(name));
  return plan.fates.map((fate) => ("when" in fate ? fate : { at: all[fate.body % all.length] ?? "", nth: 1 }));
}

/** Whether a human says of this unknown write that nobody can tell: then its step ends so, in whatever order things happened. */
export function isGivenUp(plan: Plan, question: ScriptQuestion): boolean {
  return question.kind === "unknown-write" && humanFor(plan, question).cannotTell;
}

function humanFor({ humans }: Plan, { interrupt }: ScriptQuestion): Plan["humans"][number] {
  const sum = Array.from(interrupt.id).reduce((hash, char) => (hash * 31 + char.charCodeAt(0)) % 9973, 7);
  return humans[sum % humans.length] ?? { inInbox: false, cannotTell: false };
}

function answerTo(plan: Plan, question: ScriptQuestion, world: World): Reply {
  const name = question.tool;
  const call = callsOf(plan).find((one) => one.name === name);
  if (question.kind === "unknown-write") {
    if (isGivenUp(plan, question)) return { status: "resolved", payload: { did: "unknown" } };
    return {
      status: "resolved",
      payload: world.count(rowOf(name)) > 0 ? { did: "yes", output: { ok: name } } : { did: "no" },
    };
  }
  if (question.kind !== "approval") return { status: "resolved", payload: { ok: name } };
  if (call?.approval === "reject") return { status: "resolved", payload: { approved: false, reason: "no" } };
  const edited = call?.approval === "edit" ? { editedArgs: { name, note: "edited" } } : {};
  return { status: "resolved", payload: { approved: true, ...edited } };
}

function agentOf(plan: Plan, world: World): LoopAgent {
  return agent<Board>({
    name: "random",
    model: scriptedModel([
      ...plan.turns.map((turn, i) => ({
        text: `Turn ${i}.`,
        calls: turn.map((_, j) => ({ name: `t${i}c${j}`, input: { name: `t${i}c${j}`, note: "as asked" } })),
      })),
      { text: "Done." },
    ]),
    tools: callsOf(plan).map((call) => toolOf(call, world)),
    state: { initial: () => ({}) },
  }) as LoopAgent;
}

const Output = z.object({ ok: z.string() });

function toolOf(plan: CallPlan & { readonly name: string }, world: World): ToolDefinition {
  const { name, effect } = plan;
  const row = rowOf(name);

  const once = async (what: string): Promise<boolean> => {
    if (world.count(`${what} ${name}`) > 0) return false;
    await world.act(`${what} ${name}`);
    return true;
  };
  const work = async (key: string | undefined) => {
    await world.at(`${name}: begins`);
    if (plan.fails === "for ever") throw new HandlerError("it never works", { applied: "no", code: "NEVER" });
    if (plan.fails === "retryable" && (await once("outage of"))) {
      throw new HandlerError("not now", { applied: "no", retryable: true, code: "NOT_NOW" });
    }
    if (plan.fails === "unknown, not done" && (await once("lost request of"))) throw new Error("connection reset");
    if (effect === "write") await world.act(row);
    else if (effect === "idempotent" && world.count(`${row} ${key}`) === 0) await world.act(`${row} ${key}`);
    await world.at(`${name}: has acted`);
    if (plan.fails === "unknown, done" && (await once("lost answer of"))) throw new Error("connection reset");
    await world.at(`${name}: returns`);
    return { ok: name };
  };

  return tool({
    name,
    description: `Does ${name}.`,
    effect,
    settle: 0,
    input: z.object({ name: z.string(), note: z.string() }),
    output: Output,
    ...(plan.suspends === "resume" && { answer: Output }),
    state: z.custom<Board>(),
    ...(plan.approval !== "none" && { approval: { message: `Run \`${name}\`?` } }),
    ...(plan.key && effect !== "read" && { idempotencyKey: () => ["random", name] }),
    async call({ note }, ctx) {
      if (plan.publishes) {
        ctx.updateState((board) => {
          (board as Record<string, string>)[name] = `${note}…`;
        });
        ctx.publishState();
      }
      if (plan.suspends !== "no") {
        await world.at(`${name}: begins`);
        return suspend({ message: `What of \`${name}\`?` });
      }
      const done = await work(ctx.idempotencyKey);
      return done;
    },
    ...(plan.suspends === "resume" && {
      resume: (_: { ok: string }, __: unknown, ctx: { readonly idempotencyKey?: string | undefined }) =>
        work(ctx.idempotencyKey),
    }),
    ...(plan.reconcile && {
      reconcile: async () => (world.count(row) > 0 ? applied({ ok: name }) : notApplied()),
    }),
    reduce(board, { ok }) {
      (board as Record<string, string>)[ok] = "done";
    },
  }) as ToolDefinition;
}
