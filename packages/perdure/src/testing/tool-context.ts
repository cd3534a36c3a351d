import { HandleClosedError } from "../emit/errors.ts";
import { Emitter, type Scope } from "../emit/handle.ts";
import { Lane } from "../emit/lane.ts";
import type { Body } from "../emit/lane-emitter.ts";
import { Outlet } from "../emit/outlet.ts";
import { Published, type Send, stateUpdates } from "../emit/published.ts";
import type { ActivityHandle, EmittableEvent, SubagentOptions } from "../emit/types.ts";
import { type Sink, streamOf, type VerifiedStream } from "../emit/verified-stream.ts";
import { type AGUIEvent, PROTOCOL_VERSION } from "../protocol/events.ts";
import { normaliseInput } from "../protocol/input.ts";
import { type Json, type Jsonify, toJson } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import { openSubagent } from "../runtime/attempt-lane.ts";
import type { ToolContext, ToolSubagent } from "../tool/definition.ts";

/** What a tool's context is made of in a test. Everything has a default but the key, which is absent, as it is for a `read`. */
export interface ToolContextOverrides<S> {
  readonly idempotencyKey?: string;
  /** Default: 1. */
  readonly attempt?: number;
  /** The driver's epoch, which `fence` carries. Default: 1. */
  readonly epoch?: number;
  readonly signal?: AbortSignal;
  /** The state that the tool begins with; a copy is changed. Default: `{}`. */
  readonly state?: S;
  readonly toolCallId?: string;
}

/** A {@link ToolContext} that keeps what the tool emits. */
export interface TestToolContext<S, Key extends string | undefined> extends ToolContext<S, Key> {
  /** All that was emitted, verified as in a run. The state and activities are whole snapshots, where a run would send what changed. */
  readonly events: readonly EmittableEvent[];
  /** What the tool wrote to the server's log. */
  readonly logged: readonly { readonly message: string; readonly data?: Json }[];
}

/**
 * A context to call a tool with, without a run: `erase(refund).callJson(input, toolContext({ idempotencyKey: "k1" }))`, or `refund.call(…)`.
 * Read `ctx.state` and `ctx.events` afterwards.
 */
export function toolContext<S = Json>(
  overrides: ToolContextOverrides<S> & { readonly idempotencyKey: string },
): TestToolContext<S, string>;
export function toolContext<S = Json>(overrides?: ToolContextOverrides<S>): TestToolContext<S, string | undefined>;
export function toolContext<S = Json>(overrides: ToolContextOverrides<S> = {}): TestToolContext<S, string | undefined> {
  const { idempotencyKey, attempt = 1, epoch = 1, toolCallId = "call-1" } = overrides;
  const events: EmittableEvent[] = [];
  const logged: { message: string; data?: Json }[] = [];
  const run = "00000000-0000-7000-8000-000000000001" as Uid;
  const path = "1.0" as Path;
  let activities = 0;
  const scope: Scope = {
    outlet: new Outlet(inCall(toolCallId, events)),
    state: new WholeState("state", toJson(overrides.state ?? {}, "state"), stateUpdates),
    lane: new Lane(path, toolCallId, () => false, "" as Path),
  };
  const emitter = new Emitter<S>(scope);
  const custom = (name: string, value: unknown): void => emitter.custom(name, value);

  function subagent(options: SubagentOptions): ToolSubagent<S>;
  function subagent<T>(options: SubagentOptions, body: Body<ToolSubagent<S>, T>): Promise<T>;
  function subagent<T>(options: SubagentOptions, body?: Body<ToolSubagent<S>, T>): ToolSubagent<S> | Promise<T> {
    return openSubagent<S, T>(scope, { parentToolCallId: toolCallId, ...options }, body);
  }

  return {
    idempotencyKey,
    attempt,
    fence: { run, epoch },
    run,
    path,
    signal: overrides.signal ?? new AbortController().signal,
    events,
    logged,
    get state() {
      return emitter.state;
    },
    publishState: () => emitter.publishState(),
    updateState: (change) => emitter.updateState(change),
    custom,
    emit: (event) => emitter.emit(event),
    activity: (activityType, content) =>
      openActivity(`${toolCallId}:activity-${activities++}`, activityType, content, (event) => emitter.emit(event)),
    subagent,
    progress: (value) => custom("perdure.progress", { toolCallId, value: toJson(value, "progress") }),
    log: (message, data) =>
      void logged.push(data === undefined ? { message } : { message, data: toJson(data, message) }),
  };
}

/** A stream in which the call is the only thing that was shown so far; what is sent now is kept. */
function inCall(toolCallId: string, kept: EmittableEvent[]): VerifiedStream {
  const request = normaliseInput({ threadId: "thread-1", runId: "run-1", messages: [] }).input;
  let isCalled = false;
  const sink: Sink = {
    push(event) {
      // Of the run's lifecycle nothing comes from a tool.
      if (isCalled) kept.push(event as EmittableEvent);
    },
    pendingBytes: 0,
    drained: () => Promise.resolve(),
  };
  const stream = streamOf(sink, request);
  stream.take(
    [
      { type: "RUN_STARTED", threadId: request.threadId, runId: request.runId, protocolVersion: PROTOCOL_VERSION },
      { type: "TOOL_CALL_START", toolCallId, toolCallName: "tool" },
      { type: "TOOL_CALL_ARGS", toolCallId, delta: "{}" },
      { type: "TOOL_CALL_END", toolCallId },
    ],
    "" as Path,
  );
  isCalled = true;
  return stream;
}

/** A state that is sent as a whole, so that a test need not apply patches. */
class WholeState extends Published {
  protected override pass(_event: AGUIEvent, snapshot: Json, send: Send): void {
    send({ type: "STATE_SNAPSHOT", snapshot });
  }
}

function openActivity<C extends object>(
  id: string,
  activityType: string,
  initial: C,
  emit: (event: EmittableEvent) => void,
): ActivityHandle<C> {
  // As with the state: a copy through JSON of a C, which a draft function then changes as one.
  const draft = toJson(initial, activityType) as C;
  let ended = false;
  const send = (): void => {
    const content = toJson(draft, activityType) as Record<string, Json>;
    emit({ type: "ACTIVITY_SNAPSHOT", messageId: id, activityType, content });
  };
  send();
  const end = (): void => {
    ended = true;
  };
  return {
    id,
    get content() {
      return toJson(draft, activityType) as Jsonify<C>;
    },
    update(change) {
      if (ended) throw new HandleClosedError(`activity ${id}`, "update()");
      change(draft);
      send();
    },
    end,
    [Symbol.dispose]: end,
  };
}
