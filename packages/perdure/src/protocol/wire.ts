import type { AGUIEvent, Message, Metadata } from "./events.ts";
import { event } from "./events.ts";
import { Ledger } from "./ledger.ts";
import type { ItemKind } from "./rules.ts";

/**
 * What the verifier remembers of one thread's stream. Opaque and immutable: hold it, pass it on, go back to it. Its members belong to
 * the verifier.
 */
export interface Wire {
  readonly strict: boolean;
  /** Names of the tools that the client runs; undefined when that is not known. */
  readonly clientTools: ReadonlySet<string> | undefined;
  readonly threadId: string | undefined;
  readonly phase: "new" | "running" | "finished" | "errored";
  /** Counts the runs of this stream. What has the number of an earlier one was there before this run. */
  readonly run: number;
  readonly runId: string | undefined;
  readonly runIds: Ledger<true>;

  /** Counts what was opened, so that everything open has an order. */
  readonly opened: number;
  readonly texts: ReadonlyMap<string, Open>;
  readonly calls: ReadonlyMap<string, OpenCall>;
  readonly reasonings: ReadonlyMap<string, Open>;
  readonly spans: ReadonlyMap<string, Open>;
  readonly subagents: ReadonlyMap<string, Open>;
  readonly steps: readonly Open[];
  /** Chunk streams that go on, by their lane: a subagent's, or the parent agent's. Undefined when there are none. */
  readonly chunks: ReadonlyMap<string | undefined, Chunk> | undefined;

  /** Message ids of the thread. */
  readonly messages: Ledger<KnownMessage>;
  /** Call ids of the thread. */
  readonly known: Ledger<KnownCall>;
  /** Ids of calls that the server runs itself, whatever tools the client has. */
  readonly served: Ledger<true>;
  /** Calls begun in this run and without a result, in order. */
  readonly waiting: ReadonlySet<string>;
  /** Subagent invocations that have ended, each with the run in which it last did: a later run may go on with one. */
  readonly done: Ledger<number>;

  /** Whether nothing changed since this run's last STATE_SNAPSHOT, and its last MESSAGES_SNAPSHOT. */
  readonly stateShown: boolean;
  readonly messagesShown: boolean;
}

/** Something that was begun and is not closed. */
export interface Open {
  readonly kind: ItemKind;
  readonly id: string;
  readonly owner: string | undefined;
  readonly lane: string | undefined;
  readonly order: number;
  /** A MESSAGES_SNAPSHOT left it out: clients have forgotten it, only its END is still to come. */
  readonly gone: boolean;
  /** A step's: no message holds it. */
  readonly metadata?: Metadata;
}
export interface OpenCall extends Open {
  readonly args: string;
}

type Form = "triad" | "chunk" | undefined;

export interface KnownMessage {
  readonly kind: "text" | "result" | "reasoning" | "activity";
  readonly activityType?: string;
  readonly owner: string | undefined;
  /** The run in which the owner was stated: ownership counts to the end of that run. */
  readonly ownedIn: number;
  readonly form: Form;
  readonly gone: boolean;
}

export interface KnownCall {
  readonly name: string;
  readonly owner: string | undefined;
  readonly ownedIn: number;
  /** The run that began it; 0 is history. */
  readonly begunIn: number;
  /** Its arguments so far, when it is not open; undefined when they are history, which is not ours to judge. */
  readonly args: string | undefined;
  readonly answered: boolean;
  readonly form: Form;
  readonly gone: boolean;
}

/** A pending chunk stream. The members are what later chunks may not contradict. */
export interface Chunk {
  readonly kind: "text" | "tool-call" | "reasoning-message";
  readonly id: string;
  readonly fields: Readonly<Record<string, string | undefined>>;
  readonly args: string;
}

export interface WireOptions {
  /** The thread's history: its ids are known, and a result for one of its calls is legal. */
  readonly messages?: readonly Message[];
  /** Also what we ask of ourselves beyond the protocol; see {@link Rule}. */
  readonly strict?: boolean;
  /** Names of the tools that the client runs. Left out, nothing is checked that depends on who runs a tool. */
  readonly clientTools?: readonly string[];
  /** The thread that every run has to name; left out, the first run's. */
  readonly threadId?: string;
}

/** The wire of a thread before its next event. */
export function newWire(options: WireOptions = {}): Wire {
  const wire: Wire = {
    strict: options.strict === true,
    clientTools: options.clientTools === undefined ? undefined : new Set(options.clientTools),
    threadId: options.threadId,
    phase: "new",
    run: 0,
    runId: undefined,
    runIds: Ledger.empty(),
    opened: 0,
    texts: new Map(),
    calls: new Map(),
    reasonings: new Map(),
    spans: new Map(),
    subagents: new Map(),
    steps: [],
    chunks: undefined,
    messages: Ledger.empty(),
    known: Ledger.empty(),
    served: Ledger.empty(),
    waiting: new Set(),
    done: Ledger.empty(),
    stateShown: false,
    messagesShown: false,
  };
  return options.messages === undefined ? wire : withHistory(wire, options.messages);
}

/** Something open, as those who have to close it see it. */
export interface OpenItem {
  readonly kind: ItemKind;
  /** Message id, call id, subagent run id, or the step's name. */
  readonly id: string;
  readonly subagentRunId?: string;
  /** The lane that {@link verify} was told when it was opened. */
  readonly lane: string | undefined;
  /** What a step was begun with. */
  readonly metadata?: Metadata;
  /** A call's. */
  readonly toolCallName?: string;
  /** Clients hold nothing of it any more; only its END is still to come. */
  readonly gone: boolean;
}

/** What is open, in the order in which it has to be closed: the latest first. */
export function openItems(wire: Wire): readonly OpenItem[] {
  return open(wire)
    .sort((a, b) => b.order - a.order)
    .map(({ kind, id, owner, lane, gone, metadata }) => {
      const toolCallName = kind === "tool-call" ? wire.known.get(id)?.name : undefined;
      return {
        ...{ kind, id, lane, gone },
        ...(owner === undefined ? {} : { subagentRunId: owner }),
        ...(metadata === undefined ? {} : { metadata }),
        ...(toolCallName === undefined ? {} : { toolCallName }),
      };
    });
}

export function open(wire: Wire): Open[] {
  const { texts, calls, reasonings, spans, subagents, steps } = wire;
  return [texts, calls, reasonings, spans, subagents].flatMap((items): Open[] => [...items.values()]).concat(steps);
}

/** The event that closes an item that came to its end. */
export function closingEvent(item: OpenItem): AGUIEvent {
  const { id, subagentRunId } = item;
  switch (item.kind) {
    case "text":
      return event("TEXT_MESSAGE_END", { messageId: id, subagentRunId });
    case "tool-call":
      return event("TOOL_CALL_END", { toolCallId: id, subagentRunId });
    case "reasoning-message":
      return event("REASONING_MESSAGE_END", { messageId: id, subagentRunId });
    case "reasoning":
      return event("REASONING_END", { messageId: id, subagentRunId });
    case "step":
      return event("STEP_FINISHED", { stepName: id, subagentRunId });
    case "subagent":
      return event("SUBAGENT_FINISHED", { subagentRunId: id, outcome: { type: "success" } });
    default:
      return item.kind satisfies never;
  }
}

/** Calls begun in this run that have no result, in order. */
export function pendingToolCalls(wire: Wire): readonly string[] {
  return [...wire.waiting];
}

/** Whether clients hold a message of that id. */
export function hasMessage(wire: Wire, id: string): boolean {
  return wire.messages.get(id)?.gone === false;
}

/** Whether a run of the stream has that id. */
export function hasRun(wire: Wire, runId: string): boolean {
  return wire.runIds.has(runId);
}

/** Whether clients hold a call of that id. */
export function hasCall(wire: Wire, id: string): boolean {
  return wire.known.get(id)?.gone === false;
}

/** Whether a subagent of that id was started in this run, or in any run of the stream. */
export function hasSubagent({ subagents, done, run }: Wire, id: string, where: "in this run" | "ever"): boolean {
  const endedIn = done.get(id);
  return subagents.has(id) || (where === "ever" ? endedIn !== undefined : endedIn === run);
}

/** Whether the call has its result. */
export function isAnswered(wire: Wire, toolCallId: string): boolean {
  return wire.known.get(toolCallId)?.answered === true;
}

/** The wire from when on the client runs other tools. */
export function withClientTools(wire: Wire, names: readonly string[]): Wire {
  return { ...wire, clientTools: new Set(names) };
}

/** The wire from when on it is known that the server runs a call itself, whatever tools the client has named. */
export function withServerCall(wire: Wire, id: string): Wire {
  return wire.served.has(id) ? wire : { ...wire, served: wire.served.set(id, true) };
}

/** The wire of a thread whose last run is over, when only the messages that it shows are known, not the stream that made them. */
export function rested(
  { strict, clientTools, run, runIds }: Wire,
  as: { readonly threadId: string; readonly messages: readonly Message[]; readonly hasFailed: boolean },
): Wire {
  const { threadId, messages, hasFailed } = as;
  const over = { ...newWire({ strict, threadId }), clientTools, runIds, run: run + 1 };
  return withHistory({ ...over, phase: hasFailed ? "errored" : "finished" }, messages);
}

/** What kind of thing a message id names. */
export function kindOf(message: Message): KnownMessage["kind"] {
  if (message.role === "reasoning" || message.role === "activity") return message.role;
  return message.role === "tool" ? "result" : "text";
}

/** The wire with messages that came from the client: before the stream, with the request that began a run, or while it goes on. */
export function withHistory(wire: Wire, history: readonly Message[]): Wire {
  const messages = wire.messages.toMap();
  const known = wire.known.toMap();
  const waiting = new Set(wire.waiting);
  for (const message of history) {
    const owned = { owner: message.subagentRunId, ownedIn: wire.run };
    messages.set(message.id, {
      kind: kindOf(message),
      ...(message.role === "activity" ? { activityType: message.activityType } : {}),
      ...owned,
      form: messages.get(message.id)?.form,
      gone: false,
    });
    if (message.role === "assistant") {
      for (const call of message.toolCalls ?? []) {
        const before = known.get(call.id) ?? { begunIn: 0, args: undefined, answered: false, form: undefined };
        known.set(call.id, { ...before, name: call.function.name, ...owned, gone: false });
      }
    }
  }
  for (const message of history) {
    const call = message.role === "tool" ? known.get(message.toolCallId) : undefined;
    if (message.role !== "tool" || call === undefined) continue;
    known.set(message.toolCallId, { ...call, answered: true });
    waiting.delete(message.toolCallId);
  }
  return { ...wire, messages: Ledger.of(messages), known: Ledger.of(known), waiting };
}
