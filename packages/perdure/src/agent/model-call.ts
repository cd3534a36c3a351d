/**
 * One model call, streamed as it comes and recorded as one answer. It owns the way from a model object to a {@link ModelAnswer}; when to ask,
 * how often, and what an answer means for the run are the loop's business.
 *
 * 1. An answer is whole or there is none: only a stream that said how it finished becomes an output.
 * 2. After a whole answer each opened part was ended. After a throw, parts are open as they are: whoever drives knows whether to take them
 *    back or to close them as incomplete, and an end sent from here would say that they are whole.
 * 3. The signal ends the call at once, whether the provider honours it or not; what is thrown then is the signal's reason. A silence that is
 *    too long ends it in the same way.
 * 4. What the emitter throws passes unchanged: it is no failure of the model.
 */

import type { ModelEmitter } from "../runtime/model-emitter.ts";
import { ModelError } from "../runtime/model-error.ts";
import { firedBy } from "../runtime/signals.ts";
import { ModelAssembly } from "./model-assembly.ts";
import { toModelError } from "./model-error.ts";
import type { ModelAnswer } from "./model-output.ts";
import { readPart } from "./model-parts.ts";
import { type LanguageModel, type ModelRequest, type ModelTimeouts, nativeOptions } from "./model-port.ts";

/**
 * Asks the model once.
 *
 * @param emit - gets the answer while it comes
 * @returns the whole answer, whatever its `finishReason`
 * @throws {@link ModelError} when there is none; the signal's reason when it was aborted
 */
export async function callModel(request: ModelRequest, emit: ModelEmitter): Promise<ModelAnswer> {
  const { model, timeouts } = request;
  const assembly = new ModelAssembly(emit);
  const stop = new AbortController();
  const stopped = firedBy(stop, request.signal);
  const { signal } = stop;
  const silence = new Silence(timeouts, (what) => stop.abort(timedOut(model, what)));
  let reader: ReadableStreamDefaultReader<object> | undefined;
  // A pending read ends with this, even if the provider's own cancelling hangs.
  const cancel = (): void => drop(reader?.cancel(signal.reason));
  signal.addEventListener("abort", cancel, { once: true });
  try {
    silence.begins("firstToken");
    reader = (await ask({ ...request, signal })).getReader();
    if (signal.aborted) cancel(); // it fired while the answer was on its way, and fires no more
    for (let hasBegun = false; ; ) {
      if (hasBegun) silence.begins("betweenTokens");
      let read: ReadableStreamReadResult<object>;
      try {
        read = await reader.read();
      } catch (cause) {
        signal.throwIfAborted();
        throw toModelError(model, cause, "stream");
      }
      signal.throwIfAborted();
      if (read.done) throw cut(model);
      const part = readPart(read.value, model);
      if (part === null) continue;
      hasBegun ||= !PRELIMINARY.has(part.type);
      if (hasBegun) silence.ends();
      if (part.type === "error") throw toModelError(model, part.error, "stream");
      if (part.type === "finish") return assembly.finish(part);
      assembly.take(part);
      const pumped = emit.pump();
      if (pumped !== undefined) await untilAborted(pumped, signal);
    }
  } finally {
    silence.ends();
    stopped.release();
    signal.removeEventListener("abort", cancel);
    drop(reader?.cancel());
  }
}

/** What a provider sends before the model has said anything. */
const PRELIMINARY: ReadonlySet<string> = new Set(["warnings", "response"]);

/** Watches how long nothing comes. While the answer waits for its readers it is not the model that is silent. */
class Silence {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly limits: ModelTimeouts | undefined,
    private readonly tooLong: (what: keyof ModelTimeouts) => void,
  ) {}

  begins(what: keyof ModelTimeouts): void {
    this.ends();
    if (this.limits === undefined) return;
    this.#timer = setTimeout(() => this.tooLong(what), Math.min(this.limits[what], 0x7fffffff));
  }

  ends(): void {
    clearTimeout(this.#timer);
  }
}

function timedOut(model: LanguageModel, what: keyof ModelTimeouts): ModelError {
  const name = `model ${model.provider}/${model.modelId}`;
  const message =
    what === "firstToken"
      ? `${name} did not begin its answer in time; try again, or allow more in timeouts.firstToken`
      : `${name} fell silent within its answer; try again, or allow more in timeouts.betweenTokens`;
  return new ModelError("MODEL_TIMEOUT", message, true);
}

async function ask(request: ModelRequest): Promise<ReadableStream<object>> {
  const { model, signal } = request;
  signal.throwIfAborted();
  try {
    const { stream } = await untilAborted(model.doStream(nativeOptions(request)), signal);
    return stream;
  } catch (cause) {
    signal.throwIfAborted();
    throw toModelError(model, cause, "request");
  }
}

function cut(model: LanguageModel): ModelError {
  const message = `the answer of model ${model.provider}/${model.modelId} stopped before its end; try again`;
  return new ModelError("MODEL_CUT", message, true);
}

/** The work's outcome, or the signal's reason if that comes first. */
function untilAborted<T>(work: PromiseLike<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort(); // the work itself may have caused it
    work.then(resolve, reject).then(() => signal.removeEventListener("abort", abort));
  });
}

/** Nobody reads this stream any more: how its cancelling fails changes nothing. */
function drop(cancelled: Promise<void> | undefined): void {
  cancelled?.catch(() => undefined);
}
