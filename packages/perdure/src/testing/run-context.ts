import { Leg } from "../emit/leg.ts";
import type { RunAgentInput, RunContext, Transformer } from "../emit/types.ts";
import { type Sink, streamOf } from "../emit/verified-stream.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { normaliseInput } from "../protocol/input.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Principal } from "../protocol/words.ts";
import { refuseDurable } from "../runtime/loop-operations.ts";

export interface RunContextOptions<S> {
  /** The state at the start. Default `{}`. */
  readonly state?: S;
  readonly principal?: Principal;
  readonly transformers?: readonly Transformer[];
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
}

/** What emitting code has sent. */
export interface EmittedEvents {
  /** The events since the last drain. */
  drain(): AGUIEvent[];
}

/**
 * A context to unit-test emitting code: it begins inside a leg, so RUN_STARTED and the first snapshot are not among its events.
 *
 * @param input - members of the request; ids have defaults
 */
export function runContext<S = Json>(
  input: Partial<RunAgentInput> = {},
  options: RunContextOptions<S> = {},
): { readonly ctx: RunContext<S>; readonly events: EmittedEvents } {
  let emitted: AGUIEvent[] = [];
  const sink: Sink = {
    push: (event) => void emitted.push(event),
    pendingBytes: 0,
    drained: () => Promise.resolve(),
  };
  const { now, transformers } = options;
  const request = normaliseInput({ threadId: "thread-1", runId: "run-1", messages: [], ...input }).input;
  const leg = new Leg<S>({
    input: request,
    state: toJson(options.state ?? {}, "state"),
    principal: options.principal ?? { tenant: "default", subject: "tester", scopes: [] },
    stream: streamOf(sink, request),
    equip: refuseDurable,
    ...(transformers !== undefined && { transformers }),
    ...(now !== undefined && { now }),
  });
  leg.begin();
  const drain = (): AGUIEvent[] => {
    const drained = emitted;
    emitted = [];
    return drained;
  };
  drain();
  return { ctx: leg.context, events: { drain } };
}
