/**
 * Traces by OpenTelemetry's conventions for generative AI, whose attribute names are still incubating and are copied here.
 *
 * O1. A run is one trace: that of the request that began it, or one of its own. Its labels carry the `traceparent`, so each driver's spans
 *     join it, whatever became of the driver before.
 * O2. A driver's time with a run is an `invoke_agent` span; in it an attempt at a model step is a `chat` span, one at a call `execute_tool`.
 *     What a body does is inside its attempt's span. A span that a crash has cut was never exported: the next driver's say what followed.
 * O3. What people, models and tools have said is recorded only when it was asked for.
 */
import {
  type Attributes,
  type Context,
  context,
  isSpanContextValid,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import type { Fact, NewEntry } from "../log/entries.ts";
import type { RunState } from "../log/fold.ts";
import { resolveInput } from "../log/model-output.ts";
import { threadIdOf } from "../log/render.ts";
import { editedArguments } from "../log/tool-result.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { Path, RecordedError } from "../protocol/words.ts";
import type { Driven } from "./driven.ts";
import type { DriveObserver, ObservedDrive, Observer } from "./observer.ts";

export interface OpenTelemetryOptions {
  /** Default: the global provider's, by the name `perdure`. */
  readonly tracer?: Tracer;
  /** Whether prompts, answers, arguments and results become attributes. They may hold what is secret. Default: no. */
  readonly content?: boolean;
}

/** What `createRuntime({ telemetry })` takes, over the OpenTelemetry SDK that the process has set up. */
export function openTelemetry({ tracer, content = false }: OpenTelemetryOptions = {}): Observer {
  // A provider may be registered later than the runtime is made.
  const tracerOf = (): Tracer => tracer ?? trace.getTracer("perdure");
  return {
    answers(headers, work) {
      if (trace.getSpan(context.active()) !== undefined) return work();
      return context.with(propagation.extract(context.active(), Object.fromEntries(headers)), work);
    },
    begins({ uid, agent, thread }) {
      const asked = trace.getSpanContext(context.active());
      if (asked !== undefined && isSpanContextValid(asked)) return { [LABEL]: traceparent(asked) };
      const attributes = { "perdure.run": uid, "gen_ai.agent.name": agent, "gen_ai.conversation.id": thread };
      const span = tracerOf().startSpan(`perdure.run ${agent}`, { root: true, attributes });
      span.end();
      return isSpanContextValid(span.spanContext()) ? { [LABEL]: traceparent(span.spanContext()) } : {};
    },
    drives: (drive) => new Drive(tracerOf(), drive, content),
  };
}

const LABEL = "traceparent";

class Drive implements DriveObserver {
  readonly #span: Span;
  readonly #inside: Context;
  /** Attempts without an outcome, and the steps that this driver knows. */
  readonly #open = new Map<Path, Span>();
  readonly #started = new Map<Path, Fact<"step.started">>();

  constructor(
    private readonly tracer: Tracer,
    private readonly drive: ObservedDrive,
    private readonly content: boolean,
  ) {
    const { agent, run, epoch } = drive;
    for (const [path, { started }] of run.steps) this.#started.set(path, started);
    const root = spanContextOf(run.run.labels[LABEL]);
    // Not what is active: a run may have been claimed while another one's request was answered.
    const parent = root === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, root);
    this.#span = this.tracer.startSpan(
      `invoke_agent ${agent.name}`,
      {
        kind: SpanKind.INTERNAL,
        attributes: {
          "gen_ai.operation.name": "invoke_agent",
          "gen_ai.agent.name": agent.name,
          ...(agent.description !== undefined && { "gen_ai.agent.description": agent.description }),
          "gen_ai.conversation.id": threadIdOf(run.run),
          "perdure.run": run.run.uid,
          "perdure.epoch": epoch,
          ...(run.run.forkedFrom !== undefined && { "perdure.forked_from": run.run.forkedFrom.uid }),
        },
      },
      parent,
    );
    this.#inside = trace.setSpan(parent, this.#span);
  }

  appended(entries: readonly NewEntry[], at: number, run: RunState): void {
    for (const entry of entries) if (entry.kind !== "frame") this.#note(entry, at, run);
  }

  inside<T>(path: Path, body: () => T): T {
    const span = this.#open.get(path);
    return context.with(span === undefined ? this.#inside : trace.setSpan(this.#inside, span), body);
  }

  ends(how: Driven): void {
    for (const span of this.#open.values()) {
      if (how === "lost") span.setStatus({ code: SpanStatusCode.ERROR, message: "its driver has lost the run" });
      span.end();
    }
    this.#open.clear();
    this.#span.setAttribute("perdure.left", how);
    if (how === "lost") this.#span.setStatus({ code: SpanStatusCode.ERROR, message: "the run was lost" });
    this.#span.end();
  }

  #note(entry: Fact, at: number, run: RunState): void {
    switch (entry.kind) {
      case "leg.started":
        if (!this.content || entry.request === null) return;
        this.#span.setAttribute("gen_ai.input.messages", JSON.stringify(entry.request.messages));
        return;
      case "step.started":
        this.#started.set(entry.path, entry);
        return;
      case "step.attempt": {
        const started = this.#started.get(entry.path);
        if (started !== undefined) this.#open.set(entry.path, this.#begin(started, entry, at, run));
        return;
      }
      case "step.failed":
        this.#end(entry.path, at, { ...failure(entry.error), "perdure.applied": entry.applied }, entry.error);
        return;
      case "step.finished":
        this.#finish(entry, at);
        return;
      case "interrupt.opened": {
        const { id, kind, path } = entry.interrupt;
        this.#span.addEvent("perdure.interrupt.opened", { "perdure.interrupt": id, "perdure.kind": kind }, at);
        if (kind === "suspension") this.#end(path, at, { "perdure.suspended": true });
        return;
      }
      case "interrupt.answered":
        this.#span.addEvent(
          "perdure.interrupt.answered",
          { "perdure.interrupt": entry.id, "perdure.status": entry.status },
          at,
        );
        return;
      case "run.finished":
        this.#span.setAttribute("perdure.outcome", entry.outcome);
        if (entry.outcome !== "failed" && entry.outcome !== "abandoned") return;
        if (entry.error !== undefined) this.#span.setAttributes(failure(entry.error));
        this.#span.setStatus({ code: SpanStatusCode.ERROR, message: entry.error?.message ?? entry.outcome });
        return;
      default:
    }
  }

  #begin(started: Fact<"step.started">, attempt: Fact<"step.attempt"> | undefined, at: number, run: RunState): Span {
    const { path, step, name, effect, toolCallId } = started;
    const common = { "perdure.step": path, ...(attempt !== undefined && { "perdure.attempt": attempt.n }) };
    if (step === "model") {
      const { provider, modelId } = attempt?.model ?? {};
      return this.tracer.startSpan(
        modelId === undefined ? "chat" : `chat ${modelId}`,
        {
          kind: SpanKind.CLIENT,
          startTime: at,
          attributes: {
            ...{ "gen_ai.operation.name": "chat", ...common },
            ...(provider !== undefined && { "gen_ai.provider.name": providerName(provider) }),
            ...(modelId !== undefined && { "gen_ai.request.model": modelId }),
            ...requestSettings(started),
            ...(this.content && this.#prompt(started, run)),
          },
        },
        this.#inside,
      );
    }
    const isTool = step === "tool" || step === "client-tool";
    return this.tracer.startSpan(
      isTool ? `execute_tool ${name}` : `${step} ${name}`,
      {
        kind: SpanKind.INTERNAL,
        startTime: at,
        attributes: {
          ...common,
          "perdure.effect": effect,
          ...(isTool && {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            ...(toolCallId !== undefined && { "gen_ai.tool.call.id": toolCallId }),
          }),
          ...(this.content && this.#arguments(started, run)),
        },
      },
      this.#inside,
    );
  }

  #finish(entry: Fact<"step.finished">, at: number): void {
    const { path, via } = entry;
    const started = this.#started.get(path);
    if (started === undefined) return;
    // Nothing of this driver has run for it: another driver's attempt was judged, or somebody else has answered.
    if (!this.#open.has(path)) this.#open.set(path, this.#begin(started, undefined, at, this.drive.run));
    const attributes: Attributes = {
      "perdure.via": via,
      "perdure.status": entry.status,
      ...(started.step === "model" && answered(entry, this.content)),
      ...(this.content &&
        started.step !== "model" &&
        entry.status === "ok" && { "gen_ai.tool.call.result": JSON.stringify(entry.output) }),
      ...(entry.status === "error" && { ...failure(entry.error), "perdure.applied": entry.applied }),
    };
    this.#end(path, at, attributes, entry.status === "error" ? entry.error : undefined);
  }

  #end(path: Path, at: number, attributes: Attributes, error?: RecordedError): void {
    const span = this.#open.get(path);
    if (span === undefined) return;
    this.#open.delete(path);
    span.setAttributes(attributes);
    if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
    span.end(at);
  }

  #prompt({ input }: Fact<"step.started">, run: RunState): Attributes {
    const { agent, before } = this.drive;
    if (agent.loop === undefined || !("history" in input)) return {};
    try {
      const { prompt, tools } = agent.loop.asks({ run, before, settings: input.history.settings });
      return { "gen_ai.input.messages": JSON.stringify(prompt), "gen_ai.tool.definitions": JSON.stringify(tools) };
    } catch {
      return {}; // the model call says what is wrong
    }
  }

  #arguments({ path, input }: Fact<"step.started">, run: RunState): Attributes {
    const step = run.steps.get(path);
    if ("history" in input) return {};
    return { "gen_ai.tool.call.arguments": JSON.stringify(editedArguments(step) ?? resolveInput(run, input)) };
  }
}

function failure({ code }: RecordedError): Attributes {
  return { "error.type": code };
}

/** `openai.chat` and `openai.responses` are one provider. */
function providerName(provider: string): string {
  return provider.split(".")[0] ?? provider;
}

const SETTINGS = {
  maxOutputTokens: "gen_ai.request.max_tokens",
  temperature: "gen_ai.request.temperature",
  topP: "gen_ai.request.top_p",
  topK: "gen_ai.request.top_k",
  presencePenalty: "gen_ai.request.presence_penalty",
  frequencyPenalty: "gen_ai.request.frequency_penalty",
  seed: "gen_ai.request.seed",
} as const;

function requestSettings({ input }: Fact<"step.started">): Attributes {
  const settings = "history" in input ? input.history.settings : null;
  if (!isJsonObject(settings)) return {};
  return Object.fromEntries(
    Object.entries(SETTINGS).flatMap(([name, attribute]) => {
      const value = settings[name];
      return typeof value === "number" ? [[attribute, value]] : [];
    }),
  );
}

type Counted = "inputTokens" | "outputTokens" | "cachedInputTokens" | "cacheWriteInputTokens";

/** What an answer says of itself. */
function answered(entry: Fact<"step.finished">, withContent: boolean): Attributes {
  const output: Json = entry.status === "ok" ? entry.output : null;
  const said = isJsonObject(output) ? output : {};
  const response = isJsonObject(said.response ?? null) ? (said.response as { readonly [name: string]: Json }) : {};
  const sum = (count: Counted): number | undefined => {
    const counts = (entry.usage ?? []).flatMap((usage) => usage[count] ?? []);
    return counts.length === 0 ? undefined : counts.reduce((total, n) => total + n, 0);
  };
  const all: { readonly [name: string]: Attributes[string] } = {
    "gen_ai.usage.input_tokens": sum("inputTokens"),
    "gen_ai.usage.output_tokens": sum("outputTokens"),
    "gen_ai.usage.cache_read.input_tokens": sum("cachedInputTokens"),
    "gen_ai.usage.cache_creation.input_tokens": sum("cacheWriteInputTokens"),
    "gen_ai.response.id": typeof response.id === "string" ? response.id : undefined,
    "gen_ai.response.model": typeof response.modelId === "string" ? response.modelId : undefined,
    "gen_ai.response.finish_reasons": typeof said.finishReason === "string" ? [said.finishReason] : undefined,
    "gen_ai.output.messages": withContent && entry.status === "ok" ? JSON.stringify(output) : undefined,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

/** W3C Trace Context. */
function traceparent({ traceId, spanId, traceFlags }: SpanContext): string {
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

function spanContextOf(text: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(text ?? "") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  const root = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
  return isSpanContextValid(root) ? root : undefined;
}
