/**
 * Events that fit into one frame. Stock clients die of a frame over 10 MB, in both encodings (AG-UI.md 2.3).
 *
 * Single payloads are bounded before they are recorded, so what can be too large is what gathers: the messages of a thread, and the deltas of a
 * block so far. Deltas go out in pieces. Messages are shortened, the longest first, until they fit; the log has them whole.
 */
import type { AGUIEvent, ContentPart, Message } from "./events.ts";
import { bytesOver } from "./payload.ts";

/** Bytes of one frame. */
export const MAX_FRAME_BYTES = 8 * 1024 * 1024;

/** Characters that are kept of a text that is shortened; fewer where that is not enough. */
const KEPT = [16_384, 1_024, 0];

/** @returns the events to send in the event's place, itself if it fits */
export function fit(event: AGUIEvent, limit = MAX_FRAME_BYTES): readonly AGUIEvent[] {
  if (fits(event, limit)) return [event];
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
    case "TOOL_CALL_ARGS":
      // A character of JSON has at most six bytes.
      return piecesOf(event.delta, Math.floor(limit / 8)).map((delta) => ({ ...event, delta }));
    case "MESSAGES_SNAPSHOT":
      return [{ ...event, messages: shortened(event.messages, limit) }];
    case "RUN_STARTED":
      if (event.input === undefined) return [event];
      return [{ ...event, input: { ...event.input, messages: shortened(event.input.messages, limit) } }];
    default:
      return [event];
  }
}

function fits(value: unknown, limit: number): boolean {
  return bytesOver(JSON.stringify(value), limit) === null;
}

function piecesOf(text: string, length: number): readonly string[] {
  const pieces: string[] = [];
  for (let rest = text; rest !== ""; ) {
    const piece = beginningOf(rest, length);
    pieces.push(piece);
    rest = rest.slice(piece.length);
  }
  return pieces;
}

/** At most so many UTF-16 units, and no half of a character. */
function beginningOf(text: string, length: number): string {
  const isSplit = /[\uD800-\uDBFF]/.test(text.charAt(length - 1)) && /[\uDC00-\uDFFF]/.test(text.charAt(length));
  return text.slice(0, isSplit ? length - 1 : length);
}

/** Some of the messages shortened, so that all of them have fewer bytes than `limit`; the oldest are left out where that is not enough. */
function shortened(messages: readonly Message[], limit: number): Message[] {
  // What is around the messages in their event.
  const room = limit - 64 * 1024;
  const result = messages.map((message) => ({ whole: message, message, bytes: bytesOf(message) }));
  // A comma behind each.
  let total = result.reduce((sum, { bytes }) => sum + bytes + 1, 0);
  for (const kept of KEPT) {
    for (const one of [...result].sort((a, b) => b.bytes - a.bytes)) {
      if (total <= room) break;
      const shorter = cut(one.whole, kept);
      const bytes = bytesOf(shorter);
      if (bytes >= one.bytes) continue;
      total -= one.bytes - bytes;
      one.message = shorter;
      one.bytes = bytes;
    }
  }
  let from = 0;
  while (total > room && from < result.length) total -= (result[from++]?.bytes ?? 0) + 1;
  return result.slice(from).map(({ message }) => message);
}

function bytesOf(message: Message): number {
  return new TextEncoder().encode(JSON.stringify(message)).byteLength;
}

/** The message with no text, arguments or data longer than `kept`, and a note of what it had. */
function cut(message: Message, kept: number): Message {
  const bytes = bytesOf(message);
  const metadata = { ...message.metadata, perdure: { cut: bytes } };
  switch (message.role) {
    case "user":
      return { ...message, metadata, content: cutContent(message.content, kept) };
    case "tool":
      return { ...message, metadata, content: cutContent(message.content, kept) };
    case "assistant":
      return {
        ...message,
        metadata,
        ...(message.content !== undefined && { content: cutText(message.content, kept) }),
        ...(message.toolCalls !== undefined && {
          toolCalls: message.toolCalls.map((call) => ({
            ...call,
            function: { ...call.function, arguments: cutJson(call.function.arguments, kept) },
          })),
        }),
      };
    case "activity":
      return JSON.stringify(message.content).length > kept ? { ...message, metadata, content: {} } : message;
    default:
      return { ...message, metadata, content: cutText(message.content, kept) };
  }
}

function cutContent(content: string | ContentPart[], kept: number): string | ContentPart[] {
  if (typeof content === "string") return cutText(content, kept);
  return content.map((part): ContentPart => {
    if (part.type === "text") return { ...part, text: cutText(part.text, kept) };
    const { source, type } = part;
    return source.value.length > kept ? { type: "text", text: `[${type}, ${source.value.length} characters]` } : part;
  });
}

function cutText(text: string, kept: number): string {
  if (text.length <= kept) return text;
  return `${beginningOf(text, kept)} […, ${text.length} characters]`;
}

/** JSON is not cut in its middle: it would be none. */
function cutJson(text: string, kept: number): string {
  return text.length <= kept ? text : JSON.stringify({ "…": `${text.length} characters` });
}
