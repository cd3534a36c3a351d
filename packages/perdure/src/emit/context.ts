/** The context that agent code holds: the request, and the emitters of one lane. Each parallel branch gets one of its own. */
import { type ContentPart, event, type Message } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import { checkShape } from "../protocol/shape.ts";
import { validateSync } from "../protocol/validate.ts";
import type { Principal } from "../protocol/words.ts";
import { Activity } from "./activity.ts";
import { Branches, type Strand } from "./branches.ts";
import { AnswerInvalidError } from "./errors.ts";
import { type Abandonable, Emitter, type Scope, within } from "./handle.ts";
import type { Lane } from "./lane.ts";
import { StepBlock } from "./step.ts";
import { Subagent } from "./subagent.ts";
import { ReasoningBlock, TextBlock } from "./text.ts";
import { ToolCallBlock, toolResultEvent } from "./tool-call.ts";
import type {
  ActivityHandle,
  Ask,
  BlockOptions,
  ClientTool,
  Context,
  MessageHandle,
  MessageOptions,
  ReasoningHandle,
  Reply,
  RunAgentInput,
  RunContext,
  Scoped,
  StepHandle,
  SubagentHandle,
  SubagentOptions,
  TokenUsage,
  ToolCallHandle,
  ToolCallOptions,
} from "./types.ts";

type Body<H, T> = (handle: H) => Promise<T> | T;

/** What the lanes of one leg share. */
export interface Session extends Omit<Scope, "lane"> {
  readonly input: RunAgentInput;
  readonly principal: Principal;
  readonly signal: AbortSignal;
  readonly resume: ReadonlyMap<string, Reply>;
  readonly usage: TokenUsage[];
  /** Notes questions, all or none, of a subagent or of the agent itself; the leg ends with them when every strand rests. */
  ask(asks: readonly Ask[], lane: Lane, subagentRunId?: string): void;
}

export class LaneContext<S> extends Emitter<S> implements RunContext<S> {
  readonly #leg: Session;
  readonly #lane: Lane;
  readonly #strand: Strand;
  readonly message: Scoped<MessageHandle<S>, MessageOptions>;
  readonly reasoning: Scoped<ReasoningHandle<S>, BlockOptions>;

  constructor(leg: Session, lane: Lane, strand: Strand) {
    super({ outlet: leg.outlet, state: leg.state, lane });
    this.#leg = leg;
    this.#lane = lane;
    this.#strand = strand;
    this.message = scoped((options) => new TextBlock<S>(this.scope, options));
    this.reasoning = scoped((options) => new ReasoningBlock<S>(this.scope, options));
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

  raw(foreign: unknown, source?: string): void {
    this.check("raw()");
    this.send({ type: "RAW", event: toJson(foreign, "raw event"), ...(source !== undefined && { source }) });
  }

  say(text: string): string {
    using message = this.message();
    message.delta(text);
    return message.id;
  }

  think(text: string): string {
    using reasoning = this.reasoning();
    reasoning.delta(text);
    return reasoning.id;
  }

  toolCall(name: string, options?: ToolCallOptions): ToolCallHandle<S>;
  toolCall<T>(name: string, body: Body<ToolCallHandle<S>, T>): Promise<T>;
  toolCall<T>(name: string, options: ToolCallOptions, body: Body<ToolCallHandle<S>, T>): Promise<T>;
  toolCall<T>(
    name: string,
    first?: ToolCallOptions | Body<ToolCallHandle<S>, T>,
    second?: Body<ToolCallHandle<S>, T>,
  ): ToolCallHandle<S> | Promise<T> {
    return opened((options) => new ToolCallBlock<S>(this.scope, name, options ?? {}), first, second);
  }

  toolResult(toolCallId: string, content: string | readonly ContentPart[], options?: BlockOptions): string {
    this.check("toolResult()");
    const messageId = this.#lane.mint("result");
    this.send(toolResultEvent(messageId, toolCallId, content, options));
    return messageId;
  }

  toolResultJson(toolCallId: string, value: unknown, options?: BlockOptions): string {
    const content = JSON.stringify(toJson(value, `result of tool call ${toolCallId}`));
    return this.toolResult(toolCallId, content, options);
  }

  step(name: string, options?: BlockOptions): StepHandle<S>;
  step<T>(name: string, body: Body<StepHandle<S>, T>): Promise<T>;
  step<T>(name: string, options: BlockOptions, body: Body<StepHandle<S>, T>): Promise<T>;
  step<T>(
    name: string,
    first?: BlockOptions | Body<StepHandle<S>, T>,
    second?: Body<StepHandle<S>, T>,
  ): StepHandle<S> | Promise<T> {
    return opened((options) => new StepBlock<S>(this.scope, name, options), first, second);
  }

  activity<C extends object>(type: string, content: C, options?: BlockOptions): ActivityHandle<C>;
  activity<C extends object, T>(type: string, content: C, body: Body<ActivityHandle<C>, T>): Promise<T>;
  activity<C extends object, T>(
    type: string,
    content: C,
    options: BlockOptions,
    body: Body<ActivityHandle<C>, T>,
  ): Promise<T>;
  activity<C extends object, T>(
    type: string,
    content: C,
    first?: BlockOptions | Body<ActivityHandle<C>, T>,
    second?: Body<ActivityHandle<C>, T>,
  ): ActivityHandle<C> | Promise<T> {
    this.check("activity()");
    return opened((options) => new Activity<C>(this.scope, type, content, options), first, second);
  }

  subagent(options: SubagentOptions): SubagentHandle<S>;
  subagent<T>(options: SubagentOptions, body: Body<SubagentHandle<S>, T>): Promise<T>;
  subagent<T>(options: SubagentOptions, body?: Body<SubagentHandle<S>, T>): SubagentHandle<S> | Promise<T> {
    this.check("subagent()");
    const sub = new SubagentContext<S>(this.#leg, new Subagent(this.scope, options), this.#strand);
    return body === undefined ? sub : sub.during(body);
  }

  messagesSnapshot(change: (messages: readonly Message[]) => readonly Message[] = (messages) => messages): void {
    this.check("messagesSnapshot()");
    this.send({ type: "MESSAGES_SNAPSHOT", messages: [...change(this.scope.outlet.messages)] });
  }

  parallel<T>(branches: readonly ((lane: RunContext<S>) => Promise<T>)[]): Promise<T[]> {
    this.check("parallel()");
    const group = new Branches<T>(this.#strand);
    const lanes = this.#lane.fork(branches.length);
    return group.run(
      branches.map((branch, i) => (strand) => branch(new LaneContext(this.#leg, lanes[i] as Lane, strand))),
    );
  }

  flushed(): Promise<void> {
    return this.scope.outlet.flushed();
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
    if (this.#subagent.ended) return;
    this.check("end()");
    this.#subagent.finish(result);
  }

  fail(error: unknown): void {
    if (this.#subagent.ended) return;
    this.check("fail()");
    this.#subagent.fail(error);
  }

  /** Runs a body and ends with it. */
  async during<T>(body: Body<SubagentHandle<S>, T>): Promise<T> {
    try {
      const result = await body(this);
      this.end(result);
      return result;
    } catch (error) {
      this.#subagent.abandon({ failed: error });
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#subagent.abandon("whole");
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `<${this.#subagent.label} ${this.#subagent.ended ? "ended" : "open"}>`;
  }
}

/** What the lanes of a subagent share: the leg's, but for its own way out and its name on questions. */
function sessionOf(leg: Session, { id, exit }: Subagent): Session {
  const { input, principal, state, signal, resume, usage } = leg;
  const ask: Session["ask"] = (asks, lane, subagentRunId = id) => leg.ask(asks, lane, subagentRunId);
  return { input, principal, state, signal, resume, usage, outlet: exit, ask };
}

function scoped<I extends Abandonable & H, H, O extends object>(open: (options: O | undefined) => I): Scoped<H, O> {
  function start(options?: O): H;
  function start<T>(body: Body<H, T>): Promise<T>;
  function start<T>(options: O, body: Body<H, T>): Promise<T>;
  function start<T>(first?: O | Body<H, T>, second?: Body<H, T>): H | Promise<T> {
    return opened<I, H, O, T>(open, first, second);
  }
  return start;
}

/** A handle, or what a body makes of it; options may be left out before a body. */
function opened<I extends Abandonable & H, H, O extends object, T>(
  open: (options: O | undefined) => I,
  first: O | Body<H, T> | undefined,
  second: Body<H, T> | undefined,
): H | Promise<T> {
  const [options, body] = typeof first === "function" ? [undefined, first] : [first, second];
  const handle = open(options);
  return body === undefined ? handle : within(handle, body);
}
