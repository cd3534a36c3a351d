/** The questions that the driver asks, and what their answers say. */
import type { Fact } from "../log/entries.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { RecordedError } from "../protocol/words.ts";

/** A write about which nobody could say whether it happened. The model must not repeat it. */
export const UNKNOWN_WRITE: RecordedError = {
  code: "UNKNOWN",
  message: "may have been applied: it is not known whether this call took effect; do not repeat it",
};

/** The end of a run that an operator gave up. */
export const ABANDONED: RecordedError = { code: "ABANDONED", message: "This run was abandoned." };

/** The end of a leg of which an operator has to decide how it goes on. */
export const NEEDS_OPERATOR: RecordedError = {
  code: "NEEDS_OPERATOR",
  message: "This run cannot go on by itself: whoever operates the server has to look at it.",
};

export const approvalSchema: Json = {
  type: "object",
  properties: { approved: { type: "boolean" }, editedArgs: { type: "object" }, reason: { type: "string" } },
  required: ["approved"],
};

/** @param output - JSON Schema of the tool's output, which "yes" has to come with; null where anything will do */
export function unknownWriteSchema(output: Json | null): Json {
  return {
    oneOf: [
      {
        type: "object",
        properties: { did: { const: "yes" }, output: output ?? true },
        required: ["did", ...(output === null ? [] : ["output"])],
      },
      { type: "object", properties: { did: { const: "no" } }, required: ["did"] },
      { type: "object", properties: { did: { const: "unknown" }, note: { type: "string" } }, required: ["did"] },
    ],
  };
}

export interface ApprovalAnswer {
  readonly approved: boolean;
  readonly editedArgs?: Json;
  readonly reason?: string;
}

/** @param payload - of a resolved answer; undefined when it was cancelled or has expired, which rejects */
export function readApproval(payload: Json | undefined): ApprovalAnswer {
  if (!isJsonObject(payload)) return { approved: false };
  const { approved, editedArgs, reason } = payload;
  return {
    approved: approved === true,
    ...(editedArgs !== undefined && { editedArgs }),
    ...(typeof reason === "string" && { reason }),
  };
}

export type Did = { readonly did: "yes"; readonly output: Json } | { readonly did: "no" | "unknown" };

export function readDid(payload: Json | undefined): Did {
  if (!isJsonObject(payload)) return { did: "unknown" };
  if (payload.did === "yes") return { did: "yes", output: payload.output ?? null };
  return { did: payload.did === "no" ? "no" : "unknown" };
}

export function rejection(status: Fact<"interrupt.answered">["status"], reason: string | undefined): RecordedError {
  if (status === "expired") return { code: "REJECTED", message: "rejected: the approval expired" };
  return {
    code: "REJECTED",
    message: reason === undefined ? "rejected by the user" : `rejected by the user: ${reason}`,
  };
}
