import type { BaseEvent } from "@ag-ui/client";
import { verifyEvents } from "@ag-ui/client";
import fc from "fast-check";
import { applyPatch, type Operation } from "fast-json-patch";
import { ArgumentsIncompleteError, agent, BlockOpenError, streamRun } from "perdure";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, it } from "vitest";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { newWire, openItems, ProtocolError, verify, verifyEnd } from "../../src/protocol/verify.ts";
import { initialState, interpret, type Op, ProgramError, type ProgramState, program } from "./programs.ts";

interface Outcome {
  readonly events: AGUIEvent[];
  readonly reported: unknown[];
  /** The state as the body last saw it, when it ended by itself. */
  readonly lastState: ProgramState | undefined;
}

/** Runs a program through `streamRun` and cancels it after `cancelAt` events, if they come. */
async function run(ops: Op[], cancelAt?: { after: number; how: "signal" | "return" }): Promise<Outcome> {
  const reported: unknown[] = [];
  let lastState: ProgramState | undefined;
  const subject = agent<ProgramState>({
    name: "program",
    state: { initial: initialState },
    async run(ctx) {
      await interpret(ctx, ops);
      lastState = structuredClone(JSON.parse(JSON.stringify(ctx.state)) as ProgramState);
    },
  });
  const stop = new AbortController();
  const events: AGUIEvent[] = [];
  const input = {
    threadId: "t",
    runId: "r",
    messages: [{ id: "u", role: "user" as const, content: "go" }],
    tools: [],
    context: [],
  };
  for await (const event of streamRun(subject, input, {
    signal: stop.signal,
    onError: (error) => reported.push(error),
  })) {
    events.push(event);
    if (cancelAt && events.length > cancelAt.after) {
      if (cancelAt.how === "return") break;
      stop.abort();
    }
  }
  return { events, reported, lastState };
}

/** What a program can bring on itself. Anything else that is reported is a fault of ours. */
function isOwnFailure(error: unknown): boolean {
  // A call in chunks is ended by what follows it, with whatever arguments it has.
  if (error instanceof ProtocolError) return error.rule === "args-partial";
  return [ProgramError, BlockOpenError, ArgumentsIncompleteError].some((kind) => error instanceof kind);
}

const isTerminal = ({ type }: AGUIEvent): boolean => type === "RUN_FINISHED" || type === "RUN_ERROR";

async function expectLegal(events: AGUIEvent[]): Promise<void> {
  let wire = newWire({ messages: [{ id: "u", role: "user", content: "go" }], strict: true });
  for (const event of events) wire = verify(wire, checkShape(JSON.parse(JSON.stringify(event))));
  verifyEnd(wire);
  const accepted = await lastValueFrom(from(events as unknown as BaseEvent[]).pipe(verifyEvents(false), toArray()));
  expect(accepted).toHaveLength(events.length);
  expect(events[0]?.type).toBe("RUN_STARTED");
  expect(events.filter(isTerminal)).toHaveLength(1);
  expect(events.at(-1)).toSatisfy(isTerminal);
  expectWholeSubagents(events);
}

/**
 * What the protocol leaves open and we promise: a subagent ends once, whatever it began is closed by then, its children too, and whatever is
 * its own says so.
 */
function expectWholeSubagents(events: readonly AGUIEvent[]): void {
  let wire = newWire({ messages: [{ id: "u", role: "user", content: "go" }], strict: true });
  const parents = new Map<string, string | undefined>();
  const ended = new Set<string>();
  for (const event of events) {
    wire = verify(wire, event);
    if (event.type === "SUBAGENT_STARTED") parents.set(event.subagentRunId, event.parentSubagentRunId);
    const owner = "subagentRunId" in event ? event.subagentRunId : undefined;
    if (owner !== undefined) {
      expect(parents.has(owner)).toBe(true);
      expect(ended.has(owner)).toBe(false);
    }
    if (event.type === "CUSTOM" && event.name === "app.mine") expect(owner).toBe(event.value);
    if (event.type !== "SUBAGENT_FINISHED" && event.type !== "SUBAGENT_ERROR") continue;
    ended.add(event.subagentRunId);
    for (const item of openItems(wire)) {
      expect(item.subagentRunId).not.toBe(event.subagentRunId);
      if (item.kind === "subagent") expect(parents.get(item.id)).not.toBe(event.subagentRunId);
    }
  }
  expect([...parents.keys()].filter((id) => !ended.has(id))).toEqual([]);
  const last = events.at(-1);
  const asked = last?.type === "RUN_FINISHED" && last.outcome?.type === "interrupt" ? last.outcome.interrupts : [];
  const suspended = events.flatMap((event) =>
    event.type === "SUBAGENT_FINISHED" && event.outcome?.type === "suspended"
      ? (event.outcome.interruptIds ?? []).map((id) => `${id} of ${event.subagentRunId}`)
      : [],
  );
  const own = asked.flatMap(({ id, subagentRunId }) =>
    subagentRunId === undefined ? [] : [`${id} of ${subagentRunId}`],
  );
  expect(new Set(suspended)).toEqual(new Set(own));
  expect(suspended).toHaveLength(own.length);
}

/** What a client holds that applies the STATE events with the library that the stock client uses. */
function clientState(events: readonly AGUIEvent[]): unknown {
  let state: unknown = {};
  for (const event of events) {
    if (event.type === "STATE_SNAPSHOT") state = structuredClone(event.snapshot);
    if (event.type === "STATE_DELTA") {
      state = applyPatch(state, structuredClone(event.delta) as Operation[], true, false).newDocument;
    }
  }
  return state;
}

describe("any emitting program", () => {
  it("gives a stream that our verifier and the published one accept, with exactly one terminal event, however it ends", async () => {
    const ends = new Map<string, number>();
    const subagents = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(program, async (ops) => {
        const { events, reported, lastState } = await run(ops);
        await expectLegal(events);
        const last = events.at(-1);
        const end = last?.type === "RUN_FINISHED" ? (last.outcome?.type ?? "none") : "error";
        ends.set(end, (ends.get(end) ?? 0) + 1);
        for (const event of events) {
          const kind =
            event.type === "SUBAGENT_FINISHED"
              ? event.outcome?.type
              : event.type === "SUBAGENT_ERROR"
                ? "failed"
                : null;
          if (kind) subagents.set(kind, (subagents.get(kind) ?? 0) + 1);
        }
        for (const error of reported) expect(error).toSatisfy(isOwnFailure);
        if (end === "success") {
          expect(reported).toEqual([]);
          expect(clientState(events)).toEqual(lastState);
        }
      }),
      { numRuns: 1500 },
    );
    // A generator that no longer reaches an ending would make the property empty.
    for (const end of ["success", "interrupt", "error"]) expect(ends.get(end) ?? 0).toBeGreaterThan(20);
    for (const end of ["success", "suspended", "failed"]) expect(subagents.get(end) ?? 0).toBeGreaterThan(20);
  });

  it("gives such a stream also when it is cancelled at a random point", async () => {
    let cancelled = 0;
    await fc.assert(
      fc.asyncProperty(program, fc.nat(25), async (ops, after) => {
        const { events } = await run(ops, { after, how: "signal" });
        await expectLegal(events);
        const last = events.at(-1);
        if (last?.type === "RUN_FINISHED" && last.outcome?.type === "cancelled") cancelled++;
      }),
      { numRuns: 1000 },
    );
    expect(cancelled).toBeGreaterThan(50);
  });

  it("stops when its reader leaves, and what the reader saw was legal so far", async () => {
    await fc.assert(
      fc.asyncProperty(program, fc.nat(10), async (ops, after) => {
        const { events } = await run(ops, { after, how: "return" });
        let wire = newWire({ strict: true });
        for (const event of events) wire = verify(wire, event);
        expect(events.length).toBeGreaterThan(0);
      }),
      { numRuns: 300 },
    );
  });
});
