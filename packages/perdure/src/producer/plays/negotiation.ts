import { Conversation, type Session, says } from "../conversation.ts";
import { PROTOBUF } from "../exchange.ts";

/** Accept headers, and whether they take protobuf. A server that has only events as text may answer with those, or with 406. */
const ACCEPTS: readonly { readonly accept: string; readonly protobuf: boolean }[] = [
  { accept: "*/*", protobuf: true },
  { accept: `${PROTOBUF}, text/event-stream`, protobuf: true },
  { accept: PROTOBUF, protobuf: true },
  { accept: `text/event-stream, ${PROTOBUF};q=0`, protobuf: false },
];

/** Whoever accepts protobuf may be sent it; the label and the bytes go together. */
export async function playNegotiation(session: Session, prompt: string): Promise<void> {
  if (!session.book.wants("http.negotiation", "http.bytes", "protobuf.frames", "http.content-type")) return;
  for (const { accept, protobuf } of ACCEPTS) {
    const question = { acceptsProtobuf: protobuf, mayRefuse: accept === PROTOBUF };
    await new Conversation(session).send(
      `accepting ${accept}`,
      { messages: [says(prompt)] },
      { headers: { accept }, question },
    );
    if (!protobuf) session.book.occasion("http.negotiation");
  }
}
