import type { AGUIEvent } from "./events.ts";

/**
 * An event as the work of a subagent. One that says whose it is stays as it is, and so does what is about the whole run or conversation. A
 * subagent that is started is the other one's child.
 */
export function attributed(event: AGUIEvent, subagentRunId: string): AGUIEvent {
  switch (event.type) {
    case "RUN_STARTED":
    case "RUN_FINISHED":
    case "RUN_ERROR":
    case "MESSAGES_SNAPSHOT":
    case "SUBAGENT_FINISHED":
    case "SUBAGENT_ERROR":
      return event;
    case "SUBAGENT_STARTED":
      return event.parentSubagentRunId === undefined ? { ...event, parentSubagentRunId: subagentRunId } : event;
    default:
      return event.subagentRunId === undefined ? { ...event, subagentRunId } : event;
  }
}
