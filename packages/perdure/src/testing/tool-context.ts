import { HandleClosedError, LifecycleEventError } from "../emit/errors.ts";
import type { ActivityHandle, EmittableEvent } from "../emit/types.ts";
import { type Json, type Jsonify, jsonEqual, toJson } from "../protocol/json.ts";
import type { Path, Uid } from "../protocol/words.ts";
import type { ToolContext } from "../tool/definition.ts";

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
  /** All that was emitted. The state and activities are whole snapshots, where a run would send what changed. */
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
  let activities = 0;
  let published = toJson(overrides.state ?? {}, "state");
  // What was given is an S; its copy through JSON is one as far as state, which is JSON, can be.
  const state = toJson(published) as S;

  const emit = (event: EmittableEvent): void => {
    if (/^RUN_(STARTED|FINISHED|ERROR)$/.test(event.type)) {
      throw new LifecycleEventError(event.type);
    }
    events.push(event);
  };
  const publishState = (): void => {
    const snapshot = toJson(state, "state");
    if (jsonEqual(snapshot, published)) return;
    published = snapshot;
    emit({ type: "STATE_SNAPSHOT", snapshot });
  };
  const custom = (name: string, value: unknown): void => emit({ type: "CUSTOM", name, value: toJson(value, name) });

  return {
    idempotencyKey,
    attempt,
    fence: { run, epoch },
    run,
    path: "1.0" as Path,
    signal: overrides.signal ?? new AbortController().signal,
    events,
    logged,
    state,
    publishState,
    updateState(change) {
      change(state);
      publishState();
    },
    custom,
    emit,
    activity: (activityType, content) =>
      openActivity(`${toolCallId}:activity-${activities++}`, activityType, content, emit),
    progress: (value) => custom("perdure.progress", { toolCallId, value: toJson(value, "progress") }),
    log: (message, data) =>
      void logged.push(data === undefined ? { message } : { message, data: toJson(data, message) }),
  };
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
