/** What may be done with an open interrupt beside answering it: say it twice, leave it out, answer it wrongly, or from elsewhere. */
import { equalTranscripts } from "../../log/equal-transcripts.ts";
import type { Json } from "../../protocol/json.ts";
import { Book } from "../book.ts";
import { Conversation, type Session, says } from "../conversation.ts";
import type { Exchange } from "../exchange.ts";
import type { ProducerInput } from "../inputs.ts";
import { breaking } from "../sample.ts";
import { answerTo, lead } from "./conversations.ts";

/** @param input - one whose conversation comes to an interrupt */
export async function playInterrupts(session: Session, input: ProducerInput): Promise<void> {
  const { book } = session;
  if (book.wants("resume.replay")) await sayItTwice(session, input);
  if (book.wants("resume.uncovered")) await leaveItOut(session, input);
  if (book.wants("resume.thread")) await answerFromElsewhere(session, input);
  if (book.wants("resume.payload")) await answerWrongly(session, input);
}

const isInterrupted = ({ ending }: Exchange): boolean => ending === "interrupt";

async function sayItTwice(session: Session, input: ProducerInput): Promise<void> {
  const { conversation, exchange } = await lead(session, input, isInterrupted, `${input.name}, to be resumed twice`);
  if (exchange.interrupts.length === 0) return;
  const before = conversation.held;
  const resume = exchange.interrupts.map((interrupt) => answerTo(interrupt, input));
  const first = await conversation.send(
    `${input.name}, resumed once`,
    { resume },
    { question: { served: "resume.served" } },
  );
  if (!first.isStream) return;
  conversation.held = before;
  const name = `${input.name}, resumed twice`;
  const second = await conversation.again(name, { question: { mayRefuse: true } });
  if (!second.isRefused && !(first.isSound && second.isSound)) return;
  const isSame = second.isRefused || equalTranscripts(first.held, second.held);
  const why = isSame ? undefined : "the second time ends with another conversation";
  session.book.check("resume.replay", { input: name }, why);
}

async function leaveItOut(session: Session, input: ProducerInput): Promise<void> {
  const name = `${input.name}, interrupts left open`;
  const { conversation, exchange } = await lead(session, input, isInterrupted, name);
  // Without a call in the messages a server that keeps nothing cannot know.
  if (!exchange.interrupts.some(({ toolCallId }) => toolCallId !== undefined)) return;
  const [first, ...others] = exchange.interrupts;
  if (first !== undefined && others.some(({ toolCallId }) => toolCallId !== undefined)) {
    const before = conversation.held;
    const half = await conversation.send(
      `${name}, one answered`,
      { resume: [answerTo(first, input)] },
      { question: { served: "resume.uncovered", mayRefuse: true } },
    );
    noSuccess(session, half);
    if (!half.isRefused) return;
    conversation.held = before;
  }
  noSuccess(
    session,
    await conversation.send(
      `${name}, another message`,
      { messages: [says("Never mind.")] },
      { question: { served: "resume.uncovered", mayRefuse: true } },
    ),
  );
}

function noSuccess({ book }: Session, { name, ending }: Exchange): void {
  if (ending === "success") book.broken("resume.uncovered", { input: name }, "the run ended as success");
}

async function answerFromElsewhere(session: Session, input: ProducerInput): Promise<void> {
  const { book } = session;
  const { conversation, exchange } = await lead(
    session,
    input,
    isInterrupted,
    `${input.name}, to be answered from elsewhere`,
  );
  const [interrupt] = exchange.interrupts;
  if (interrupt === undefined) return;
  const resume = exchange.interrupts.map((one) => answerTo(one, input));
  // What comes back there may be anything, and only one thing matters.
  const elsewhere = new Conversation({ ...session, book: Book.silent() }, input.input);
  const other = await elsewhere.send(
    `${input.name}, answered from another thread`,
    { messages: [says("Hello.")], resume },
    { question: { mayRefuse: true } },
  );
  const asked = new Set(exchange.interrupts.map(({ toolCallId }) => toolCallId));
  const leaked = other.events.find((event) => event.type === "TOOL_CALL_RESULT" && asked.has(event.toolCallId));
  if (leaked !== undefined) {
    book.broken("resume.thread", { input: other.name, event: leaked }, "the call of one thread is answered in another");
    return;
  }
  const own = await conversation.send(
    `${input.name}, then from its own`,
    { resume },
    { question: { served: "resume.thread" } },
  );
  if (own.ending === "none")
    book.broken("resume.thread", { input: own.name }, "the thread's own answer is not taken any more");
}

async function answerWrongly(session: Session, input: ProducerInput): Promise<void> {
  const { conversation, exchange } = await lead(session, input, isInterrupted, `${input.name}, to be answered wrongly`);
  const payloads = exchange.interrupts.map(({ responseSchema }) =>
    responseSchema === undefined ? undefined : breaking(responseSchema as Json),
  );
  const at = payloads.findIndex((payload) => payload !== undefined);
  if (at < 0) return;
  const resume = exchange.interrupts.map((interrupt, i) => {
    const payload = payloads[i];
    return i === at && payload !== undefined
      ? { interruptId: interrupt.id, status: "resolved" as const, payload }
      : answerTo(interrupt, input);
  });
  const answered = await conversation.send(
    `${input.name}, answered with ${JSON.stringify(payloads[at])}`,
    { resume },
    { question: { served: "resume.payload", mayRefuse: true } },
  );
  if (answered.ending === "success")
    session.book.broken("resume.payload", { input: answered.name }, "the run ended as success");
}
