/** Bodies that are no RunAgentInput, and bodies that nearly are one. */
import { randomUUID } from "node:crypto";
import type { RunAgentInput } from "../../protocol/events.ts";
import { Conversation, type Session, says } from "../conversation.ts";
import { describeAnswer } from "../exchange.ts";
import type { ProducerRuleId } from "../rules.ts";
import type { Answer } from "../target.ts";

interface Case {
  readonly rule: ProducerRuleId;
  readonly name: string;
  readonly body: string;
  readonly type?: string;
}

export async function playMalformed(session: Session, prompt: string): Promise<void> {
  const { book, target } = session;
  for (const { rule, name, body, type = "application/json" } of cases(prompt)) {
    if (!book.wants(rule, "input.serves-on")) continue;
    const answer = await target.ask({ headers: { "content-type": type, accept: "text/event-stream" }, body });
    book.check(rule, { input: name }, rule === "input.tolerance" ? breakage(answer) : acceptance(answer));
  }
  if (!book.wants("input.serves-on")) return;
  await new Conversation(session).send(
    "after malformed input",
    { messages: [says(prompt)] },
    { question: { served: "input.serves-on" } },
  );
}

/** Refused is right, and nothing else. */
function acceptance(answer: Answer): string | undefined {
  return answer.status >= 400 && answer.status < 500 ? undefined : describeAnswer(answer);
}

function breakage(answer: Answer): string | undefined {
  if (answer.status >= 400 && answer.status < 500) return undefined;
  return answer.status === 200 && answer.ended === "whole" && answer.bytes.length > 0
    ? undefined
    : describeAnswer(answer);
}

/** Deep enough for a parser that calls itself, small enough for every limit of size. */
const DEPTH = 20_000;

function cases(prompt: string): readonly Case[] {
  const input = (more: object = {}): object => ({
    ...{ threadId: `conformance-${randomUUID()}`, runId: `run-${randomUUID()}`, protocolVersion: "1.0" },
    ...({
      messages: [says(prompt)],
      tools: [],
      context: [],
      state: {},
      forwardedProps: {},
    } satisfies Partial<RunAgentInput>),
    ...more,
  });
  const without = (...names: readonly string[]): object =>
    Object.fromEntries(Object.entries(input()).filter(([name]) => !names.includes(name)));
  const malformed = (name: string, body: unknown): Case => ({
    rule: "input.malformed",
    name,
    body: JSON.stringify(body),
  });
  const tolerated = (name: string, body: unknown): Case => ({
    rule: "input.tolerance",
    name,
    body: JSON.stringify(body),
  });
  const text = JSON.stringify(input());
  return [
    { rule: "input.not-json", name: "half a body", body: text.slice(0, -20) },
    { rule: "input.not-json", name: "an empty body", body: "" },
    { rule: "input.not-json", name: "a body that is no JSON", body: "hello" },
    { rule: "input.content-type", name: "a body of type text/plain", body: text, type: "text/plain" },
    malformed("a body that is an array", [input()]),
    malformed("no threadId", without("threadId")),
    malformed("no runId", without("runId")),
    malformed("no messages", without("messages")),
    malformed("a threadId that is a number", input({ threadId: 7 })),
    malformed("messages that are a text", input({ messages: "hello" })),
    malformed("a message without an id", input({ messages: [{ role: "user", content: "hello" }] })),
    malformed("a message of no known role", input({ messages: [{ id: "m", role: "wizard", content: "hello" }] })),
    malformed("a message whose content is a number", input({ messages: [{ id: "m", role: "user", content: 7 }] })),
    malformed("tools that are an object", input({ tools: {} })),
    malformed("a resume entry of no known status", input({ resume: [{ interruptId: "i", status: "maybe" }] })),
    {
      rule: "input.tolerance",
      name: "a state that is too deep",
      body: text.replace('"state":{}', `"state":${"[".repeat(DEPTH)}${"]".repeat(DEPTH)}`),
    },
    tolerated(
      "nulls for what is optional",
      input({ state: null, resume: null, parentRunId: null, forwardedProps: null, tools: null }),
    ),
    tolerated("names in snake_case", {
      ...without("threadId", "runId"),
      thread_id: `conformance-${randomUUID()}`,
      run_id: `run-${randomUUID()}`,
    }),
  ];
}
