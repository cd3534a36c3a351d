import type { Prompt } from "../../src/agent/model-port.ts";

/** What the strictest providers ask of a conversation; the first offence, or null. Written from their documentation, apart from prompt.ts. */
export function offence(prompt: Prompt): string | null {
  const seen = new Set<string>();
  let front = true;
  for (const [i, message] of prompt.entries()) {
    if (message.role === "system") {
      if (!front) return `message ${i}: system after the front`;
      continue;
    }
    front = false;
    if (message.content.length === 0) return `message ${i}: empty`;
    for (const part of message.content) if (part.type === "text" && part.text === "") return `message ${i}: empty text`;
    if (message.role === "tool") {
      if (prompt[i - 1]?.role !== "assistant") return `message ${i}: results that follow no answer`;
      continue;
    }
    if (message.role === "user") continue;
    const calls = message.content.flatMap((part) => (part.type === "tool-call" ? [part] : []));
    for (const { toolCallId, input } of calls) {
      if (seen.has(toolCallId)) return `message ${i}: id ${toolCallId} twice`;
      seen.add(toolCallId);
      if (!/^[A-Za-z0-9_-]{1,64}$/.test(toolCallId)) return `message ${i}: id ${toolCallId}`;
      if (typeof input !== "object" || input === null || Array.isArray(input)) return `message ${i}: input no object`;
    }
    if (message.content.every((part) => part.type === "reasoning")) return `message ${i}: reasoning alone`;
    const next = prompt[i + 1];
    const results = next?.role === "tool" ? next.content.map(({ toolCallId }) => toolCallId) : [];
    const wanted = calls.map(({ toolCallId }) => toolCallId);
    if (results.join() !== wanted.join()) return `message ${i}: calls [${wanted.join()}], results [${results.join()}]`;
  }
  return null;
}
