/** The context that agent code holds: the request, and the emitters of one lane. Each parallel branch gets one of its own. */
import { event, type Message } from "../protocol/events.ts";
import type { Json } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import { checkShape } from "../protocol/shape.ts";
import { validateSync } from "../protocol/validate.ts";
import type { Principal } from "../protocol/words.ts";
import { Branches, type Strand } from "./branches.ts";
import { AnswerInvalidError } from "./errors.ts";
import type { Scope } from "./handle.ts";
import type { Lane } from "./lane.ts";
import { type Body, LaneEmitter } from "./lane-emitter.ts";
import { Subagent } from "./subagent.ts";
import type {
  Ask,
  Branch,
  BranchResults,
  ClientTool,
  Context,
  Reply,
  RunAgentInput,
  RunContext,
  SubagentHandle,
  SubagentOptions,
  TokenUsage,
} from "./types.ts";

/** What the lanes of one leg share. */
export interface Session extends Omit<Scope, "lane"> {
  readonly input: RunAgentInput;
  readonly principal: Principal;
  readonly signal: AbortSignal;
  readonly resume: ReadonlyMap<string, Reply>;
  readonly usage: TokenUsage[];
  /** Notes questions, all or none, of a subagent or of the agent itself; the leg ends with them when every strand rests. */
  ask(asks: readonly Ask[], lane: Lane, subagentRunId?: string): void;
  /** Gives the context of each lane what only a runtime can do: its durable operations. */
  equip(context: RunContext<never>, lane: Lane, strand: Strand): void;
}

export class LaneContext<S> extends LaneEmitter<S> implements RunContext<S> {
  readonly #leg: Session;
  readonly #lane: Lane;
  readonly #strand: Strand;

  constructor(leg: Session, lane: Lane, strand: Strand) {
    super({ outlet: leg.outlet, state: leg.state, lane });
    this.#leg = leg;
    this.#lane = lane;
    this.#strand = strand;
    leg.equip(this as RunContext<unknown> as RunContext<never>, lane, strand);
  }

  get threadId() {
    return this.#leg.input.threadId;
  }
  get runId() {
    return this.#leg.input.runId;
  }
  get parentRunId() {
    return this.#leg.input.parentRunId;
  }
  get input() {
    return this.#leg.input;
  }
  get messages(): readonly Message[] {
    return this.#leg.input.messages;
  }
  get clientTools(): readonly ClientTool[] {
    return this.#leg.input.tools;
  }
  get context(): readonly Context[] {
    return this.#leg.input.context;
  }
  get forwardedProps(): Json {
    return (this.#leg.input.forwardedProps ?? null) as Json;
  }
  get signal() {
    return this.#leg.signal;
  }
  get principal() {
    return this.#leg.principal;
  }

  lastUserText(): string {
    const last = this.messages.findLast((message) => message.role === "user");
    if (last?.role !== "user") return "";
    if (typeof last.content === "string") return last.content;
    return last.content.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
  }

  clientTool(name: string): ClientTool | undefined {
    return this.clientTools.find((tool) => tool.name === name);
  }

  setState(next: S): void {
    this.check("setState()");
    this.scope.state.set(next);
  }

  usage(entry: TokenUsage): void {
    this.check("usage()");
    // Checked here, because at the run's end a wrong number would cost the whole RUN_FINISHED.
    checkShape(event("RUN_FINISHED", { threadId: this.threadId, runId: this.runId, usage: [entry] }));
    this.#leg.usage.push({ ...entry });
  }

  subagent(options: SubagentOptions): SubagentHandle<S>;
  subagent<T>(options: SubagentOptions, body: Body<SubagentHandle<S>, T>): Promise<T>;
  subagent<T>(options: SubagentOptions, body?: Body<SubagentHandle<S>, T>): SubagentHandle<S> | Promise<T> {
    this.check("subagent()");
    const subagent = new Subagent(this.scope, options);
    const handle = new SubagentContext<S>(this.#leg, subagent, this.#strand);
    return body === undefined ? handle : subagent.during(handle, body);
  }

  messagesSnapshot(change: (messages: readonly Message[]) => readonly Message[] = (messages) => messages): void {
    this.check("messagesSnapshot()");
    this.send({ type: "MESSAGES_SNAPSHOT", messages: [...change(this.scope.outlet.messages)] });
  }

  parallel<B extends readonly Branch<RunContext<S>>[] | []>(branches: B): Promise<BranchResults<B>>;
  parallel<T>(branches: readonly ((lane: RunContext<S>) => Promise<T>)[]): Promise<T[]>;
  parallel<T>(branches: readonly ((lane: RunContext<S>) => Promise<T>)[]): Promise<T[]> {
    this.check("parallel()");
    const group = new Branches<T>(this.#strand);
    const lanes = this.#lane.fork(branches.length);
    return group.run(
      branches.map((branch, i) => (strand) => branch(new LaneContext(this.#leg, lanes[i] as Lane, strand))),
    );
  }

  get isResume(): boolean {
    return this.#leg.resume.size > 0;
  }
  get resume(): ReadonlyMap<string, Reply> {
    return this.#leg.resume;
  }

  resumeFor(id: string): Reply | undefined;
  resumeFor<T extends Schema>(id: string, schema: T): Reply<Infer<T>> | undefined;
  resumeFor(id: string, schema?: Schema): Reply<unknown> | undefined {
    const reply = this.#leg.resume.get(id);
    if (reply === undefined || schema === undefined || reply.status === "cancelled") return reply;
    const answer = validateSync(schema, reply.payload ?? null);
    if (!answer.ok) throw new AnswerInvalidError(id, answer.issues);
    return { status: reply.status, payload: answer.value };
  }

  interrupt(...asks: readonly [Ask, ...Ask[]]): Promise<never> {
    this.check("interrupt()");
    this.#leg.ask(asks, this.#lane);
    this.#strand.rest();
    return new Promise(() => {});
  }
}

/** The context of a subagent's lane. */
class SubagentContext<S> extends LaneContext<S> implements SubagentHandle<S> {
  readonly #subagent: Subagent;

  constructor(leg: Session, subagent: Subagent, strand: Strand) {
    super(sessionOf(leg, subagent), subagent.lane, strand);
    this.#subagent = subagent;
  }

  get id(): string {
    return this.#subagent.id;
  }
  get name(): string {
    return this.#subagent.name;
  }

  end(result?: unknown): void {
    this.#subagent.end(result);
  }

  fail(error: unknown): void {
    this.#subagent.fail(error);
  }

  [Symbol.dispose](): void {
    this.#subagent.abandon("whole");
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.#subagent.described;
  }
}

/** What the lanes of a subagent share: the leg's, but for its own way out and its name on questions. */
function sessionOf(leg: Session, { id, exit }: Subagent): Session {
  const { input, principal, state, signal, resume, usage } = leg;
  const ask: Session["ask"] = (asks, lane, subagentRunId = id) => leg.ask(asks, lane, subagentRunId);
  const equip: Session["equip"] = (context, lane, strand) => leg.equip(context, lane, strand);
  return { input, principal, state, signal, resume, usage, outlet: exit, ask, equip };
}
