/**
 * The clients of a conversation: the published ones, which come back by asking again and get a prelude, and ours, which comes back by itself with
 * its cursor.
 *
 * All go through a published pipeline: verify, apply, subscribers. A lost connection ends a leg of a published client without a terminal event, and
 * ours not at all; whatever else ends it is a fault.
 */
import { HttpAgent } from "@ag-ui/client";
import { HttpAgent as HttpAgent059 } from "@ag-ui/client-0.0.59";
import type { Interrupt, Message, ResumeEntry, Tool } from "@ag-ui/core";
import { ResumableHttpAgent } from "perdure/client";

export const kinds = ["1.0.0", "0.0.59", "resumable"] as const;
export type ClientKind = (typeof kinds)[number];

export interface ClientOptions {
  /** Where the runtime is. */
  readonly base: string;
  readonly agentName: string;
  readonly threadId: string;
  /** It asks for what the thread shows, and begins nothing. */
  readonly isLookingOn?: boolean;
  /** Ends every wait: nobody is interested any more. */
  readonly over: AbortSignal;
  /** A connection was lost in the middle of a run. */
  readonly onLost?: () => void;
}

/** What the client saw of one request. */
export interface Seen {
  /** The terminal event; undefined when the connection was lost before it. */
  readonly end:
    | { readonly type: string; readonly code?: string; readonly interrupts: readonly Interrupt[] }
    | undefined;
}

export interface Client {
  readonly messages: readonly Message[];
  readonly state: unknown;
  /** Calls as they were shown ended, with the arguments that a front end would have run them with. */
  readonly ended: readonly EndedCall[];
  readonly pending: readonly Interrupt[];
  add(message: Message): void;
  run(request: Request): Promise<Seen>;
}

export interface EndedCall {
  readonly id: string;
  readonly args: unknown;
}

interface Request {
  readonly runId: string;
  readonly resume?: readonly ResumeEntry[];
  readonly tools?: readonly Tool[];
}

/** What the classes have in common, whatever else their types say. */
interface AnyHttpAgent {
  messages: Message[];
  state: unknown;
  pendingInterrupts: Interrupt[];
  runAgent(parameters: object, subscriber: object): Promise<unknown>;
}
type AnyHttpAgentClass = new (config: object) => AnyHttpAgent;

interface TerminalEvent {
  readonly type: string;
  readonly code?: string;
  readonly outcome?: { readonly type: string; readonly interrupts?: readonly Interrupt[] };
}

export function connectClient(kind: ClientKind, options: ClientOptions): Client {
  let isStreaming = false;
  const lose = (): void => {
    if (isStreaming) options.onLost?.();
  };
  const link = new Link(options.over, lose);
  const agent = kind === "resumable" ? resumable(options, lose) : published(kind, options, link);
  const ended: EndedCall[] = [];
  return {
    ended,
    get messages() {
      return agent.messages;
    },
    get state() {
      return agent.state;
    },
    get pending() {
      return agent.pendingInterrupts ?? [];
    },
    add: (message) => void agent.messages.push(message),
    async run(request) {
      let end: Seen["end"];
      let hasSeen = false;
      link.isLost = false;
      const subscriber = {
        onEvent({ event }: { event: TerminalEvent }) {
          hasSeen = true;
          if (event.type === "RUN_STARTED") isStreaming = true;
          if (event.type !== "RUN_FINISHED" && event.type !== "RUN_ERROR") return;
          isStreaming = false;
          end = {
            type: event.type,
            ...(event.code && { code: event.code }),
            interrupts: event.outcome?.interrupts ?? [],
          };
        },
        onToolCallEndEvent({ event, toolCallArgs }: { event: { toolCallId: string }; toolCallArgs: unknown }) {
          ended.push({ id: event.toolCallId, args: structuredClone(toolCallArgs) });
        },
      };
      try {
        await agent.runAgent(request, subscriber);
      } catch (error) {
        if (!link.isLost && end === undefined) throw error;
      } finally {
        isStreaming = false;
      }
      // A cut may fall behind the last event: then nothing is missing. And of a thread that is not there yet, nothing is shown.
      if (end === undefined && !link.isLost && (hasSeen || options.isLookingOn !== true)) {
        throw new Error("the stream ended without a terminal event");
      }
      return { end };
    },
  };
}

const classes = { "1.0.0": HttpAgent, "0.0.59": HttpAgent059 } as unknown as Record<
  "1.0.0" | "0.0.59",
  AnyHttpAgentClass
>;

function published(kind: "1.0.0" | "0.0.59", options: ClientOptions, { fetch }: Link): AnyHttpAgent {
  const { base, agentName, threadId, isLookingOn = false } = options;
  const path = isLookingOn ? `threads/${threadId}/stream?agent=${agentName}` : `agents/${agentName}`;
  return new classes[kind]({ url: `${base}/${path}`, threadId, initialState: {}, fetch });
}

/** It finds out by itself that it was cut, so nothing hides that from it; and it does not give up before everybody does. */
function resumable({ base, agentName, threadId, isLookingOn, over }: ClientOptions, lose: () => void): AnyHttpAgent {
  const agent = new ResumableHttpAgent({
    ...{ url: `${base}/agents/${agentName}`, threadId, initialState: {} },
    fetch: (url, init) => fetch(url, { ...init, signal: init.signal ? AbortSignal.any([init.signal, over]) : over }),
    reconnect: { maxAttempts: Number.POSITIVE_INFINITY, initialDelayMs: 10, maxDelayMs: 30 },
    onReconnect: ({ attempt }) => attempt === 1 && lose(),
    async sleep(ms) {
      await new Promise((resolve) => setTimeout(resolve, ms));
      over.throwIfAborted();
    },
  }) as unknown as AnyHttpAgent & Pick<ResumableHttpAgent, "connectAgent">;
  if (isLookingOn === true) agent.runAgent = (parameters, subscriber) => agent.connectAgent(parameters, subscriber);
  return agent;
}

/**
 * The way to the server of a published client. A connection that dies, or that is never made, just ends: the published clients raise an unhandled rejection when a body
 * errs (ag-ui#2510).
 */
class Link {
  isLost = false;

  constructor(
    readonly over: AbortSignal,
    private readonly onLost: () => void,
  ) {}

  readonly fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const { over } = this;
    try {
      const response = await fetch(url, { ...init, signal: init.signal ? AbortSignal.any([init.signal, over]) : over });
      if (!response.ok) return new Response(await response.text(), response);
      return new Response(this.#untilLost(response.body), response);
    } catch {
      this.isLost = true;
      return new Response("", { headers: { "content-type": "text/event-stream" } });
    }
  };

  #untilLost(stream: Response["body"]): ReadableStream<Uint8Array> | null {
    const reader = stream?.getReader();
    if (reader === undefined) return null;
    return new ReadableStream({
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (done) controller.close();
          else controller.enqueue(value);
        } catch {
          this.isLost = true;
          this.onLost();
          controller.close();
        }
      },
      cancel: (reason) => reader.cancel(reason).catch(() => {}),
    });
  }
}
