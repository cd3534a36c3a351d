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
import type { AGUIEvent } from "../protocol/events.ts";
import { normaliseInput } from "../protocol/input.ts";
import { toJson } from "../protocol/json.ts";
import type { Principal } from "../protocol/words.ts";
import type { BodyAgent } from "./agent-definition.ts";
import { EventQueue } from "./event-queue.ts";
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
  agent: BodyAgent<S>,
  input: RunAgentInput,
  options: StreamRunOptions = {},
): AsyncIterableIterator<AGUIEvent> {
  const queue = new EventQueue();
  const { signal } = options;
  let leg: Leg<S> | undefined;
  let isStarted = false;

  async function start(): Promise<void> {
    const { input: request, warnings } = normaliseInput(input);
    for (const warning of warnings) options.onWarning?.(warning);
    leg = new Leg<S>({
      input: request,
      state: await startingState(agent, request),
      principal: options.principal ?? ANONYMOUS,
      stream: streamOf(queue, request),
      transformers: agent.transformers ?? [],
    });
    signal?.addEventListener("abort", cancel, { once: true });
    await runLeg(agent, leg, report);
  }

  function cancel(): void {
    leg?.end({ type: "cancelled" });
    over();
  }

  function over(): void {
    signal?.removeEventListener("abort", cancel);
    queue.close();
  }

  function report(error: unknown): void {
    const run = { agent: agent.name, threadId: input.threadId, runId: input.runId };
    if (options.onError) options.onError(error, run);
    else console.error(`agent ${run.agent}, run ${run.runId} of thread ${run.threadId} failed:`, error);
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

/** Runs an agent's body inside a leg. Resolves when the leg is over; a body that goes on is left behind. */
export async function runLeg<S>(agent: BodyAgent<S>, leg: Leg<S>, report: (error: unknown) => void): Promise<void> {
  const end = (how: LegEnd): void => {
    try {
      leg.end(how);
    } catch (error) {
      report(error);
    }
  };
  const fail = (error: unknown): void => {
    const isLate = leg.isOver && error instanceof RunInterrupted;
    if (!isLate) report(error);
    end({ type: "error", error: publicError(error) });
  };
  const body = async (): Promise<void> => {
    leg.begin();
    if (leg.signal.aborted) return;
    const result = await agent.run(leg.context);
    end({ type: "success", result: toJson(result, `result of agent "${agent.name}"`) });
  };
  await Promise.race([
    body().catch(fail),
    leg.rested.then(() => end({ type: "interrupt" })),
    new Promise<void>((resolve) => leg.signal.addEventListener("abort", () => resolve(), { once: true })),
  ]);
}
