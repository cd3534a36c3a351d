import { type AGUIEventOf, event, type Interrupt as WireInterrupt } from "../protocol/events.ts";
import { isJsonObject } from "../protocol/json.ts";
import type { Fact, Interrupt, InterruptKind } from "./entries.ts";

/** Name of the CUSTOM event that tells clients of a question. */
export const INTERRUPT_EVENT = "perdure.interrupt";

/** Who may answer a question decides where it is listed. */
const answeredBy: { readonly [K in InterruptKind]: "human" | "client" | "operator" } = {
  approval: "human",
  question: "human",
  suspension: "human",
  "unknown-write": "human",
  budget: "human",
  "client-tool": "client",
  poisoned: "operator",
  "contract-changed": "operator",
  diverged: "operator",
};

/** Whether clients are told of it: a `resume` entry can answer it. */
export function isListed(interrupt: Interrupt): boolean {
  return answeredBy[interrupt.kind] === "human";
}

/** Whether only an operator's own actions close it: a deploy, an accept, an abandon. */
export function isOperators({ kind }: Pick<Interrupt, "kind">): boolean {
  return answeredBy[kind] === "operator";
}

/** A call that the client runs waits like a question, under the call's own id; its step is all the log says of it. */
export function clientCall({ path, name, toolCallId }: Fact<"step.started">): Interrupt | undefined {
  if (toolCallId === undefined) return undefined;
  return {
    ...{ id: toolCallId, path, kind: "client-tool", reason: "client-tool", message: name, toolCallId },
    ...{ schema: true, argsHash: null, audience: null, expiresAt: null },
  };
}

/** A question as RUN_FINISHED and the inbox list it. */
export function wireInterrupt({ id, reason, message, toolCallId, schema, ...rest }: Interrupt): WireInterrupt {
  const { kind, audience, expiresAt, metadata, subagentRunId } = rest;
  return {
    id,
    reason,
    message,
    ...(toolCallId !== undefined && { toolCallId }),
    // A schema that accepts anything may be written as `true`; the wire knows objects only.
    responseSchema: isJsonObject(schema) ? { ...schema } : {},
    ...(expiresAt !== null && { expiresAt: new Date(expiresAt).toISOString() }),
    ...(subagentRunId !== undefined && { subagentRunId }),
    metadata: { ...(isJsonObject(metadata) ? metadata : {}), kind, ...(audience !== null && { audience }) },
  };
}

/** Tells clients of a question at once, while the leg goes on; and again when it is closed. */
export function interruptEvent(
  interrupt: Interrupt,
  state: "open" | "answered" | "expired" | "withdrawn",
): AGUIEventOf<"CUSTOM"> {
  return event("CUSTOM", { name: INTERRUPT_EVENT, value: { ...wireInterrupt(interrupt), state } });
}
