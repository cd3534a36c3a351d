/**
 * The order of a stream's events, as our one verifier judges it. That stops at the first fault; a check goes on, and must not name a second
 * fault where there is only one.
 *
 * O1. What the verifier refuses is left out of what comes after, and its id is *spoiled*: whatever is said of that id later is no news.
 * O2. The end of a run is judged once for each thing that is wrong with it, and then counts as an end.
 */
import { type AGUIEvent, type AGUIEventOf, event, type Message, PROTOCOL_VERSION } from "../protocol/events.ts";
import {
  closingEvent,
  newWire,
  openItems,
  ProtocolError,
  pendingToolCalls,
  type Rule,
  verify,
  verifyEnd,
  type Wire,
} from "../protocol/verify.ts";
import { Book } from "./book.ts";
import type { ProducerRuleId } from "./rules.ts";

/** What the verifier's rules are in the kit; null where the protocol does not ask it of others than ourselves. */
const VERDICTS: Readonly<Record<Rule, ProducerRuleId | null>> = {
  shape: "event.shape",
  "first-event": "run.first",
  "run-active": "run.one-at-a-time",
  "run-over": "run.after-finished",
  "run-errored": "run.after-error",
  "run-id": "run.boundary",
  "run-id-reused": "run.ids",
  "thread-id": "run.boundary",
  "open-at-end": "run.closed",
  "run-unfinished": "run.ending",
  "interrupt-id": "interrupts.ids",
  "text-already-open": "text.order",
  "text-not-open": "text.order",
  "tool-call-already-open": "tools.order",
  "tool-call-not-open": "tools.order",
  "reasoning-message-already-open": "reasoning.order",
  "reasoning-message-not-open": "reasoning.order",
  "reasoning-already-open": "reasoning.order",
  "reasoning-not-open": "reasoning.order",
  "step-already-open": "steps.order",
  "step-not-open": "steps.order",
  "step-owner": "steps.order",
  "step-nesting": null,
  "subagent-already-open": "subagents.order",
  "subagent-not-open": "subagents.order",
  "subagent-reused": "subagents.order",
  "subagent-parent": "subagents.order",
  owner: "subagents.owner",
  "call-owner": "subagents.owner",
  "id-kind": "ids.kind",
  "mixed-forms": "chunks.forms",
  "activity-without-snapshot": "activity.first",
  "call-reopened": "tools.reopened",
  "result-before-end": "tools.order",
  "result-without-call": "tools.result-call",
  "result-repeated": "tools.one-result",
  "result-id": "tools.result-id",
  "client-call-result": "tools.client-result",
  "args-not-json": "tools.arguments",
  "chunk-without-id": "chunks.order",
  "chunk-without-name": "chunks.order",
  "chunk-conflict": "chunks.order",
  "chunk-ambiguous": "chunks.order",
  version: null,
  "second-ending": null,
  withdrawn: null,
  "args-partial": "tools.arguments",
  "pending-calls": "tools.pending-exact",
  "interrupt-unprepared": "interrupts.snapshots",
};

/** What is broken when a call of the history is begun again. */
const REOPENED = { message: "ids.unique", answers: "resume.result-only", results: "tools.result-taken" } as const;

export interface OrderOptions {
  /** Of the request. */
  readonly threadId: string;
  readonly messages: readonly Message[];
  readonly clientTools: readonly string[];
  /** What the request goes on from: a user's message, answers to interrupts, or results of the client's calls. */
  readonly goesOnFrom: "message" | "answers" | "results";
  /** The client said that it is of 1.0, so that it can be told all. */
  readonly isCurrent: boolean;
}

export class Order {
  #wire: Wire;
  readonly #spoiled = new Set<string>();
  readonly #history: ReadonlySet<string>;
  /** Of the last RUN_STARTED, as it came: its end names the same, also where those are wrong. */
  #sent: { readonly threadId: string; readonly runId: string } | undefined;
  #book: Book;
  /** A RUN_ERROR came before any run. */
  #neverBegan = false;

  constructor(
    private readonly input: string,
    private readonly book: Book,
    private readonly options: OrderOptions,
  ) {
    const { threadId, messages, clientTools } = options;
    this.#book = book;
    this.#wire = newWire({ threadId, messages, clientTools, strict: true });
    const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
    this.#history = new Set(calls.map(({ id }) => id));
  }

  /** Whether the last run has come to an end. */
  get isEnded(): boolean {
    return this.#neverBegan || this.#wire.phase === "finished" || this.#wire.phase === "errored";
  }

  /** An event that was judged in the stream that this one goes on with. */
  recall(one: AGUIEvent): void {
    this.#book = Book.silent();
    this.#name(one);
    this.#verify(one, one, 0);
    this.#book = this.book;
  }

  /** @returns whether it is one that a client goes on with */
  take(one: AGUIEvent, index: number): boolean {
    if (one.type === "RUN_FINISHED") this.#note(one);
    this.#name(one);
    return this.#verify(one, one, index);
  }

  #name(one: AGUIEvent): void {
    if (one.type === "RUN_STARTED") this.#sent = { threadId: one.threadId, runId: one.runId };
  }

  /** The stream is over; `why` says how, when that was not in order. */
  end(why: string | undefined): void {
    if (this.#wire.phase === "new") return;
    this.book.occasion("run.ending");
    const refused = refusalOf(() => verifyEnd(this.#wire));
    if (refused !== undefined) this.book.broken("run.ending", { input: this.input }, why ?? refused.message);
  }

  /** @param sent - the event as it came, `one` as it would have been in order */
  #verify(one: AGUIEvent, sent: AGUIEvent, index: number): boolean {
    const refused = refusalOf(() => {
      this.#wire = verify(this.#wire, one);
    });
    if (refused === undefined) return true;
    const { rule, id } = refused;
    if (one.type === "RUN_ERROR") {
      this.#fail(one, refused, sent, index);
      return true;
    }
    const isKnown = this.#isKnown(refused, sent);
    const put = this.#putRight(one, refused);
    if (!isKnown) this.#report(refused, sent, index);
    if (put !== undefined) return this.#verify(put, sent, index);
    if (id !== undefined && rule !== "run-over" && rule !== "run-errored") this.#spoiled.add(id);
    return false;
  }

  /** A run may fail with things open, and before it has begun. */
  #fail(one: AGUIEvent, refused: ProtocolError, sent: AGUIEvent, index: number): void {
    if (refused.rule === "first-event") this.#neverBegan = true;
    else if (refused.rule === "open-at-end") {
      this.#closeAll();
      this.#verify(one, sent, index);
    } else if (refused.rule !== "second-ending") this.#report(refused, sent, index);
  }

  /** The event without what it was refused for, where it still has to be taken. */
  #putRight(one: AGUIEvent, { rule }: ProtocolError): AGUIEvent | undefined {
    const { threadId, runId } = this.#wire;
    if (one.type === "RUN_STARTED") {
      if (rule === "version") return { ...one, protocolVersion: PROTOCOL_VERSION };
      if (rule === "run-id-reused") return { ...one, runId: `${one.runId} again` };
      if (rule === "thread-id" && threadId !== undefined) return { ...one, threadId };
      return undefined;
    }
    if (one.type !== "RUN_FINISHED") return undefined;
    switch (rule) {
      case "thread-id":
        return threadId === undefined ? undefined : { ...one, threadId };
      case "run-id":
        return runId === undefined ? undefined : { ...one, runId };
      case "open-at-end":
        this.#closeAll();
        return one;
      case "interrupt-id":
      case "pending-calls":
      case "interrupt-unprepared":
      case "args-not-json":
        return event("RUN_FINISHED", { threadId: one.threadId, runId: one.runId, outcome: { type: "cancelled" } });
      default:
        return undefined;
    }
  }

  #closeAll(): void {
    for (const item of openItems(this.#wire)) {
      const closed = refusalOf(() => {
        this.#wire = verify(this.#wire, closingEvent(item));
      });
      // Of a call with half its arguments: a snapshot without it is what clients would need, and here nobody looks at it.
      if (closed !== undefined) this.#wire = verify(this.#wire, event("MESSAGES_SNAPSHOT", { messages: [] }));
      if (closed !== undefined) this.#wire = verify(this.#wire, closingEvent(item));
    }
  }

  /** Whether it follows from a fault that was told already. */
  #isKnown({ rule, id }: ProtocolError, sent: AGUIEvent): boolean {
    if (sent.type === "RUN_FINISHED" && rule === "thread-id") return sent.threadId === this.#sent?.threadId;
    if (sent.type === "RUN_FINISHED" && rule === "run-id") return sent.runId === this.#sent?.runId;
    if (rule === "open-at-end") return openItems(this.#wire).every((item) => this.#spoiled.has(item.id));
    if (rule === "run-over" || rule === "run-errored") return false;
    return id !== undefined && this.#spoiled.has(id);
  }

  #report(refused: ProtocolError, sent: AGUIEvent, index: number): void {
    const rule = this.#ruleOf(refused, sent);
    if (rule !== null) this.#book.broken(rule, { input: this.input, index, event: sent }, refused.message);
  }

  #ruleOf({ rule, id }: ProtocolError, sent: AGUIEvent): ProducerRuleId | null {
    if (rule === "thread-id" && sent.type === "RUN_STARTED") return "run.echo";
    if (rule === "call-reopened" && id !== undefined && this.#history.has(id)) {
      return REOPENED[this.options.goesOnFrom];
    }
    if (rule === "pending-calls") {
      if (!this.options.isCurrent) return null;
      const isListed =
        sent.type === "RUN_FINISHED" &&
        sent.outcome?.type === "success" &&
        sent.outcome.pendingToolCallIds !== undefined;
      return isListed ? "tools.pending-exact" : "tools.pending-listed";
    }
    return VERDICTS[rule];
  }

  #note({ outcome }: AGUIEventOf<"RUN_FINISHED">): void {
    if (outcome?.type === "interrupt" || outcome?.type === "cancelled") return;
    const listed = outcome?.pendingToolCallIds;
    if (listed !== undefined) this.book.occasion("tools.pending-exact");
    if (pendingToolCalls(this.#wire).length > 0 && this.options.isCurrent) this.book.occasion("tools.pending-listed");
  }
}

function refusalOf(body: () => void): ProtocolError | undefined {
  try {
    body();
    return undefined;
  } catch (error) {
    if (error instanceof ProtocolError) return error;
    throw error;
  }
}
