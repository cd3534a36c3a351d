/**
 * Drives a run whose agent is a body of the user's own, one leg at a time: its frames, state and questions are in the log, its place in the
 * code is not. So a leg that a crash cut ends, at recovery, with RUN_ERROR `RUN_INTERRUPTED`.
 *
 * B1. A leg runs the body from the top, with every answer that the run has got.
 * B2. What the stream says at a leg's end is one batch with the fact that the leg has ended, and with what becomes of the run.
 */
import { closeLeftovers } from "../emit/leftovers.ts";
import { Leg } from "../emit/leg.ts";
import type { LegOutcome, NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import type { RunAgentInput, Interrupt as WireInterrupt } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import { PayloadTooLargeError } from "../protocol/payload.ts";
import type { Path, Principal } from "../protocol/words.ts";
import type { BodyAgent } from "./agent-definition.ts";
import { BodyQuestions, questionOf } from "./body-questions.ts";
import { BodyStream, LoggedState, type Terminal } from "./body-stream.ts";
import { DriveSession } from "./drive-session.ts";
import { type Driven, untilDriven } from "./driven.ts";
import type { DriverOptions } from "./driver-options.ts";
import { intake, openClientCalls } from "./intake.ts";
import { ABANDONED } from "./interrupts.ts";
import { LeaseLostError } from "./run-log.ts";
import { runLeg } from "./stream-run.ts";

const ROOT = "" as Path;
const INTERRUPTED = { code: "RUN_INTERRUPTED", message: "The server stopped in the middle of this run." };

/** Drives a run until it parks, ends, or is lost. Never throws. */
export function driveBody(options: DriverOptions<BodyAgent>): Promise<Driven> {
  return untilDriven(new BodyDriver(options), options);
}

class BodyDriver {
  readonly #options: DriverOptions<BodyAgent>;
  readonly #session: DriveSession;
  readonly #unwatch: () => void;

  constructor(options: DriverOptions<BodyAgent>) {
    this.#options = options;
    this.#session = new DriveSession(options);
    this.#unwatch = options.store.watch({ inbox: options.lease.uid }, this.#session.wake);
  }

  async run(): Promise<Driven> {
    const { lease, stop } = this.#options;
    // The first driver of a run finds its first leg open. Whoever else finds one open finds what a crash has left.
    if (this.#session.state.leg !== null && lease.epoch > 1) return await this.#interrupted();
    for (;;) {
      if (stop.aborted) return await this.#release();
      await this.#takeInbox();
      const { state } = this.#session;
      if (state.leg === null) {
        if (await this.#session.offer([], { ends: REST })) return "parked";
      } else if (state.cancelled) {
        if (await this.#finish({ type: "cancelled" }, "cancelled")) return "finished";
      } else {
        const ended = await this.#leg();
        if (ended !== undefined) return ended;
      }
    }
  }

  close(): void {
    this.#unwatch();
    this.#session.close();
  }

  async #takeInbox(): Promise<void> {
    const items = await this.#options.store.inbox(this.#options.lease.uid);
    if (items.length === 0) return;
    await this.#session.offer(intake(this.#session.state, items), { taken: items.map(({ row }) => row) });
  }

  /** One leg, from the body's first line to the batch that ends it. */
  async #leg(): Promise<Driven | undefined> {
    const session = this.#session;
    const { agent, report, now, lease } = this.#options;
    const questions = new BodyQuestions(session.state);
    const stream = new BodyStream(session);
    const leg = new Leg<unknown>({
      input: inputOf(session.state),
      state: session.state.shown,
      published: new LoggedState(session),
      principal: principalOf(session.state),
      resume: questions.replies,
      idPrefix: lease.uid,
      stream,
      transformers: agent.transformers ?? [],
      memory: session.memory,
      now,
      questionId: (ask) => questions.idOf(ask),
    });
    const watching = this.#cancelWhenAsked(leg);
    await (await session.begin(() => runLeg(agent, leg, (error) => report(error, lease.uid)))).begun;
    watching.stop();
    session.signal.throwIfAborted();
    const { terminal } = stream;
    if (terminal === undefined) throw new LeaseLostError(lease.uid, lease.epoch);
    for (;;) {
      const ended = await this.#endWith(terminal, leg.interrupts).catch(async (error: unknown) => {
        if (!(error instanceof PayloadTooLargeError)) throw error;
        // What the body returned, or asked, is more than the log takes.
        report(error, lease.uid);
        const { code, message } = error;
        return (await this.#finish({ type: "error", error: { code, message } }, "failed"))
          ? ("finished" as const)
          : undefined;
      });
      if (ended !== undefined) return ended;
      await this.#takeInbox();
    }
  }

  async #endWith(terminal: Terminal, asked: readonly WireInterrupt[]): Promise<Driven | undefined> {
    if (terminal.type === "RUN_ERROR") {
      const error = { code: terminal.code ?? "INTERNAL", message: terminal.message };
      return (await this.#finish({ type: "error", error }, "failed", terminal.usage)) ? "finished" : undefined;
    }
    const { outcome, result, usage } = terminal;
    switch (outcome?.type) {
      case "interrupt":
        return (await this.#park({ type: "interrupt", interrupts: outcome.interrupts }, usage, asked))
          ? "parked"
          : undefined;
      case "cancelled":
        return (await this.#finish({ type: "cancelled" }, "cancelled", usage)) ? "finished" : undefined;
      default: {
        const pendingToolCallIds = outcome?.pendingToolCallIds ?? [];
        const success: LegOutcome = {
          type: "success",
          pendingToolCallIds,
          ...(result !== undefined && { result: result as Json }),
        };
        if (pendingToolCallIds.length > 0) return (await this.#park(success, usage, [])) ? "parked" : undefined;
        return (await this.#finish(success, "success", usage)) ? "finished" : undefined;
      }
    }
  }

  /** The leg has ended, and the run waits: for its questions, or for the client to run calls. */
  async #park(outcome: LegOutcome, usage: Usage = [], asked: readonly WireInterrupt[]): Promise<boolean> {
    const { state } = this.#session;
    const leg = state.leg?.leg ?? 0;
    const calls = outcome.type === "success" ? outcome.pendingToolCallIds : [];
    const expiries = asked.flatMap(({ expiresAt }) => (expiresAt === undefined ? [] : [Date.parse(expiresAt)]));
    return await this.#session.offer(
      [
        ...asked.map((interrupt): NewEntry => ({ kind: "interrupt.opened", interrupt: questionOf(interrupt) })),
        ...clientSteps(state, calls),
        { kind: "leg.finished", leg, outcome, usage },
        { kind: "frame", path: ROOT, ref: { of: "RUN_FINISHED", leg } },
        { kind: "run.parked", why: outcome.type === "interrupt" ? "interrupt" : "client-tool" },
      ],
      { ends: { ...REST, wakeAt: expiries.length === 0 ? null : Math.min(...expiries) } },
    );
  }

  async #finish(ending: LegOutcome, by: "success" | "cancelled" | "failed", usage: Usage = []): Promise<boolean> {
    const { state } = this.#session;
    const how = state.abandoned ? "abandoned" : by;
    const outcome: LegOutcome = state.abandoned ? { type: "error", error: ABANDONED } : ending;
    const leg = state.leg?.leg ?? 0;
    const open = [...state.interrupts.values()].filter(({ kind }) => kind !== "client-tool");
    const isFailed = outcome.type === "error";
    return await this.#session.offer(
      [
        ...open.flatMap(({ id }) => this.#session.closing(id, { status: "withdrawn", by: "" })),
        ...openClientCalls(state).flatMap(({ path }): NewEntry[] => [
          { kind: "step.finished", path, via: "answer", status: "cancelled" },
          { kind: "frame", path, ref: { of: "TOOL_CALL_RESULT", path } },
        ]),
        { kind: "leg.finished", leg, outcome, usage },
        { kind: "frame", path: ROOT, ref: { of: isFailed ? "RUN_ERROR" : "RUN_FINISHED", leg } },
        {
          kind: "run.finished",
          outcome: how,
          unresolved: [],
          ...(outcome.type === "success" && outcome.result !== undefined && { output: outcome.result }),
          ...(isFailed && { error: outcome.error }),
        },
      ],
      { ends: REST },
    );
  }

  /** The process that ran this leg died, and the place in its code with it. */
  async #interrupted(): Promise<Driven> {
    this.#session.add([{ kind: "run.resumed", why: "recovered", epoch: this.#options.lease.epoch }]);
    closeLeftovers(this.#session.outlet, { type: "cut", error: INTERRUPTED });
    for (;;) {
      if (await this.#finish({ type: "error", error: INTERRUPTED }, "failed")) return "finished";
      await this.#takeInbox();
    }
  }

  async #release(): Promise<Driven> {
    await this.#session.offer([], { ends: { ...REST, runnable: true } });
    return "released";
  }

  /** Ends the leg when a cancel comes in, or when the lease is lost. */
  #cancelWhenAsked(leg: Leg<unknown>): { stop(): void } {
    const { store, lease, report } = this.#options;
    const look = (): void => {
      store.inbox(lease.uid).then(
        (items) => {
          if (items.some(({ kind }) => kind === "cancel" || kind === "abandon")) leg.end({ type: "cancelled" });
        },
        (error: unknown) => report(error, lease.uid),
      );
    };
    const unwatch = store.watch({ inbox: lease.uid }, look);
    const lost = (): void => leg.end({ type: "cancelled" });
    this.#session.signal.addEventListener("abort", lost, { once: true });
    const giveUp = (): void => leg.end({ type: "error", error: INTERRUPTED });
    this.#options.giveUp.addEventListener("abort", giveUp, { once: true });
    look();
    return {
      stop: () => {
        unwatch();
        this.#session.signal.removeEventListener("abort", lost);
        this.#options.giveUp.removeEventListener("abort", giveUp);
      },
    };
  }
}

type Usage = Extract<NewEntry, { kind: "leg.finished" }>["usage"];

const REST = { runnable: false, wakeAt: null, waitsForKey: null } as const;

/** Calls that the body left to the client, as steps that the client finishes. */
function clientSteps(run: RunState, toolCallIds: readonly string[]): NewEntry[] {
  const calls = run.messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  return toolCallIds.map((toolCallId, i): NewEntry => {
    const call = calls.find(({ id }) => id === toolCallId);
    return {
      kind: "step.started",
      path: String(run.steps.size + i) as Path,
      step: "client-tool",
      name: call?.function.name ?? "",
      effect: "read",
      input: { value: argumentsOf(call?.function.arguments) },
      contract: null,
      toolCallId,
    };
  });
}

function argumentsOf(text: string | undefined): Json {
  return text ? (JSON.parse(text) as Json) : {};
}

/** The request as the body sees it: what came in first or newest, with the thread as the server knows it. */
function inputOf({ run, leg, request, messages, shown }: RunState): RunAgentInput {
  const { tools = [], context = [], forwardedProps = null, protocolVersion, parentRunId } = request ?? {};
  return {
    threadId: run.thread ?? run.uid,
    runId: leg?.runId ?? run.uid,
    messages: [...messages],
    tools: [...tools],
    context: [...context],
    state: shown,
    ...(forwardedProps !== null && { forwardedProps }),
    ...(protocolVersion && { protocolVersion }),
    ...(parentRunId !== undefined && { parentRunId }),
  };
}

function principalOf({ run, request }: RunState): Principal {
  return request?.principal ?? { ...run.owner, scopes: [] };
}
