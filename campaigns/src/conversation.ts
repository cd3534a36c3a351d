/**
 * One conversation with a server that dies: the user's messages, the answers to what is asked, the client tools; each request again until its
 * leg has ended.
 *
 * What it answers about an unknown write is the ledger's truth. What a script does not expect is a {@link Fault}.
 */
import type { Interrupt, Message, ResumeEntry } from "@ag-ui/core";
import { equalTranscripts, type HeldByClient, normaliseTranscript } from "perdure/log";
import { BLIND_WRITES, CLIENT_TOOL, effectOf, firstMessage, REJECTED_CENTS, receipt, type Script } from "./agents.ts";
import { type Client, type ClientKind, type ClientOptions, connectClient, type Seen } from "./clients.ts";
import type { Ledger } from "./ledger.ts";

export type FaultKind = "duplicate" | "lost" | "wrong";

export class Fault extends Error {
  constructor(
    readonly kind: FaultKind,
    message: string,
  ) {
    super(message);
  }
}

export interface ConversationOptions {
  readonly name: string;
  readonly order: string;
  readonly script: Script;
  readonly client: ClientKind;
  /** A second client, which only looks on. */
  readonly onlooker?: ClientKind;
  /** Where the server is reached: it may be another place for each client. */
  readonly base: string;
  readonly ledger: Pick<Ledger, "has">;
  /** Whether the next answer is given in the inbox first; never without it. */
  readonly isAnsweredElsewhere?: () => boolean;
  readonly over: AbortSignal;
  /** Its own client, not an onlooker, has lost a connection in the middle of a run. */
  readonly onLost?: () => void;
  /** A human has answered a question. */
  readonly onAnswer?: () => void;
  /** Called before each of the user's messages. */
  readonly onTurn?: (i: number) => Promise<void>;
  /** An operator was asked about a step that was running in too many deaths. */
  readonly onPoisoned?: () => void;
}

/** The calls that interest us of a client's messages. */
interface Call {
  readonly id: string;
  readonly name: string;
  readonly args: { readonly order: string; readonly cents?: number };
}

export class Conversation {
  readonly #options: ConversationOptions;
  readonly #client: Client;
  readonly #asked = new Map<string, Set<string>>();
  #onlooker: Client | undefined;
  #runs = 0;
  #isEnded = false;

  constructor(options: ConversationOptions) {
    this.#options = options;
    const { onLost } = options;
    this.#client = connectClient(options.client, { ...this.#clientOptions(), ...(onLost && { onLost }) });
    if (options.onlooker !== undefined) {
      this.#onlooker = connectClient(options.onlooker, { ...this.#clientOptions(), isLookingOn: true });
    }
  }

  get held(): HeldByClient {
    const { messages, state } = this.#client;
    return { messages, state };
  }

  /** @throws {@link Fault} */
  async run(): Promise<void> {
    const { order, script } = this.#options;
    const { messages, say = (_, i) => (i === 0 ? firstMessage(order) : `And then? (${i})`) } = script;
    const looking = this.#lookOn();
    // It is awaited at the end; until then nobody would see it fail.
    looking.catch(() => {});
    try {
      for (let i = 0; i < messages; i++) {
        await this.#options.onTurn?.(i);
        const content = say(order, i);
        this.#client.add({ id: `${order}-u${i}`, role: "user", content });
        await this.#turn();
      }
    } finally {
      this.#isEnded = true;
    }
    await looking;
  }

  /** Compares what its readers hold, and what one finds who comes only now, with the transcript of the same script, uninterrupted. */
  async judge(expected: HeldByClient): Promise<void> {
    const { order, client, onlooker } = this.#options;
    const late = connectClient("1.0.0", { ...this.#clientOptions(), isLookingOn: true });
    await this.#leg(late, { runId: `${order}-late` });
    const readers: [string, Client | undefined][] = [
      [client, this.#client],
      [`onlooker ${onlooker}`, this.#onlooker],
      ["after a reload", late],
    ];
    for (const [name, reader] of readers) {
      if (reader === undefined) continue;
      const held = unnamed({ messages: reader.messages, state: reader.state }, order);
      if (!equalTranscripts(held, expected)) throw new Fault("wrong", `client ${name} ${difference(held, expected)}`);
      checkEnds(reader);
    }
  }

  async #turn(): Promise<void> {
    let resume: ResumeEntry[] | undefined;
    for (;;) {
      const runId = `${this.#options.order}-r${this.#runs++}`;
      const end = await this.#leg(this.#client, { runId, tools: [CLIENT_TOOL], ...(resume && { resume }) });
      // A client keeps the questions of a leg that ends with an error, and says again how they were answered.
      if (end.code === "NEEDS_OPERATOR" && (await this.#letGoOn())) continue;
      resume = undefined;
      if (end.type !== "RUN_FINISHED") throw new Fault("lost", `run ${runId} ended with ${end.type} ${end.code}`);
      if (end.interrupts.length > 0) resume = await this.#answer(end.interrupts);
      else if (!this.#runClientTools()) return;
    }
  }

  /** One request, made again until its leg has ended. */
  async #leg(client: Client, request: Parameters<Client["run"]>[0]): Promise<NonNullable<Seen["end"]>> {
    for (;;) {
      this.#throwIfOver();
      try {
        const { end } = await client.run(request);
        if (end !== undefined) return end;
      } catch (error) {
        this.#throwIfOver();
        throw new Fault("wrong", `a client refused what it was sent: ${reasonOf(error)}`);
      }
      await pause(15);
    }
  }

  async #answer(interrupts: readonly Interrupt[]): Promise<ResumeEntry[]> {
    const entries: ResumeEntry[] = [];
    for (const interrupt of interrupts) {
      const entry = { interruptId: interrupt.id, status: "resolved" as const, payload: this.#payloadFor(interrupt) };
      entries.push(entry);
      this.#options.onAnswer?.();
      // A human may answer somewhere else; the client then says the same again.
      if (this.#options.isAnsweredElsewhere?.()) await this.#answerInInbox(entry);
    }
    return entries;
  }

  #payloadFor({ id, reason, toolCallId }: Interrupt): unknown {
    const call = callsIn(this.#client.messages).find((other) => other.id === toolCallId);
    if (call === undefined) throw new Fault("lost", `interrupt ${id} asks about call ${toolCallId}, which nobody made`);
    const { name, args } = call;
    if (reason === "perdure:unknown_write") {
      if (!BLIND_WRITES.has(name))
        throw new Fault("lost", `${name} ${args.order} waits for a human, and has a reconcile`);
      return this.#options.ledger.has(effectOf(name, args.order))
        ? { did: "yes", output: receipt(args.order) }
        : { did: "no" };
    }
    const asked = this.#asked.get(call.id) ?? new Set();
    this.#asked.set(call.id, asked.add(id));
    if (asked.size > 1) throw new Fault("lost", `${name} ${args.order} asks again: the answer was lost`);
    switch (name) {
      case "pay_out":
        return args.cents === REJECTED_CENTS ? { approved: false, reason: "too much" } : { approved: true };
      case "transfer":
        return { code: "1234" };
      case "confirm":
        return true;
      default:
        throw new Fault("lost", `${name} ${args.order} asks something (${reason}) that its script does not expect`);
    }
  }

  async #answerInInbox({ interruptId, ...reply }: ResumeEntry): Promise<void> {
    const headers = { "content-type": "application/json" };
    const { ok, text } = await this.#ask(`/inbox/${interruptId}`, {
      ...{ method: "POST", headers, body: JSON.stringify(reply) },
    });
    if (!ok) throw new Fault("lost", `the inbox refuses the answer to ${interruptId}: ${text}`);
  }

  /**
   * A step that was running in three deaths in a row, the last time while other suspects waited, is the operator's to look at. Here it was bad
   * luck. @returns whether he was asked
   */
  async #letGoOn(): Promise<boolean> {
    const { text } = await this.#ask("/inbox?limit=500", {});
    const { interrupts } = JSON.parse(text) as { interrupts: { id: string; kind: string; thread: string }[] };
    const poisoned = interrupts.filter(({ kind, thread }) => kind === "poisoned" && thread === this.#options.order);
    for (const { id } of poisoned) {
      this.#options.onPoisoned?.();
      await this.#answerInInbox({ interruptId: id, status: "resolved", payload: { action: "go-on" } });
    }
    return poisoned.length > 0;
  }

  /** Until a server that lives has answered. */
  async #ask(path: string, init: RequestInit): Promise<{ readonly ok: boolean; readonly text: string }> {
    const { base, over } = this.#options;
    for (;;) {
      this.#throwIfOver();
      const response = await fetch(`${base}${path}`, { ...init, signal: over }).catch(() => undefined);
      const text = await response?.text().catch(() => undefined);
      if (response !== undefined && text !== undefined) return { ok: response.ok, text };
      await pause(15);
    }
  }

  /** @returns whether there were any to run */
  #runClientTools(): boolean {
    const { messages } = this.#client;
    const answered = new Set(messages.flatMap((message) => (message.role === "tool" ? [message.toolCallId] : [])));
    const open = callsIn(messages).filter(({ id, name }) => name === CLIENT_TOOL.name && !answered.has(id));
    for (const { id } of open) this.#client.add({ id: `${id}-picked`, role: "tool", toolCallId: id, content: "blue" });
    return open.length > 0;
  }

  /** Reads along until the conversation has ended, and then once more. */
  async #lookOn(): Promise<void> {
    const onlooker = this.#onlooker;
    if (onlooker === undefined) return;
    for (let i = 0, isLast = false; !isLast; i++) {
      await pause(40);
      isLast = this.#isEnded;
      // Nothing is taken from a request for a stream; but a client asks for nothing before it has addressed the questions it knows.
      const resume = onlooker.pending.map(({ id }) => ({ interruptId: id, status: "cancelled" as const }));
      const request = { runId: `${this.#options.order}-w${i}`, ...(resume.length > 0 && { resume }) };
      if (isLast) await this.#leg(onlooker, request);
      else await onlooker.run(request).catch((error: unknown) => this.#unlessEarly(error));
    }
  }

  /** Before the first message there is no thread to look at. */
  #unlessEarly(error: unknown): void {
    this.#throwIfOver();
    if (!reasonOf(error).includes("THREAD_NOT_FOUND"))
      throw new Fault("wrong", `an onlooker refused what it was sent: ${reasonOf(error)}`);
  }

  #clientOptions(): ClientOptions {
    const { base, name, order, over } = this.#options;
    return { base, agentName: name, threadId: order, over };
  }

  #throwIfOver(): void {
    if (this.#options.over.aborted) throw new Fault("lost", "it had not ended when the time was up");
  }
}

/** What a client holds without the order that it is about, so that conversations of one script can be compared. */
export function unnamed({ messages, state }: HeldByClient, order: string): HeldByClient {
  return JSON.parse(JSON.stringify({ messages, state }).replaceAll(order, "ORDER")) as HeldByClient;
}

/** The first place where two transcripts part. */
export function difference(held: HeldByClient, expected: HeldByClient): string {
  const [a, b] = [held, expected].map((one) => {
    const { messages, state } = normaliseTranscript(one) as { messages: unknown[]; state: unknown };
    return [...messages, state].map((part) => JSON.stringify(part, inOrder));
  });
  const at = (a ?? []).findIndex((part, i) => part !== b?.[i]);
  return `holds at ${at} of ${(a ?? []).length - 1} messages\n${a?.[at]}\nnot\n${b?.[at]}`;
}

/** For `JSON.stringify`: the members of objects by name, so that equal ones are equal texts. */
function inOrder(_: string, value: unknown): unknown {
  const isPlain = typeof value === "object" && value !== null && !Array.isArray(value);
  return isPlain ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))) : value;
}

/** A call that is shown ended is run by a front end: at no time may that be with half its arguments. */
function checkEnds({ messages, ended }: Client): void {
  const whole = new Map(callsIn(messages).map(({ id, args }) => [id, JSON.stringify(args)]));
  for (const { id, args } of ended) {
    if (JSON.stringify(args) === whole.get(id)) continue;
    throw new Fault("wrong", `call ${id} was shown ended with ${JSON.stringify(args)}, and is ${whole.get(id)}`);
  }
}

function callsIn(messages: readonly Message[]): Call[] {
  return messages.flatMap((message) =>
    message.role !== "assistant"
      ? []
      : (message.toolCalls ?? []).map(({ id, function: { name, arguments: args } }) => ({
          ...{ id, name },
          args: JSON.parse(args) as Call["args"],
        })),
  );
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
