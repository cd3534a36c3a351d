import { PerdureError } from "./errors.ts";

/** What may be open in a stream, by the word that rules and messages use. */
export type ItemKind = "text" | "tool-call" | "reasoning-message" | "reasoning" | "step" | "subagent";

/**
 * What an event can break. Stable: branch on it.
 *
 * `version`, `second-ending`, `withdrawn`, `args-partial`, `pending-calls` and `interrupt-unprepared` are asked in strict mode only.
 */
export type Rule =
  /** Not the shape of an AG-UI 1.0 event. */
  | "shape"
  // The run
  | "first-event"
  | "run-active"
  | "run-over"
  | "run-errored"
  | "run-id"
  | "run-id-reused"
  | "thread-id"
  | "open-at-end"
  | "run-unfinished"
  | "interrupt-id"
  // Items
  | `${ItemKind}-already-open`
  | `${ItemKind}-not-open`
  | "owner"
  | "call-owner"
  | "id-kind"
  | "mixed-forms"
  | "step-owner"
  | "step-nesting"
  | "subagent-reused"
  | "subagent-parent"
  | "activity-without-snapshot"
  // Tool calls
  | "call-reopened"
  | "result-before-end"
  | "result-without-call"
  | "result-repeated"
  | "result-id"
  | "client-call-result"
  | "args-not-json"
  // Chunks
  | "chunk-without-id"
  | "chunk-without-name"
  | "chunk-conflict"
  | "chunk-ambiguous"
  // Strict
  | "version"
  | "second-ending"
  | "withdrawn"
  | "args-partial"
  | "pending-calls"
  | "interrupt-unprepared";

/** An event that would make the stream something else than valid AG-UI, or the end of a stream that came too early. */
export class ProtocolError extends PerdureError {
  override readonly name = "ProtocolError";
  constructor(
    readonly rule: Rule,
    /** The refused event; undefined when it is the stream's end, or not an event at all. */
    readonly event: { readonly type: string } | undefined,
    /** What the rule is about: a message's, call's or run's id, or a step's name. */
    readonly id: string | undefined,
    why: string,
  ) {
    super("PROTOCOL_VIOLATION", `${event?.type ?? "The stream"} breaks the rule "${rule}": ${why}`);
  }
}
