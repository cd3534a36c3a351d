import { type HeldByClient, normaliseTranscript } from "../../src/log/equal-transcripts.ts";
import { isJsonObject, type Json } from "../../src/protocol/json.ts";

/** What a screen comes to. What lanes that run side by side have shown stands in any order. */
export function screen(held: HeldByClient, isUnordered: boolean): unknown {
  const { messages, state } = normaliseTranscript(held) as { messages: readonly Json[]; state: Json };
  if (!isUnordered) return { messages, state };
  return { state, messages: messages.map((message) => JSON.stringify(withoutIds(message))).sort() };
}

const IDS: ReadonlySet<string> = new Set(["id", "toolCallId", "subagentRunId"]);

function withoutIds(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutIds);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, one]) => (IDS.has(key) ? [] : [[key, withoutIds(one)]])),
  );
}
