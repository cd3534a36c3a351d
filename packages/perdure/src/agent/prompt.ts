/**
 * The way from our history to the prompt of a model. It owns what providers ask of a conversation; which turns belong to it is the loop's
 * business.
 *
 * 1. Each tool call is followed by exactly one result before anything else, in the order of the calls. None is invented: where one is missing
 *    in what we recorded ourselves, nothing is asked, because a model that does not see what it did would do it again.
 * 2. What came from outside is not ours to trust: calls without a result, results without a call, and parts that no model takes are left out.
 * 3. Ids of calls are unique in a prompt. A provider's own is kept where it can be.
 * 4. What a provider attached to a part is given back with it: signatures, encrypted reasoning, ids of items.
 * 5. The same turns give the same prompt, so what a crash cut is asked again word for word.
 */
import type { AssistantMessage, ContentPart, Message, ToolMessage, UserMessage } from "@ag-ui/core";
import { toolText } from "../log/tool-result.ts";
import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { RecordedError } from "../protocol/words.ts";
import { type ModelOutput, partsOf } from "./model-output.ts";
import type {
  FilePart,
  Prompt,
  PromptMessage,
  ProviderMetadata,
  ReasoningPart,
  TextPart,
  ToolCallPart,
  ToolResultPart,
} from "./model-port.ts";
import { resultParts } from "./result-parts.ts";

/** A piece of a conversation: what came from outside, what a model answered, what its calls gave. */
export type Turn =
  | { readonly kind: "message"; readonly message: Message }
  | { readonly kind: "model"; readonly output: ModelOutput }
  | { readonly kind: "results"; readonly results: readonly ToolResult[] };

/** What a call gave. `callId` is the call's id on the wire. */
export type ToolResult = { readonly callId: string; readonly name: string } & (
  | { readonly output: Json }
  | { readonly error: RecordedError }
);

/** The recorded results do not fit the recorded calls. */
export class HistoryGapError extends PerdureError {
  override readonly name = "HistoryGapError";
  constructor(
    readonly callId: string,
    problem: string,
  ) {
    super(
      "HISTORY_GAP",
      `tool call ${callId} ${problem}; the model is not asked with such a history: check the run's log`,
    );
  }
}

/**
 * The conversation as a model is given it. Results may stand anywhere between their model turn and the next one.
 *
 * @throws {@link HistoryGapError} when a recorded call has no result or two, or a result has no call
 */
export function toPrompt(history: {
  readonly instructions?: string | undefined;
  readonly turns: readonly Turn[];
}): Prompt {
  const system: PromptMessage[] = [];
  const rest: PromptMessage[] = [];
  const ids = new CallIds();
  const { instructions, turns } = history;
  if (instructions !== undefined && instructions !== "") system.push({ role: "system", content: instructions });

  for (const section of sections(turns)) {
    if (section.output !== undefined) rest.push(...modelTurn(section.output, section.results, ids));
    for (const [i, message] of section.messages.entries()) {
      switch (message.role) {
        case "system":
        case "developer":
          // At the front, wherever they stood: several providers take them nowhere else.
          if (message.content !== "") system.push({ role: "system", content: message.content });
          break;
        case "user": {
          const content = userContent(message);
          if (content.length > 0) rest.push({ role: "user", content });
          break;
        }
        case "assistant":
          rest.push(...importedTurn(message, answersTo(section.messages, i), ids));
          break;
        case "tool": // taken with its call
        case "reasoning": // without its provider's signature no model takes it
        case "activity":
          break;
        default:
          message satisfies never;
      }
    }
  }
  return [...system, ...rest];
}

/** A model turn with the results of its calls, and the messages until the next one. */
interface Section {
  readonly output: ModelOutput | undefined;
  readonly results: ToolResult[];
  readonly messages: Message[];
}

function sections(turns: readonly Turn[]): Section[] {
  let section: Section = { output: undefined, results: [], messages: [] };
  const all = [section];
  for (const turn of turns) {
    if (turn.kind === "message") section.messages.push(turn.message);
    else if (turn.kind === "results") section.results.push(...turn.results);
    else {
      section = { output: turn.output, results: [], messages: [] };
      all.push(section);
    }
  }
  const [orphan] = all[0]?.results ?? [];
  if (orphan !== undefined) throw new HistoryGapError(orphan.callId, "has a result, but no model made it");
  return all;
}

function modelTurn(output: ModelOutput, results: readonly ToolResult[], ids: CallIds): PromptMessage[] {
  const byCall = new Map<string, ToolResult>();
  for (const result of results) {
    if (byCall.has(result.callId)) throw new HistoryGapError(result.callId, "has two results");
    byCall.set(result.callId, result);
  }
  const content: (TextPart | FilePart | ReasoningPart | ToolCallPart)[] = [];
  const answers: ToolResultPart[] = [];
  let speaks = false;
  for (const part of partsOf(output)) {
    if (part.type === "reasoning") {
      content.push({ type: "reasoning", text: part.text, ...options(part.metadata) });
    } else if (part.type === "text") {
      speaks = true;
      content.push({ type: "text", text: part.text, ...options(part.metadata) });
    } else if (part.type === "call") {
      const { call } = part;
      const result = byCall.get(call.id);
      if (result === undefined) throw new HistoryGapError(call.id, "has no result");
      byCall.delete(call.id);
      speaks = true;
      const toolCallId = ids.next(call.providerId);
      // Providers take objects alone. What the model wrote instead is shown to it as text, beside the error that says what was wrong.
      const input = call.invalid === undefined ? call.input : { invalidArguments: call.input };
      content.push({ type: "tool-call", toolCallId, toolName: call.name, input, ...options(call.metadata) });
      answers.push({ type: "tool-result", toolCallId, toolName: call.name, output: resultOutput(result) });
    } else {
      const file = generatedFile(part.content);
      if (file === undefined) continue;
      speaks = true;
      content.push(file);
    }
  }
  const [orphan] = byCall.keys();
  if (orphan !== undefined)
    throw new HistoryGapError(orphan, "has a result, but the model did not make it in this turn");
  // Reasoning that led to nothing: providers refuse it alone.
  return speaks ? withAnswers({ role: "assistant", content }, answers) : [];
}

function withAnswers(message: PromptMessage, answers: readonly ToolResultPart[]): PromptMessage[] {
  return answers.length > 0 ? [message, { role: "tool", content: answers }] : [message];
}

function options(metadata: ProviderMetadata | undefined): { readonly providerOptions?: ProviderMetadata } {
  return metadata === undefined ? {} : { providerOptions: metadata };
}

function resultOutput(result: ToolResult): ToolResultPart["output"] {
  if ("error" in result) return { type: "error-text", value: result.error.message };
  if (typeof result.output === "string") return { type: "text", value: result.output };
  const parts = resultParts(result.output);
  return parts === undefined ? { type: "json", value: result.output } : { type: "content", value: parts };
}

/** A file that the model made, given back. Sources and what a provider's own tools did are for people, not for the model. */
function generatedFile(content: Json): FilePart | undefined {
  if (!isJsonObject(content) || content.type !== "file" || typeof content.mediaType !== "string") return undefined;
  const { data, mediaType } = content;
  if (typeof data === "string") return { type: "file", mediaType, data: { type: "data", data } };
  if (!isJsonObject(data)) return undefined; // V4 names what its data is
  if (typeof data.data === "string") return { type: "file", mediaType, data: { type: "data", data: data.data } };
  return typeof data.url === "string" ? { type: "file", mediaType, data: { type: "url", url: data.url } } : undefined;
}

/** The tool messages after `at`, until somebody else speaks; of several for one call the first counts. */
function answersTo(messages: readonly Message[], at: number): ReadonlyMap<string, ToolMessage> {
  const answers = new Map<string, ToolMessage>();
  for (let i = at + 1; i < messages.length; i++) {
    const message = messages[i];
    if (message?.role === "user" || message?.role === "assistant") break;
    if (message?.role === "tool" && !answers.has(message.toolCallId)) answers.set(message.toolCallId, message);
  }
  return answers;
}

/** An assistant message of a history that we did not record. */
function importedTurn(
  { content: text, toolCalls = [] }: AssistantMessage,
  answers: ReadonlyMap<string, ToolMessage>,
  ids: CallIds,
): PromptMessage[] {
  const content: (TextPart | ToolCallPart)[] = [];
  const results: ToolResultPart[] = [];
  const taken = new Set<string>();
  if (text !== undefined && text !== "") content.push({ type: "text", text });
  for (const call of toolCalls) {
    const answer = answers.get(call.id);
    const input = parsedObject(call.function.arguments);
    if (answer === undefined || input === undefined || taken.has(call.id)) continue;
    taken.add(call.id);
    const toolCallId = ids.next(call.id);
    const toolName = call.function.name;
    content.push({ type: "tool-call", toolCallId, toolName, input });
    results.push({ type: "tool-result", toolCallId, toolName, output: importedResult(answer) });
  }
  return content.length > 0 ? withAnswers({ role: "assistant", content }, results) : [];
}

function importedResult(message: ToolMessage): ToolResultPart["output"] {
  const { error } = message;
  return error === undefined ? { type: "text", value: toolText(message) } : { type: "error-text", value: error };
}

function parsedObject(text: string): Json | undefined {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function userContent({ content }: UserMessage): (TextPart | FilePart)[] {
  const usable = userParts(content);
  const isUnreadable =
    usable.length === 0 && typeof content !== "string" && content.some(({ type }) => type !== "text");
  // Else the model would be asked as if nobody had said anything, which some providers refuse.
  return isUnreadable ? [{ type: "text", text: UNREADABLE }] : usable;
}

const UNREADABLE = "(The user sent something that cannot be read here.)";

/** What of a user's message no model is given, and why. */
export function unusableParts({ id, content }: UserMessage): readonly string[] {
  if (typeof content === "string") return [];
  return content.flatMap((part, i): string[] => {
    if (part.type === "text" || userFile(part) !== undefined) return [];
    const { source } = part;
    const why =
      source.type === "file"
        ? `a file handle${source.provider === undefined ? "" : ` of ${source.provider}`}, which only its own provider can read`
        : "neither data nor a URL with a known type";
    return [`part ${i} of message "${id}" is left out for the model: the ${part.type} is ${why}`];
  });
}

function userParts(content: string | readonly ContentPart[]): (TextPart | FilePart)[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  const parts: (TextPart | FilePart)[] = [];
  for (const part of content) {
    const usable = part.type === "text" ? textPart(part.text) : userFile(part);
    if (usable !== undefined) parts.push(usable);
  }
  return parts;
}

/** Providers refuse empty text. */
function textPart(text: string): TextPart | undefined {
  return text === "" ? undefined : { type: "text", text };
}

function userFile({ type, source, metadata }: Exclude<ContentPart, { type: "text" }>): FilePart | undefined {
  const filename =
    isJsonObject(metadata) && typeof metadata.filename === "string" ? { filename: metadata.filename } : {};
  if (source.type === "data") {
    return { type: "file", mediaType: source.mimeType, data: { type: "data", data: source.value }, ...filename };
  }
  if (source.type === "file") return undefined; // another provider's upload
  const inline = /^data:([^;,]+);base64,(.*)$/s.exec(source.value);
  if (inline?.[1] !== undefined && inline[2] !== undefined) {
    return { type: "file", mediaType: inline[1], data: { type: "data", data: inline[2] }, ...filename };
  }
  // A document without its type could be anything, and providers throw at anything.
  const mediaType = source.mimeType ?? (type === "document" ? undefined : `${type}/*`);
  if (mediaType === undefined || !URL.canParse(source.value)) return undefined;
  return { type: "file", mediaType, data: { type: "url", url: source.value }, ...filename };
}

/** Gives each call of a prompt an id. Some providers send none, or count from 0 in each answer. */
class CallIds {
  readonly #used = new Set<string>();

  next(wanted: string | null): string {
    let id = wanted ?? "";
    // What all providers take.
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(id) || this.#used.has(id)) {
      for (let n = this.#used.size; ; n++) {
        id = `call_${n}`;
        if (!this.#used.has(id)) break;
      }
    }
    this.#used.add(id);
    return id;
  }
}
