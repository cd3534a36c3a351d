/** Stories for the crash tests. Every body says where it is, before its first line, after its effect and before its return. */
import { z } from "zod";
import { agent } from "../../src/agent/agent.ts";
import { applied, HandlerError, notApplied, type Reply, suspend, tool } from "../../src/index.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { LoopAgent } from "../../src/runtime/agent-definition.ts";
import type { ScriptQuestion } from "../../src/testing/script.ts";
import type { ScriptedTurn } from "../../src/testing/scripted-model.ts";
import { scriptedModel } from "../../src/testing/scripted-model.ts";
import type { ToolDefinition } from "../../src/tool/definition.ts";
import { strict } from "../agent/strict-model.ts";
import type { Story, World } from "./world.ts";

interface Desk {
  step: string;
  found?: string[];
  refunds?: string[];
}

const Order = z.object({ orderId: z.string(), cents: z.number() });
const Refunded = z.object({ refundId: z.string() });

/** An effect on the world, with the places around it where the process may die. */
async function does(world: World, name: string, row: string): Promise<void> {
  await world.at(`${name}: begins`);
  await world.act(row);
  await world.at(`${name}: has acted`);
  await world.at(`${name}: returns`);
}

const search = (world: World) =>
  tool({
    name: "search_orders",
    description: "Finds orders.",
    effect: "read",
    input: z.object({ email: z.string() }),
    state: z.custom<Desk>(),
    async call({ email }, ctx) {
      await world.at("search: begins");
      ctx.state.step = "searching";
      ctx.publishState();
      await world.at("search: has published");
      ctx.state.step = "found";
      ctx.state.found = [email];
      return [{ id: "1" }, { id: "2" }];
    },
  });

const label = (world: World) =>
  tool({
    name: "set_label",
    description: "Labels an order.",
    effect: "idempotent",
    input: z.object({ orderId: z.string(), label: z.string() }),
    async call({ orderId }, ctx) {
      await world.at("label: begins");
      // The service honours the key: the second request of one call does nothing.
      const row = `label ${orderId} ${ctx.idempotencyKey}`;
      if (world.count(row) === 0) await world.act(row);
      await world.at("label: has acted");
      return { labelled: orderId };
    },
  });

const refund = (world: World) =>
  tool({
    name: "refund",
    description: "Refunds an order, in cents.",
    effect: "write",
    input: Order,
    output: Refunded,
    state: z.custom<Desk>(),
    settle: 0,
    idempotencyKey: ({ orderId }) => ["refund", orderId],
    approval: ({ cents }) => cents > 5_000 && { message: `Refund ${cents / 100} EUR?` },
    async call({ orderId }) {
      await does(world, "refund", `refund ${orderId}`);
      return { refundId: `R${orderId}` };
    },
    async reconcile({ orderId }) {
      await world.at("refund: reconciles");
      return world.count(`refund ${orderId}`) > 0 ? applied({ refundId: `R${orderId}` }) : notApplied();
    },
    reduce(desk, { refundId }) {
      desk.refunds = [...(desk.refunds ?? []), refundId];
    },
  });

function desk(tools: readonly ToolDefinition[], turns: readonly ScriptedTurn[]): LoopAgent {
  return agent<Desk>({
    name: "desk",
    // So every request at every place where a process dies is one that the strictest provider takes.
    model: strict(scriptedModel(turns)),
    instructions: "You handle refunds.",
    tools,
    state: { initial: () => ({ step: "idle" }) },
  }) as LoopAgent;
}

const approve = (question: ScriptQuestion): Reply => ({
  status: "resolved",
  payload: { approved: true, reason: question.message },
});

/** The story of DESIGN's first trace. */
export const refundDesk: Story = {
  name: "a read, a write, and a write that needs approval",
  says: "refund orders 1 (30 EUR) and 2 (80 EUR)",
  agent: (world) =>
    desk(
      [search(world), refund(world)],
      [
        { reasoning: "Which orders?", text: "Looking.", calls: [{ name: "search_orders", input: { email: "a@b.c" } }] },
        { calls: [{ name: "refund", input: { orderId: "1", cents: 3_000 } }] },
        { text: "The other one.", calls: [{ name: "refund", input: { orderId: "2", cents: 8_000 } }] },
        { text: "Done." },
      ],
    ),
  answers: approve,
};

export const parallelCalls: Story = {
  name: "calls of all effects in one turn, two of which wait for a human",
  agent: (world) =>
    desk(
      [search(world), label(world), refund(world)],
      [
        {
          text: "All at once.",
          calls: [
            { name: "refund", input: { orderId: "1", cents: 3_000 } },
            { name: "search_orders", input: { email: "a@b.c" } },
            { name: "refund", input: { orderId: "2", cents: 8_000 } },
            { name: "set_label", input: { orderId: "1", label: "done" } },
            { name: "refund", input: { orderId: "3", cents: 9_000 } },
          ],
        },
        { text: "Done." },
      ],
    ),
  answers: (question) =>
    question.message.includes("90")
      ? { status: "resolved", payload: { approved: false, reason: "too much" } }
      : approve(question),
};

export const clientTool: Story = {
  name: "a client's tool beside a server's",
  tools: [{ name: "paint", description: "Paints the page.", parameters: { type: "object" } }],
  agent: (world) =>
    desk(
      [search(world)],
      [
        {
          calls: [
            { name: "paint", input: { color: "red" } },
            { name: "search_orders", input: { email: "a@b.c" } },
          ],
        },
        { text: "Painted." },
      ],
    ),
  results: { paint: "painted" },
};

export const suspension: Story = {
  name: "a suspension that is resumed",
  agent: (world) =>
    desk(
      [
        tool({
          name: "transfer",
          description: "Transfers money to an account that a human names.",
          effect: "write",
          settle: 0,
          input: z.object({ cents: z.number() }),
          answer: z.object({ account: z.string() }),
          output: z.object({ to: z.string() }),
          state: z.custom<Desk>(),
          async call(_, ctx) {
            await world.at("transfer: begins");
            ctx.state.step = "asking";
            await world.at("transfer: suspends");
            return suspend({ message: "To which account?" });
          },
          async resume({ account }) {
            await does(world, "transfer resumed", `transfer ${account}`);
            return { to: account };
          },
          async reconcile() {
            await world.at("transfer: reconciles");
            return world.count("transfer 42") > 0 ? applied({ to: "42" }) : notApplied();
          },
        }),
      ],
      [{ calls: [{ name: "transfer", input: { cents: 100 } }] }, { text: "Done." }],
    ),
  answers: () => ({ status: "resolved", payload: { account: "42" } }),
};

const plainSuspension: Story = {
  name: "a suspension whose answer is the output",
  agent: (world) =>
    desk(
      [
        tool({
          name: "ask_colour",
          description: "Asks for a colour.",
          effect: "read",
          input: z.object({}),
          output: z.string(),
          async call() {
            await world.at("ask: suspends");
            return suspend({ message: "Which colour?" });
          },
        }),
      ],
      [{ text: "Hm.", calls: [{ name: "ask_colour", input: {} }] }, { text: "Done." }],
    ),
  answers: () => ({ status: "resolved", payload: "red" }),
};

/** What a human says of a write about which nobody knows; he has looked. */
const looked = (world: World, row: string, output: Json): Json =>
  world.count(row) > 0 ? { did: "yes", output } : { did: "no" };

export const unknownWrite = (says: "what is true" | "unknown"): Story => ({
  name: `a write that nobody can look up, answered with ${says}`,
  agent: (world) =>
    desk(
      [
        tool({
          name: "mail",
          description: "Sends a letter.",
          effect: "write",
          settle: 0,
          input: z.object({ to: z.string() }),
          output: z.object({ sent: z.string() }),
          state: z.custom<Desk>(),
          async call({ to }) {
            await does(world, "mail", `mail ${to}`);
            return { sent: to };
          },
          reduce(desk, { sent }) {
            desk.refunds = [...(desk.refunds ?? []), sent];
          },
        }),
      ],
      [{ calls: [{ name: "mail", input: { to: "bob" } }] }, { text: "Done." }],
    ),
  answers: (_, { world }) => ({
    status: "resolved",
    payload: says === "unknown" ? { did: "unknown" } : looked(world, "mail bob", { sent: "bob" }),
  }),
});

const editedApproval: Story = {
  name: "a write whose arguments a human changes, and about which nobody knows",
  agent: (world) =>
    desk(
      [
        tool({
          name: "mail",
          description: "Sends a letter.",
          effect: "write",
          settle: 0,
          approval: true,
          input: z.object({ to: z.string() }),
          output: z.object({ sent: z.string() }),
          async call({ to }) {
            await does(world, "mail", `mail ${to}`);
            return { sent: to };
          },
        }),
      ],
      [{ calls: [{ name: "mail", input: { to: "bob" } }] }, { text: "Done." }],
    ),
  answers: ({ kind }, { world }) => ({
    status: "resolved",
    payload:
      kind === "approval" ? { approved: true, editedArgs: { to: "ann" } } : looked(world, "mail ann", { sent: "ann" }),
  }),
};

/** Services that fail the first time, and one that always does. */
export const failingTools: Story = {
  name: "tools that fail: to be tried again, for good, and unknown",
  fails: true,
  agent: (world) => {
    const once = async (service: string, error: Error): Promise<void> => {
      const row = `outage of ${service}`;
      if (world.count(row) > 0) return;
      await world.act(row);
      throw error;
    };
    const fails = (name: string, effect: "read" | "write", body: (row: string) => Promise<void>) =>
      tool({
        ...{ name, description: name, effect, settle: 0, input: z.object({}), output: z.object({ ok: z.boolean() }) },
        async call() {
          await world.at(`${name}: begins`);
          await body(name);
          return { ok: true };
        },
        async reconcile() {
          return world.count(name) > 0 ? applied({ ok: true }) : notApplied();
        },
      });
    return desk(
      [
        fails("flaky_read", "read", () => once("read", new HandlerError("try again", { retryable: true }))),
        fails("flaky_write", "write", async (row) => {
          await once("write", new HandlerError("not now", { applied: "no", retryable: true }));
          await world.act(row);
        }),
        fails("refused_write", "write", async () => {
          throw new HandlerError("never", { applied: "no", code: "REFUSED" });
        }),
        fails("lost_answer", "write", async (row) => {
          await world.act(row);
          await world.at("lost_answer: has acted");
          throw new Error("connection reset");
        }),
        fails("lost_request", "write", async (row) => {
          await once("request", new Error("connection reset"));
          await world.act(row);
        }),
      ],
      [
        { calls: ["flaky_read", "flaky_write", "refused_write"].map((name) => ({ name, input: {} })) },
        { calls: ["lost_answer", "lost_request", "no_such_tool"].map((name) => ({ name, input: {} })) },
        { text: "Done." },
      ],
    );
  },
};

export const stories: readonly Story[] = [
  refundDesk,
  parallelCalls,
  clientTool,
  suspension,
  plainSuspension,
  unknownWrite("what is true"),
  editedApproval,
  failingTools,
];
