import { Conversation, type Session, says } from "../conversation.ts";
import type { Exchange } from "../exchange.ts";

/** The points at which a stream of so many events is cut: with its headers, and after some events. */
export function cutPoints({ events }: Exchange): readonly number[] {
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
    if (next.isStream && next.ending === "none" && whole.ending !== "none")
      session.book.broken("http.serves-on", { input: name }, "the run does not end");
  }
}
