/**
 * A language model that says what a script says, for tests and demonstrations without a key. To whoever calls it, it is a provider's model like
 * any other (AI SDK specification V3).
 *
 * Which turn is due is read off the prompt: the number of answers in it. Nothing is counted in memory, so the same request gets the same
 * answer, also in another process after a crash, and deltas are cut at the same places.
 */
import type { LanguageModel, NativeOptions } from "../agent/model-port.ts";
import { PerdureError } from "../protocol/errors.ts";
import type { Json } from "../protocol/json.ts";

/** One answer of the model: reasoning, then text, then calls. */
export interface ScriptedTurn {
  /** `encrypted` is the opaque value that a provider wants back with the next request. */
  readonly reasoning?: string | { readonly text?: string; readonly encrypted: string };
  readonly text?: string;
  readonly calls?: readonly ScriptedCall[];
  /** Default: `tool-calls` with calls, else `stop`. */
  readonly finishReason?: "stop" | "length" | "content-filter" | "tool-calls" | "error" | "other";
  /** The answer breaks after what the turn says; a turn that says nothing is refused by the provider instead. */
  readonly error?: ScriptedError;
  /** Tokens. Default: messages of the prompt, and deltas of the answer. */
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number };
}

export interface ScriptedCall {
  readonly name: string;
  readonly input: Json;
}

export interface ScriptedError {
  readonly message: string;
  /** The HTTP status of a provider's answer. */
  readonly status?: number;
  /** Whether the provider calls it worth another try. Default: yes for 408, 409, 429, 5xx and without a status. */
  readonly retryable?: boolean;
}

/** What a script function may look at. */
export interface ScriptRequest {
  /** The prompt, as a provider gets it. */
  readonly messages: readonly ScriptMessage[];
  /** Names of the offered tools. */
  readonly tools: readonly string[];
  /** How many answers of a model are in the prompt. */
  readonly turn: number;
  /** The text of the newest user message, "" without one. */
  readonly lastUserText: string;
}
export interface ScriptMessage {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string | readonly { readonly type: string; readonly [member: string]: unknown }[];
}

export type Script = readonly ScriptedTurn[] | ((request: ScriptRequest) => ScriptedTurn | Promise<ScriptedTurn>);

export interface ScriptedModelOptions {
  /** Milliseconds before each delta. Default 0. */
  readonly delayMs?: number;
  readonly modelId?: string;
}

/** The script cannot answer. */
export class ScriptError extends PerdureError {
  override readonly name = "ScriptError";
  constructor(message: string) {
    super("SCRIPT", message);
  }
}

/** What {@link scriptedModel} returns: all that the AI SDK asks of a model. */
export interface ScriptedModel extends LanguageModel {
  readonly specificationVersion: "v3";
  readonly supportedUrls: Record<string, RegExp[]>;
  doStream(options: NativeOptions): Promise<{ readonly stream: ReadableStream<ScriptedPart> }>;
  doGenerate(options: NativeOptions): Promise<ScriptedAnswer>;
}

/**
 * A model that follows a script.
 *
 * @param script - the turns by position, or a function of the request
 * @returns a model whose calls reject with {@link ScriptError} where the script has no answer
 */
export function scriptedModel(script: Script, options: ScriptedModelOptions = {}): ScriptedModel {
  const { delayMs = 0, modelId = "scripted" } = options;
  if (typeof script !== "function") script.forEach(checkTurn);

  const turnFor = async (call: NativeOptions): Promise<{ turn: ScriptedTurn; parts: ScriptedPart[] }> => {
    call.abortSignal?.throwIfAborted();
    const request = readRequest(call);
    const turn = typeof script === "function" ? await script(request) : script[request.turn];
    if (turn === undefined) {
      throw new ScriptError(
        `the script has ${script.length} turns and the prompt asks for number ${request.turn + 1}; add a turn, or give a function`,
      );
    }
    checkTurn(turn, request.turn);
    if (turn.error !== undefined && isSilent(turn)) throw new ScriptedFailure(turn.error);
    return { turn, parts: toParts(turn, request) };
  };

  return {
    specificationVersion: "v3",
    provider: "scripted",
    modelId,
    supportedUrls: {},
    async doStream(call) {
      const { parts } = await turnFor(call);
      return { stream: stream(parts, delayMs, call.abortSignal) };
    },
    async doGenerate(call) {
      const { turn, parts } = await turnFor(call);
      if (turn.error !== undefined) throw new ScriptedFailure(turn.error);
      return toAnswer(turn, parts);
    },
  };
}

/** An empty answer leaves no trace in the next prompt, so the same turn would be due for ever. */
function checkTurn(turn: ScriptedTurn, index: number): void {
  if (isSilent(turn) && turn.error === undefined) {
    throw new ScriptError(`turn ${index + 1} of the script says nothing; give it text, calls or an error`);
  }
}

function isSilent(turn: ScriptedTurn): boolean {
  return (turn.text ?? "") === "" && (turn.calls ?? []).length === 0;
}

/** A failure in the shape that the AI SDK's providers throw. */
class ScriptedFailure extends Error {
  readonly statusCode: number | undefined;
  readonly isRetryable: boolean;
  constructor({ message, status, retryable }: ScriptedError) {
    super(message);
    this.statusCode = status;
    this.isRetryable = retryable ?? (status === undefined || status >= 500 || [408, 409, 429].includes(status));
  }
}

function readRequest({ prompt, tools = [] }: NativeOptions): ScriptRequest {
  const messages = prompt.map(readMessage);
  const lastUser = messages.findLast(({ role }) => role === "user");
  const parts = typeof lastUser?.content === "string" ? [] : (lastUser?.content ?? []);
  return {
    messages,
    tools: tools.flatMap((tool) => ("name" in tool && typeof tool.name === "string" ? [tool.name] : [])),
    turn: messages.filter(({ role }) => role === "assistant").length,
    lastUserText: parts
      .flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : []))
      .join(""),
  };
}

/** The one cast: the caller speaks the AI SDK's specification, whose messages all have these members. */
function readMessage(message: object): ScriptMessage {
  if (!("role" in message && "content" in message))
    throw new ScriptError("the prompt holds something that is no message");
  return message as ScriptMessage;
}

interface Answering {
  readonly finishReason: {
    readonly unified: NonNullable<ScriptedTurn["finishReason"]>;
    readonly raw: string | undefined;
  };
  readonly usage: {
    readonly inputTokens: {
      total: number;
      noCache: number | undefined;
      cacheRead: number | undefined;
      cacheWrite: number | undefined;
    };
    readonly outputTokens: { total: number; text: number | undefined; reasoning: number | undefined };
  };
}
type Tagged = { providerMetadata?: { scripted: { encryptedContent: string } } };

type ScriptedPart =
  | { type: "stream-start"; warnings: [] }
  | ({ type: "reasoning-start" | "reasoning-end" | "text-start" | "text-end" | "tool-input-end"; id: string } & Tagged)
  | { type: "reasoning-delta" | "text-delta" | "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-start"; id: string; toolName: string }
  | { type: "tool-call"; toolCallId: string; toolName: string; input: string }
  | { type: "error"; error: unknown }
  | ({ type: "finish" } & Answering);

function toParts(turn: ScriptedTurn, request: ScriptRequest): ScriptedPart[] {
  const { reasoning, text = "", calls = [], error } = turn;
  const parts: ScriptedPart[] = [{ type: "stream-start", warnings: [] }];
  if (reasoning !== undefined) {
    const { text: thought = "", encrypted } =
      typeof reasoning === "string" ? { text: reasoning, encrypted: null } : reasoning;
    const id = "reasoning-0";
    parts.push({ type: "reasoning-start", id });
    for (const delta of words(thought)) parts.push({ type: "reasoning-delta", id, delta });
    parts.push({
      type: "reasoning-end",
      id,
      ...(encrypted !== null && { providerMetadata: { scripted: { encryptedContent: encrypted } } }),
    });
  }
  if (text !== "") {
    const id = "text-0";
    parts.push({ type: "text-start", id });
    for (const delta of words(text)) parts.push({ type: "text-delta", id, delta });
    parts.push({ type: "text-end", id });
  }
  for (const [i, { name, input }] of calls.entries()) {
    const id = `call_${request.turn}_${i}`;
    const args = JSON.stringify(input);
    parts.push({ type: "tool-input-start", id, toolName: name });
    for (const delta of pieces(args)) parts.push({ type: "tool-input-delta", id, delta });
    parts.push({ type: "tool-input-end", id }, { type: "tool-call", toolCallId: id, toolName: name, input: args });
  }
  if (error !== undefined) return [...parts, { type: "error", error: new ScriptedFailure(error) }];
  return [...parts, finish(turn, request, parts.filter(isDelta).length)];
}

function finish(turn: ScriptedTurn, request: ScriptRequest, deltas: number): ScriptedPart {
  const { inputTokens, outputTokens } = turn.usage ?? { inputTokens: request.messages.length, outputTokens: deltas };
  const unified = turn.finishReason ?? ((turn.calls ?? []).length > 0 ? "tool-calls" : "stop");
  return {
    type: "finish",
    finishReason: { unified, raw: unified },
    usage: {
      inputTokens: { total: inputTokens, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: outputTokens, text: undefined, reasoning: undefined },
    },
  };
}

function isDelta(part: ScriptedPart): boolean {
  return "delta" in part;
}

/** Word by word, nothing lost. */
function words(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

/** Pieces of eight characters, which cut JSON anywhere but within a character. */
function pieces(text: string): readonly string[] {
  return text.match(/.{1,8}/gsu) ?? [];
}

function stream(
  parts: readonly ScriptedPart[],
  delayMs: number,
  signal: AbortSignal | undefined,
): ReadableStream<ScriptedPart> {
  const left = parts.values();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = left.next();
      if (done) return controller.close();
      if (delayMs > 0 && isDelta(value)) await delay(delayMs, signal);
      if (signal?.aborted) controller.error(signal.reason);
      else controller.enqueue(value);
    },
  });
}

/** Ends early when the signal fires, so that an aborted call leaves no timer behind. */
function delay(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const finished = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", finished);
      resolve();
    };
    const timer = setTimeout(finished, ms);
    signal?.addEventListener("abort", finished, { once: true });
    if (signal?.aborted) finished();
  });
}

interface ScriptedAnswer extends Answering {
  content: (
    | ({ type: "reasoning"; text: string } & Tagged)
    | { type: "text"; text: string }
    | { type: "tool-call"; toolCallId: string; toolName: string; input: string }
  )[];
  warnings: [];
}

/** The same turn for callers that do not stream. */
function toAnswer(turn: ScriptedTurn, parts: readonly ScriptedPart[]): ScriptedAnswer {
  const content: ScriptedAnswer["content"] = [];
  for (const part of parts) {
    if (part.type === "reasoning-end") {
      const text = typeof turn.reasoning === "string" ? turn.reasoning : (turn.reasoning?.text ?? "");
      content.push({
        type: "reasoning",
        text,
        ...(part.providerMetadata && { providerMetadata: part.providerMetadata }),
      });
    } else if (part.type === "text-end") content.push({ type: "text", text: turn.text ?? "" });
    else if (part.type === "tool-call") content.push(part);
    else if (part.type === "finish")
      return { content, finishReason: part.finishReason, usage: part.usage, warnings: [] };
  }
  throw new ScriptError("a turn without an error has a finish");
}
