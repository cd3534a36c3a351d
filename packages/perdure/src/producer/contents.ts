/** What a stream's events say, held against what a client has by then: patches, snapshots, ids, versions, usage, the ways a run ends. */
import type { AGUIEvent, AGUIEventOf, Message, RunAgentInput, TokenUsage } from "../protocol/events.ts";
import { type Json, jsonEqual } from "../protocol/json.ts";
import { apply, type Patch, PatchError } from "../protocol/patch.ts";
import { reduce, type Transcript } from "../protocol/reduce.ts";
import type { Book, Evidence } from "./book.ts";
import type { ProducerRuleId } from "./rules.ts";
import { snapshotFaults } from "./snapshot-faults.ts";

export interface ContentsOptions {
  readonly request: Pick<RunAgentInput, "threadId" | "runId" | "protocolVersion">;
  readonly clientTools: readonly string[];
  /** What the client holds when it asks, its own new messages included. */
  readonly held: Transcript;
  /** Ids that belong to earlier turns; undefined where what is shown may be theirs, as after a resume. */
  readonly taken: ReadonlySet<string> | undefined;
  /** The answer of somebody who comes back: it may show again what was shown. */
  readonly isRejoin: boolean;
}

export class Contents {
  transcript: Transcript;
  /** False when what the client holds from here on is not what the server means it to hold. */
  isSound = true;
  readonly #runIds: string[] = [];
  /** This run has sent a STATE_SNAPSHOT. */
  #ownSnapshot = false;
  #endedByInterrupt = false;
  #sameSnapshots: { readonly index: number; readonly event: AGUIEvent }[] = [];
  /** Names of the calls of this stream. */
  readonly #calls = new Map<string, string>();
  readonly #texts = new Map<string, string>();

  constructor(
    private readonly input: string,
    private readonly book: Book,
    private readonly options: ContentsOptions,
  ) {
    this.transcript = options.held;
  }

  /** An event that was judged in the stream that this one goes on with. */
  recall(event: AGUIEvent): void {
    if (event.type === "RUN_STARTED") this.#runIds.push(event.runId);
    if (event.type === "STATE_SNAPSHOT") this.#ownSnapshot = true;
  }

  take(event: AGUIEvent, index: number): void {
    const evidence = { input: this.input, index, event };
    switch (event.type) {
      case "RUN_STARTED":
        this.#begin(event, index);
        break;
      case "RUN_FINISHED":
        this.#finish(event, index);
        break;
      case "RUN_ERROR":
        this.#usage(event.usage, evidence);
        this.book.check("run.error-once", evidence, this.#toldTwice(event.message));
        break;
      case "STATE_SNAPSHOT":
        this.book.occasion("state.noise");
        if (this.#ownSnapshot && jsonEqual(event.snapshot as Json, this.transcript.state))
          this.#sameSnapshots.push({ index, event });
        this.#ownSnapshot = true;
        break;
      case "STATE_DELTA": {
        const rule = this.#ownSnapshot ? "state.patch" : "state.baseline";
        this.#patch(rule, evidence, this.transcript.state, event.delta);
        this.book.check("state.noise", evidence, event.delta.length === 0 ? "the delta has no operation" : undefined);
        break;
      }
      case "ACTIVITY_DELTA": {
        const activity = this.transcript.messages.find(({ id }) => id === event.messageId);
        if (activity?.role === "activity") this.#patch("activity.patch", evidence, activity.content, event.patch);
        break;
      }
      case "MESSAGES_SNAPSHOT":
        for (const { rule, why } of snapshotFaults(this.transcript.messages, event.messages)) {
          this.book.broken(rule, evidence, why);
          this.isSound = false;
        }
        this.book.occasion("messages.ids", "messages.user", "messages.results", "messages.kept");
        break;
      case "TEXT_MESSAGE_START":
      case "REASONING_MESSAGE_START":
      case "TEXT_MESSAGE_CHUNK":
      case "REASONING_MESSAGE_CHUNK":
        this.#isFresh(event.messageId, event, index);
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.#texts.set(event.messageId, (this.#texts.get(event.messageId) ?? "") + event.delta);
        break;
      case "TOOL_CALL_START":
      case "TOOL_CALL_CHUNK":
        if (event.toolCallId !== undefined && event.toolCallName !== undefined)
          this.#calls.set(event.toolCallId, event.toolCallName);
        break;
      case "TOOL_CALL_RESULT":
        if (this.#isClients(event.toolCallId)) this.book.occasion("tools.client-result");
        break;
      default:
        break;
    }
    this.transcript = reduce(this.transcript, event);
  }

  end(): void {
    const { runId } = this.options.request;
    if (this.#runIds.length > 0 && !this.#runIds.includes(runId)) {
      const why = `the request's runId is "${runId}", the stream's "${this.#runIds.join('", "')}"`;
      this.book.broken("run.echo", { input: this.input }, why);
    }
    this.#noise();
  }

  #patch(rule: ProducerRuleId, evidence: Evidence, document: Json, patch: Patch): void {
    const why = misfit(document, patch);
    this.book.check(rule, evidence, why);
    if (why !== undefined) this.isSound = false;
  }

  #begin(event: AGUIEventOf<"RUN_STARTED">, index: number): void {
    const evidence = { input: this.input, index, event };
    if (this.#endedByInterrupt) {
      this.book.broken("interrupts.last", evidence, "a run begins behind an interrupt of the same stream");
      this.isSound = false;
    }
    this.#runIds.push(event.runId);
    this.#ownSnapshot = false;
    const { protocolVersion } = event;
    const asked = this.options.request.protocolVersion;
    const isEcho = asked !== undefined && asked !== "1.0" && protocolVersion === asked;
    if (protocolVersion === undefined) this.book.broken("run.version", evidence, "it states no protocolVersion");
    else if (!/^\d+\.\d+$/.test(protocolVersion)) {
      this.book.broken("run.version", evidence, `"${protocolVersion}" is not MAJOR.MINOR`);
    } else if (isEcho) this.book.broken("run.version", evidence, `it echoes the request's "${asked}"`);
  }

  #finish(event: AGUIEventOf<"RUN_FINISHED">, index: number): void {
    const evidence = { input: this.input, index, event };
    this.#usage(event.usage, evidence);
    const clients = [...this.#calls.keys()].filter((id) => this.#isClients(id));
    if (clients.length > 0) this.book.occasion("tools.client-success", "tools.client-result");
    const { outcome } = event;
    this.#endedByInterrupt = outcome?.type === "interrupt";
    if (outcome?.type !== "interrupt") {
      this.#noise();
      return;
    }
    // The snapshot before an interrupt is for who comes back to it, whether or not it says anything new.
    this.#sameSnapshots = [];
    this.book.occasion("interrupts.some", "interrupts.ids", "interrupts.snapshots", "interrupts.last");
    for (const { id, toolCallId, expiresAt } of outcome.interrupts) {
      if (toolCallId !== undefined && clients.includes(toolCallId)) {
        this.book.broken(
          "tools.client-success",
          evidence,
          `interrupt "${id}" asks for the client's call "${toolCallId}"`,
        );
      }
      if (expiresAt !== undefined) this.book.check("interrupts.expiry", evidence, expiryFault(id, expiresAt));
    }
  }

  #noise(): void {
    for (const { index, event } of this.#sameSnapshots) {
      this.book.broken(
        "state.noise",
        { input: this.input, index, event },
        "the snapshot is what the client has already from this run",
      );
    }
    this.#sameSnapshots = [];
  }

  #isFresh(id: string | undefined, event: AGUIEvent, index: number): void {
    const { taken, isRejoin } = this.options;
    if (taken === undefined || isRejoin || id === undefined) return;
    const why = `"${id}" is the id of a message of an earlier turn, and clients append to that one`;
    this.book.check("ids.unique", { input: this.input, index, event }, taken.has(id) ? why : undefined);
  }

  #isClients(toolCallId: string): boolean {
    const name = this.#calls.get(toolCallId);
    return name !== undefined && this.options.clientTools.includes(name);
  }

  #toldTwice(message: string): string | undefined {
    const isTold = message.length > 8 && [...this.#texts.values()].some((text) => text.includes(message));
    return isTold ? "a message of the run says the same" : undefined;
  }

  #usage(usage: readonly TokenUsage[] | undefined, evidence: { readonly input: string; readonly index: number }): void {
    if (usage === undefined) return;
    const models = usage.map(({ provider, model }) => `${provider ?? ""}/${model ?? ""}`);
    const twice = models.find((name, i) => models.indexOf(name) < i);
    this.book.check(
      "event.usage",
      evidence,
      twice === undefined ? usage.map(usageFault).find(Boolean) : `${twice} has two entries`,
    );
  }
}

function misfit(document: Json, patch: Patch): string | undefined {
  try {
    apply(document, patch);
    return undefined;
  } catch (error) {
    if (error instanceof PatchError) return error.message;
    throw error;
  }
}

function usageFault(usage: TokenUsage): string | undefined {
  const { inputTokens, outputTokens, totalTokens, reasoningTokens, cachedInputTokens, cacheWriteInputTokens } = usage;
  const cached = (cachedInputTokens ?? 0) + (cacheWriteInputTokens ?? 0);
  if (inputTokens !== undefined && cached > inputTokens)
    return `${cached} tokens of the cache are more than ${inputTokens} of input`;
  if (outputTokens !== undefined && (reasoningTokens ?? 0) > outputTokens) {
    return `${reasoningTokens} tokens of reasoning are more than ${outputTokens} of output`;
  }
  if (inputTokens === undefined || outputTokens === undefined || totalTokens === undefined) return undefined;
  return totalTokens === inputTokens + outputTokens
    ? undefined
    : `${totalTokens} in total are not ${inputTokens} and ${outputTokens}`;
}

function expiryFault(id: string, expiresAt: string): string | undefined {
  const time = Date.parse(expiresAt);
  if (Number.isNaN(time)) return `expiresAt of interrupt "${id}" is "${expiresAt}"`;
  return time > Date.now() ? undefined : `interrupt "${id}" has expired before it was asked, at ${expiresAt}`;
}

/** Ids of messages that a client holds. */
export function idsOf(messages: readonly Message[]): ReadonlySet<string> {
  return new Set(messages.map(({ id }) => id));
}
