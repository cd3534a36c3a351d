/** Leads each input's conversation to its end: answers what is asked, runs the client's tools, goes on with the next turn. */
import type { Interrupt, ResumeEntry } from "../../protocol/events.ts";
import type { Json } from "../../protocol/json.ts";
import { Conversation, type Session, says, toolResult } from "../conversation.ts";
import type { Exchange } from "../exchange.ts";
import type { ProducerInput } from "../inputs.ts";
import { fitting } from "../sample.ts";

/** So often a turn goes on before it is left where it is. */
const MAX_STEPS = 12;

export interface Led {
  readonly conversation: Conversation;
  /** The last one. */
  readonly exchange: Exchange;
  /** The first one. */
  readonly first: Exchange;
  /** The server has asked for something that is its own to ask for, and has taken an answer. */
  readonly wasResumed: boolean;
}

/**
 * @param until - stops there; left out, goes on to the end
 * @param name - for findings, when it is not the input's first time
 */
export async function lead(
  session: Session,
  input: ProducerInput,
  until: (exchange: Exchange) => boolean = () => false,
  name = input.name,
): Promise<Led> {
  const conversation = new Conversation(session, input.input);
  const turns = typeof input.says === "string" ? [input.says] : (input.says ?? [undefined]);
  const isClients = new Set(input.input?.tools?.map((tool) => tool.name));
  let first: Exchange | undefined;
  let wasResumed = false;
  for (const [i, text] of turns.entries()) {
    const turn = i === 0 ? name : `${name}, turn ${i + 1}`;
    let exchange = await conversation.send(turn, text === undefined ? {} : { messages: [says(text)] });
    first ??= exchange;
    for (let step = 0; step < MAX_STEPS && !until(exchange); step++) {
      const isItsOwn = exchange.interrupts.some((interrupt) => !isClients.has(nameOfCall(conversation, interrupt)));
      const next = await goOn(session, conversation, exchange, input, turn);
      if (next === undefined) break;
      wasResumed ||= isItsOwn && next.isStream;
      exchange = next;
    }
    // What has failed, or waits for more than anybody has answers to, has no next turn.
    const isOver = exchange.ending !== "success" && exchange.ending !== "cancelled";
    if (until(exchange) || isOver || i === turns.length - 1) return { conversation, exchange, first, wasResumed };
  }
  throw new Error(`input "${input.name}" has no turn`);
}

function nameOfCall({ held }: Conversation, { toolCallId }: Interrupt): string {
  const calls = held.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  return calls.find(({ id }) => id === toolCallId)?.function.name ?? "";
}

async function goOn(
  { book }: Session,
  conversation: Conversation,
  { ending, interrupts, pending }: Exchange,
  input: ProducerInput,
  turn: string,
): Promise<Exchange | undefined> {
  if (ending === "interrupt" && interrupts.length > 0) {
    const resume = interrupts.map((interrupt) => answerTo(interrupt, input));
    return await conversation.send(`${turn}, resumed`, { resume }, { question: { served: "resume.served" } });
  }
  if (pending.length === 0) return undefined;
  const { result = JSON.stringify({ ok: true }) } = input;
  const messages = pending.map((call) => toolResult(call.id, typeof result === "string" ? result : result(call)));
  const exchange = await conversation.send(
    `${turn}, with results`,
    { messages },
    { question: { served: "tools.result-taken" } },
  );
  const again = exchange.pending.find(({ id }) => pending.some((call) => call.id === id));
  if (again !== undefined) {
    book.broken(
      "tools.result-taken",
      { input: exchange.name },
      `call "${again.id}" has its result, and is asked for again`,
    );
    return undefined;
  }
  return exchange;
}

export function answerTo(interrupt: Interrupt, { answer }: Pick<ProducerInput, "answer">): ResumeEntry {
  const given: Json | undefined = typeof answer === "function" ? answer(interrupt) : answer;
  const schema = interrupt.responseSchema as Json | undefined;
  const payload = given ?? (schema === undefined ? undefined : fitting(schema)) ?? { approved: true };
  return { interruptId: interrupt.id, status: "resolved", payload };
}
