/** The emitters of one lane. What a lane may be divided into is said by those who hold one. */
import type { ContentPart } from "../protocol/events.ts";
import { toJson } from "../protocol/json.ts";
import { Activity } from "./activity.ts";
import { type Abandonable, Emitter, type Scope, within } from "./handle.ts";
import { StepBlock } from "./step.ts";
import { ReasoningBlock, TextBlock } from "./text.ts";
import { ToolCallBlock, toolResultEvent } from "./tool-call.ts";
import type {
  ActivityHandle,
  BlockOptions,
  LaneEmitting,
  MessageHandle,
  MessageOptions,
  ReasoningHandle,
  Scoped,
  StepHandle,
  ToolCallHandle,
  ToolCallOptions,
} from "./types.ts";

export type Body<H, T> = (handle: H) => Promise<T> | T;

export class LaneEmitter<S> extends Emitter<S> implements LaneEmitting<S> {
  readonly message: Scoped<MessageHandle<S>, MessageOptions>;
  readonly reasoning: Scoped<ReasoningHandle<S>, BlockOptions>;

  constructor(scope: Scope) {
    super(scope);
    this.message = scoped((options) => new TextBlock<S>(this.scope, options));
    this.reasoning = scoped((options) => new ReasoningBlock<S>(this.scope, options));
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
    const messageId = this.scope.lane.mint("result");
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

  raw(foreign: unknown, source?: string): void {
    this.check("raw()");
    this.send({ type: "RAW", event: toJson(foreign, "raw event"), ...(source !== undefined && { source }) });
  }

  flushed(): Promise<void> {
    return this.scope.outlet.flushed();
  }
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
