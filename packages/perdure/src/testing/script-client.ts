/** A front end over HTTP, as the published client is one: it holds what it was shown, and sends the same request again when it was cut off. */
import type { HeldByClient } from "../log/equal-transcripts.ts";
import { PerdureError } from "../protocol/errors.ts";
import {
  type AGUIEvent,
  type Interrupt,
  type Message,
  PROTOCOL_VERSION,
  type ResumeEntry,
  type Tool,
} from "../protocol/events.ts";
import { newTranscript, reduce, type Transcript } from "../protocol/reduce.ts";
import { SseFrames } from "../protocol/sse.ts";
import { NEEDS_OPERATOR } from "../runtime/interrupts.ts";
import type { ScriptTurn } from "./script.ts";

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** What a request has brought; `cut`: its answer has no end. */
export type Ran =
  | "cut"
  | {
      readonly questions: readonly Interrupt[];
      /** Ids of the calls that the client is to run. */
      readonly calls: readonly string[];
    };

export interface Asked {
  readonly runId: string;
  readonly resume: readonly ResumeEntry[];
  readonly tools: readonly Tool[];
  readonly turn: ScriptTurn;
}

/** Who plays the front end. */
export interface ScriptClient {
  readonly held: HeldByClient;
  /** Adds messages of the client's own. */
  add(message: Message): void;
  run(request: Asked): Promise<Ran>;
  /**
   * Shows the thread, for a client that has just come.
   *
   * @param own - messages that the front end made, in order
   * @param last - the newest request
   */
  join(own: readonly Message[], last: Asked): Promise<Ran>;
}

/** A request was refused. */
export class RequestRefused extends PerdureError {
  override readonly name = "RequestRefused";
  constructor(status: number, body: string) {
    super("REQUEST_REFUSED", `the server refused a request of the script with ${status}: ${body}`);
  }
}

/** Of errors that do not end a run: it goes on elsewhere, or when its operator says so. */
const UNDECIDED: ReadonlySet<string | undefined> = new Set(["RECONNECT", NEEDS_OPERATOR.code]);

export class ReducingClient implements ScriptClient {
  readonly #url: string;
  readonly #fetch: Fetch;
  #transcript: Transcript = newTranscript();

  constructor(agent: string, fetch: Fetch) {
    this.#url = `http://localhost/agents/${agent}`;
    this.#fetch = fetch;
  }

  get held(): HeldByClient {
    return this.#transcript;
  }

  add(message: Message): void {
    this.#transcript = { ...this.#transcript, messages: [...this.#transcript.messages, message] };
  }

  async run({ runId, resume, tools, turn }: Asked): Promise<Ran> {
    const { messages, state } = this.#transcript;
    const { context = [], forwardedProps = {} } = turn;
    const input = {
      ...{ threadId: "thread", runId, messages, tools, context, forwardedProps, protocolVersion: PROTOCOL_VERSION },
      state: turn.state === undefined ? state : turn.state,
      ...(resume.length > 0 && { resume }),
    };
    const headers = { "content-type": "application/json" };
    return await this.#read(this.#url, { method: "POST", headers, body: JSON.stringify(input) });
  }

  async join(): Promise<Ran> {
    return await this.#read("http://localhost/threads/thread/stream", {});
  }

  async #read(url: string, init: RequestInit): Promise<Ran> {
    let last: AGUIEvent | undefined;
    try {
      const response = await this.#fetch(url, init);
      if (!response.ok) throw new RequestRefused(response.status, await response.text());
      for await (const event of eventsOf(response)) {
        this.#transcript = reduce(this.#transcript, event);
        last = event;
      }
    } catch (error) {
      if (error instanceof RequestRefused) throw error;
      return "cut";
    }
    if (last?.type === "RUN_ERROR") return UNDECIDED.has(last.code) ? "cut" : { questions: [], calls: [] };
    if (last?.type !== "RUN_FINISHED") return "cut";
    const { outcome } = last;
    const calls = outcome?.type === "success" ? (outcome.pendingToolCallIds ?? []) : [];
    return { questions: this.#transcript.interrupts, calls };
  }
}

async function* eventsOf({ body }: Response): AsyncGenerator<AGUIEvent> {
  const frames = new SseFrames();
  for await (const bytes of body ?? []) {
    for (const { data } of frames.take(bytes)) yield JSON.parse(data) as AGUIEvent;
  }
}
