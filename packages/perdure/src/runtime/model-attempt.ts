import { CANCELLED } from "../emit/errors.ts";
import type { NewEntry, StepEnd } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { closeIncomplete, retract } from "../log/retract.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path } from "../protocol/words.ts";
import type { ModelAsk } from "./agent-definition.ts";
import { recordedError, TimeIsUp } from "./attempt-outcome.ts";
import type { ModelBound } from "./budget.ts";
import { describedAs } from "./describes.ts";
import type { DriveSession } from "./drive-session.ts";
import type { DriverOptions } from "./driver-options.ts";
import { afterModelFailure, modelToAsk } from "./model-retry.ts";
import { ModelStepEmitter } from "./model-step.ts";

/** A model step that is asked, whoever wants to know. */
interface BoundAsk extends ModelAsk {
  /** What keeps it within its run's budget. */
  readonly bound: ModelBound;
}

/** One attempt at a model step of the agent's loop. */
export function modelAttempt(
  options: DriverOptions,
  session: DriveSession,
  { path, ...bound }: { readonly path: Path } & ModelBound,
): (signal: AbortSignal) => Promise<void> {
  const {
    agent: { loop },
    before,
  } = options;
  const asked = loop.ask?.(path);
  if (asked !== undefined) return attemptAtModel(options, session, { ...asked, bound });
  return attemptAtModel(options, session, {
    path,
    policy: loop.models,
    bound,
    // Without its tools the call below fails, which is recorded.
    prepare: async (signal) => await loop.refresh?.(signal).catch(() => {}),
    started: (run) => ({
      ...{ kind: "step.started", path, step: "model", name: "model", effect: "read", contract: null },
      input: { history: { upTo: run.head, ...describedAs(loop), settings: loop.settings(run, path) } },
    }),
    call: ({ run, ...request }) =>
      loop.callModel({ run, before, path, settings: recordedSettings(run, path), ...request }),
  });
}

/**
 * One attempt at a model step: recorded before it is asked, and its answer recorded as one batch with the ends of its calls. What a failed one
 * has shown is taken back when another one follows.
 *
 * @returns what to run; it resolves when the attempt has its outcome
 */
function attemptAtModel(
  { report, now, random }: Pick<DriverOptions, "report" | "now" | "random">,
  session: DriveSession,
  ask: BoundAsk,
): (signal: AbortSignal) => Promise<void> {
  const { path, policy, bound } = ask;
  const { state } = session;
  const known = state.steps.get(path);
  const n = (known?.attempts.length ?? 0) + 1;
  const model = modelToAsk(known, policy);
  const asked = policy.models[model];
  return async (signal) => {
    // At once where there is nothing to prepare: what lanes beside it may use depends on what is reserved here.
    if (ask.prepare !== undefined) await ask.prepare(signal);
    session.add([
      ...(known === undefined ? [ask.started(state)] : []),
      {
        ...{ kind: "step.attempt", path, n, epoch: session.epoch, phase: "call", key: null },
        deadline: bound.deadline ?? null,
        ...(asked !== undefined && { model: { provider: asked.provider, modelId: asked.modelId } }),
        ...(bound.reserved && { reserved: bound.reserved }),
      },
    ]);
    await session.committed();
    const emit = new ModelStepEmitter(session.outlet, state.run.uid, path);
    try {
      const most = bound.reserved && { maxOutputTokens: bound.reserved.output };
      const { begun } = await session.begin(() => ask.call({ run: session.state, model, signal, emit, ...most }), path);
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
      const { cancelled } = session.state;
      const told = cancelled ? CANCELLED : recordedError(error, state.run.uid, report);
      const again = cancelled
        ? undefined
        : error instanceof TimeIsUp
          ? { error: told, retryAt: now() }
          : afterModelFailure(known, policy, model, error, { now: now(), random: random() });
      if (again !== undefined) {
        const failed = { kind: "step.failed", path, n, applied: "no", ...again } as const;
        session.add(retract(session.state, failed, session.stateToShow()));
        return;
      }
      // What was said stays on the screen, marked as not whole; half a call is taken back.
      const end: StepEnd = cancelled ? { status: "cancelled" } : { status: "error", error: told, applied: "no" };
      const closed = closeIncomplete(session.state, path, told);
      session.add([...closed, { kind: "step.finished", path, via: "call", ...end }]);
    }
  };
}

/** The settings with which a step began, so that each attempt asks what the log says. */
function recordedSettings({ steps }: RunState, path: Path): Json {
  const input = steps.get(path)?.started.input;
  return input !== undefined && "history" in input ? input.history.settings : {};
}

/** Calls of a recorded answer whose arguments are not whole: on the screen they were cut, so they are taken back there. */
function invalidCalls(output: Json): string[] {
  const calls = isJsonObject(output) && Array.isArray(output.calls) ? output.calls : [];
  return calls.flatMap((call: Json) =>
    isJsonObject(call) && call.invalid !== undefined && typeof call.id === "string" ? [call.id] : [],
  );
}
