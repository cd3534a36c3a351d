/** The published clients, sent events over a stubbed `fetch`: everything of theirs runs but the socket. */
import { vi } from "vitest";
import type { Entry } from "../../src/log/entries.ts";
import { fold, type History, type RunState, rendered } from "../../src/log/fold.ts";
import { prelude } from "../../src/log/prelude.ts";
import type { AGUIEvent, Message } from "../../src/protocol/events.ts";
import { gateFor } from "../../src/protocol/gates.ts";
import { encodeSse } from "../../src/protocol/sse.ts";
import { type StockClient, stockClient, type Version } from "../http/stock-clients.ts";

export { type Version, versions } from "../http/stock-clients.ts";

/** What one request of a client is answered with: a leg, and the headless ones that follow it. */
export interface Exchange {
  readonly runId: string;
  /** What the client adds to its list before it asks. */
  readonly adds: readonly Message[];
  readonly entries: readonly Entry[];
}

/** A log as the requests that made it. */
export function exchangesOf(log: readonly Entry[]): Exchange[] {
  const exchanges: Exchange[] = [];
  let entries: Entry[] = [];
  for (const entry of log) {
    if (entry.kind === "leg.started" && entry.request !== null) {
      const { results, messages } = entry.request;
      // What stands before its first leg belongs to a run's first exchange.
      entries = exchanges.length === 0 ? entries : [];
      exchanges.push({ runId: entry.runId, adds: [...results, ...messages], entries });
    }
    entries.push(entry);
  }
  return exchanges;
}

class Reader {
  readonly #client: StockClient;
  readonly #gate: (event: AGUIEvent) => AGUIEvent | null;
  /** Questions that the client knows of: it asks for nothing before it has addressed them. */
  #pending: readonly string[] = [];

  constructor(version: Version, state: Record<string, unknown> = {}) {
    this.#client = stockClient(version, { url: "http://perdure.test/agents/desk", state });
    this.#gate = gateFor(version === "1.0.0" ? "1.0" : undefined);
  }

  get held() {
    const { messages, state } = this.#client;
    return structuredClone({ messages, state });
  }

  add(messages: readonly Message[]): void {
    for (const message of messages) this.#client.add(structuredClone(message));
  }

  /** One request, answered with these events. Rejects when the client does not accept them. */
  async read(runId: string, events: readonly AGUIEvent[]): Promise<void> {
    const body = events.map(this.#gate).flatMap((event) => (event === null ? [] : [encodeSse(event)]));
    const answer = async () => new Response(body.join(""), { headers: { "content-type": "text/event-stream" } });
    vi.stubGlobal("fetch", answer);
    await this.#client.run({
      runId,
      resume: this.#pending.map((interruptId) => ({ interruptId, status: "cancelled" })),
    });
    for (const event of events) {
      if (event.type !== "RUN_FINISHED") continue;
      this.#pending = event.outcome?.type === "interrupt" ? event.outcome.interrupts.map(({ id }) => id) : [];
    }
  }
}

/** A reader who is there from the first event to the last. */
export async function uninterrupted(version: Version, log: readonly Entry[], history?: History) {
  const reader = new Reader(version);
  reader.add(history?.messages ?? []);
  let state: RunState | undefined;
  for (const { runId, adds, entries } of exchangesOf(log)) {
    reader.add(adds);
    const from = state ?? history;
    await reader.read(
      runId,
      [...rendered(entries, from)].map(({ event }) => event),
    );
    state = fold(entries, from);
  }
  return reader.held;
}

/**
 * A reader whose connection is cut behind entry `seen` of the log, and who comes back without a cursor when the log has reached `head`.
 *
 * @param seen - -1: it has seen nothing, as after a reload
 */
export async function rejoined(version: Version, log: readonly Entry[], seen: number, head: number, history?: History) {
  const reader = new Reader(version);
  reader.add(history?.messages ?? []);
  let state: RunState | undefined;
  for (const { runId, adds, entries } of exchangesOf(log)) {
    const from = state ?? history;
    const eventsOf = (some: readonly Entry[], after = from) => [...rendered(some, after)].map(({ event }) => event);
    const [first = 0, last = 0] = [entries[0]?.seq, entries.at(-1)?.seq];
    const got = head < first ? entries : entries.filter(({ seq }) => seq <= seen);
    if (got.length > 0) {
      reader.add(adds);
      await reader.read(runId, eventsOf(got));
    }
    if (first <= head && head <= last) {
      const before = fold(
        entries.filter(({ seq }) => seq <= head),
        from,
      );
      const rest = entries.filter(({ seq }) => seq > head);
      const as = { threadId: "thread", runId: before.leg?.runId ?? `again-${head}` };
      await reader.read(as.runId, [...prelude(before, as), ...eventsOf(rest, before)]);
    }
    state = fold(entries, from);
  }
  return reader.held;
}
