import type { ToolMessage } from "../protocol/events.ts";
import { idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { RecordedError, Uid } from "../protocol/words.ts";
import type { Fact } from "./entries.ts";
import type { StepState } from "./run-state.ts";

/** The id of the message that holds a call's result. */
export function resultId(run: Uid, step: StepState): string {
  return idAt(run, step.started.path, "result", 0);
}

/** What a client's tool message says, as its step's output. */
export function clientOutput({ id, content, error }: ToolMessage): Json {
  return { content: content as Json, messageId: id, ...(error !== undefined && { error }) };
}

/** The tool message whose {@link clientOutput} a step's output is; undefined for another output. */
export function clientMessage({ started, finished }: StepState): ToolMessage | undefined {
  const output = finished?.status === "ok" && finished.via === "client" ? finished.output : undefined;
  if (started.toolCallId === undefined || !isJsonObject(output)) return undefined;
  const { messageId: id, content, error } = output;
  if (typeof id !== "string" || !(typeof content === "string" || Array.isArray(content))) return undefined;
  const message = {
    id,
    role: "tool",
    toolCallId: started.toolCallId,
    content,
    ...(typeof error === "string" && { error }),
  };
  // It was a tool message when it came in, by the protocol's own schema.
  return message as ToolMessage;
}

/** What a call came to that the client has run, by its tool message or its {@link clientOutput}. An empty text is a result. */
export function clientResult(
  message: Pick<ToolMessage, "content" | "error">,
): { readonly output: string } | { readonly error: RecordedError } {
  const { error } = message;
  const text = toolText(message);
  if (error === undefined) return { output: text };
  return { error: { code: "CLIENT_FAILED", message: text === "" ? error : `${error}\n${text}` } };
}

/** Models take text alone as a result. */
export function toolText({ content }: Pick<ToolMessage, "content">): string {
  return typeof content === "string"
    ? content
    : content.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** The arguments that a human has put in place of the model's, whether or not anything ran with them. */
export function editedArguments(step: StepState | undefined): Json | undefined {
  const attempted = step?.attempts.findLast(({ edited }) => edited !== undefined)?.edited;
  if (attempted !== undefined) return attempted;
  const approval = step?.asked.findLast(({ interrupt }) => interrupt.kind === "approval")?.answer?.payload;
  return isJsonObject(approval) && approval.approved === true ? approval.editedArgs : undefined;
}

/**
 * The result of a call, as clients and the model read it. Text stays as it is, everything else is JSON text. Where a human has changed the
 * arguments, the result says so: the history keeps those that the model wrote.
 */
export function resultContent(step: StepState, finished: Fact<"step.finished">): string {
  const edited = editedArguments(step);
  switch (finished.status) {
    case "ok": {
      const { output } = finished;
      if (edited !== undefined) return JSON.stringify({ output, argumentsEditedByHuman: edited });
      return typeof output === "string" ? output : JSON.stringify(output);
    }
    case "error": {
      if (finished.applied === "unknown") return "may have been applied";
      const { code, message } = finished.error;
      return JSON.stringify({
        error: { code, message },
        // The model must not try again what is done.
        ...(finished.applied === "yes" && {
          applied: "yes",
          ...(finished.output !== undefined && { output: finished.output }),
        }),
        ...(edited !== undefined && { argumentsEditedByHuman: edited }),
      });
    }
    case "cancelled":
      return "cancelled";
    default:
      return finished satisfies never;
  }
}
