import { AbstractAgent, type BaseEvent, defaultApplyEvents, type RunAgentInput, transformChunks } from "@ag-ui/client";
import { from, lastValueFrom, type Observable, toArray } from "rxjs";
import { afterEach, beforeEach, vi } from "vitest";
import type { AGUIEvent } from "../../src/protocol/events.ts";

/** Keeps the client's warnings out of the report of the tests of this file. */
export function quietClient(): void {
  beforeEach(() => {
    vi.spyOn(console, "warn").mockImplementation(() => {});
    // Under test the client copies and freezes its whole list for each event, which takes ten times as long and changes nothing.
    vi.stubEnv("NODE_ENV", "production");
    vi.stubEnv("VITEST_WORKER_ID", "");
  });
  afterEach(() => {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
  });
}

/** The published client, fed with events instead of a response. */
class Replayed extends AbstractAgent {
  constructor(private readonly events: readonly AGUIEvent[]) {
    super({ threadId: "thread" });
  }

  override run(): Observable<BaseEvent> {
    return from(overTheWire(this.events) as BaseEvent[]);
  }
}

/** Client and reducer must not share objects: the client changes in place what it was given. */
export function overTheWire<T>(events: readonly T[]): T[] {
  return JSON.parse(JSON.stringify(events)) as T[];
}

/** What the whole client holds after a stream, its verifier included. */
export async function heldByClient(events: readonly AGUIEvent[]) {
  const agent = new Replayed(events);
  await agent.runAgent({ runId: "run1" });
  return { messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts };
}

/** Only the client's merge rules, without its verifier: what they do with events that it would never let through. */
export async function appliedByClient(events: readonly AGUIEvent[]) {
  const agent = new Replayed(events);
  const input: RunAgentInput = { threadId: "thread", runId: "run1", messages: [], tools: [], context: [], state: {} };
  const changes = await lastValueFrom(defaultApplyEvents(input, agent.run(), agent, []).pipe(toArray()));
  let { messages, state } = input;
  for (const change of changes) {
    messages = change.messages ?? messages;
    if (change.state !== undefined) state = change.state;
  }
  return { messages, state, interrupts: agent.pendingInterrupts };
}

/** The stream after the client's chunk expansion. */
export async function expandedByClient(events: readonly AGUIEvent[]): Promise<AGUIEvent[]> {
  const wire = from(overTheWire(events) as BaseEvent[]);
  return (await lastValueFrom(wire.pipe(transformChunks(false), toArray()))) as AGUIEvent[];
}
