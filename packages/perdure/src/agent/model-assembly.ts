/**
 * Puts an answer together from its parts, and emits it on the way. It owns the tolerance for what providers do to block and call ids.
 *
 * 1. The text emitted is the text recorded: of text blocks that are open at once the later ones wait until their turn.
 * 2. The arguments shown are those that run: a final input that contradicts what was streamed makes the call invalid.
 * 3. How a stream is cut into deltas changes nothing but the emitter's deltas.
 * 4. A block is opened by its first content, so empty ones leave no trace; reasoning without text is kept where it has metadata to give back.
 */
import { isJsonObject, type Json, jsonEqual, NotJsonError, toJson } from "../protocol/json.ts";
import type { EmittedCall, EmittedReasoning, EmittedText, ModelEmitter } from "../runtime/model-emitter.ts";
import { blobOf, type ModelAnswer, type ModelOutput } from "./model-output.ts";
import type { BlockPart, ModelPart } from "./model-parts.ts";
import type { ProviderMetadata } from "./model-port.ts";

type Finish = Extract<ModelPart, { type: "finish" }>;
type ToolCall = Extract<ModelPart, { type: "tool-call" }>;
type Streamed = Exclude<ModelPart, { type: "finish" | "error" }>;

interface TextBlock {
  readonly kind: "text";
  text: string;
  /** What of the text was not emitted yet. By itself: to slice it off a text that grows by appending would copy all of it, for every delta. */
  waiting: string;
  handle?: EmittedText;
  metadata: ProviderMetadata | undefined;
  ended: boolean;
}
interface ReasoningBlock {
  readonly kind: "reasoning";
  text: string;
  handle?: EmittedReasoning;
  metadata: ProviderMetadata | undefined;
  ended: boolean;
}
interface Call {
  readonly kind: "call";
  readonly providerId: string | null;
  readonly name: string;
  /** The arguments' text as streamed. */
  args: string;
  readonly handle: EmittedCall;
  metadata: ProviderMetadata | undefined;
  /** No more deltas. */
  inputEnded: boolean;
  /** Set once the call is final. */
  outcome?: { readonly input: Json; readonly invalid?: string };
}
interface Content {
  readonly kind: "content";
  readonly content: Json;
}

export class ModelAssembly {
  readonly #emit: ModelEmitter;
  /** In the order of the answer. */
  readonly #items: (TextBlock | ReasoningBlock | Call | Content)[] = [];
  readonly #texts = new Map<string, TextBlock>();
  readonly #reasonings = new Map<string, ReasoningBlock>();
  /** By the provider's id, the newest of that id. */
  readonly #calls = new Map<string, Call>();
  /** Text that came for a call before its name did. For calls that the provider runs itself none comes. */
  readonly #unnamed = new Map<string, string>();
  readonly #warnings: Json[] = [];
  #response: { readonly id?: string; readonly modelId?: string } | undefined;

  constructor(emit: ModelEmitter) {
    this.#emit = emit;
  }

  take(part: Streamed): void {
    switch (part.type) {
      case "text-start":
      case "text-delta":
      case "text-end":
        this.#takeText(part);
        break;
      case "reasoning-start":
      case "reasoning-delta":
      case "reasoning-end":
        this.#takeReasoning(part);
        break;
      case "tool-input-start":
        if (!part.byProvider) this.#startCall(part);
        break;
      case "tool-input-delta":
      case "tool-input-end":
        this.#takeInput(part);
        break;
      case "tool-call":
        this.#takeCall(part);
        break;
      case "content":
        this.#items.push({ kind: "content", content: part.content });
        break;
      case "response":
        this.#response = {
          ...this.#response,
          ...(part.id !== undefined && { id: part.id }),
          ...(part.modelId !== undefined && { modelId: part.modelId }),
        };
        break;
      case "warnings":
        this.#warnings.push(...part.warnings);
        break;
      default:
        part satisfies never;
    }
  }

  /** Ends what is open, and gives the whole answer. */
  finish(finish: Finish): ModelAnswer {
    for (const item of this.#items) {
      if (item.kind === "text") item.ended = true;
      if (item.kind === "reasoning") this.#endReasoning(item);
      if (item.kind === "call" && item.outcome === undefined) settleUnsaid(item, finish);
    }
    this.#showText();
    return this.#output(finish);
  }

  #takeText(part: BlockPart<"text">): void {
    const block = blockFor(this.#texts.get(part.id), part.type === "text-start", newText);
    if (block.ended) return; // late: what came after the end belongs to nothing
    this.#texts.set(part.id, block);
    block.metadata = merged(block.metadata, part.metadata);
    if (part.type === "text-delta" && part.delta !== "") {
      if (block.text === "") this.#items.push(block);
      block.text += part.delta;
      block.waiting += part.delta;
    }
    if (part.type === "text-end") block.ended = true;
    this.#showText();
  }

  /** Emits what can be emitted in order: the first block that is not done, and those after it once it is. */
  #showText(): void {
    for (const block of this.#items) {
      if (block.kind !== "text") continue;
      if (block.waiting !== "") {
        block.handle ??= this.#emit.text();
        block.handle.delta(block.waiting);
        block.waiting = "";
      }
      if (!block.ended) return;
      block.handle?.end();
      delete block.handle;
    }
  }

  #takeReasoning(part: BlockPart<"reasoning">): void {
    const known = this.#reasonings.get(part.id);
    const block = blockFor(known, part.type === "reasoning-start", newReasoning);
    if (block.ended) return; // late
    if (block !== known) this.#items.push(block);
    this.#reasonings.set(part.id, block);
    block.metadata = merged(block.metadata, part.metadata);
    if (part.type === "reasoning-delta" && part.delta !== "") {
      block.text += part.delta;
      block.handle ??= this.#emit.reasoning();
      block.handle.delta(part.delta);
    }
    if (part.type === "reasoning-end") this.#endReasoning(block);
  }

  #endReasoning(block: ReasoningBlock): void {
    if (block.ended) return;
    block.ended = true;
    const blob = blobOf(block.metadata);
    if (blob !== undefined) {
      block.handle ??= this.#emit.reasoning();
      block.handle.encryptedValue(blob);
    }
    block.handle?.end();
  }

  #startCall(part: { readonly id: string | null; readonly name: string; readonly metadata?: ProviderMetadata }): Call {
    const known = part.id === null ? undefined : this.#calls.get(part.id);
    if (known !== undefined && known.outcome === undefined) return known; // announced twice
    const call: Call = {
      kind: "call",
      providerId: part.id,
      name: part.name,
      args: "",
      handle: this.#emit.call(part.name === "" ? UNNAMED : part.name),
      metadata: part.metadata,
      inputEnded: false,
    };
    this.#items.push(call);
    if (part.id === null) return call;
    this.#calls.set(part.id, call);
    const early = this.#unnamed.get(part.id);
    this.#unnamed.delete(part.id);
    if (early !== undefined) showArgs(call, early);
    return call;
  }

  #takeInput(part: Extract<Streamed, { type: "tool-input-delta" | "tool-input-end" }>): void {
    const call = this.#calls.get(part.id);
    if (call === undefined) {
      if (part.type === "tool-input-delta") {
        this.#unnamed.set(part.id, (this.#unnamed.get(part.id) ?? "") + part.delta);
      }
      return;
    }
    if (call.inputEnded || call.outcome !== undefined) return; // late
    call.metadata = merged(call.metadata, part.metadata);
    if (part.type === "tool-input-end") call.inputEnded = true;
    else showArgs(call, part.delta);
  }

  #takeCall(part: ToolCall): void {
    const said = this.#items.some((item) => item.kind === "call" && isSame(item, part));
    const known = part.id === null ? undefined : this.#calls.get(part.id);
    // Said twice, word for word: running it twice would be our mistake, not the model's wish.
    if (said && known?.outcome !== undefined) return;
    const call = this.#startCall(part);
    call.metadata = merged(call.metadata, part.metadata);
    settle(call, part, said);
  }

  #output(finish: Finish): ModelAnswer {
    const reasoning: ModelOutput["reasoning"][number][] = [];
    const calls: ModelOutput["calls"][number][] = [];
    const content: Json[] = [];
    const order: ModelOutput["order"][number][] = [];
    let text = "";
    for (const item of this.#items) {
      if (item.kind === "text") {
        text += item.text;
        order.push({ text: item.text.length, ...tag(item.metadata) });
      } else if (item.kind === "reasoning") {
        if (item.text === "" && item.metadata === undefined) continue;
        reasoning.push({ text: item.text, ...tag(item.metadata) });
        order.push("reasoning");
      } else if (item.kind === "call") {
        const outcome = item.outcome ?? { input: item.args };
        calls.push({
          id: item.handle.id,
          providerId: item.providerId,
          name: item.name === "" ? UNNAMED : item.name,
          ...outcome,
          ...tag(item.metadata),
        });
        order.push("call");
      } else {
        content.push(item.content);
        order.push("content");
      }
    }
    return {
      messageId: null,
      text,
      reasoning,
      calls,
      content,
      order,
      finishReason: finish.reason,
      ...(finish.rawReason !== undefined && { rawFinishReason: finish.rawReason }),
      usage: finish.usage,
      ...(this.#response !== undefined && { response: this.#response }),
      ...(this.#warnings.length > 0 && { warnings: this.#warnings }),
      ...tag(finish.metadata),
    };
  }
}

/** The wire and the history need some name for a call that has none. */
const UNNAMED = "unnamed";

function newText(): TextBlock {
  return { kind: "text", text: "", waiting: "", metadata: undefined, ended: false };
}

function newReasoning(): ReasoningBlock {
  return { kind: "reasoning", text: "", metadata: undefined, ended: false };
}

/** A new block for an unknown id, and for a start under the id of one that has ended: some providers have one id for all. */
function blockFor<B extends { readonly ended: boolean }>(known: B | undefined, isStart: boolean, open: () => B): B {
  return known === undefined || (known.ended && isStart) ? open() : known;
}

/** Metadata comes in pieces: an item's id with the start, its signature with the end. */
function merged(old: ProviderMetadata | undefined, added: ProviderMetadata | undefined): ProviderMetadata | undefined {
  if (old === undefined || added === undefined) return added ?? old;
  const result: { [provider: string]: ProviderMetadata[string] } = { ...old };
  for (const [provider, members] of Object.entries(added)) result[provider] = { ...result[provider], ...members };
  return result;
}

function tag(metadata: ProviderMetadata | undefined): { readonly metadata?: ProviderMetadata } {
  return metadata === undefined ? {} : { metadata };
}

function showArgs(call: Call, delta: string): void {
  if (delta === "") return;
  call.args += delta;
  call.handle.args(delta);
}

function isSame(call: Call, part: ToolCall): boolean {
  const sameId = part.id !== null && call.providerId === part.id;
  return sameId && call.outcome !== undefined && call.name === part.name && sameArgs(call.args, part.input);
}

/** A call that its provider said in full. */
function settle(call: Call, { name, input }: ToolCall, said: boolean): void {
  if (input.startsWith(call.args)) showArgs(call, input.slice(call.args.length));
  if (name === "") end(call, { input, invalid: "it names no tool" });
  else if (said) end(call, { input, invalid: "it is the same call with the same id once more" });
  else if (name !== call.name) end(call, { input, invalid: `it began as a call of \`${call.name}\`` });
  else if (!sameArgs(call.args, input))
    end(call, { input, invalid: "its arguments contradict those that were streamed" });
  else end(call, parse(input));
}

/** A call that its provider announced and never said in full. Its arguments count only if they ended and the answer was not cut. */
function settleUnsaid(call: Call, { reason }: Finish): void {
  const whole = call.inputEnded && (reason === "stop" || reason === "tool-calls");
  end(
    call,
    whole ? parse(call.args) : { input: call.args, invalid: `the answer ended (${reason}) before its arguments did` },
  );
}

function end(call: Call, outcome: NonNullable<Call["outcome"]>): void {
  call.outcome = outcome;
  const blob = blobOf(call.metadata);
  if (blob !== undefined) call.handle.encryptedValue(blob);
  call.handle.end();
}

function sameArgs(a: string, b: string): boolean {
  if (a === b) return true;
  const [left, right] = [parse(a), parse(b)];
  return left.invalid === undefined && right.invalid === undefined && jsonEqual(left.input, right.input);
}

/** No text at all is what models send for a tool without parameters. */
function parse(args: string): { readonly input: Json; readonly invalid?: string } {
  if (args.trim() === "") return { input: {} };
  let parsed: unknown;
  try {
    parsed = JSON.parse(args);
  } catch {
    return { input: args, invalid: "its arguments are not JSON" };
  }
  try {
    const input = toJson(parsed, "its arguments");
    return isJsonObject(input) ? { input } : { input: args, invalid: "its arguments are not a JSON object" };
  } catch (error) {
    if (error instanceof NotJsonError) return { input: args, invalid: error.message };
    throw error;
  }
}
