/**
 * What a model streams, in one small union whatever the version of its specification. It owns the reading of parts that nobody has checked;
 * what they add up to is model-call.ts's business.
 *
 * 1. A part that we know and cannot read is an error, never skipped: what it carried would be missing from the answer.
 * 2. A part that we do not know is skipped: newer versions add pings and raw chunks, and an agent should not die of them.
 */
import type { TokenUsage } from "@ag-ui/core";
import { isJsonObject, type Json, toJson } from "../protocol/json.ts";
import { ModelError } from "./model-error.ts";
import type { FinishReason } from "./model-output.ts";
import type { LanguageModel, ProviderMetadata } from "./model-port.ts";
import { toTokenUsage } from "./usage.ts";

interface Tagged {
  readonly metadata?: ProviderMetadata;
}

/** A part of a block of text or reasoning, found by the provider's id of the block. */
export type BlockPart<K extends "text" | "reasoning"> =
  | ({ readonly type: `${K}-start` | `${K}-end`; readonly id: string } & Tagged)
  | ({ readonly type: `${K}-delta`; readonly id: string; readonly delta: string } & Tagged);

export type ModelPart =
  | BlockPart<"text">
  | BlockPart<"reasoning">
  | ({
      readonly type: "tool-input-start";
      readonly id: string;
      readonly name: string;
      /** The provider runs the tool itself; its call and result are content of the answer. */
      readonly byProvider: boolean;
    } & Tagged)
  | ({ readonly type: "tool-input-delta"; readonly id: string; readonly delta: string } & Tagged)
  | ({ readonly type: "tool-input-end"; readonly id: string } & Tagged)
  | ({
      readonly type: "tool-call";
      /** Null where the provider gave none. */
      readonly id: string | null;
      readonly name: string;
      /** The arguments' text. */
      readonly input: string;
    } & Tagged)
  /** Sources, files, what the provider's own tools did: kept as it came. */
  | { readonly type: "content"; readonly content: Json }
  | { readonly type: "response"; readonly id: string | undefined; readonly modelId: string | undefined }
  | { readonly type: "warnings"; readonly warnings: readonly Json[] }
  | { readonly type: "error"; readonly error: unknown }
  | ({
      readonly type: "finish";
      readonly reason: FinishReason;
      readonly rawReason: string | undefined;
      readonly usage: readonly TokenUsage[];
    } & Tagged);

/**
 * Reads one streamed part.
 *
 * @returns null for a part that says nothing to us
 * @throws {@link ModelError} `MODEL_UNREADABLE`
 */
export function readPart(raw: unknown, model: LanguageModel): ModelPart | null {
  try {
    return isJsonObject(raw) ? read(raw, model) : null;
  } catch (cause) {
    const type = isJsonObject(raw) && typeof raw.type === "string" ? raw.type : typeof raw;
    throw new ModelError(
      "MODEL_UNREADABLE",
      `model ${model.provider}/${model.modelId} sent a part "${type}" that does not fit specification ${model.specificationVersion}; see the server's log`,
      false,
      cause,
    );
  }
}

type Raw = { readonly [key: string]: unknown };

function read(raw: Raw, model: LanguageModel): ModelPart | null {
  switch (raw.type) {
    case "text-start":
    case "text-end":
    case "reasoning-start":
    case "reasoning-end":
    case "tool-input-end":
      return { type: raw.type, id: string(raw, "id"), ...tagged(raw) };
    case "text-delta":
    case "reasoning-delta":
    case "tool-input-delta":
      return { type: raw.type, id: string(raw, "id"), delta: string(raw, "delta"), ...tagged(raw) };
    case "tool-input-start":
      return {
        type: "tool-input-start",
        id: string(raw, "id"),
        name: string(raw, "toolName"),
        byProvider: raw.providerExecuted === true,
        ...tagged(raw),
      };
    case "tool-call":
      if (raw.providerExecuted === true) return { type: "content", content: content(raw) };
      return {
        type: "tool-call",
        id: typeof raw.toolCallId === "string" && raw.toolCallId !== "" ? raw.toolCallId : null,
        name: string(raw, "toolName"),
        input: string(raw, "input"),
        ...tagged(raw),
      };
    case "source":
    case "file":
    case "reasoning-file":
    case "custom":
    case "tool-result":
    case "tool-approval-request":
      return { type: "content", content: content(raw) };
    case "response-metadata":
      return { type: "response", id: optionalString(raw.id), modelId: optionalString(raw.modelId) };
    case "stream-start":
      return { type: "warnings", warnings: list(toJson(raw.warnings ?? [], "warnings")) };
    case "error":
      return { type: "error", error: raw.error };
    case "finish":
      return {
        type: "finish",
        ...finishReason(raw.finishReason),
        usage: toTokenUsage(raw.usage, { provider: model.provider, model: model.modelId }),
        ...tagged(raw),
      };
    default:
      return null;
  }
}

const REASONS: ReadonlySet<string> = new Set<FinishReason>(["stop", "length", "content-filter", "tool-calls", "error"]);

/**
 * V2 gives a word, V3 and V4 the word with the provider's own. A word we do not know is `other`: it is not a success that we may assume. No
 * word of the provider's own at all is what V3 and V4 report of a stream that just ended.
 */
function finishReason(raw: unknown): { reason: FinishReason; rawReason: string | undefined } {
  const word = isJsonObject(raw) ? raw.unified : raw;
  const own = optionalString(isJsonObject(raw) ? raw.raw : undefined);
  if (isReason(word)) return { reason: word, rawReason: own };
  const isNone = word === "other" && isJsonObject(raw);
  return { reason: "other", rawReason: own ?? (isNone ? undefined : optionalString(word)) };
}

function isReason(word: unknown): word is FinishReason {
  return typeof word === "string" && REASONS.has(word);
}

function string(raw: Raw, member: string): string {
  const value = raw[member];
  if (typeof value === "string") return value;
  throw new TypeError(`"${member}" is ${value === null ? "null" : typeof value}, not a string`);
}

function optionalString(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function list(value: Json): readonly Json[] {
  return Array.isArray(value) ? value : [value];
}

function tagged(raw: Raw): Tagged {
  if (raw.providerMetadata === undefined || raw.providerMetadata === null) return {};
  const byProvider = toJson(raw.providerMetadata, "providerMetadata");
  if (!isJsonObject(byProvider)) throw new TypeError('"providerMetadata" is not an object');
  const metadata = Object.fromEntries(
    Object.entries(byProvider).filter((entry): entry is [string, ProviderMetadata[string]] => isJsonObject(entry[1])),
  );
  return Object.keys(metadata).length > 0 ? { metadata } : {};
}

/** The part as JSON. Files come as bytes or as base64; a log holds base64. */
function content(raw: Raw): Json {
  return toJson(withoutBytes(raw), "the part");
}

function withoutBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) return base64(value);
  if (value instanceof URL) return value.href;
  if (isJsonObject(value)) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, withoutBytes(v)]));
  return value;
}

function base64(bytes: Uint8Array): string {
  let binary = "";
  // In slices, because the arguments of one call are limited.
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}
