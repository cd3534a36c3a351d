/** Sums a part of a conversation up: by a model, which is shown it as text, or by a function of the user's. */
import type { TokenUsage } from "../protocol/events.ts";
import type { ModelEmitter } from "../runtime/model-emitter.ts";
import { HandlerError } from "../tool/errors.ts";
import { callModel } from "./model-call.ts";
import type { LanguageModel, Prompt, PromptMessage } from "./model-port.ts";
import { type Turn, toPrompt } from "./prompt.ts";

/** The part of a conversation that is to be summed up. A summary of what came before it is its first message. */
export interface CompactionContext {
  /** As the model was given it. */
  readonly prompt: Prompt;
  /** The same as text: who said what, and what calls gave. */
  readonly text: string;
  /** Aborted when the run is cancelled, or goes on elsewhere. */
  readonly signal: AbortSignal;
}

/** @param maxOutputTokens - the most that a model may answer, under a budget */
export type Summariser = (
  context: CompactionContext,
  maxOutputTokens: number | undefined,
) => Promise<{ readonly summary: string; readonly usage?: readonly TokenUsage[] }>;

const INSTRUCTIONS = `You are given a conversation between a user and an assistant that works with tools. Sum it up so that the assistant can go on without it. Keep, in the user's own words, what was asked for and is not done; keep decisions, names, numbers, ids and paths, what tools found and did, and what failed. Leave out greetings and what is superseded. Write nothing but the summary.`;

export function summariserOf(
  by: LanguageModel | ((context: CompactionContext) => string | Promise<string>),
  instructions?: string,
): Summariser {
  if (typeof by === "function") return async (context) => ({ summary: checked(await by(context)) });
  return async ({ text, signal }, maxOutputTokens) => {
    const asked = {
      ...{ model: by, prompt: summaryPrompt(text, instructions), tools: [], signal },
      ...(maxOutputTokens !== undefined && { settings: { maxOutputTokens } }),
    };
    const { text: summary, finishReason, usage } = await callModel(asked, SILENT);
    if (finishReason !== "stop") throw failed(`the model's summary ended with "${finishReason}"`);
    return { summary: checked(summary), usage };
  };
}

/** What a model is asked that sums up. */
export function summaryPrompt(text: string, instructions = INSTRUCTIONS): Prompt {
  return [
    { role: "system", content: instructions },
    { role: "user", content: [{ type: "text", text: `<conversation>\n${text}\n</conversation>` }] },
  ];
}

function checked(summary: unknown): string {
  if (typeof summary === "string" && summary.trim() !== "") return summary;
  throw failed("the summary is empty, or no text");
}

function failed(why: string): HandlerError {
  return new HandlerError(`the conversation was not summed up: ${why}`, { applied: "no", code: "COMPACTION_FAILED" });
}

export function contextOf(turns: readonly Turn[]): Omit<CompactionContext, "signal"> {
  const prompt = toPrompt({ turns });
  return { prompt, text: prompt.map(textOf).join("\n\n") };
}

function textOf(message: PromptMessage): string {
  if (message.role === "system") return `system: ${message.content}`;
  return message.content
    .map((part) => {
      switch (part.type) {
        case "text":
          return `${message.role}: ${part.text}`;
        case "reasoning":
          return "";
        case "file":
          return `${message.role}: (a file, ${part.mediaType})`;
        case "tool-call":
          return `${message.role} calls ${part.toolName}: ${JSON.stringify(part.input)}`;
        case "tool-result": {
          const { type, value } = part.output;
          const said = typeof value === "string" ? value : JSON.stringify(value);
          return `${part.toolName} ${type === "error-text" ? "fails" : "gives"}: ${said}`;
        }
        default:
          return part satisfies never;
      }
    })
    .filter((line) => line !== "")
    .join("\n");
}

/** Nobody is shown how a summary comes about. */
const SILENT: ModelEmitter = {
  text: () => ({ delta: () => {}, end: () => {} }),
  reasoning: () => ({ delta: () => {}, encryptedValue: () => {}, end: () => {} }),
  call: () => ({ id: "", args: () => {}, encryptedValue: () => {}, end: () => {} }),
  pump: () => undefined,
};
