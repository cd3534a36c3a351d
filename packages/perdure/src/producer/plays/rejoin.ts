import { equalTranscripts } from "../../log/equal-transcripts.ts";
import type { Transcript } from "../../protocol/reduce.ts";
import { Conversation, type Session } from "../conversation.ts";
import { describeAnswer, type Exchange } from "../exchange.ts";
import { firstTurn, type ProducerInput } from "../inputs.ts";
import type { ProducerRuleId } from "../rules.ts";
import type { Sent } from "../target.ts";
import { cutPoints } from "./cuts.ts";

/** How a client comes back: with what it has seen last. */
export interface Return {
  readonly threadId: string;
  readonly runId: string;
  /** The id of the last frame that it has. */
  readonly cursor: string;
}

/** Where the rest of a stream is served, by GET with Last-Event-ID. */
export type RestUrl = (from: Return) => string;

/**
 * Closes connections in the middle, comes back, and compares what the client holds then with what somebody holds who has read it all.
 *
 * @param whole - what came of the input without a cut
 * @param rest - left out: the same POST again, with Last-Event-ID
 */
export async function playRejoin(
  session: Session,
  input: ProducerInput,
  whole: Exchange,
  rest: RestUrl | undefined,
): Promise<void> {
  const { book } = session;
  // Where the stream is wrong in itself, what one holds after it proves nothing.
  if (!whole.isSound) return;
  const uncut = await knownEnd(session, input, whole);
  const points = cutPoints(whole).filter((point) => point > 0);
  for (const point of book.wants("rejoin.same-run") ? points : []) {
    const { conversation, at } = await cutOff(session, input, point);
    const back = await conversation.again(`${at}, the same again`, { question: { mayRefuse: true } });
    await compare(session, conversation, back, "rejoin.same-run", uncut);
  }
  for (const point of book.wants("rejoin.cursor") ? points : []) {
    const { conversation, at, cut } = await cutOff(session, input, point);
    const cursor = cut.cursors.findLast((one) => one !== undefined);
    if (cursor === undefined) continue;
    const { sent, input: asked } = conversation.last;
    const accept = { accept: "text/event-stream", "last-event-id": cursor };
    const again: Sent =
      rest === undefined
        ? { ...sent, headers: { ...sent.headers, ...accept } }
        : {
            method: "GET",
            url: rest({ threadId: conversation.threadId, runId: asked.runId, cursor }),
            headers: accept,
          };
    const question = { mayRefuse: true, before: cut.events };
    const back = await conversation.again(`${at}, the rest`, { sent: again, question });
    await compare(session, conversation, back, "rejoin.cursor", uncut);
  }
}

/** What a client holds without a cut; undefined for a server that says something else each time, as one with a real model does. */
async function knownEnd(session: Session, input: ProducerInput, whole: Exchange): Promise<Transcript | undefined> {
  const again = await new Conversation(session, input.input).send(`${input.name}, once more`, firstTurn(input));
  return again.isSound && whole.isSound && equalTranscripts(whole.held, again.held) ? whole.held : undefined;
}

async function cutOff(
  session: Session,
  input: ProducerInput,
  point: number,
): Promise<{ readonly conversation: Conversation; readonly cut: Exchange; readonly at: string }> {
  const conversation = new Conversation(session, input.input);
  const at = `${input.name}, cut after ${point} events`;
  return { conversation, at, cut: await conversation.send(at, firstTurn(input), { cutAfter: point }) };
}

/** Somebody who has seen nothing sends the same request, and ends with the same; and so does a thread that nobody has cut. */
async function compare(
  { book }: Session,
  conversation: Conversation,
  back: Exchange,
  rule: ProducerRuleId,
  uncut: Transcript | undefined,
): Promise<void> {
  const { name } = back;
  if (!back.isStream) return book.check(rule, { input: name }, describeAnswer(back.answer));
  const other = await conversation.other().again(`${name}, by another`, { question: { mayRefuse: true } });
  if (!back.isSound) return;
  for (const [who, held] of [
    ["another reader", other.isSound ? other.held : undefined],
    ["a thread without a cut", uncut],
  ] as const) {
    if (held === undefined) continue;
    const isSame = equalTranscripts(back.held, held);
    const why = `it ends with ${show(back.held)}, ${who} with ${show(held)}`;
    book.check(rule, { input: name }, isSame ? undefined : why);
    if (!isSame) return;
  }
}

function show({ messages, state }: Transcript): string {
  return JSON.stringify({ messages, state });
}
