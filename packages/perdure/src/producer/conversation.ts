/** A thread as the official client keeps it: it holds what it was shown, and sends all of it with each request. */
import { randomUUID } from "node:crypto";
import {
  type AGUIEvent,
  type Message,
  PROTOCOL_VERSION,
  type ResumeEntry,
  type RunAgentInput,
} from "../protocol/events.ts";
import { newTranscript, type Transcript } from "../protocol/reduce.ts";
import type { Book } from "./book.ts";
import { idsOf } from "./contents.ts";
import { type Exchange, judge, type Question } from "./exchange.ts";
import type { Sent, Target } from "./target.ts";

/** Members of a request; what is left out is what the official client sends. */
export type InputMembers = Partial<Omit<RunAgentInput, "threadId" | "runId">>;

/** Everything that a play needs. */
export interface Session {
  readonly book: Book;
  readonly target: Target;
  /** Types of the events that were seen. */
  readonly seen: Set<AGUIEvent["type"] | "protobuf" | "rejoin" | "interrupt" | "client-tool">;
}

export interface Turn {
  readonly messages?: readonly Message[];
  readonly resume?: readonly ResumeEntry[];
}

/** How a request is sent and judged, where that is not as usual. */
export interface Special {
  /** Members that are not sent. */
  readonly without?: readonly string[];
  /** Members that no request has. */
  readonly more?: object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly cutAfter?: number;
  /** Called when the answer begins. */
  readonly heard?: () => void;
  readonly question?: Partial<Omit<Question, "request">>;
}

/** A request that was sent, so that it can be sent again. */
export interface Request {
  readonly input: RunAgentInput;
  readonly sent: Sent;
}

export class Conversation {
  held: Transcript;
  #last: Request | undefined;

  constructor(
    private readonly session: Session,
    private readonly members: InputMembers = {},
    readonly threadId = `conformance-${randomUUID()}`,
  ) {
    const { messages = [], state = {} } = members;
    this.held = newTranscript({ messages, state: state as Transcript["state"] });
  }

  /** Somebody else in the same thread, who has seen nothing of what came of the last request. */
  other(): Conversation {
    const { input } = this.last;
    const { messages, state = {} } = input;
    const other = new Conversation(this.session, { ...this.members, messages, state }, this.threadId);
    other.#last = this.last;
    return other;
  }

  /** The last request. */
  get last(): Request {
    if (this.#last === undefined) throw new Error("no request was sent yet");
    return this.#last;
  }

  async send(name: string, turn: Turn = {}, special: Special = {}): Promise<Exchange> {
    const taken = idsOf(this.held.messages);
    const { messages: own = [], resume } = turn;
    this.held = { ...this.held, messages: [...this.held.messages, ...own] };
    const isNew = own.some(({ role }) => role === "user") && resume === undefined;
    const input: RunAgentInput = {
      ...{ tools: [], context: [], forwardedProps: {}, protocolVersion: PROTOCOL_VERSION },
      ...this.members,
      ...{ threadId: this.threadId, runId: `run-${randomUUID()}`, state: this.held.state },
      // Activities are the client's own; it does not send them.
      messages: this.held.messages.filter(({ role }) => role !== "activity"),
      ...(resume !== undefined && { resume: [...resume] }),
    };
    const { without = [], more = {} } = special;
    const body = Object.entries({ ...input, ...more }).filter(([name]) => !without.includes(name));
    const headers = { "content-type": "application/json", accept: "text/event-stream", ...special.headers };
    const { protocolVersion, ...rest } = input;
    const hasVersion = protocolVersion !== undefined && !without.includes("protocolVersion");
    this.#last = {
      input: { ...rest, ...(hasVersion && { protocolVersion }) },
      sent: { headers, body: JSON.stringify(Object.fromEntries(body)) },
    };
    return await this.#ask(name, this.#last, special, { ...(isNew && { taken }), ...special.question });
  }

  /** The same request again, as by a client that was cut off; or one in its place. */
  async again(
    name: string,
    { sent = this.last.sent, ...special }: Special & { readonly sent?: Sent } = {},
  ): Promise<Exchange> {
    return await this.#ask(name, { ...this.last, sent }, special, { isRejoin: true, ...special.question });
  }

  async #ask(
    name: string,
    { input, sent }: Request,
    { cutAfter, heard }: Special,
    more: Partial<Question>,
  ): Promise<Exchange> {
    const { book, target, seen } = this.session;
    const answer = await target.ask({ ...sent, ...(cutAfter !== undefined && { cutAfter }), ...(heard && { heard }) });
    const exchange = judge(book, answer, { name, request: input, held: this.held, ...more });
    this.held = exchange.held;
    for (const { type } of exchange.events) seen.add(type);
    if (exchange.ending === "interrupt") seen.add("interrupt");
    if (exchange.pending.length > 0) seen.add("client-tool");
    if (
      exchange.answer.headers.get("content-type")?.startsWith("application/vnd.ag-ui") &&
      exchange.answer.status === 200
    )
      seen.add("protobuf");
    return exchange;
  }
}

/** A message of the user. */
export function says(content: string): Message {
  return { id: `user-${randomUUID()}`, role: "user", content };
}

export function toolResult(toolCallId: string, content: string): Message {
  return { id: `result-${randomUUID()}`, role: "tool", toolCallId, content };
}
