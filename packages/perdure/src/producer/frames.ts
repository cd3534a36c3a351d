/** Bytes of an answer, taken apart as the official client does, with everything named that kills it or that it silently loses. */
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { ProducerRuleId } from "./rules.ts";

/** One event as it came, before anybody has asked what it is. */
export interface RawEvent {
  readonly value: { readonly [key: string]: Json };
  /** The frame's `id:`. */
  readonly cursor: string | undefined;
}

export interface FrameFault {
  readonly rule: ProducerRuleId;
  readonly message: string;
  /** The frame's text. */
  readonly frame?: string;
}

export interface Framed {
  readonly events: readonly RawEvent[];
  readonly faults: readonly FrameFault[];
}

/** What the client takes at most. Bytes. */
const MAX_FRAME = 10 * 1024 * 1024;

/**
 * The events of a body of server-sent events.
 *
 * @param isWhole - false when the connection was cut: then the last frame may be a half one, and is left out
 */
export function readFrames(bytes: Uint8Array, isWhole: boolean): Framed {
  const faults: FrameFault[] = [];
  let text = decode(bytes);
  if (text === undefined) {
    // A cut may go through a character.
    if (isWhole) faults.push({ rule: "sse.utf8", message: "the body has bytes that are not UTF-8" });
    text = new TextDecoder().decode(bytes);
  }
  if (text.includes("\r")) {
    faults.push({
      rule: "sse.line-ends",
      message: "a line ends with CR: clients find frames by two LF and nothing else",
    });
    text = text.replaceAll(/\r\n?/g, "\n");
  }
  const frames = text.split(/\n{2,}/);
  const last = frames.pop() ?? "";
  if (last !== "" && isWhole) {
    faults.push({ rule: "sse.last-frame", message: "it ends without one; an EventSource drops it", frame: last });
    frames.push(last);
  }
  const events = frames.flatMap((frame) => {
    const { events = [], ...fault } = readFrame(frame);
    if (fault.rule !== undefined) faults.push({ frame, ...fault });
    return events;
  });
  return { events, faults };
}

type ReadFrame = { readonly events?: readonly RawEvent[] } & (FrameFault | { readonly rule?: never });

/** The event of a frame; none when it is only there to keep the connection open. */
function readFrame(frame: string): ReadFrame {
  if (frame.length > MAX_FRAME / 4 && new TextEncoder().encode(frame).byteLength > MAX_FRAME)
    return { rule: "sse.frame-size", message: `a frame is over ${MAX_FRAME} bytes`, frame: frame.slice(0, 200) };
  const lines = frame.split("\n").filter((line) => line !== "" && !line.startsWith(":"));
  const stray = lines.find((line) => !/^(data|event|id|retry)(:|$)/.test(line.replace(/^\uFEFF/, "")));
  if (stray !== undefined)
    return { rule: "sse.frames", message: `"${stray.slice(0, 80)}" is no field; clients skip the line` };
  const fields = lines.map((line) => {
    const colon = line.indexOf(":");
    const [name, value] = colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
    return { name: name.replace(/^\uFEFF/, ""), value };
  });
  const data = fields.filter(({ name }) => name === "data").map(({ value }) => value);
  if (data.length === 0) return {};
  const text = data.join("\n");
  if (text.trim() === "")
    return { rule: "sse.sentinel", message: "a frame has empty data: clients parse it, and die of it" };
  const value = parse(text);
  if (value === undefined) {
    if (/^\[[A-Z]+\]$/.test(text.trim())) return { rule: "sse.sentinel", message: `a frame's data is ${text.trim()}` };
    const each = data.map(parse).filter((one) => isJsonObject(one));
    if (each.length < 2 || each.length < data.length)
      return { rule: "sse.frames", message: "a frame's data is not JSON" };
    const events = each.map((one) => ({ value: one, cursor: undefined }));
    return { rule: "sse.frames", message: "a frame has more than one event", events };
  }
  if (!isJsonObject(value)) return { rule: "sse.frames", message: "a frame's data is not a JSON object" };
  if (typeof value.type !== "string")
    return { rule: "sse.frames", message: "a frame's data has no type, so it is no event" };
  return { events: [{ value, cursor: fields.findLast(({ name }) => name === "id")?.value }] };
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function parse(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** Whether bytes are text, as the beginning of an event stream is and that of a frame with its length is not. */
export function looksLikeText(bytes: Uint8Array): boolean {
  return /^(\uFEFF)?(data|event|id|retry|:)/.test(new TextDecoder().decode(bytes.subarray(0, 16)));
}

/**
 * What is wrong with a body of protobuf frames. Their events are not read: that takes the schema of the messages, and says the same as the
 * stream of the same agent as server-sent events.
 */
export function protobufFault(bytes: Uint8Array, isWhole: boolean): string | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  while (at < bytes.byteLength) {
    if (bytes.byteLength - at < 4) return isWhole ? "the body ends inside a frame's length" : undefined;
    const length = view.getUint32(at);
    at += 4;
    if (length > MAX_FRAME) return `a frame of ${length} bytes is over ${MAX_FRAME}`;
    if (length > bytes.byteLength - at) return isWhole ? "the body ends inside a frame" : undefined;
    if (length === 0 || !isMessage(bytes.subarray(at, at + length))) return "a frame is no protobuf message";
    at += length;
  }
  return undefined;
}

/** Whether bytes are fields of a protobuf message, one behind the other. */
function isMessage(bytes: Uint8Array): boolean {
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = bytes[at++];
      if (byte === undefined) return Number.NaN;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    return Number.NaN;
  };
  while (at < bytes.byteLength) {
    const tag = varint();
    if (!(tag >= 8)) return false;
    switch (tag % 8) {
      case 0:
        if (Number.isNaN(varint())) return false;
        break;
      case 1:
        at += 8;
        break;
      case 2: {
        const length = varint();
        if (Number.isNaN(length)) return false;
        at += length;
        break;
      }
      case 5:
        at += 4;
        break;
      default:
        return false;
    }
  }
  return at === bytes.byteLength;
}
