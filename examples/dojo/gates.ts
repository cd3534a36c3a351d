/**
 * All that a client from before AG-UI 1.0 may be sent otherwise. Each row is a gate: what of it would kill that client, or mean nothing to it,
 * and what it gets instead. Written anew here: the product's own gates are what is under test.
 */
import type { Message } from "perdure";
import type { AGUIEvent } from "perdure/protocol";

export interface Gate {
  readonly name: string;
  /** The event as an older client gets it; null when it does not. */
  event(event: AGUIEvent): AGUIEvent | null;
  message(message: Message): Message;
}

const without = (key: string) => (member: string, value: unknown) => (member === key ? undefined : value);
const omit = <T>(value: T, key: string): T => JSON.parse(JSON.stringify(value, without(key))) as T;

export const gates: readonly Gate[] = [
  {
    name: "a success names no pending calls: 0.0.59 dies of an outcome with more than its type",
    event: (event) => (event.type === "RUN_FINISHED" ? omit(event, "pendingToolCallIds") : event),
    message: (message) => message,
  },
  {
    name: "subagents are not announced: 0.0.45 dies of SUBAGENT_STARTED",
    event: (event) => (event.type.startsWith("SUBAGENT_") ? null : event),
    message: (message) => message,
  },
  {
    name: "and then nothing is attributed to one: what a subagent says is the run's",
    event: (event) => (event.type.startsWith("SUBAGENT_") ? event : omit(event, "subagentRunId")),
    message: (message) => omit(message, "subagentRunId"),
  },
];
