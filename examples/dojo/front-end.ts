/** A user in front of a published client, and what came over the wire meanwhile. */
import type { Message } from "perdure";
import type { AGUIEvent } from "perdure/protocol";
import { vi } from "vitest";
import { eventsOf } from "../../packages/perdure/test/http/rig.ts";
import {
  type Asked,
  type StockClient,
  stockClient,
  type Version,
} from "../../packages/perdure/test/http/stock-clients.ts";

/** A tool of the page. */
const offered = (name: string) => ({ name, description: `The page's ${name}`, parameters: { type: "object" } });

export interface Page {
  readonly tools?: readonly string[];
  readonly context?: readonly unknown[];
  readonly state?: Record<string, unknown>;
}

type Resume = NonNullable<Parameters<StockClient["run"]>[0]>["resume"];

export interface Held {
  readonly messages: readonly Message[];
  readonly state: unknown;
}

export class FrontEnd {
  /** The events of each run, as they were sent. */
  readonly wire: (readonly AGUIEvent[])[] = [];
  readonly #client: StockClient;
  readonly #page: Page;
  #asked: readonly Asked[] = [];
  #runs = 0;

  constructor(version: Version, url: string, page: Page) {
    this.#client = stockClient(version, { url, threadId: "thread", state: page.state ?? {} });
    this.#page = page;
  }

  get held(): Held {
    return { messages: this.#client.messages, state: this.#client.state };
  }

  says(content: string): Promise<void> {
    this.#client.add({ id: `u${this.#runs}`, role: "user", content });
    return this.#run();
  }

  /** A tool of the page has run. */
  async gives(tool: string, result: unknown, { followUp = true } = {}): Promise<void> {
    const made = this.#client.messages.flatMap((message) =>
      message.role === "assistant" ? (message.toolCalls ?? []) : [],
    );
    const call = made.findLast(({ function: { name } }) => name === tool);
    if (call === undefined) throw new Error(`nobody has called ${tool}`);
    const content = typeof result === "string" ? result : JSON.stringify(result);
    this.#client.add({ id: `t${this.#runs}`, role: "tool", toolCallId: call.id, content });
    if (followUp) await this.#run();
  }

  answers(payload: unknown): Promise<void> {
    return this.#run(this.#asked.map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload })));
  }

  dismisses(): Promise<void> {
    return this.#run(this.#asked.map(({ id }) => ({ interruptId: id, status: "cancelled" as const })));
  }

  edits(state: unknown): void {
    this.#client.edit(state);
  }

  get asked(): readonly Asked[] {
    return this.#asked;
  }

  async #run(resume?: Resume): Promise<void> {
    const { tools = [], context = [] } = this.#page;
    const { fetch } = globalThis;
    let text = Promise.resolve("");
    const recording = vi.spyOn(globalThis, "fetch").mockImplementation(async (...request) => {
      const response = await fetch(...request);
      text = response.clone().text();
      return response;
    });
    try {
      const runId = `r${this.#runs++}`;
      const { asked } = await this.#client.run({
        runId,
        tools: tools.map(offered),
        context,
        ...(resume && { resume }),
      });
      this.#asked = asked;
      this.wire.push(inWhole(eventsOf(await text)));
    } finally {
      recording.mockRestore();
    }
  }
}

/** The deltas of a block as one: how many there are is a matter of time. */
function inWhole(events: readonly AGUIEvent[]): AGUIEvent[] {
  const whole: AGUIEvent[] = [];
  const begun = new Map<string, number>();
  for (const event of events) {
    const block = blockOf(event);
    const at = block === undefined ? undefined : begun.get(block);
    const first = at === undefined ? undefined : whole[at];
    if (at !== undefined && isDelta(first) && isDelta(event))
      whole[at] = { ...first, delta: first.delta + event.delta };
    else {
      if (block !== undefined) begun.set(block, whole.length);
      whole.push(event);
    }
  }
  return whole;
}

type Delta = Extract<AGUIEvent, { type: "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" }>;

function isDelta(event: AGUIEvent | undefined): event is Delta {
  return event !== undefined && blockOf(event) !== undefined;
}

function blockOf(event: AGUIEvent): string | undefined {
  switch (event.type) {
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return `${event.type} ${event.messageId}`;
    case "TOOL_CALL_ARGS":
      return `${event.type} ${event.toolCallId}`;
    default:
      return undefined;
  }
}
