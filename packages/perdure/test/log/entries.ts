/** Short ways to write entries by hand. */
import type {
  Entry,
  Fact,
  Frame,
  FrameRef,
  Interrupt,
  LegOutcome,
  LegRequest,
  NewEntry,
} from "../../src/log/entries.ts";
import type { AGUIEvent, ToolMessage, UserMessage } from "../../src/protocol/events.ts";
import type { Json } from "../../src/protocol/json.ts";
import type { Patch } from "../../src/protocol/patch.ts";
import type { Effect, Hash, Path, Uid } from "../../src/protocol/words.ts";

/** What is appended together. */
export type Batch = readonly NewEntry[];

export const uid = "U" as Uid;
const hash = "h".repeat(64) as Hash;
const principal = { tenant: "t", subject: "s", scopes: [] };

/** The entries of a run as a store numbers them. */
export function logOf(batches: readonly Batch[]): Entry[] {
  return batches
    .flatMap((batch, i) => batch.map((entry) => ({ entry, at: 1_000 * i })))
    .map(({ entry, at }, seq) => ({ ...entry, seq, at }));
}

export const at = (path: string) => path as Path;

export const frame = (path: string, event: AGUIEvent): Frame => ({ kind: "frame", path: at(path), event });
export const ref = (path: string, of: FrameRef): Frame => ({ kind: "frame", path: at(path), ref: of });

export const user = (id: string, content: string): UserMessage => ({ id, role: "user", content });

export function request(runId: string, added: Partial<LegRequest> = {}): LegRequest {
  return {
    ...{ runId, messages: [], results: [], resume: [], tools: [], context: [] },
    ...{ state: {}, forwardedProps: null, principal, protocolVersion: "1.0" },
    ...added,
  };
}

export const runStarted: Fact<"run.started"> = {
  ...{ kind: "run.started", uid, agent: "desk", definition: hash, owner: { tenant: "t", subject: "s" } },
  ...{ thread: "thread", turn: 0, labels: {} },
};

/** `leg.started` and its RUN_STARTED. */
export function leg(n: number, runId: string, added: LegRequest | null, ...between: Batch): Batch {
  return [{ kind: "leg.started", leg: n, runId, request: added }, ...between, ref("", { of: "RUN_STARTED", leg: n })];
}

/** `leg.finished` and its terminal frame. */
export function legEnd(n: number, outcome: LegOutcome): Batch {
  const of = outcome.type === "error" ? "RUN_ERROR" : "RUN_FINISHED";
  return [{ kind: "leg.finished", leg: n, outcome, usage: [] }, ref("", { of, leg: n })];
}

export const stateStart = (value: Json): Fact<"state"> => ({
  ...{ kind: "state", path: at(""), patch: [{ op: "replace", path: "", value }] },
});
export const stateSnapshot = ref("", { of: "STATE_SNAPSHOT" });
export const messagesSnapshot = ref("", { of: "MESSAGES_SNAPSHOT" });

export function modelStarted(path: string): Fact<"step.started"> {
  const input = { history: { upTo: 0, instructions: hash, tools: hash, settings: {} } };
  return { ...step(path, "model", "model", "read", input) };
}

export function callStarted(path: string, name: string, effect: Effect, toolCallId: string, model: string, index = 0) {
  return { ...step(path, "tool", name, effect, { call: { model: at(model), index } }), toolCallId };
}

export function clientCallStarted(path: string, name: string, toolCallId: string, model: string, index = 0) {
  return { ...step(path, "client-tool", name, "write", { call: { model: at(model), index } }), toolCallId };
}

function step(
  path: string,
  kind: Fact<"step.started">["step"],
  name: string,
  effect: Effect,
  input: Fact<"step.started">["input"],
): Fact<"step.started"> {
  return { kind: "step.started", path: at(path), step: kind, name, effect, input, contract: null };
}

export function attempt(path: string, n = 1, epoch = 1): Fact<"step.attempt"> {
  return { kind: "step.attempt", path: at(path), n, epoch, phase: "call", key: null, deadline: null };
}

export function failed(path: string, applied: "no" | "unknown" = "no", n = 1): Fact<"step.failed"> {
  const error = { code: "CUT", message: "the process ended" };
  return { kind: "step.failed", path: at(path), n, error, applied, retryAt: null };
}

type Via = Fact<"step.finished">["via"];

export function ok(path: string, output: Json, via: Via = "call", patch: Patch = []): Fact<"step.finished"> {
  return { kind: "step.finished", path: at(path), via, status: "ok", output, patch };
}

export const cancelled = (path: string): Fact<"step.finished"> => ({
  ...{ kind: "step.finished", path: at(path), via: "call", status: "cancelled" },
});

export const result = (path: string) => ref(path, { of: "TOOL_CALL_RESULT", path: at(path) });

export interface Call {
  readonly id: string;
  readonly name: string;
  readonly input: Json;
}

/** The output of a model step. */
export function said(
  path: string,
  messageId: string,
  text: string,
  calls: readonly Call[] = [],
): Fact<"step.finished"> {
  return ok(path, { messageId, text, calls: calls.map((call) => ({ ...call })) });
}

export function text(path: string, messageId: string, ...deltas: readonly string[]): Frame[] {
  return [
    frame(path, { type: "TEXT_MESSAGE_START", messageId, role: "assistant" }),
    ...deltas.map((delta) => frame(path, { type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
    frame(path, { type: "TEXT_MESSAGE_END", messageId }),
  ];
}

export function reasoning(path: string, messageId: string, ...deltas: readonly string[]): Frame[] {
  return [
    frame(path, { type: "REASONING_START", messageId }),
    frame(path, { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" }),
    ...deltas.map((delta) => frame(path, { type: "REASONING_MESSAGE_CONTENT", messageId, delta })),
    frame(path, { type: "REASONING_MESSAGE_END", messageId }),
    frame(path, { type: "REASONING_END", messageId }),
  ];
}

/** START and ARGS: the END is held back until the step has finished. */
export function callFrames(path: string, call: Call, parentMessageId: string, pieces = 1): Frame[] {
  const { id: toolCallId, name: toolCallName, input } = call;
  const args = JSON.stringify(input);
  const size = Math.ceil(args.length / pieces);
  const deltas = Array.from({ length: Math.ceil(args.length / size) }, (_, i) => args.slice(i * size, (i + 1) * size));
  return [
    frame(path, { type: "TOOL_CALL_START", toolCallId, toolCallName, parentMessageId }),
    ...deltas.map((delta) => frame(path, { type: "TOOL_CALL_ARGS", toolCallId, delta })),
  ];
}

export const callEnd = (path: string, { id }: Call) => frame(path, { type: "TOOL_CALL_END", toolCallId: id });

/** A model step without a cut, each frame a batch of its own. */
export function modelStep(
  path: string,
  messageId: string,
  { say, calls = [], n = 1 }: { say?: string; calls?: readonly Call[]; n?: number },
): Batch[] {
  const lanes = say === undefined ? 0 : 1;
  return [
    n === 1 ? [modelStarted(path), attempt(path)] : [attempt(path, n, n)],
    ...(say === undefined ? [] : text(`${path}.0`, messageId, say).map((one) => [one])),
    ...calls.flatMap((call, i) => callFrames(`${path}.${i + lanes}`, call, messageId).map((one) => [one])),
    [...calls.map((call, i) => callEnd(`${path}.${i + lanes}`, call)), said(path, messageId, say ?? "", calls)],
  ];
}

export function approval(id: string, path: string, toolCallId: string): Interrupt {
  return {
    ...{ id, path: at(path), kind: "approval", reason: "tool_call", message: "Refund?", toolCallId },
    ...{ schema: { type: "object" }, argsHash: hash, audience: null, expiresAt: null },
  };
}

export const toolMessage = (id: string, toolCallId: string, content: string): ToolMessage => ({
  ...{ id, role: "tool", toolCallId, content },
});

/** The seqs at which a batch ends: where a reader may find the log. */
export function headsOf(batches: readonly Batch[]): number[] {
  let head = -1;
  return batches.map((batch) => {
    head += batch.length;
    return head;
  });
}
