import { isWholeJson, withdrawal } from "../protocol/closing.ts";
import { type AGUIEvent, type ContentPart, event, type Metadata } from "../protocol/events.ts";
import { type Json, toJson } from "../protocol/json.ts";
import type { Infer, Schema } from "../protocol/schema.ts";
import { validateSync } from "../protocol/validate.ts";
import { ArgumentsIncompleteError, ArgumentsInvalidError } from "./errors.ts";
import { Block, metadataOf, type Scope } from "./handle.ts";
import { PairKeeper } from "./text.ts";
import type { BlockOptions, ToolCallHandle, ToolCallOptions } from "./types.ts";

export class ToolCallBlock<S> extends Block<S> implements ToolCallHandle<S> {
  readonly resultMessageId: string;
  readonly #pairs = new PairKeeper();
  #args = "";

  constructor(
    scope: Scope,
    readonly name: string,
    options: ToolCallOptions,
  ) {
    const { id = scope.lane.mint("call"), parentMessageId } = options;
    const label = `tool call \`${name}\` (${id})`;
    const start = { toolCallId: id, toolCallName: name, parentMessageId, ...metadataOf(options, label) };
    super(scope, id, label, [event("TOOL_CALL_START", start)]);
    this.resultMessageId = scope.lane.mint("result");
  }

  get rawArgs(): string {
    return this.#args;
  }

  args(delta: string): void {
    this.check("args()");
    const whole = this.#pairs.ready(delta);
    if (whole !== "") this.send({ type: "TOOL_CALL_ARGS", toolCallId: this.id, delta: whole });
    this.#pairs.took(delta);
    this.#args += delta;
  }

  argsJson(value: unknown): void {
    this.check("argsJson()");
    this.args(JSON.stringify(toJson(value, `arguments of tool call \`${this.name}\``)));
  }

  parseArgs(): Json;
  parseArgs<T extends Schema>(schema: T): Infer<T>;
  parseArgs(schema?: Schema): unknown {
    const value = this.#parse();
    if (schema === undefined) return value;
    const validated = validateSync(schema, value);
    if (!validated.ok) throw new ArgumentsInvalidError(this.name, validated.issues);
    return validated.value;
  }

  encryptedValue(blob: string): void {
    this.check("encryptedValue()");
    this.send({ type: "REASONING_ENCRYPTED_VALUE", subtype: "tool-call", entityId: this.id, encryptedValue: blob });
  }

  override end(last?: BlockOptions): void {
    if (!this.ended) this.#parse();
    super.end(last);
  }

  result(content: string | readonly ContentPart[], options?: BlockOptions): string {
    this.check("result()");
    this.#parse();
    this.finish(
      { type: "TOOL_CALL_END", toolCallId: this.id },
      toolResultEvent(this.resultMessageId, this.id, content, options),
    );
    return this.resultMessageId;
  }

  resultJson(value: unknown, options?: BlockOptions): string {
    return this.result(JSON.stringify(toJson(value, `result of tool call \`${this.name}\``)), options);
  }

  /** A call is never shown ended with partial arguments: a front end that runs calls on their END would run half of one. */
  protected closing(_isCut: boolean, metadata?: Metadata): readonly AGUIEvent[] {
    const end = event("TOOL_CALL_END", { toolCallId: this.id, metadata });
    return isWholeJson(this.#args) ? [end] : [withdrawal(this.scope.outlet.messages, [this.id]), end];
  }

  #parse(): Json {
    if (this.#args === "") return {};
    try {
      return JSON.parse(this.#args) as Json;
    } catch (error) {
      throw new ArgumentsIncompleteError(this.name, this.#args, error);
    }
  }

  protected override describe(): string {
    return `${super.describe()}, ${new TextEncoder().encode(this.#args).length} bytes of arguments`;
  }
}

export function toolResultEvent(
  messageId: string,
  toolCallId: string,
  content: string | readonly ContentPart[],
  options?: BlockOptions,
): AGUIEvent {
  return event("TOOL_CALL_RESULT", {
    messageId,
    toolCallId,
    content: typeof content === "string" ? content : [...content],
    role: "tool",
    ...metadataOf(options, `the result of tool call ${toolCallId}`),
  });
}
