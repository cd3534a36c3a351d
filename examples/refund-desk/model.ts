import process from "node:process";
import type { LanguageModel } from "perdure";
import {
  type ScriptedCall,
  type ScriptedTurn,
  type ScriptMessage,
  type ScriptRequest,
  scriptedModel,
} from "perdure/testing";
import { z } from "zod";

/**
 * With `OPENAI_API_KEY` or `OPENAI_BASE_URL` a real model (`OPENAI_MODEL` names it), from anything that speaks OpenAI's chat completions. Without, a script
 * that streams as a model does.
 */
export async function deskModel(env: NodeJS.ProcessEnv = process.env): Promise<LanguageModel> {
  const { OPENAI_API_KEY: apiKey, OPENAI_BASE_URL, OPENAI_MODEL } = env;
  if (!apiKey && !OPENAI_BASE_URL) return scriptedModel(script, { delayMs: 15 });
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const provider = createOpenAICompatible({
    name: "openai",
    baseURL: OPENAI_BASE_URL || "https://api.openai.com/v1",
    includeUsage: true,
    ...(apiKey && { apiKey }),
  });
  return provider.chatModel(OPENAI_MODEL || "gpt-5-mini");
}

const Found = z.object({ orders: z.array(z.object({ id: z.string(), cents: z.number() })) });
const Refunded = z.object({ refundId: z.string() });

/** What a sensible model does: search, refund one order after the other, label what was refunded, report. */
function script({ messages, lastUserText }: ScriptRequest): ScriptedTurn {
  const turn = messages.slice(messages.findLastIndex(({ role }) => role === "user"));
  const [search] = callsIn(turn, "search_orders");
  const query = /[\w.]+@[\w.]+\w/.exec(lastUserText)?.[0] ?? ORDER_ID.exec(lastUserText)?.[0];
  if (query === undefined) return { text: "Tell me your email address or an order id, for example A-1003." };
  if (search === undefined) {
    return { text: "Let me look at your orders.", calls: [{ name: "search_orders", input: { query } }] };
  }

  const named = lastUserText.match(new RegExp(ORDER_ID, "g"));
  const found = Found.safeParse(search.result).data?.orders ?? [];
  const orders = found.filter(({ id }) => named === null || named.includes(id));
  const refunds = callsIn(turn, "refund");
  const labels = callsIn(turn, "set_label");
  const done = refunds.flatMap(({ orderId, result }) => (Refunded.safeParse(result).success ? [orderId] : []));
  const next = orders.find(({ id }) => refunds.every(({ orderId }) => orderId !== id));
  const calls: ScriptedCall[] = done
    .filter((id) => labels.every(({ orderId }) => orderId !== id))
    .map((orderId) => ({ name: "set_label", input: { orderId, label: "refunded" } }));
  if (next !== undefined) calls.push({ name: "refund", input: { orderId: next.id, cents: next.cents } });
  if (calls.length > 0) return next === undefined ? { calls } : { text: `I refund ${next.id}.`, calls };

  const refused = orders.map(({ id }) => id).filter((id) => !done.includes(id));
  const sentences = [
    orders.length === 0 && "I found no such order.",
    done.length > 0 && `${done.join(" and ")} ${done.length === 1 ? "is" : "are"} refunded.`,
    refused.length > 0 && `${refused.join(" and ")} could not be refunded.`,
  ];
  return { text: sentences.filter(Boolean).join(" ") };
}

const ORDER_ID = /\bA-\d{4}\b/;

interface MadeCall {
  /** "" of a call about no order. */
  readonly orderId: string;
  readonly result: unknown;
}

/** The calls of a tool in the prompt, with what they gave. */
function callsIn(messages: readonly ScriptMessage[], tool: string): MadeCall[] {
  const parts = messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
  const ours = parts.filter(({ toolName }) => toolName === tool);
  return ours.flatMap((call) => {
    if (call.type !== "tool-call") return [];
    const answer = ours.find(({ type, toolCallId }) => type === "tool-result" && toolCallId === call.toolCallId);
    return [{ orderId: Call.parse(call).input.orderId, result: Answer.safeParse(answer).data?.output.value }];
  });
}
const Call = z.object({ input: z.object({ orderId: z.string().default("") }) });
const Answer = z.object({ output: z.object({ value: z.unknown() }) });
