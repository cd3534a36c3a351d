/** An agent with a model, as the tests of serving use it: it refunds what the user names, in cents, and says so. */
import { agent, tool } from "perdure";
import { type ScriptedModelOptions, scriptedModel } from "perdure/testing";
import { z } from "zod";

export const BOSS = "refund:approve";

/** Over 50 EUR somebody has to approve, over 100 EUR somebody with a scope for it. */
export function desk(options: ScriptedModelOptions = {}) {
  const ledger: number[] = [];
  const look = tool({
    name: "look",
    description: "Look an order up.",
    effect: "read",
    input: z.object({ cents: z.number() }),
    output: z.object({ paid: z.number() }),
    call: ({ cents }) => ({ paid: cents }),
  });
  const refund = tool({
    name: "refund",
    description: "Refund an amount, in cents.",
    effect: "write",
    input: z.object({ cents: z.number() }),
    output: z.object({ refunded: z.number() }),
    approval: ({ cents }) =>
      cents > 5_000 && { message: `Refund ${cents} cents?`, ...(cents > 10_000 && { audience: BOSS }) },
    call({ cents }) {
      ledger.push(cents);
      return { refunded: cents };
    },
  });
  const model = scriptedModel(({ messages, lastUserText }) => {
    const cents = Number(lastUserText);
    const since = messages.length - messages.findLastIndex(({ role }) => role === "user");
    if (since === 1)
      return { reasoning: "Look first.", text: "One moment.", calls: [{ name: "look", input: { cents } }] };
    if (since === 3) return { calls: [{ name: "refund", input: { cents } }] };
    return { text: `Done with ${cents} cents.` };
  }, options);
  return { ledger, agent: agent({ name: "desk", model, instructions: "You refund.", tools: [look, refund] }) };
}
