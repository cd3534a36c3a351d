import type { TokenUsage } from "@ag-ui/core";
import { z } from "zod";
import { json, list, object, optional } from "../log/schema-parts.ts";
import { PerdureError } from "../protocol/errors.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { ProviderMetadata } from "./model-port.ts";

const metadata = z.custom<ProviderMetadata>(
  (value) => z.record(z.string(), z.record(z.string(), json)).safeParse(value).success,
  "is not an object of objects by provider",
);

const reasoning = object({ text: z.string(), metadata: optional(metadata) });

const call = object({
  /** The call's id on the wire, which is ours. */
  id: z.string(),
  /** The provider's, for its history; null where it gave none. */
  providerId: z.string().nullable(),
  name: z.string(),
  /** The arguments; their text where they are `invalid`. */
  input: json,
  /** Why this call cannot be run, as the rest of a sentence for the model. Its arguments on the wire may be cut, so it has to be withdrawn there. */
  invalid: optional(z.string()),
  metadata: optional(metadata),
});

const finishReason = z.enum(["stop", "length", "content-filter", "tool-calls", "error", "other"]);

/** Where each part of the answer stood: the next of `reasoning`, `calls` or `content`, or so many UTF-16 units of `text`. */
const placed = z.union([
  z.enum(["reasoning", "call", "content"]),
  object({ text: z.int().positive(), metadata: optional(metadata) }),
]);

const modelOutput = object({
  /** The id of its message on the wire, which the driver knows. */
  messageId: z.string().nullable(),
  /** All text blocks, appended as they are: providers cut a sentence into blocks at each citation. */
  text: z.string(),
  reasoning: list(reasoning),
  calls: list(call),
  /** Sources, files, what the provider's own tools did: the stream's parts as they came. */
  content: list(json),
  order: list(placed),
  finishReason,
  /** The provider's own word for it. */
  rawFinishReason: optional(z.string()),
  /** The provider's id of the answer, and the model that gave it. */
  response: optional(object({ id: optional(z.string()), modelId: optional(z.string()) })),
  warnings: optional(list(json)),
  metadata: optional(metadata),
});

/** One answer of a model, as the log holds it: all that the next request has to give back, and nothing twice. */
export type ModelOutput = z.infer<typeof modelOutput>;
/** An answer with what it has used, which the log keeps beside it. */
export type ModelAnswer = ModelOutput & { readonly usage: readonly TokenUsage[] };
export type ModelCall = z.infer<typeof call>;
export type ModelReasoning = z.infer<typeof reasoning>;
/** `length`, `content-filter`, `error` and `other` are answers that are not whole: never a success by themselves. */
export type FinishReason = z.infer<typeof finishReason>;

/** What stands in a log where a model's answer should be is none. */
export class ModelOutputUnreadable extends PerdureError {
  override readonly name = "ModelOutputUnreadable";
  constructor(cause: z.ZodError) {
    super(
      "MODEL_OUTPUT_UNREADABLE",
      `the recorded answer of a model does not fit: ${z.prettifyError(cause)}; the log was changed, or written by a newer version`,
      { cause },
    );
  }
}

/** A long conversation asks for the same answers again with each of its steps. */
const known = new WeakMap<object, ModelOutput>();

/**
 * A recorded answer, checked.
 *
 * @throws {@link ModelOutputUnreadable}
 */
export function readModelOutput(recorded: Json): ModelOutput {
  const isObject = isJsonObject(recorded);
  const checked = isObject ? known.get(recorded) : undefined;
  if (checked !== undefined) return checked;
  const { data, error } = modelOutput.safeParse(recorded);
  if (error) throw new ModelOutputUnreadable(error);
  if (isObject) known.set(recorded, data);
  return data;
}

/** A part of an answer, at its place. */
export type OutputPart =
  | { readonly type: "text"; readonly text: string; readonly metadata?: ProviderMetadata }
  | ({ readonly type: "reasoning" } & ModelReasoning)
  | { readonly type: "call"; readonly call: ModelCall }
  | { readonly type: "content"; readonly content: Json };

/** The answer's parts in the order in which the model gave them. */
export function* partsOf(output: ModelOutput): Generator<OutputPart> {
  const next = { text: 0, reasoning: 0, call: 0, content: 0 };
  for (const place of output.order) {
    if (typeof place === "object") {
      const { text: length, ...rest } = place;
      yield { type: "text", text: output.text.slice(next.text, next.text + length), ...rest };
      next.text += length;
    } else if (place === "reasoning") {
      const reasoning = output.reasoning[next.reasoning++];
      if (reasoning !== undefined) yield { type: "reasoning", ...reasoning };
    } else if (place === "call") {
      const call = output.calls[next.call++];
      if (call !== undefined) yield { type: "call", call };
    } else {
      const content = output.content[next.content++];
      if (content !== undefined) yield { type: "content", content };
    }
  }
}

/** Where providers put what they encrypted: a signature of readable reasoning, or reasoning that nobody else can read. */
const BLOBS = [
  "encryptedContent",
  "reasoningEncryptedContent", // openai
  "redactedData", // anthropic
  "signature", // anthropic, bedrock
  "thoughtSignature", // google
];

/** The opaque value in a part's metadata, for the wire. The model gets the metadata itself back. */
export function blobOf(metadata: ProviderMetadata | undefined): string | undefined {
  for (const members of Object.values(metadata ?? {})) {
    for (const key of BLOBS) {
      const value = members[key];
      if (typeof value === "string" && value !== "") return value;
    }
  }
  return undefined;
}
