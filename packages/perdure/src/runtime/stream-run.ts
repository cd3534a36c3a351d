/**
 * Runs an agent for one leg without a log: an async iterable of verified events, one per emit.
 *
 * R1. What is wrong with the request rejects the first `next()`, before RUN_STARTED. After it nothing rejects: failures are RUN_ERROR.
 * R2. However the body ends (returns, throws, asks, is cancelled, is left behind), exactly one terminal event is the last.
 */
import { publicError, RunInterrupted } from "../emit/errors.ts";
import { Leg, type LegEnd } from "../emit/leg.ts";
import type { RunAgentInput } from "../emit/types.ts";
import { streamOf } from "../emit/verified-stream.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { normaliseInput } from "../protocol/input.ts";
import { toJson } from "../protocol/json.ts";
import type { Principal } from "../protocol/words.ts";
import type { Agent, BodyAgent } from "./agent-definition.ts";
import { EventQueue } from "./event-queue.ts";
import type { LoopContext } from "./loop-context.ts";
import { refuseDurable } from "./loop-operations.ts";
import { startingState } from "./starting-state.ts";

export interface StreamRunOptions {
  /** Cancels the run: it ends with the outcome `cancelled`. */
  readonly signal?: AbortSignal;
  /** Who asks. Default: `anonymous` of tenant `default`, without scopes. */
  readonly principal?: Principal;
  /** Gets what clients are not told: the cause of a RUN_ERROR. Default: `console.error`. */
  readonly onError?: (
    error: unknown,
    run: { readonly agent: string; readonly threadId: string; readonly runId: string },
  ) => void;
  /** Gets what was odd about the request and was put right. */
  readonly onWarning?: (warning: string) => void;
}

const ANONYMOUS: Principal = { tenant: "default", subject: "anonymous", scopes: [] };

/**
 * Runs `agent` for one request.
 *
 * @param agent - made by `agent()`
 * @param input - the request; anything that a client sent as RunAgentInput may be given
 * @returns the events of one leg, RUN_STARTED first and a terminal event last; `return()` (leaving a `for await`) cancels the run
 * @throws {@link InputError} or {@link StateInvalidError} from the first `next()`, before any event
 */
export function streamRun<S>(
  given: Agent<S>,
  input: RunAgentInput,
  options: StreamRunOptions = {},
): AsyncIterableIterator<AGUIEvent> {
  const agent = bodyAgent(given);
  const queue = new EventQueue();
  const { signal } = options;
  let leg: Leg<S> | undefined;
  let isStarted = false;
  let isCancelled = false;

  async function start(): Promise<void> {
    const { input: request, warnings } = normaliseInput(input);
    for (const warning of warnings) options.onWarning?.(warning);
    const state = await startingState(agent, request);
    leg = new Leg<S>({
      input: request,
      state,
      principal: options.principal ?? ANONYMOUS,
      stream: streamOf(queue, request),
      transformers: agent.transformers ?? [],
      equip: refuseDurable,
    });
    leg.begin();
    // A cancel that came while there was no leg yet, or before `next()`, would else be forgotten.
    if (isCancelled || signal?.aborted) return cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    await runLeg(agent, leg, (error) => report(error, request));
  }

  function cancel(): void {
    isCancelled = true;
    if (leg === undefined) return;
    const { input: request } = leg;
    endLeg(leg, { type: "cancelled" }, (error) => report(error, request));
    over();
  }

  function over(): void {
    signal?.removeEventListener("abort", cancel);
    queue.close();
  }

  function report(error: unknown, { threadId, runId }: RunAgentInput): void {
    try {
      if (options.onError) options.onError(error, { agent: agent.name, threadId, runId });
      else console.error(`agent ${agent.name}, run ${runId} of thread ${threadId} failed:`, error);
    } catch (unreported) {
      // A reporter that throws must not cost the client its terminal event (R2).
      console.error(`onError threw for run ${runId} of thread ${threadId}:`, unreported, "; what it was given:", error);
    }
  }

  return {
    next() {
      if (!isStarted) {
        isStarted = true;
        start().then(over, (error: unknown) => queue.fail(error));
      }
      return queue.next();
    },
    return() {
      isStarted = true;
      cancel();
      queue.abandon();
      return Promise.resolve({ value: undefined, done: true });
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

function bodyAgent<S>(agent: Agent<S>): BodyAgent<S> {
  if (agent.loop === undefined) return agent;
  throw new PerdureError(
    "AGENT_NEEDS_STORE",
    `agent "${agent.name}" is driven from a log: serve it with createRuntime, over memory() if need be`,
  );
}

/** Runs an agent's body, without its durable operations, inside a leg that has begun. Resolves when the leg is over; a body that goes on is left behind. */
async function runLeg<S>(agent: BodyAgent<S>, leg: Leg<S>, report: (error: unknown) => void): Promise<void> {
  const fail = (error: unknown): void => {
    const isLate = leg.isOver && error instanceof RunInterrupted;
    if (!isLate) report(error);
    endLeg(leg, { type: "error", error: publicError(error) }, report);
  };
  const body = async (): Promise<void> => {
    // What it lacks says so (`refuseDurable`).
    const result = await agent.run(leg.context as LoopContext<S>);
    endLeg(leg, { type: "success", result: toJson(result, `result of agent "${agent.name}"`) }, report);
  };
  await Promise.race([
    body().catch(fail),
    leg.rested.then(() => endLeg(leg, { type: "interrupt" }, report)),
    new Promise<void>((resolve) => leg.signal.addEventListener("abort", () => resolve(), { once: true })),
  ]);
}

/** An ending that is not valid has become RUN_ERROR by then; whoever ends a leg, an abort listener too, has nobody to throw to. */
function endLeg<S>(leg: Leg<S>, how: LegEnd, report: (error: unknown) => void): void {
  try {
    leg.end(how);
  } catch (error) {
    report(error);
  }
}
