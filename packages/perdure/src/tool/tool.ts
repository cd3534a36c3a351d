import type { Json } from "../protocol/json.ts";
import type { Schema } from "../protocol/schema.ts";
import type { Effect } from "../protocol/words.ts";
import type { ToolDefinition } from "./definition.ts";
import { erase } from "./erase.ts";

/**
 * Defines a tool: the types of every function come from its schemas.
 *
 * `state: Desk` (the agent's state schema) types `ctx.state` and the draft of `reduce`; without it they are JSON. A tool with an effect has
 * `ctx.idempotencyKey: string`, a `read` may have none.
 *
 * ```ts
 * const refund = tool({
 *   name: "refund",
 *   description: "Refund an order, in cents.",
 *   effect: "write",
 *   input: z.object({ orderId: z.string(), cents: z.number().int().positive() }),
 *   output: z.object({ refundId: z.string() }),
 *   state: Desk,
 *   call: ({ orderId, cents }, ctx) => pay.refund({ orderId, cents }, { idempotencyKey: ctx.idempotencyKey }),
 *   reduce: (desk, { refundId }) => void desk.refunds.push(refundId),
 * });
 * ```
 *
 * @throws {@link ToolDefinitionError} when the name, effect or a duration is wrong, or a schema gives no JSON Schema
 */
export function tool<
  I extends Schema,
  O extends Schema = Schema,
  A extends Schema = Schema<Json>,
  S = Json,
  E extends Effect = Effect,
>(definition: ToolDefinition<I, O, A, S, E>): ToolDefinition<I, O, A, S, E> {
  erase(definition); // Says here what is wrong with it, not when the first agent is served.
  return definition;
}
