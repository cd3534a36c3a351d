import { agent, applied, HandlerError, type LanguageModel, notApplied, tool } from "perdure";
import { z } from "zod";
import { type Books, euros } from "./books.ts";

const Desk = z.object({
  step: z.string(),
  refunds: z.array(z.object({ orderId: z.string(), cents: z.number(), refundId: z.string() })),
});
type Desk = z.infer<typeof Desk>;

export interface DeskOptions {
  readonly books: Books;
  readonly model: LanguageModel;
  /** Called when the money has moved and nobody has been told: the worst moment to die in. The story does. */
  readonly moved?: (refundId: string) => Promise<void>;
}

/** The refund desk of a lamp shop: it looks orders up, refunds them, asks a human above 50 EUR, and labels what it has done. */
export function refundDesk({ books, model, moved }: DeskOptions) {
  const searchOrders = tool({
    name: "search_orders",
    description: "Find orders by the customer's email address or an order id.",
    effect: "read",
    state: Desk,
    input: z.object({ query: z.string().min(1) }),
    output: z.object({
      orders: z.array(z.object({ id: z.string(), item: z.string(), cents: z.number(), label: z.string() })),
    }),
    call: ({ query }) => ({ orders: books.find(query) }),
    reduce(desk, { orders }) {
      desk.step = `${orders.length} orders found`;
    },
  });

  const setLabel = tool({
    name: "set_label",
    description: "Set the label of an order.",
    effect: "idempotent",
    state: Desk,
    input: z.object({ orderId: z.string(), label: z.string() }),
    output: z.object({ labelled: z.boolean() }),
    call: ({ orderId, label }) => ({ labelled: books.label(orderId, label) }),
    reduce(desk, _, { orderId, label }) {
      desk.step = `${orderId} labelled ${label}`;
    },
  });

  const refund = tool({
    name: "refund",
    description: "Refund an order, in cents.",
    effect: "write",
    state: Desk,
    input: z.object({ orderId: z.string(), cents: z.number().int().positive() }),
    output: z.object({ refundId: z.string() }),
    idempotencyKey: ({ orderId }) => ["refund", orderId],
    approval: ({ orderId, cents }) => cents > 5_000 && { message: `Refund ${euros(cents)} for order ${orderId}?` },
    settle: 0, // once the process is dead its transaction is in the ledger or never will be
    async call({ orderId, cents }, ctx) {
      const price = books.find(orderId)[0]?.cents ?? 0;
      if (cents > price) {
        throw new HandlerError(`order ${orderId} cost ${euros(price)}, which is the most to refund`, { applied: "no" });
      }
      const refundId = books.refund({ orderId, cents, key: ctx.idempotencyKey });
      await moved?.(refundId);
      return { refundId };
    },
    reconcile(_, ctx) {
      const refundId = books.refundOf(ctx.idempotencyKey);
      return refundId === null ? notApplied() : applied({ refundId });
    },
    reduce(desk, { refundId }, { orderId, cents }) {
      desk.step = `${orderId} refunded`;
      desk.refunds.push({ orderId, cents, refundId });
    },
  });

  return agent<Desk>({
    name: "refund-desk",
    model,
    instructions: `You are the refund desk of a lamp shop. Look the orders up, then refund what the customer asks for: one order at a time,
at its full price, in cents. After each refund label its order "refunded". In the end say in one sentence what you did.`,
    tools: [searchOrders, setLabel, refund],
    state: { schema: Desk, initial: () => ({ step: "idle", refunds: [] }) },
  });
}
