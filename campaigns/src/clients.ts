/**
 * The clients of a conversation: the published ones, which come back by asking again and get a prelude, and one that comes back with its cursor.
 *
 * Both go through the published pipeline: verify, apply, subscribers. A lost connection ends a leg without a terminal event; whatever else ends it
 * is a fault of the server's.
 */
import { type BaseEvent, HttpAgent } from "@ag-ui/client";
import { HttpAgent as HttpAgent059 } from "@ag-ui/client-0.0.59";
import type { Interrupt, Message, ResumeEntry, Tool } from "@ag-ui/core";
import { Observable } from "rxjs";

export const kinds = ["1.0.0", "0.0.59", "cursor"] as const;
export type ClientKind = (typeof kinds)[number];

export interface ClientOptions {
  readonly url: string;
  /** `/threads/:id/stream`, for those who come back with a cursor. */
  readonly streamUrl: string;
  readonly threadId: string;
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
  const link = new Link(options.over, () => isStreaming && options.onLost?.());
  const config = { url: options.url, threadId: options.threadId, initialState: {}, fetch: link.fetch };
  const agent =
    kind === "cursor"
      ? (new CursorAgent(config, link, options.streamUrl) as unknown as AnyHttpAgent)
      : new classes[kind](config);
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
      link.isLost = false;
      const subscriber = {
        onEvent({ event }: { event: TerminalEvent }) {
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
      // A cut may fall behind the last event: then nothing is missing.
      if (end === undefined && !link.isLost) throw new Error("the stream ended without a terminal event");
      return { end };
    },
  };
}

const classes = { "1.0.0": HttpAgent, "0.0.59": HttpAgent059 } as unknown as Record<
  "1.0.0" | "0.0.59",
  AnyHttpAgentClass
>;

/**
 * The way to the server. A connection that dies, or that is never made, just ends: the published clients raise an unhandled rejection when a body
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

/** Comes back with its cursor, in the same pipeline: to the published code below, the connection was never lost. */
class CursorAgent extends HttpAgent {
  constructor(
    config: ConstructorParameters<typeof HttpAgent>[0],
    private readonly link: Link,
    private readonly streamUrl: string,
  ) {
    super(config);
  }

  override run(input: Parameters<HttpAgent["run"]>[0]): Observable<BaseEvent> {
    return new Observable((subscriber) => {
      this.#follow(input, (event) => subscriber.next(event)).then(
        () => subscriber.complete(),
        (error: unknown) => subscriber.error(error),
      );
    });
  }

  async #follow(input: Parameters<HttpAgent["run"]>[0], show: (event: BaseEvent) => void): Promise<void> {
    let cursor: string | undefined;
    let response = await this.link.fetch(this.url, this.requestInit(input));
    for (;;) {
      if (!response.ok) throw new Error(`HTTP ${response.status}: ${await response.text()}`);
      for await (const { id, event } of framesOf(response)) {
        show(event);
        cursor = id ?? cursor;
        if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") return;
      }
      // A cursor is of use only in the pipeline that saw RUN_STARTED; before one came, the request has to be made again.
      if (cursor === undefined) return;
      response = await this.#comeBack(cursor);
    }
  }

  async #comeBack(cursor: string): Promise<Response> {
    await new Promise((resolve) => setTimeout(resolve, 15));
    if (this.link.over.aborted) throw new Error("nobody is interested any more");
    this.link.isLost = false;
    return await this.link.fetch(this.streamUrl, { headers: { "last-event-id": cursor } });
  }
}

/** Whole frames only: what a cut left of one is dropped, as an EventSource does. */
async function* framesOf(
  response: Response,
): AsyncGenerator<{ readonly id: string | undefined; readonly event: BaseEvent }> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    const frames = text.split("\n\n");
    text = frames.pop() ?? "";
    for (const frame of frames) {
      const lines = frame.split("\n");
      const data = lines.find((line) => line.startsWith("data: "))?.slice("data: ".length);
      if (data === undefined) continue;
      yield {
        id: lines.find((line) => line.startsWith("id: "))?.slice("id: ".length),
        event: JSON.parse(data) as BaseEvent,
      };
    }
  }
}
