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
import { ReasoningBlock, TextBlock } from "./text.ts";
import { ToolCallBlock, toolResultEvent } from "./tool-call.ts";
import type {
  ActivityHandle,
  Ask,
  ClientTool,
  Context,
  MessageHandle,
  ReasoningHandle,
  Reply,
  RunAgentInput,
  RunContext,
  Scoped,
  StepHandle,
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
  /** Notes questions, all or none; the leg ends with them when every strand rests. */
  ask(asks: readonly Ask[], lane: Lane): void;
}

export class LaneContext<S> extends Emitter<S> implements RunContext<S> {
  readonly #leg: Session;
  readonly #lane: Lane;
  readonly #strand: Strand;
  readonly message: Scoped<MessageHandle<S>>;
  readonly reasoning: Scoped<ReasoningHandle<S>>;

  constructor(leg: Session, lane: Lane, strand: Strand) {
    super({ outlet: leg.outlet, state: leg.state, lane });
    this.#leg = leg;
    this.#lane = lane;
    this.#strand = strand;
    this.message = scoped(() => new TextBlock<S>(this.scope));
    this.reasoning = scoped(() => new ReasoningBlock<S>(this.scope));
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
    first: ToolCallOptions | Body<ToolCallHandle<S>, T> = {},
    second?: Body<ToolCallHandle<S>, T>,
  ): ToolCallHandle<S> | Promise<T> {
    const [options, body] = typeof first === "function" ? [{}, first] : [first, second];
    const call = new ToolCallBlock<S>(this.scope, name, options);
    return body === undefined ? call : within(call, body);
  }

  toolResult(toolCallId: string, content: string | readonly ContentPart[]): string {
    this.check("toolResult()");
    const messageId = this.#lane.mint("result");
    this.send(toolResultEvent(messageId, toolCallId, content));
    return messageId;
  }

  toolResultJson(toolCallId: string, value: unknown): string {
    return this.toolResult(toolCallId, JSON.stringify(toJson(value, `result of tool call ${toolCallId}`)));
  }

  step(name: string): StepHandle<S>;
  step<T>(name: string, body: Body<StepHandle<S>, T>): Promise<T>;
  step<T>(name: string, body?: Body<StepHandle<S>, T>): StepHandle<S> | Promise<T> {
    const step = new StepBlock<S>(this.scope, name);
    return body === undefined ? step : within(step, body);
  }

  activity<C extends object>(type: string, content: C): ActivityHandle<C>;
  activity<C extends object, T>(type: string, content: C, body: Body<ActivityHandle<C>, T>): Promise<T>;
  activity<C extends object, T>(
    type: string,
    content: C,
    body?: Body<ActivityHandle<C>, T>,
  ): ActivityHandle<C> | Promise<T> {
    this.check("activity()");
    const activity = new Activity<C>(this.scope, type, content);
    return body === undefined ? activity : within(activity, body);
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

function scoped<I extends Abandonable & H, H>(open: () => I): Scoped<H> {
  function start(): H;
  function start<T>(body: Body<H, T>): Promise<T>;
  function start<T>(body?: Body<H, T>): H | Promise<T> {
    const handle = open();
    return body === undefined ? handle : within(handle, body);
  }
  return start;
}
