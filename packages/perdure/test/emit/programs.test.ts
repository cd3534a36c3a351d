import type { BaseEvent } from "@ag-ui/client";
import { verifyEvents } from "@ag-ui/client";
import fc from "fast-check";
import { applyPatch, type Operation } from "fast-json-patch";
import { ArgumentsIncompleteError, agent, BlockOpenError, streamRun } from "perdure";
import { from, lastValueFrom, toArray } from "rxjs";
import { describe, expect, it } from "vitest";
import type { AGUIEvent } from "../../src/protocol/events.ts";
import { checkShape } from "../../src/protocol/shape.ts";
import { newWire, verify, verifyEnd } from "../../src/protocol/verify.ts";
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
const ownFailures = [ProgramError, BlockOpenError, ArgumentsIncompleteError];

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
    await fc.assert(
      fc.asyncProperty(program, async (ops) => {
        const { events, reported, lastState } = await run(ops);
        await expectLegal(events);
        const last = events.at(-1);
        const end = last?.type === "RUN_FINISHED" ? (last.outcome?.type ?? "none") : "error";
        ends.set(end, (ends.get(end) ?? 0) + 1);
        for (const error of reported) expect(ownFailures.some((kind) => error instanceof kind)).toBe(true);
        if (end === "success") {
          expect(reported).toEqual([]);
          expect(clientState(events)).toEqual(lastState);
        }
      }),
      { numRuns: 1500 },
    );
    // A generator that no longer reaches an ending would make the property empty.
    for (const end of ["success", "interrupt", "error"]) expect(ends.get(end) ?? 0).toBeGreaterThan(20);
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
