/** What a tool has returned that is not only text: parts as MCP has them, which a model may be able to see or hear. */
import { isJsonObject, type Json } from "../protocol/json.ts";

/** A part of a result, for a model. */
export type ResultPart =
  | { readonly type: "text"; readonly text: string }
  /** Base64. */
  | { readonly type: "file-data"; readonly data: string; readonly mediaType: string };

/** @returns undefined where the output is anything else, or nothing in it is worth more than its JSON */
export function resultParts(output: Json): readonly ResultPart[] | undefined {
  if (!isJsonObject(output) || Object.keys(output).length !== 1 || !Array.isArray(output.content)) return undefined;
  const parts = output.content.map(partOf);
  return parts.some((part) => part?.type === "file-data") && parts.every((part) => part !== undefined)
    ? (parts as ResultPart[])
    : undefined;
}

function partOf(part: Json): ResultPart | undefined {
  if (!isJsonObject(part)) return undefined;
  switch (part.type) {
    case "text":
      return typeof part.text === "string" ? { type: "text", text: part.text } : undefined;
    case "image":
    case "audio":
      return file(part.data, part.mimeType);
    case "resource":
      return isJsonObject(part.resource)
        ? (file(part.resource.blob, part.resource.mimeType) ?? { type: "text", text: JSON.stringify(part.resource) })
        : undefined;
    case "resource_link":
      return { type: "text", text: JSON.stringify(part) };
    default:
      return undefined;
  }
}

function file(data: Json | undefined, mediaType: Json | undefined): ResultPart | undefined {
  return typeof data === "string" && typeof mediaType === "string" ? { type: "file-data", data, mediaType } : undefined;
}
