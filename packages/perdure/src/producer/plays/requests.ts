/** Requests that are legal, and odd: of other versions, with less or more than usual, with what a server may not be able to use. */
import { randomUUID } from "node:crypto";
import type { Message } from "../../protocol/events.ts";
import { Conversation, type Session, says } from "../conversation.ts";
import type { Exchange } from "../exchange.ts";
import type { ProducerRuleId } from "../rules.ts";

/** What a request may lack. */
const LISTS = ["tools", "context", "state", "forwardedProps"];

/** A minor version that nobody has. */
const NEWER_VERSION = "1.999";

/** @param plain - what came of a request that has nothing odd about it */
export async function playRequests(session: Session, prompt: string, plain: Exchange): Promise<void> {
  const { book } = session;
  const hello = (): readonly Message[] => [says(prompt)];
  const once = async (
    rule: ProducerRuleId,
    name: string,
    send: (rule: ProducerRuleId, name: string) => Promise<unknown>,
  ): Promise<void> => {
    if (book.wants(rule)) await send(rule, name);
  };

  await once("input.empty-messages", "no messages", (served, name) =>
    new Conversation(session).send(name, {}, { question: { served } }),
  );
  await once("input.newer-version", "a newer version", (served, name) =>
    new Conversation(session, { protocolVersion: NEWER_VERSION }).send(
      name,
      { messages: hello() },
      { question: { served } },
    ),
  );
  await once("input.no-version", "no version", (served, name) =>
    new Conversation(session).send(name, { messages: hello() }, { without: ["protocolVersion"], question: { served } }),
  );
  await once("input.unknown-members", "unknown members", (served, name) => {
    const more = { fromTheFuture: { a: [1] }, another: null };
    return new Conversation(session).send(name, { messages: hello() }, { more, question: { served } });
  });
  await once("input.absent-lists", "no tools, context and state", (served, name) =>
    new Conversation(session).send(name, { messages: hello() }, { without: LISTS, question: { served } }),
  );
  await once("input.parts", "parts that cannot be used", async (served, name) => {
    const handle = { type: "file", value: `file-${randomUUID()}`, provider: "nobody" } as const;
    const content = [{ type: "text", text: prompt } as const, { type: "document", source: handle } as const];
    const { ending } = await new Conversation(session).send(
      name,
      { messages: [{ id: `user-${randomUUID()}`, role: "user", content }] },
      { question: { served } },
    );
    if (ending === "error" && plain.ending !== "error") book.broken(served, { input: name }, "the run fails");
  });
  await once("input.dangling-call", "a call without a result", (served, name) => {
    const call = { id: `call-${randomUUID()}`, type: "function", function: { name: "look", arguments: "{}" } } as const;
    const messages: readonly Message[] = [
      says(prompt),
      { id: `assistant-${randomUUID()}`, role: "assistant", toolCalls: [call] },
      says("Never mind."),
    ];
    return new Conversation(session).send(name, { messages }, { question: { served, mayRefuse: true } });
  });
  await once("resume.unknown", "an unknown interrupt", async (served, name) => {
    const resume = [
      { interruptId: `interrupt-${randomUUID()}`, status: "resolved", payload: { approved: true } } as const,
    ];
    const { ending } = await new Conversation(session).send(
      name,
      { messages: hello(), resume },
      { question: { served } },
    );
    if (ending === "error" && plain.ending !== "error")
      book.broken(served, { input: name }, "the run fails over an answer that it never asked for");
  });
}
