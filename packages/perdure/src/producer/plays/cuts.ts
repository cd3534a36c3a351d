import { equalTranscripts } from "../../log/equal-transcripts.ts";
import type { Transcript } from "../../protocol/reduce.ts";
import { Conversation, type Session, says } from "../conversation.ts";
import type { Exchange } from "../exchange.ts";

/** The points at which a stream of so many events is cut: with its headers, and after some events. */
function cutPoints({ events }: Exchange): readonly number[] {
  const { length } = events;
  return [...new Set([0, 1, Math.floor(length / 2), length - 1])].filter((point) => point >= 0 && point < length);
}

/** Closes connections in the middle, and looks whether others are still served. */
export async function playCuts(session: Session, prompt: string, whole: Exchange): Promise<void> {
  if (!session.book.wants("http.serves-on")) return;
  for (const point of cutPoints(whole)) {
    await new Conversation(session).send(
      `cut after ${point} events`,
      { messages: [says(prompt)] },
      { cutAfter: point },
    );
    const name = `after a cut, ${point} events in`;
    const next = await new Conversation(session).send(
      name,
      { messages: [says(prompt)] },
      { question: { served: "http.serves-on" } },
    );
    if (next.isStream && next.ending === "none")
      session.book.broken("http.serves-on", { input: name }, "the run does not end");
  }
}

/** How a client comes back: with what it has seen last. */
export interface Return {
  readonly threadId: string;
  readonly runId: string;
  /** The id of the last frame that it has. */
  readonly cursor: string;
}

export interface RejoinOptions {
  /** Where to GET the rest of a stream, with Last-Event-ID. Left out: the same POST again, with it. */
  readonly url: ((from: Return) => string) | undefined;
}

/** Closes connections in the middle, comes back, and compares what it holds then with what somebody holds who reads it all. */
export async function playRejoin(
  session: Session,
  prompt: string,
  whole: Exchange,
  { url }: RejoinOptions,
): Promise<void> {
  const { book } = session;
  session.seen.add("rejoin");
  const points = cutPoints(whole).filter((point) => point > 0);
  const second = await new Conversation(session).send("not cut, to compare", { messages: [says(prompt)] });
  // A real model says something else each time.
  const uncut = equalTranscripts(whole.held, second.held) ? whole.held : undefined;
  if (book.wants("rejoin.same-run")) {
    for (const point of points) {
      const conversation = new Conversation(session);
      await conversation.send(
        `cut after ${point} events, to rejoin`,
        { messages: [says(prompt)] },
        { cutAfter: point },
      );
      const name = `rejoined after ${point} events`;
      await conversation.again(name, { question: { served: "rejoin.same-run" } });
      await compare(session, conversation, name, "rejoin.same-run", uncut);
    }
  }
  if (!book.wants("rejoin.cursor") || !whole.cursors.some((cursor) => cursor !== undefined)) return;
  for (const point of points) {
    const conversation = new Conversation(session);
    const cut = await conversation.send(
      `cut after ${point} events, to go on`,
      { messages: [says(prompt)] },
      { cutAfter: point },
    );
    const cursor = cut.cursors.findLast((one) => one !== undefined);
    if (cursor === undefined) continue;
    const { sent, input } = conversation.last;
    const headers = { ...sent.headers, "last-event-id": cursor };
    const name = `gone on from ${point} events`;
    const from = { threadId: conversation.threadId, runId: input.runId, cursor };
    const question = { served: "rejoin.cursor" as const, before: cut.events };
    await conversation.again(name, {
      sent:
        url === undefined
          ? { ...sent, headers }
          : { method: "GET", url: url(from), headers: { accept: "text/event-stream", "last-event-id": cursor } },
      question,
    });
    await compare(session, conversation, name, "rejoin.cursor", uncut);
  }
}

/** Somebody who has seen nothing sends the same request, and ends with the same; and so does a thread that nobody has cut. */
async function compare(
  { book }: Session,
  conversation: Conversation,
  input: string,
  rule: "rejoin.same-run" | "rejoin.cursor",
  uncut: Transcript | undefined,
): Promise<void> {
  const { held } = conversation;
  const fresh = await conversation.other().again(`${input}, read by another`, { question: { served: rule } });
  for (const [who, whole] of [
    ["another reader", fresh.isStream ? fresh.held : undefined],
    ["a thread without a cut", uncut],
  ] as const) {
    if (whole === undefined || equalTranscripts(held, whole)) continue;
    return book.broken(
      rule,
      { input },
      `it ends with ${JSON.stringify(held.messages)}, ${who} with ${JSON.stringify(whole.messages)}`,
    );
  }
}
