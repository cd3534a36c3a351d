import { escapePointer, isJsonObject, type Json } from "./json.ts";

/** Where a reader notes what it found; paths are JSON Pointers. */
interface Notes {
  issue(path: string, message: string): void;
  warn(path: string, what: string): void;
}

/** The content part of AG-UI 0.0.4x, `{ type: "binary", mimeType, data | url | id, filename? }`, which 1.0 replaced by one type per medium. */
export function isBinaryPart(value: Json): value is { readonly [key: string]: Json } {
  return isJsonObject(value) && value.type === "binary";
}

/** In the order in which `@ag-ui/client` prefers them. It cannot convert an id; 1.0 has a source for it since. */
const SOURCES = [
  ["data", "data"],
  ["url", "url"],
  ["id", "file"],
] as const;

/** The part in today's form, or undefined when it carries nothing that could be used. */
export function upgradeBinaryPart(
  part: { readonly [key: string]: Json },
  notes: Notes,
  path: string,
): Json | undefined {
  const mimeName = Object.hasOwn(part, "mimeType") || !Object.hasOwn(part, "mime_type") ? "mimeType" : "mime_type";
  const texts = new Map<string, string>();
  for (const name of [mimeName, "data", "url", "id", "filename"]) {
    const value = part[name] ?? undefined;
    if (typeof value === "string") texts.set(name, value);
    else if (value !== undefined) notes.issue(`${path}/${name}`, "must be a string");
    else if (name === mimeName) notes.issue(`${path}/${name}`, "is missing");
  }
  for (const name of Object.keys(part)) {
    if (![mimeName, "type", "data", "url", "id", "filename"].includes(name)) {
      notes.warn(`${path}/${escapePointer(name)}`, "unknown member, dropped");
    }
  }
  const mimeType = texts.get(mimeName) ?? "";
  const filename = texts.get("filename");
  for (const [name, type] of SOURCES) {
    const value = texts.get(name);
    // An empty text is how some peers write "none".
    if (!value) continue;
    return { type: mediumOf(mimeType), source: { type, value, mimeType }, ...(filename && { metadata: { filename } }) };
  }
  notes.warn(path, "a binary content part without data, url or id is skipped");
  return undefined;
}

function mediumOf(mimeType: string): string {
  return /^(image|audio|video)\//.exec(mimeType)?.[1] ?? "document";
}
