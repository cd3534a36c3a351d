/** One request with its answer, judged from the status down to what the events say. */
import type { AGUIEvent, Interrupt, RunAgentInput, ToolCall } from "../protocol/events.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import { EVENT_STREAM } from "../protocol/negotiate.ts";
import { apply } from "../protocol/patch.ts";
import type { Transcript } from "../protocol/reduce.ts";
import { checkShape, ShapeError } from "../protocol/shape.ts";
import type { Book } from "./book.ts";
import { Contents } from "./contents.ts";
import { looksLikeText, protobufFault, type RawEvent, readFrames } from "./frames.ts";
import { occasionsOf } from "./occasions.ts";
import { Order } from "./order.ts";
import type { ProducerRuleId } from "./rules.ts";
import type { Answer } from "./target.ts";

export const PROTOBUF = "application/vnd.ag-ui.event+proto";

/** What was asked, and how it is to be judged. */
export interface Question {
  /** Of the request, for findings. */
  readonly name: string;
  readonly request: Pick<RunAgentInput, "threadId" | "runId" | "messages" | "tools" | "protocolVersion" | "resume">;
  /** What the client holds when it asks. */
  readonly held: Transcript;
  readonly taken?: ReadonlySet<string> | undefined;
  readonly isRejoin?: boolean;
  /** What the client has of the stream that this one may go on with. */
  readonly before?: readonly AGUIEvent[];
  /** The request's Accept header has protobuf in it, other than with q=0. */
  readonly acceptsProtobuf?: boolean;
  /** The rule that is broken when no stream comes back. */
  readonly served?: ProducerRuleId;
  /** A 4xx is as good as a stream. */
  readonly mayRefuse?: boolean;
}

export interface Exchange {
  readonly name: string;
  readonly answer: Answer;
  /** Events came back. */
  readonly isStream: boolean;
  /** Every event was one that a client goes on with: otherwise what it holds follows from what is told already. */
  readonly isSound: boolean;
  /** A 4xx came back. */
  readonly isRefused: boolean;
  /** What a client could read. */
  readonly events: readonly AGUIEvent[];
  /** Of the frames that it could read, in order. */
  readonly cursors: readonly (string | undefined)[];
  /** What the client holds after it. */
  readonly held: Transcript;
  /** Of the last run. */
  readonly ending: "success" | "interrupt" | "cancelled" | "error" | "none";
  readonly interrupts: readonly Interrupt[];
  /** Calls that wait for the client. */
  readonly pending: readonly ToolCall[];
}

export function judge(book: Book, answer: Answer, question: Question): Exchange {
  const { name } = question;
  const nothing: Exchange = {
    ...{ name, answer, isStream: false, isSound: false, isRefused: answer.status >= 400 && answer.status < 500 },
    ...{ events: [], cursors: [], held: question.held, ending: "none", interrupts: [], pending: [] },
  };
  const served = question.served ?? "http.status";
  if (answer.ended === "cut" && answer.status === 0) return nothing;
  if (answer.status !== 200) {
    const isFine = question.mayRefuse === true && nothing.isRefused;
    book.check(served, { input: name }, isFine ? undefined : describeAnswer(answer));
    return nothing;
  }
  book.occasion(served, "http.content-type", "http.bytes");
  const type = answer.headers.get("content-type") ?? "";
  if (type.trim().toLowerCase() === PROTOBUF) {
    judgeProtobuf(book, answer, question);
    return nothing;
  }
  if (type.split(";")[0]?.trim().toLowerCase() !== EVENT_STREAM) {
    const why = `it is "${type}"; clients take that for ${type.startsWith(PROTOBUF) ? "text" : "a run without events that succeeded"}`;
    book.broken("http.content-type", { input: name }, why);
    return nothing;
  }
  if (answer.bytes.length > 0 && answer.bytes[0] === 0) {
    book.broken("http.bytes", { input: name }, `it is labelled ${EVENT_STREAM} and is not text`);
    return nothing;
  }
  judgeHeaders(book, answer, name);
  return { ...nothing, ...judgeStream(book, answer, question) };
}

function judgeProtobuf(book: Book, { bytes, ended }: Answer, { name, acceptsProtobuf = false }: Question): void {
  book.check("http.negotiation", { input: name }, acceptsProtobuf ? undefined : "the request does not accept protobuf");
  if (looksLikeText(bytes)) book.broken("http.bytes", { input: name }, `it is labelled ${PROTOBUF} and is text`);
  else book.check("protobuf.frames", { input: name }, protobufFault(bytes, ended === "whole"));
}

function judgeHeaders(book: Book, { headers }: Answer, input: string): void {
  const cache = headers.get("cache-control") ?? "";
  const isKept = !/\bno-(cache|store)\b/i.test(cache) || !/\bno-transform\b/i.test(cache);
  book.check("http.cache", { input }, isKept ? `cache-control is "${cache}"` : undefined);
  const buffering = headers.get("x-accel-buffering");
  book.check(
    "http.buffering",
    { input },
    buffering === "no" ? undefined : `x-accel-buffering is ${buffering === null ? "absent" : `"${buffering}"`}`,
  );
}

/** Of a frame in a finding; they may be megabytes. */
const MAX_SHOWN = 2_000;

function judgeStream(book: Book, answer: Answer, question: Question): Partial<Exchange> {
  const { name, request, held, isRejoin = false } = question;
  const isWhole = answer.ended === "whole";
  const framed = readFrames(answer.bytes, isWhole);
  book.occasion("sse.utf8", "sse.line-ends", "sse.frames", "sse.sentinel", "sse.frame-size");
  if (isWhole) book.occasion("sse.last-frame");
  for (const { rule, message, frame } of framed.faults)
    book.broken(rule, { input: name, event: frame?.slice(0, MAX_SHOWN) }, message);

  const clientTools = request.tools.map((tool) => tool.name);
  const goesOnFrom =
    (request.resume?.length ?? 0) > 0 ? "answers" : request.messages.at(-1)?.role === "tool" ? "results" : "message";
  if (goesOnFrom === "answers") book.occasion("resume.result-only");
  const isCurrent = request.protocolVersion !== undefined;
  const order = new Order(name, book, {
    threadId: request.threadId,
    messages: request.messages,
    clientTools,
    goesOnFrom,
    isCurrent,
  });
  const contents = new Contents(name, book, { request, clientTools, held, taken: question.taken, isRejoin });
  const events: AGUIEvent[] = [];
  const cursors: (string | undefined)[] = [];
  let isDead = false;
  let isSound = framed.faults.length === 0;
  if (framed.events[0]?.value.type !== "RUN_STARTED") {
    for (const event of question.before ?? []) {
      order.recall(event);
      contents.recall(event);
    }
  }
  for (const [index, raw] of framed.events.entries()) {
    if (index === 0) book.occasion("run.first");
    const event = readEvent(book, raw, { input: name, index });
    if (event === "skipped") {
      isSound = false;
      continue;
    }
    if (event === "fatal") {
      // A client ends here, and so does what can be said: the rest may be right, were it not for this.
      isDead = true;
      break;
    }
    book.occasion(...occasionsOf(event), "event.raw");
    if (event.type === "RAW" || event.rawEvent !== undefined) {
      book.broken("event.raw", { input: name, index, event }, "it carries what came from elsewhere as it was");
    }
    if (order.take(event, index)) contents.take(event, index);
    else isSound = false;
    events.push(event);
    cursors.push(raw.cursor);
  }
  if (answer.ended !== "cut" && !isDead) {
    order.end(isWhole ? undefined : answer.why);
    contents.end();
    if (order.isEnded) book.check("sse.closes", { input: name }, isWhole ? undefined : answer.why);
  }
  if (framed.events.length === 0 && framed.faults.length === 0 && answer.ended !== "cut") {
    book.broken(
      question.served ?? "http.status",
      { input: name },
      "the stream has no event; clients take that for success",
    );
  }
  return {
    isStream: framed.events.length > 0,
    isSound: isSound && !isDead && contents.isSound,
    events,
    cursors,
    held: contents.transcript,
    ...endingOf(events, clientTools, contents.transcript),
  };
}

/** The event as a client reads it: without what it strips, and what it tolerates. */
function readEvent(book: Book, raw: RawEvent, at: { input: string; index: number }): AGUIEvent | "skipped" | "fatal" {
  const evidence = { ...at, event: raw.value };
  book.occasion("event.type", "event.members", "event.nulls", "event.shape");
  let { value }: { value: Json } = raw;
  for (;;) {
    try {
      return checkShape(value);
    } catch (error) {
      if (!(error instanceof ShapeError)) throw error;
      if (error.fault === "malformed") {
        if (asksForNothing(value)) {
          book.broken("interrupts.some", evidence, "the outcome is an interrupt, and there is none");
          value = { ...value, outcome: { type: "cancelled" } };
          continue;
        }
        book.broken("event.shape", evidence, error.message);
        return "fatal";
      }
      if (error.path === "") {
        book.broken("event.type", evidence, error.message);
        return "skipped";
      }
      book.broken(error.fault === "null" ? "event.nulls" : "event.members", evidence, error.message);
      value = apply(value, [{ op: "remove", path: error.path }]);
    }
  }
}

function asksForNothing(value: Json): value is { readonly [key: string]: Json } {
  if (!isJsonObject(value) || !isJsonObject(value.outcome)) return false;
  const { type, interrupts } = value.outcome;
  return type === "interrupt" && (interrupts === undefined || (Array.isArray(interrupts) && interrupts.length === 0));
}

function endingOf(
  events: readonly AGUIEvent[],
  clientTools: readonly string[],
  held: Transcript,
): Pick<Exchange, "ending" | "interrupts" | "pending"> {
  const last = events.findLast(({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR");
  if (last?.type === "RUN_ERROR") return { ending: "error", interrupts: [], pending: [] };
  if (last?.type !== "RUN_FINISHED") return { ending: "none", interrupts: [], pending: [] };
  const { outcome } = last;
  if (
    outcome?.type === "interrupt" &&
    new Set(outcome.interrupts.map(({ id }) => id)).size < outcome.interrupts.length
  ) {
    // Nobody can say which one he answers.
    return { ending: "interrupt", interrupts: [], pending: [] };
  }
  if (outcome?.type === "interrupt") return { ending: "interrupt", interrupts: outcome.interrupts, pending: [] };
  if (outcome?.type === "cancelled") return { ending: "cancelled", interrupts: [], pending: [] };
  const answered = new Set(held.messages.flatMap((message) => (message.role === "tool" ? [message.toolCallId] : [])));
  const listed = new Set(outcome?.pendingToolCallIds ?? []);
  const calls = held.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  const pending = calls.filter(
    (call) => !answered.has(call.id) && (listed.has(call.id) || clientTools.includes(call.function.name)),
  );
  return { ending: "success", interrupts: [], pending };
}

export function describeAnswer({ status, bytes, why }: Answer): string {
  if (status === 0) return `there was no answer: ${why ?? "the connection was closed"}`;
  const text = new TextDecoder().decode(bytes.subarray(0, 300)).replaceAll(/\s+/g, " ").trim();
  return `the status is ${status}${text === "" ? "" : `: ${text}`}`;
}
