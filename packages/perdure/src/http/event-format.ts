import type { BaseEvent } from "@ag-ui/core";
import type { AGUIEvent } from "../protocol/events.ts";
import { fit, MAX_FRAME_BYTES } from "../protocol/fit.ts";
import { EVENT_STREAM, negotiate, PROTOBUF, type StreamType } from "../protocol/negotiate.ts";
import { bytesOver } from "../protocol/payload.ts";
import { encodeSse, KEEP_ALIVE } from "../protocol/sse.ts";
import type { Sent } from "../runtime/feed.ts";
import { problem } from "./problem.ts";

/** Told of an event that was too large for one frame, with the bytes it would have had. */
export type OnOversize = (event: AGUIEvent, bytes: number) => void;

/** How events are written: what a stream says that it is, and what it is, come from one place. */
export interface EventFormat {
  readonly contentType: StreamType;
  /** What readers skip and middleboxes see; null where there is no such thing. */
  readonly keepAlive: string | null;
  /** @param event - what this reader gets in the place of `sent.event` */
  encode(sent: Sent, event: AGUIEvent, onOversize: OnOversize): string | Uint8Array;
}

/** The format that a request asks for, or the response that there is none. */
export async function eventFormat(accept: string | null | undefined): Promise<EventFormat | Response> {
  const types = negotiate(accept);
  for (const type of types) {
    const format = type === EVENT_STREAM ? serverSentEvents : await protobuf();
    if (format !== undefined) return format;
  }
  const how = types.length === 0 ? "accept it" : `accept it, or install @ag-ui/proto on the server for ${PROTOBUF}`;
  return problem(406, "NOT_ACCEPTABLE", `the answer is ${EVENT_STREAM}; ${how}`);
}

/** Whether a reader that asks for protobuf gets it: whether its package is installed. */
export async function offersProtobuf(): Promise<boolean> {
  return (await protobuf()) !== undefined;
}

const serverSentEvents: EventFormat = {
  contentType: EVENT_STREAM,
  keepAlive: KEEP_ALIVE,
  encode(sent, event, onOversize) {
    if (event !== sent.event) return frames(event, sent.cursor, onOversize);
    // Once for all readers.
    sent.text ??= frames(event, sent.cursor, onOversize);
    return sent.text;
  },
};

function frames(event: AGUIEvent, cursor: string | undefined, onOversize: OnOversize): string {
  const frame = encodeSse(event, cursor);
  const bytes = bytesOver(frame, MAX_FRAME_BYTES);
  if (bytes === null) return frame;
  onOversize(event, bytes);
  const fitting = fit(event);
  return fitting.map((one, i) => encodeSse(one, i === fitting.length - 1 ? cursor : undefined)).join("");
}

/** Messages with their length before them (AG-UI 1.0, HTTP binding). They have no place for a cursor, and none for a comment. */
async function protobuf(): Promise<EventFormat | undefined> {
  let proto: typeof import("@ag-ui/proto");
  try {
    proto = await import("@ag-ui/proto");
  } catch {
    return undefined;
  }
  const encode = (event: AGUIEvent): Uint8Array => proto.encode(event as BaseEvent);
  return {
    contentType: PROTOBUF,
    keepAlive: null,
    encode(_, event, onOversize) {
      const message = encode(event);
      if (message.length <= MAX_FRAME_BYTES) return framed([message]);
      onOversize(event, message.length);
      return framed(fit(event).map(encode));
    },
  };
}

function framed(messages: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(
    messages.flatMap((message) => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(message.length);
      return [length, message];
    }),
  );
}
