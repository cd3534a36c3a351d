import type { AGUIEvent, AGUIEventType } from "../protocol/events.ts";
import type { ProducerRuleId } from "./rules.ts";

const TEXT: readonly ProducerRuleId[] = ["text.order", "ids.kind"];
const REASONING: readonly ProducerRuleId[] = ["reasoning.order", "ids.kind"];
const CALL: readonly ProducerRuleId[] = ["tools.order"];
const CHUNK: readonly ProducerRuleId[] = ["chunks.order", "ids.kind"];

/** Which rules of order an event could break by coming where it comes. */
const OCCASIONS: { readonly [T in AGUIEventType]: readonly ProducerRuleId[] } = {
  RUN_STARTED: ["run.one-at-a-time", "run.echo", "run.version", "run.ids"],
  RUN_FINISHED: ["run.closed", "run.boundary", "run.after-finished"],
  RUN_ERROR: ["run.after-error"],
  STEP_STARTED: ["steps.order"],
  STEP_FINISHED: ["steps.order"],
  TEXT_MESSAGE_START: [...TEXT, "chunks.forms"],
  TEXT_MESSAGE_CONTENT: TEXT,
  TEXT_MESSAGE_END: TEXT,
  TEXT_MESSAGE_CHUNK: [...CHUNK, "text.order", "chunks.forms"],
  TOOL_CALL_START: [...CALL, "tools.reopened", "chunks.forms"],
  TOOL_CALL_ARGS: CALL,
  TOOL_CALL_END: [...CALL, "tools.arguments"],
  TOOL_CALL_CHUNK: [...CHUNK, ...CALL, "tools.reopened", "chunks.forms"],
  TOOL_CALL_RESULT: [...CALL, "tools.result-call", "tools.one-result", "tools.result-id", "ids.kind"],
  STATE_SNAPSHOT: [],
  STATE_DELTA: [],
  MESSAGES_SNAPSHOT: [],
  ACTIVITY_SNAPSHOT: ["ids.kind"],
  ACTIVITY_DELTA: ["activity.first"],
  REASONING_START: REASONING,
  REASONING_END: REASONING,
  REASONING_MESSAGE_START: [...REASONING, "chunks.forms"],
  REASONING_MESSAGE_CONTENT: REASONING,
  REASONING_MESSAGE_END: REASONING,
  REASONING_MESSAGE_CHUNK: [...CHUNK, "reasoning.order", "chunks.forms"],
  REASONING_ENCRYPTED_VALUE: [],
  SUBAGENT_STARTED: ["subagents.order"],
  SUBAGENT_FINISHED: ["subagents.order"],
  SUBAGENT_ERROR: ["subagents.order"],
  RAW: [],
  CUSTOM: [],
};

export function occasionsOf(event: AGUIEvent): readonly ProducerRuleId[] {
  const owned: readonly ProducerRuleId[] =
    "subagentRunId" in event && event.subagentRunId !== undefined ? ["subagents.owner"] : [];
  return [...OCCASIONS[event.type], ...owned];
}
