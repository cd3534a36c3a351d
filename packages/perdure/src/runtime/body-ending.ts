/**
 * How the code of a custom loop ends its leg: what the stream says then is one batch with the fact that the leg has ended, and with what becomes of
 * the run.
 */
import { aggregateTokenUsage } from "@ag-ui/core";
import type { LegOutcome, NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import type { Interrupt as WireInterrupt } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import { stopOf } from "./body-budget.ts";
import { questionOf } from "./body-questions.ts";
import { leftToClient } from "./body-record.ts";
import type { Terminal } from "./body-stream.ts";
import { BUDGET_EXCEEDED, budgetExceeded } from "./budget-question.ts";
import type { DriveSession } from "./drive-session.ts";
import { openClientCalls } from "./intake.ts";
import { ABANDONED } from "./interrupts.ts";

const ROOT = "" as Path;

export interface BodyEnd {
  readonly is: "parked" | "finished";
  readonly entries: readonly NewEntry[];
  /** When the run is to be looked at again, in ms since the epoch. */
  readonly wakeAt: number | null;
}

/** @param asked - the questions that its leg ends with */
export function bodyEnd(session: DriveSession, terminal: Terminal, asked: readonly WireInterrupt[]): BodyEnd {
  const usage = usageOf(session, terminal);
  const stop = stopOf(session.state);
  // Who stops a run waits for nothing more of it; what its code makes of that by itself stands.
  if (stop !== undefined && isOfStop(terminal)) {
    return finish(session, { type: "error", error: budgetExceeded(stop.question) }, "failed", usage);
  }
  if (terminal.type === "RUN_ERROR") {
    const error = { code: terminal.code ?? "INTERNAL", message: terminal.message };
    return finish(session, { type: "error", error }, "failed", usage);
  }
  const { outcome, result } = terminal;
  switch (outcome?.type) {
    case "interrupt":
      return park(session, { type: "interrupt", interrupts: outcome.interrupts }, usage, asked);
    case "cancelled":
      return finish(session, { type: "cancelled" }, "cancelled", usage);
    default: {
      const pendingToolCallIds = outcome?.pendingToolCallIds ?? [];
      const success: LegOutcome = {
        type: "success",
        pendingToolCallIds,
        ...(result !== undefined && { result: result as Json }),
      };
      return pendingToolCallIds.length > 0
        ? park(session, success, usage, [])
        : finish(session, success, "success", usage);
    }
  }
}

function isOfStop(terminal: Terminal): boolean {
  if (terminal.type === "RUN_ERROR") return terminal.code === BUDGET_EXCEEDED;
  const { outcome } = terminal;
  return outcome?.type === "interrupt" || (outcome?.type === "success" && outcome.pendingToolCallIds !== undefined);
}

/** The end of a run whose code cannot end it as it wanted. */
export function failedEnd(session: DriveSession, { code, message, data }: RecordedError): BodyEnd {
  const error = { code, message, ...(data !== undefined && { data }) };
  return finish(session, { type: "error", error }, "failed", session.legUsage());
}

/** The end of a run that was cancelled, or given up, and whose code has nothing to say about it. */
export function cancelledEnd(session: DriveSession): BodyEnd {
  return finish(session, { type: "cancelled" }, "cancelled", session.legUsage());
}

type Usage = Extract<NewEntry, { kind: "leg.finished" }>["usage"];

function usageOf(session: DriveSession, { usage = [] }: Terminal): Usage {
  const steps = session.legUsage();
  return steps.length === 0 ? usage : aggregateTokenUsage([...usage, ...steps]);
}

/** The leg has ended, and the run waits: for its questions, or for the client to run calls. */
function park({ state }: DriveSession, outcome: LegOutcome, usage: Usage, asked: readonly WireInterrupt[]): BodyEnd {
  const leg = state.leg?.leg ?? 0;
  const calls = outcome.type === "success" ? outcome.pendingToolCallIds : [];
  const expiries = asked.flatMap(({ expiresAt }) => (expiresAt === undefined ? [] : [Date.parse(expiresAt)]));
  return {
    is: "parked",
    entries: [
      ...asked.map((interrupt): NewEntry => ({ kind: "interrupt.opened", interrupt: questionOf(interrupt) })),
      ...clientSteps(state, calls),
      { kind: "leg.finished", leg, outcome, usage },
      { kind: "frame", path: ROOT, ref: { of: "RUN_FINISHED", leg } },
      { kind: "run.parked", why: outcome.type === "interrupt" ? "interrupt" : "client-tool" },
    ],
    wakeAt: expiries.length === 0 ? null : Math.min(...expiries),
  };
}

function finish(
  session: DriveSession,
  ending: LegOutcome,
  by: "success" | "cancelled" | "failed",
  usage: Usage,
): BodyEnd {
  const { state } = session;
  const how = state.abandoned ? "abandoned" : by;
  const outcome: LegOutcome = state.abandoned ? { type: "error", error: ABANDONED } : ending;
  const leg = state.leg?.leg ?? 0;
  const questions = [...state.interrupts.values()];
  const unresolved = questions.filter(({ kind }) => kind === "unknown-write");
  const open = questions.filter(({ kind }) => kind !== "client-tool" && kind !== "unknown-write");
  const isFailed = outcome.type === "error";
  return {
    is: "finished",
    entries: [
      ...open.flatMap(({ id }) => session.closing(id, { status: "withdrawn", by: "" })),
      ...openClientCalls(state).flatMap(({ path }): NewEntry[] => [
        { kind: "step.finished", path, via: "answer", status: "cancelled" },
        { kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } },
      ]),
      { kind: "leg.finished", leg, outcome, usage },
      { kind: "frame", path: ROOT, ref: { of: isFailed ? "RUN_ERROR" : "RUN_FINISHED", leg } },
      {
        kind: "run.finished",
        outcome: how,
        unresolved: unresolved.map(({ path }) => path),
        ...(outcome.type === "success" && outcome.result !== undefined && { output: outcome.result }),
        ...(isFailed && { error: outcome.error }),
      },
    ],
    wakeAt: null,
  };
}

/** Calls that the code left to the client, as steps that the client finishes. */
function clientSteps(run: RunState, toolCallIds: readonly string[]): NewEntry[] {
  const calls = run.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  return toolCallIds.map((toolCallId, i): NewEntry => {
    const call = calls.find(({ id }) => id === toolCallId);
    return {
      kind: "step.started",
      path: leftToClient(run.steps.size + i),
      step: "client-tool",
      name: call?.function.name ?? "",
      effect: "read",
      input: { value: argumentsOf(call?.function.arguments) },
      contract: null,
      toolCallId,
    };
  });
}

function argumentsOf(text: string | undefined): Json {
  return text ? (JSON.parse(text) as Json) : {};
}
