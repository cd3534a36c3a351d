import { PerdureError } from "./errors.ts";
import type { AGUIEvent } from "./events.ts";

/** A comment that keeps an idle connection open; clients skip it. */
export const KEEP_ALIVE = ": keep-alive\n\n";

/**
 * One SSE frame. Lines end with LF alone: the official client finds frames by `\n\n` and dies of CRLF (AG-UI.md 2.3).
 *
 * @param event - an event whose shape was checked, so that JSON holds it exactly
 * @param id - the cursor, sent as the frame's `id:`; AG-UI clients skip it
 * @throws {@link PerdureError} `BAD_EVENT_ID` for an id with a line break or NUL, which would end the line or be ignored
 */
export function encodeSse(event: AGUIEvent, id?: string): string {
  const data = `data: ${encodeJson(event)}\n\n`;
  if (id === undefined) return data;
  if (BAD_EVENT_ID.test(id)) {
    throw new PerdureError("BAD_EVENT_ID", `The SSE id ${JSON.stringify(id)} has a line break or NUL; encode it first`);
  }
  return `id: ${id}\n${data}`;
}

const BAD_EVENT_ID = /[\r\n\0]/;

/** The event as JSON. Of a plain delta only the strings are serialised: it has no other members, as counting them shows. */
function encodeJson(event: AGUIEvent): string {
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      if (!hasThreeMembers(event)) break;
      return `{"type":"${event.type}","messageId":${quote(event.messageId)},"delta":${quote(event.delta)}}`;
    case "TOOL_CALL_ARGS":
      if (!hasThreeMembers(event)) break;
      return `{"type":"TOOL_CALL_ARGS","toolCallId":${quote(event.toolCallId)},"delta":${quote(event.delta)}}`;
  }
  return JSON.stringify(event);
}

function hasThreeMembers(event: object): boolean {
  let members = 0;
  for (const _ in event) members++;
  return members === 3;
}

/** What JSON has to escape in a string: quotes, backslashes, control characters and lone surrogates. */
const ESCAPED = /["\\\p{Cc}\p{Cs}]/u;

function quote(text: string): string {
  // Only short texts are cheaper to look through than to hand over.
  return text.length > 64 || ESCAPED.test(text) ? JSON.stringify(text) : `"${text}"`;
}

/** What a client reads of a frame. */
export interface SseFrame {
  /** The cursor. */
  readonly id: string | undefined;
  readonly data: string;
}

/**
 * Puts the frames of one connection together from its bytes. What a cut has left of a frame is never given out, and neither are comments.
 * Any line end will do: what stands between may have changed ours.
 */
export class SseFrames {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** @returns the frames that end in these bytes */
  take(bytes: Uint8Array): SseFrame[] {
    const searched = Math.max(0, this.#rest.length - 2);
    let text = this.#rest + this.#decoder.decode(bytes, { stream: true });
    // The LF of a CRLF may come with the next bytes.
    const held = text.endsWith("\r") ? "\r" : "";
    if (text.includes("\r", searched))
      text = text.slice(0, text.length - held.length).replaceAll(/\r\n?/g, "\n") + held;
    const frames: SseFrame[] = [];
    let start = 0;
    for (let end = text.indexOf("\n\n", searched); end >= 0; end = text.indexOf("\n\n", start)) {
      const frame = readFrame(text.slice(start, end));
      if (frame !== undefined) frames.push(frame);
      start = end + 2;
    }
    this.#rest = text.slice(start);
    return frames;
  }
}

function readFrame(text: string): SseFrame | undefined {
  let id: string | undefined;
  let data: string | undefined;
  for (const line of text.split("\n")) {
    if (line.startsWith("data:")) data = data === undefined ? valueIn(line) : `${data}\n${valueIn(line)}`;
    else if (line.startsWith("id:")) id = valueIn(line);
  }
  return data === undefined ? undefined : { id, data };
}

/** One space after the colon belongs to the form. */
function valueIn(line: string): string {
  const value = line.slice(line.indexOf(":") + 1);
  return value.startsWith(" ") ? value.slice(1) : value;
}
