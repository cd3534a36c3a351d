/** What the log says of a call: how it began, and what a human is asked about it. */
import type { Interrupt, NewEntry, StepKind } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { canonicalJson } from "../protocol/canonical.ts";
import { parseDuration } from "../protocol/duration.ts";
import { type AGUIEvent, event } from "../protocol/events.ts";
import { type IdKind, idAt } from "../protocol/ids.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { ApprovalRequest } from "../tool/definition.ts";
import type { DynTool } from "../tool/dyn-tool.ts";
import type { SuspensionQuestion, ToolOutcome } from "../tool/outcome.ts";
import type { LoopCall } from "./agent-definition.ts";
import type { ContractChange } from "./contracts.ts";
import { sha256 } from "./hash.ts";
import { approvalSchema, unknownWriteSchema } from "./interrupts.ts";

/**
 * How a step begins. The call of a custom loop is shown with it: no model has.
 *
 * @param tool - undefined for a call of the client's, or of nobody's
 */
export function startedEntries(call: LoopCall, step: StepKind, tool: DynTool | undefined): readonly NewEntry[] {
  const { path, id: toolCallId, name, input, model, index, isHidden } = call;
  const started: NewEntry = {
    ...{ kind: "step.started", path, step, name, effect: tool?.effect ?? "read" },
    input: model === null ? { value: input } : { call: { model, index } },
    contract: tool === undefined ? null : sha256(tool.contract),
    ...(!isHidden && { toolCallId }),
  };
  if (model !== null || isHidden) return [started];
  const shown: readonly AGUIEvent[] = [
    event("TOOL_CALL_START", { toolCallId, toolCallName: name }),
    event("TOOL_CALL_ARGS", { toolCallId, delta: JSON.stringify(input) }),
    event("TOOL_CALL_END", { toolCallId }),
  ];
  return [started, ...shown.map((one): NewEntry => ({ kind: "frame", path, event: one }))];
}

/** What the step of a custom loop begins with that has no body: a wait for a time, or for a human. */
export function waitEntries(run: RunState, call: LoopCall, at: number): readonly [NewEntry, Interrupt?] {
  const [started] = startedEntries(call, call.step ?? "tool", undefined);
  if (started === undefined || call.question === undefined) return [started as NewEntry];
  const { expiresIn, ...asked } = call.question;
  const { toolCallId: _, ...common } = question(run, call, "question", expiresIn === undefined ? null : at + expiresIn);
  return [started, { ...common, kind: "question", ...asked }];
}

export function approvalQuestion(
  run: RunState,
  call: LoopCall,
  tool: DynTool,
  approval: true | ApprovalRequest,
  at: number,
): Interrupt {
  const asked: ApprovalRequest = approval === true ? { message: `Run ${tool.name}?` } : approval;
  const { message, risk, audience = null, expiresIn } = asked;
  return {
    ...question(run, call, "approval", expiresIn === undefined ? null : at + parseDuration(expiresIn)),
    ...{ kind: "approval", reason: "tool_call", message, schema: approvalSchema, audience },
    ...(risk !== undefined && { metadata: { risk } }),
  };
}

export function suspensionQuestion(
  run: RunState,
  call: LoopCall,
  tool: DynTool,
  asked: SuspensionQuestion & Pick<Extract<ToolOutcome<Json>, { type: "suspend" }>, "answerSchema" | "memo">,
  at: number,
): Interrupt {
  const schema = asked.answerSchema ?? tool.answerSchema ?? true;
  const isBoolean = isJsonObject(schema) && schema.type === "boolean";
  const { message, reason = isBoolean ? "confirmation" : "input_required", expiresIn, metadata } = asked;
  return {
    ...question(run, call, "suspension", expiresIn === undefined ? null : at + expiresIn),
    ...{ kind: "suspension", reason, message, schema, audience: null },
    ...(metadata !== undefined && { metadata }),
    ...(asked.memo !== undefined && { memo: asked.memo }),
  };
}

/** @param isRunning - its body has outrun its time and goes on */
export function unknownWriteQuestion(
  run: RunState,
  call: LoopCall,
  tool: DynTool | undefined,
  isRunning: boolean,
): Interrupt {
  const common = question(run, call, "unknown-write", null);
  return {
    ...common,
    kind: "unknown-write",
    reason: "perdure:unknown_write",
    message: `tool \`${call.name}\` may have been applied; answer interrupt ${common.id}: did yes, no or unknown${isRunning ? ", and no only when it has ended: it still runs" : ""}`,
    schema: unknownWriteSchema(tool?.outputSchema ?? null),
    audience: null,
  };
}

/** @param change - what about the tool, and what to do about it */
export function contractQuestion(run: RunState, call: LoopCall, change: ContractChange): Interrupt {
  return {
    ...question(run, call, "contract-changed", null),
    ...{ kind: "contract-changed", reason: "perdure:contract_changed", schema: true, audience: null },
    message: `the call of \`${call.name}\` (step ${call.path}) does not go on under this deployment: ${change.what}; ${change.next}`,
    metadata: { tool: call.name, change: change.what, next: change.next },
  };
}

function question(run: RunState, call: LoopCall, kind: Interrupt["kind"], expiresAt: number | null) {
  return {
    id: questionId(run, call.path, kind),
    path: call.path,
    ...(!call.isHidden && { toolCallId: call.id }),
    argsHash: sha256(canonicalJson(call.input)),
    expiresAt,
  };
}

/** The same whenever it is asked anew, and whatever else was asked about the step meanwhile. */
export function questionId({ run, steps }: RunState, path: Path, kind: Interrupt["kind"]): string {
  const asked = steps.get(path)?.asked ?? [];
  const idKind = idKindOf(kind);
  return idAt(run.uid, path, idKind, asked.filter(({ interrupt }) => idKindOf(interrupt.kind) === idKind).length);
}

function idKindOf(kind: Interrupt["kind"]): IdKind {
  switch (kind) {
    case "unknown-write":
      return "unknown";
    case "poisoned":
    case "contract-changed":
    case "diverged":
      return "operator";
    default:
      return "interrupt";
  }
}
