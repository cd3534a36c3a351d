/**
 * One model call, streamed as it comes and recorded as one answer. It owns the way from a model object to a {@link ModelAnswer}; when to ask,
 * how often, and what an answer means for the run are the loop's business.
 *
 * 1. An answer is whole or there is none: only a stream that said how it finished becomes an output.
 * 2. After a whole answer each opened part was ended. After a throw, parts are open as they are: whoever drives knows whether to take them
 *    back or to close them as incomplete, and an end sent from here would say that they are whole.
 * 3. The signal ends the call at once, whether the provider honours it or not; what is thrown then is the signal's reason.
 * 4. What the emitter throws passes unchanged: it is no failure of the model.
 */

import type { ModelEmitter } from "../runtime/model-emitter.ts";
import { ModelAssembly } from "./model-assembly.ts";
import { ModelError, toModelError } from "./model-error.ts";
import type { ModelAnswer } from "./model-output.ts";
import { readPart } from "./model-parts.ts";
import { type LanguageModel, type ModelRequest, nativeOptions } from "./model-port.ts";

/**
 * Asks the model once.
 *
 * @param emit - gets the answer while it comes
 * @returns the whole answer, whatever its `finishReason`
 * @throws {@link ModelError} when there is none; the signal's reason when it was aborted
 */
export async function callModel(request: ModelRequest, emit: ModelEmitter): Promise<ModelAnswer> {
  const { model, signal } = request;
  const assembly = new ModelAssembly(emit);
  const reader = (await ask(request)).getReader();
  // A pending read ends with this, even if the provider's own cancelling hangs.
  const cancel = (): void => drop(reader.cancel(signal.reason));
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel(); // it fired while the answer was on its way, and fires no more
  try {
    for (;;) {
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
      if (part.type === "error") throw toModelError(model, part.error, "stream");
      if (part.type === "finish") return assembly.finish(part);
      assembly.take(part);
      const pumped = emit.pump();
      if (pumped !== undefined) await untilAborted(pumped, signal);
    }
  } finally {
    signal.removeEventListener("abort", cancel);
    drop(reader.cancel());
  }
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
function drop(cancelled: Promise<void>): void {
  cancelled.catch(() => undefined);
}
