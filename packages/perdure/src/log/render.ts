/**
 * References to events. What can be derived from the log is stored as a reference and rendered from the fold, so that it costs nothing to
 * keep and cannot contradict the facts.
 *
 * 1. An event depends on nothing but the entries before its frame: a replay gives the same bytes for ever.
 * 2. So what a frame is derived from stands before it, also within its batch: `leg.started` before RUN_STARTED, `leg.finished` before the
 *    terminal event, `step.finished` before TOOL_CALL_RESULT.
 */
import { withdrawal } from "../protocol/closing.ts";
import { type AGUIEvent, event, type Message, PROTOCOL_VERSION } from "../protocol/events.ts";
import type { Path } from "../protocol/words.ts";
import { childEvent } from "./child-frames.ts";
import type { Fact, Frame, FrameRef, LegRequest } from "./entries.ts";
import { LogError } from "./log-error.ts";
import type { Announced, EndedLeg, Running, RunState, StepState } from "./run-state.ts";
import { withoutAttempt } from "./running.ts";
import { resultContent, resultId } from "./tool-result.ts";

/** What a reference may need: a {@link RunState}, or one that is being folded. */
export interface RenderSource extends Pick<RunState, "run" | "leg" | "lastLeg" | "committed" | "held"> {
  readonly steps: { get(path: Path): StepState | undefined };
  readonly running: { get(path: Path): Running | undefined };
  readonly subagents: { get(id: string): Announced | undefined };
}

/**
 * The event that a frame stands for.
 *
 * @param state - the fold of everything before the frame
 * @throws {@link LogError} when it refers to something that is not there
 */
export function render(state: RenderSource, frame: Frame): AGUIEvent {
  return "event" in frame ? frame.event : derived(state, frame.ref, frame.shown);
}

function derived(state: RenderSource, ref: FrameRef, shown: AGUIEvent | undefined): AGUIEvent {
  switch (ref.of) {
    case "RUN_STARTED":
      if (state.leg?.leg !== ref.leg) throw missing(state, ref, `leg ${ref.leg} is not open`);
      return runStarted(state.run, state.leg);
    case "RUN_FINISHED":
    case "RUN_ERROR": {
      const { lastLeg } = state;
      if (lastLeg?.finished.leg !== ref.leg) throw missing(state, ref, `leg ${ref.leg} has not ended`);
      const { runId } = lastLeg.started;
      return legEnding(lastLeg, { threadId: threadIdOf(state.run), runId });
    }
    case "TOOL_CALL_RESULT": {
      const step = state.steps.get(ref.path);
      const toolCallId = step?.started.toolCallId;
      if (step?.finished === undefined || toolCallId === undefined) {
        throw missing(state, ref, `step ${ref.path} is not a call that has finished`);
      }
      const messageId = resultId(state.run.uid, step);
      return event("TOOL_CALL_RESULT", {
        messageId,
        toolCallId,
        content: resultContent(step, step.finished),
        role: "tool",
      });
    }
    case "STATE_SNAPSHOT":
      return { type: "STATE_SNAPSHOT", snapshot: state.committed };
    case "MESSAGES_SNAPSHOT": {
      const { without, withdrawn = [] } = ref;
      const running = without && state.running.get(without.path);
      if (without !== undefined && running?.attempt.n !== without.n) {
        throw missing(state, ref, `attempt ${without.n} of step ${without.path} is not running`);
      }
      const { messages } = state.held;
      return withdrawal(running ? withoutAttempt(messages, running) : messages, withdrawn);
    }
    case "CHILD":
      if (shown === undefined) throw missing(state, ref, `frame ${ref.to} of run ${ref.uid} was not loaded with it`);
      return childEvent(state, shown, ref.uid);
    default:
      return ref satisfies never;
  }
}

/** The thread on the wire; a run that belongs to none is its own. */
export function threadIdOf(run: Fact<"run.started">): string {
  return run.thread ?? run.uid;
}

/** The messages that a request adds to its thread: a call is answered before its user goes on. */
export function broughtBy({ results, messages }: LegRequest): readonly Message[] {
  return [...results, ...messages];
}

/** Readers other than the one who posted learn from it what the request added. */
function runStarted(run: Fact<"run.started">, { runId, request }: Fact<"leg.started">): AGUIEvent {
  const threadId = threadIdOf(run);
  const messages = request === null ? [] : broughtBy(request);
  return event("RUN_STARTED", {
    threadId,
    runId,
    parentRunId: request?.parentRunId,
    protocolVersion: PROTOCOL_VERSION,
    ...(messages.length > 0 && { input: { threadId, runId, messages, tools: [], context: [] } }),
  });
}

/** The terminal event of a leg, for a reader who knows it by `runId`. */
export function legEnding(
  { finished, result }: EndedLeg,
  as: { readonly threadId: string; readonly runId: string },
): AGUIEvent {
  const { outcome } = finished;
  const usage = finished.usage.length === 0 ? undefined : finished.usage;
  switch (outcome.type) {
    case "error": {
      const { code, message } = outcome.error;
      return event("RUN_ERROR", { message, code, usage });
    }
    case "success": {
      const { pendingToolCallIds } = outcome;
      const pending = pendingToolCallIds.length > 0 && { pendingToolCallIds };
      // The wire has no null here.
      return event("RUN_FINISHED", {
        ...as,
        result: result ?? undefined,
        outcome: { type: "success", ...pending },
        usage,
      });
    }
    case "cancelled":
    case "interrupt":
      return event("RUN_FINISHED", { ...as, outcome, usage });
    default:
      return outcome satisfies never;
  }
}

function missing(state: RenderSource, ref: FrameRef, why: string): LogError {
  return new LogError(state.run.uid, `a reference to ${ref.of}`, why);
}
