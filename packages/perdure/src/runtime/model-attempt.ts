import { CANCELLED } from "../emit/errors.ts";
import type { NewEntry, StepEnd } from "../log/entries.ts";
import { closeIncomplete } from "../log/retract.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import { recordedError } from "./attempt-outcome.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { sha256 } from "./hash.ts";
import { ModelStepEmitter } from "./model-step.ts";

/**
 * One attempt at a model step: recorded before it is asked, and its answer recorded as one batch with the ends of its calls.
 *
 * @returns what to run; it resolves when the attempt has its outcome
 */
export function modelAttempt(
  options: DriverOptions,
  session: DriveSession,
  path: Path,
): (signal: AbortSignal) => Promise<void> {
  const {
    agent: { loop },
    before,
    report,
  } = options;
  const { state } = session;
  const known = state.steps.get(path);
  const n = (known?.attempts.length ?? 0) + 1;
  const started = (): NewEntry => ({
    kind: "step.started",
    path,
    step: "model",
    name: "model",
    effect: "read",
    input: {
      history: {
        upTo: state.head,
        instructions: sha256(loop.describes.instructions),
        tools: sha256(JSON.stringify(loop.describes.tools)),
        settings: loop.describes.settings,
      },
    },
    contract: null,
  });
  return async (signal) => {
    // Without its tools the call below fails, which is recorded.
    await loop.refresh?.(signal).catch(() => {});
    session.add([
      ...(known === undefined ? [started()] : []),
      { kind: "step.attempt", path, n, epoch: session.epoch, phase: "call", key: null, deadline: null },
    ]);
    await session.committed();
    const emit = new ModelStepEmitter(session.outlet, state.run.uid, path);
    try {
      const { begun } = await session.begin(() => loop.callModel({ run: session.state, before, path, signal, emit }));
      const { output: said, usage } = await begun;
      if (!session.isRunning(path, n)) return;
      const output: Json = isJsonObject(said) ? { ...said, messageId: emit.isShown ? emit.messageId : null } : said;
      const ends = emit.heldBack.map(({ event, lane }): NewEntry => ({ kind: "frame", path: lane, event }));
      const withdrawn = invalidCalls(output);
      const taken: NewEntry[] =
        withdrawn.length === 0 ? [] : [{ kind: "frame", path, ref: { of: "MESSAGES_SNAPSHOT", withdrawn } }];
      session.add([
        ...taken,
        ...ends,
        { kind: "step.finished", path, via: "call", status: "ok", output, patch: [], usage },
      ]);
    } catch (error) {
      if (!session.isRunning(path, n)) return;
      // What was said stays on the screen, marked as not whole; half a call is taken back.
      const end: StepEnd = session.state.cancelled
        ? { status: "cancelled" }
        : { status: "error", error: recordedError(error, state.run.uid, report), applied: "no" };
      const closed = closeIncomplete(session.state, path, end.status === "error" ? end.error : CANCELLED);
      session.add([...closed, { kind: "step.finished", path, via: "call", ...end }]);
    }
  };
}

/** Calls of a recorded answer whose arguments are not whole: on the screen they were cut, so they are taken back there. */
function invalidCalls(output: Json): string[] {
  const calls = isJsonObject(output) && Array.isArray(output.calls) ? output.calls : [];
  return calls.flatMap((call: Json) =>
    isJsonObject(call) && call.invalid !== undefined && typeof call.id === "string" ? [call.id] : [],
  );
}
