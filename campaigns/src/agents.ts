/**
 * The agents that the campaigns kill: one for each script, all with the same tools. What they say and do is a function of the order number in
 * the conversation's first message, and each call names the order that it is for, so the ledger tells what was done how often.
 */
import { type Agent, agent, applied, notApplied, suspend, tool } from "perdure";
import { type ScriptedTurn, type ScriptMessage, scriptedModel } from "perdure/testing";
import { z } from "zod";
import type { Ledger } from "./ledger.ts";

export interface World {
  readonly ledger: Ledger;
  /** Waits for a while, or not at all: where a kill may fall. */
  readonly pause: () => Promise<void>;
  /** Milliseconds before each delta of the model. */
  readonly delayMs: number;
}

/** What a client tool's result says. */
export const CLIENT_TOOL = {
  name: "pick_colour",
  description: "Lets the user pick a colour",
  parameters: { type: "object" },
};

/** Writes that cannot say whether they happened: after a kill, a human is asked. */
export const BLIND_WRITES: ReadonlySet<string> = new Set(["wire"]);

/** What the ledger calls the effect of a call. */
export function effectOf(toolName: string, order: string): string {
  return `${toolName} ${order}`;
}

/** What every write returns for its order; a human who answers "yes" gives it too. */
export function receipt(order: string): { readonly receipt: string } {
  return { receipt: `receipt-${order}` };
}

const Desk = z.object({
  seen: z.record(z.string(), z.number()),
  labels: z.record(z.string(), z.string()),
  paid: z.record(z.string(), z.number()),
  note: z.string(),
});
type Desk = z.infer<typeof Desk>;

const Receipt = z.object({ receipt: z.string() });
const Payment = z.object({ order: z.string(), cents: z.number(), why: z.string() });
type Payment = z.infer<typeof Payment>;

export function toolsOf({ ledger, pause }: World) {
  const pay = async (name: string, { order }: Payment, key: string) => {
    await pause();
    ledger.write({ what: effectOf(name, order), key });
    await pause();
    return receipt(order);
  };
  const find = (name: string, { order }: Payment) =>
    ledger.has(effectOf(name, order)) ? applied(receipt(order)) : notApplied();
  const paid = (desk: Desk, { order, cents }: Payment) => {
    desk.paid[order] = cents;
  };
  const common = { effect: "write", input: Payment, output: Receipt, settle: 0, state: Desk } as const;

  return [
    tool({
      name: "look_up",
      description: "Reads an order.",
      effect: "read",
      input: z.object({ order: z.string() }),
      state: Desk,
      async call({ order }, ctx) {
        // Only the first attempt says so: of one that died nothing may stay on the screen.
        if (ctx.attempt === 1) {
          ctx.updateState((desk) => {
            desk.seen[`${order} at first`] = 1;
          });
          ctx.publishState();
        }
        await pause();
        ctx.updateState((desk) => {
          delete desk.seen[`${order} at first`];
          desk.seen[order] = 1;
        });
        await pause();
        return { order, cents: 1_200 };
      },
    }),
    tool({
      name: "set_label",
      description: "Labels an order, at a service that honours keys.",
      effect: "idempotent",
      input: z.object({ order: z.string(), label: z.string() }),
      state: Desk,
      async call({ order, label }, ctx) {
        ctx.updateState((desk) => {
          desk.labels[order] = "…";
        });
        await pause();
        ledger.writeOnce({ what: effectOf("set_label", order), key: ctx.idempotencyKey });
        await pause();
        ctx.updateState((desk) => {
          desk.labels[order] = label;
        });
        return { order, label };
      },
    }),
    tool({
      ...common,
      name: "refund",
      description: "Refunds an order.",
      call: (input, ctx) => pay("refund", input, ctx.idempotencyKey),
      reconcile: (input) => find("refund", input),
      reduce: (desk, _, input) => paid(desk, input),
    }),
    tool({
      ...common,
      name: "wire",
      description: "Wires money; nobody can be asked whether it did.",
      call: (input, ctx) => pay("wire", input, ctx.idempotencyKey),
      reduce: (desk, _, input) => paid(desk, input),
    }),
    tool({
      ...common,
      name: "pay_out",
      description: "Pays out, once for each order, after a human has agreed.",
      idempotencyKey: ({ order }) => ["pay_out", order],
      approval: ({ cents }) => cents > 5_000 && { message: `Pay ${cents} cents?` },
      call: (input, ctx) => pay("pay_out", input, ctx.idempotencyKey),
      reconcile: (input) => find("pay_out", input),
      reduce: (desk, _, input) => paid(desk, input),
    }),
    tool({
      ...common,
      name: "transfer",
      description: "Asks for a code in the middle, then transfers.",
      answer: z.object({ code: z.string() }),
      async call() {
        await pause();
        return suspend({ message: "Which code?" });
      },
      resume: (_, input, ctx) => pay("transfer", input, ctx.idempotencyKey),
      reconcile: (input) => find("transfer", input),
      reduce: (desk, _, input) => paid(desk, input),
    }),
    tool({
      name: "confirm",
      description: "Asks a human, then notes it at a service that honours keys.",
      effect: "idempotent",
      input: z.object({ order: z.string() }),
      answer: z.boolean(),
      state: Desk,
      async call(_, ctx) {
        ctx.updateState((desk) => {
          desk.note = "asked";
        });
        await pause();
        return suspend({ message: "Is that right?" });
      },
      async resume(isRight, { order }, ctx) {
        ledger.writeOnce({ what: effectOf("confirm", order), key: ctx.idempotencyKey });
        await pause();
        ctx.updateState((desk) => {
          desk.note = `${order} ${isRight}`;
        });
        return { isRight };
      },
    }),
  ];
}

/** What a conversation is about. */
export interface Script {
  /** How many messages the user sends. */
  readonly messages: number;
  /** What he says in each. Default: what the order is, then whatever keeps the talk going. */
  readonly say?: (order: string, i: number) => string;
  /** The effects that the ledger has to hold in the end, once each. */
  readonly effects: (order: string) => readonly string[];
  /** The model's answers, over all turns of the thread. */
  readonly turns: (order: string) => readonly ScriptedTurn[];
}

const WHY = "because the customer has asked for it twice and nobody has found a reason against it";
const LONG =
  "Let me see what there is to be done about this order, step by step, so that nothing is forgotten on the way.";

const payment = (name: string, order: string, cents = 1_200) => ({ name, input: { order, cents, why: WHY } });
const lookUp = (order: string) => ({ name: "look_up", input: { order } });
const label = (order: string, text: string) => ({ name: "set_label", input: { order, label: text } });
const done: ScriptedTurn = { reasoning: "Is that all? It is.", text: "All of that is done now, and it was done once." };

export const scripts: Readonly<Record<string, Script>> = {
  read: {
    messages: 1,
    effects: () => [],
    turns: (o) => [{ reasoning: LONG, text: LONG, calls: [lookUp(`${o}a`), lookUp(`${o}b`), lookUp(`${o}c`)] }, done],
  },
  label: {
    messages: 1,
    effects: (o) => [`${o}a`, `${o}b`, `${o}c`].map((order) => effectOf("set_label", order)),
    turns: (o) => [
      { text: LONG, calls: [label(`${o}a`, "seen"), label(`${o}b`, "seen")] },
      { calls: [label(`${o}c`, "done")] },
      done,
    ],
  },
  refund: {
    messages: 1,
    effects: (o) => [`${o}a`, `${o}b`].map((order) => effectOf("refund", order)),
    turns: (o) => [
      { text: LONG, calls: [payment("refund", `${o}a`)] },
      { reasoning: LONG, calls: [payment("refund", `${o}b`)] },
      done,
    ],
  },
  wire: {
    messages: 1,
    effects: (o) => [`${o}a`, `${o}b`].map((order) => effectOf("wire", order)),
    turns: (o) => [{ text: LONG, calls: [payment("wire", `${o}a`), payment("wire", `${o}b`)] }, done],
  },
  approve: {
    messages: 1,
    effects: (o) => [effectOf("pay_out", `${o}a`), effectOf("pay_out", `${o}c`)],
    turns: (o) => [
      {
        text: LONG,
        calls: [payment("pay_out", `${o}a`, 9_000), payment("pay_out", `${o}b`, 9_999), payment("pay_out", `${o}c`)],
      },
      done,
    ],
  },
  suspend: {
    messages: 1,
    effects: (o) => [effectOf("transfer", `${o}a`), effectOf("confirm", `${o}b`)],
    turns: (o) => [
      { text: LONG, calls: [payment("transfer", `${o}a`), { name: "confirm", input: { order: `${o}b` } }] },
      done,
    ],
  },
  client: {
    messages: 1,
    effects: (o) => [effectOf("refund", `${o}a`)],
    turns: (o) => [
      { text: LONG, calls: [{ name: CLIENT_TOOL.name, input: { order: `${o}a`, offer: ["red", "green", "blue"] } }] },
      { calls: [payment("refund", `${o}a`)] },
      done,
    ],
  },
  talk: {
    messages: 3,
    effects: (o) => [effectOf("refund", `${o}b`), effectOf("set_label", `${o}c`)],
    turns: (o) => [
      { calls: [lookUp(`${o}a`)] },
      { text: LONG },
      { text: LONG, calls: [payment("refund", `${o}b`)] },
      { reasoning: LONG, text: "It is refunded." },
      { calls: [label(`${o}c`, "closed")] },
      done,
    ],
  },
  mixed: {
    messages: 2,
    effects: (o) => [
      effectOf("set_label", `${o}b`),
      effectOf("refund", `${o}c`),
      effectOf("wire", `${o}d`),
      effectOf("pay_out", `${o}e`),
    ],
    turns: (o) => [
      {
        reasoning: LONG,
        text: LONG,
        calls: [
          lookUp(`${o}a`),
          label(`${o}b`, "mixed"),
          payment("refund", `${o}c`),
          payment("wire", `${o}d`),
          payment("pay_out", `${o}e`, 9_000),
          { name: CLIENT_TOOL.name, input: { order: `${o}f`, offer: ["red"] } },
        ],
      },
      { text: "Half of it is done." },
      done,
    ],
  },
};

/** Approvals of this amount are rejected. */
export const REJECTED_CENTS = 9_999;

export const deskState = {
  state: { schema: Desk, initial: (): Desk => ({ seen: {}, labels: {}, paid: {}, note: "" }) },
};

export function agentsOf(world: World): Agent[] {
  const tools = toolsOf(world);
  return Object.entries(scripts).map(([name, { turns }]) =>
    agent<Desk>({
      name,
      instructions: "You handle orders.",
      model: scriptedModel(
        ({ messages, turn }) => turns(orderIn(messages))[turn] ?? { text: "There is nothing left." },
        {
          delayMs: world.delayMs,
        },
      ),
      tools,
      ...deskState,
    }),
  );
}

export function firstMessage(order: string): string {
  return `It is about order ${order}.`;
}

function orderIn(messages: readonly ScriptMessage[]): string {
  const content = messages.find(({ role }) => role === "user")?.content ?? "";
  const text = typeof content === "string" ? content : JSON.stringify(content);
  return /order (\w+)\./.exec(text)?.[1] ?? "";
}
