/**
 * The border to model providers: what we use of an AI SDK language model, described by us, so that every provider's object fits and none is a
 * dependency. It owns the request's shape on both sides; what comes back is read in model-parts.ts.
 *
 * Specifications V2, V3 and V4 differ little in a request. Our own prompt is plain JSON, so that it can be compared and hashed; here, and
 * nowhere else, it becomes what one version takes.
 */
import type { ClientTool } from "../emit/types.ts";
import type { Json } from "../protocol/json.ts";
import type { ResultPart } from "./result-parts.ts";

/** What a provider attaches to a part and wants back with it: members by provider, for example `{ anthropic: { signature: "…" } }`. */
export type ProviderMetadata = { readonly [provider: string]: { readonly [key: string]: Json } };

/** A language model object of the AI SDK, of any provider: `openai("gpt-5")`, `anthropic("…")`, or one of your own. */
export interface LanguageModel {
  readonly specificationVersion: "v2" | "v3" | "v4";
  readonly provider: string;
  readonly modelId: string;
  // A method with a wide parameter: methods compare bivariantly, so models of all versions fit, whose own options are narrower than this.
  doStream(options: NativeOptions): PromiseLike<{ readonly stream: ReadableStream<object> }>;
}

/** The options of one call as far as all versions agree on them. */
export interface NativeOptions extends Omit<CallSettings, "providerOptions"> {
  readonly prompt: readonly object[];
  readonly providerOptions?: object;
  readonly tools?: readonly object[];
  readonly responseFormat?: object;
  readonly abortSignal?: AbortSignal;
}

/** How a model is asked. All JSON, so a log can hold it. */
export interface CallSettings {
  /** Tokens. */
  readonly maxOutputTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly stopSequences?: readonly string[];
  readonly seed?: number;
  readonly toolChoice?:
    | { readonly type: "auto" | "none" | "required" }
    | { readonly type: "tool"; readonly toolName: string };
  readonly providerOptions?: ProviderMetadata;
}

/** An answer that is to be JSON. */
export interface ResponseFormat {
  readonly type: "json";
  /** JSON Schema of the answer. */
  readonly schema: Json;
  readonly name: string;
}

/** A tool as a model is told of it. */
export interface ModelTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments. */
  readonly inputSchema: Json;
}

/** What a model is offered: tools of the server's, and those of the client that are named as no other one. Providers refuse two of a name. */
export function offeredTools(tools: readonly ModelTool[], clients: readonly ClientTool[]): readonly ModelTool[] {
  const taken = new Set(tools.map(({ name }) => name));
  const offered = clients.filter(({ name }) => !taken.has(name) && taken.add(name));
  return [
    ...tools,
    ...offered.map(({ name, description, parameters }) => ({
      ...{ name, description, inputSchema: (parameters ?? { type: "object" }) as Json },
    })),
  ];
}

interface Part {
  readonly providerOptions?: ProviderMetadata;
}
export interface TextPart extends Part {
  readonly type: "text";
  readonly text: string;
}
export interface FilePart extends Part {
  readonly type: "file";
  /** A wildcard subtype (`image/*`) where only the kind is known. */
  readonly mediaType: string;
  /** `data` is base64. */
  readonly data: { readonly type: "data"; readonly data: string } | { readonly type: "url"; readonly url: string };
  readonly filename?: string;
}
export interface ReasoningPart extends Part {
  readonly type: "reasoning";
  readonly text: string;
}
export interface ToolCallPart extends Part {
  readonly type: "tool-call";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: Json;
}
export interface ToolResultPart extends Part {
  readonly type: "tool-result";
  readonly toolCallId: string;
  readonly toolName: string;
  readonly output:
    | { readonly type: "text" | "error-text"; readonly value: string }
    | { readonly type: "json"; readonly value: Json }
    | { readonly type: "content"; readonly value: readonly ResultPart[] };
}

export type PromptMessage =
  | { readonly role: "system"; readonly content: string }
  | { readonly role: "user"; readonly content: readonly (TextPart | FilePart)[] }
  | {
      readonly role: "assistant";
      readonly content: readonly (TextPart | FilePart | ReasoningPart | ToolCallPart)[];
    }
  | { readonly role: "tool"; readonly content: readonly ToolResultPart[] };

/** A whole conversation, as a model is given it. Plain JSON, the same for every version of the specification. */
export type Prompt = readonly PromptMessage[];

/** One model call. */
export interface ModelRequest {
  readonly model: LanguageModel;
  readonly prompt: Prompt;
  readonly tools: readonly ModelTool[];
  readonly settings?: CallSettings;
  readonly responseFormat?: ResponseFormat;
  readonly timeouts?: ModelTimeouts;
  readonly signal: AbortSignal;
}

/** How long a model may be silent. Milliseconds. */
export interface ModelTimeouts {
  /** From the request to the first piece of the answer's content. */
  readonly firstToken: number;
  /** From one piece of the answer to the next. */
  readonly betweenTokens: number;
}

/** The request as the model's version of the specification takes it. */
export function nativeOptions(request: ModelRequest): NativeOptions {
  const { model, prompt, tools, settings, responseFormat, signal } = request;
  return {
    ...settings,
    ...(responseFormat !== undefined && { responseFormat }),
    prompt: prompt.map((message) => nativeMessage(message, model.specificationVersion)),
    // Some providers refuse an empty list.
    ...(tools.length > 0 && {
      tools: tools.map(({ name, description, inputSchema }) => ({ type: "function", name, description, inputSchema })),
    }),
    abortSignal: signal,
  };
}

function nativeMessage(message: PromptMessage, version: LanguageModel["specificationVersion"]): object {
  if (message.role === "tool") {
    return { ...message, content: message.content.map((part) => nativeResult(part, version)) };
  }
  if (message.role !== "user" && message.role !== "assistant") return message;
  const parts: readonly Part[] = message.content;
  return { role: message.role, content: parts.map((part) => (isFile(part) ? nativeFile(part, version) : part)) };
}

/** Each version has another word for a file in a result. What the fourth has is not settled: there it is JSON. */
function nativeResult(part: ToolResultPart, version: LanguageModel["specificationVersion"]): object {
  const { output } = part;
  if (output.type !== "content") return part;
  if (version === "v4") return { ...part, output: { type: "json", value: { content: output.value } } };
  const value = output.value.map((one) => {
    if (one.type === "text") return one;
    const type = version === "v2" ? "media" : one.mediaType.startsWith("image/") ? "image-data" : one.type;
    return { ...one, type };
  });
  return { ...part, output: { type: "content", value } };
}

function isFile(part: Part): part is FilePart {
  return "type" in part && part.type === "file";
}

function nativeFile(part: FilePart, version: LanguageModel["specificationVersion"]): object {
  const content = part.data.type === "url" ? new URL(part.data.url) : part.data.data;
  if (version !== "v4") return { ...part, data: content };
  return { ...part, data: part.data.type === "url" ? { type: "url", url: content } : part.data };
}

/**
 * Why `value` cannot be an agent's model, or `undefined` when it can.
 *
 * @returns the rest of a sentence that begins with the model, for example `is the string "gpt-5"; …`
 */
export function modelProblem(value: unknown): string | undefined {
  if (typeof value === "string") {
    return `is the string ${JSON.stringify(value)}; give a model object, for example openai(${JSON.stringify(value)}) of @ai-sdk/openai`;
  }
  if (typeof value !== "object" || value === null) return `is ${String(value)}; give a model object of the AI SDK`;
  const { specificationVersion, doStream } = value as { specificationVersion?: unknown; doStream?: unknown };
  if (typeof doStream !== "function") return "has no doStream; give a language model object of the AI SDK";
  if (specificationVersion === "v2" || specificationVersion === "v3" || specificationVersion === "v4") return undefined;
  return `follows specification ${JSON.stringify(specificationVersion)}; v2, v3 and v4 of the AI SDK are understood`;
}
