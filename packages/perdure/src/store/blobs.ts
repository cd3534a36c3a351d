/**
 * Large values of what a store keeps, each in a row of its own under the hash of its text, so that the same value is there once, whoever has
 * it: a state that every turn of a thread begins with, an output and the business key that was settled with it.
 *
 * 1. A stored text is JSON, and behind a line feed, which JSON texts of ours never have, where its blobs belong: `[[hash, key, …], …]`.
 *    The blob's own text is again such a text.
 * 2. What is cut out is the smallest value over the limit that holds no other; then, if the rest around it still is over the limit, that too.
 * 3. What is put together is exactly what was taken apart. A blob that is missing, or is not what its hash says, is a fault with its place.
 */
import { escapePointer, isJsonObject, type Json } from "../protocol/json.ts";
import { bytesOver } from "../protocol/payload.ts";
import { longerThan } from "../protocol/size.ts";
import { digest } from "./chain.ts";

/** From how many bytes of JSON on, and one more, a value is a blob. */
export const BLOB_BYTES = 64 * 1024;

export interface Blob {
  readonly hash: string;
  readonly text: string;
}

/** What a store keeps of a value. */
export interface Packed {
  readonly text: string;
  readonly blobs: readonly Blob[];
}

type Key = string | number;
type Place = readonly [hash: string, ...keys: Key[]];

/** A blob that cannot be put back. Its reader says whose it is. */
export class BlobFault extends Error {
  override readonly name = "BlobFault";
  constructor(
    /** JSON Pointer to where it belongs. */
    readonly where: string,
    readonly why: string,
  ) {
    super(why);
  }
}

const NONE: readonly Blob[] = [];

/** @param text - the JSON text of `value()`, which is asked for only when there is something to cut out */
export function pack(text: string, value: () => Json): Packed {
  if (bytesOver(text, BLOB_BYTES) === null) return { text, blobs: NONE };
  const blobs: Blob[] = [];
  const rest = new Packing(blobs).pack(value());
  return { text: textOf(rest), blobs };
}

/** A value as it is kept: its text without what was cut out of it, and where that belongs. */
interface Part {
  readonly text: string;
  readonly places: readonly Place[];
}

class Packing {
  constructor(private readonly blobs: Blob[]) {}

  pack(value: Json): Part {
    const part = this.#taken(value);
    const text = textOf(part);
    if (bytesOver(text, BLOB_BYTES) === null) return part;
    const hash = digest(text);
    this.blobs.push({ hash, text });
    return { text: "null", places: [[hash]] };
  }

  /** The value with what is too large in it cut out. */
  #taken(value: Json): Part {
    // An estimate is never too long, and the text never longer than six times of it: most of a value is one call of the engine's own.
    if (typeof value !== "object" || value === null || !longerThan(value, BLOB_BYTES / 6)) {
      return { text: JSON.stringify(value), places: [] };
    }
    const places: Place[] = [];
    const member = (key: Key, item: Json): string => {
      const part = this.pack(item);
      for (const [hash, ...keys] of part.places) places.push([hash, key, ...keys]);
      return part.text;
    };
    const text = isJsonObject(value)
      ? `{${Object.keys(value)
          .map((key) => `${JSON.stringify(key)}:${member(key, value[key] ?? null)}`)
          .join(",")}}`
      : `[${value.map((item, i) => member(i, item)).join(",")}]`;
    return { text, places };
  }
}

function textOf({ text, places }: Part): string {
  return places.length === 0 ? text : `${text}\n${JSON.stringify(places)}`;
}

/**
 * The value that a stored text holds.
 *
 * @throws {@link BlobFault}
 */
export function unpack(text: string, blob: (hash: string) => string | null): unknown {
  return unpackAt(text, blob, "");
}

/** The blobs that a stored text refers to. */
export function blobsOf(text: string): readonly string[] {
  const end = text.indexOf("\n");
  if (end === -1) return [];
  const places = parse(text.slice(end + 1), "");
  return Array.isArray(places) ? places.flatMap((place) => (isPlace(place) ? [place[0]] : [])) : [];
}

function unpackAt(text: string, blob: (hash: string) => string | null, at: string): unknown {
  const end = text.indexOf("\n");
  if (end === -1) return parse(text, at);
  const root = { value: parse(text.slice(0, end), at) };
  const places = parse(text.slice(end + 1), at);
  if (!Array.isArray(places)) throw new BlobFault(at, "the list of its blobs is unreadable");
  for (const place of places) {
    if (!isPlace(place)) throw new BlobFault(at, "the list of its blobs is unreadable");
    const [hash, ...keys] = place;
    const where = at + keys.map((key) => `/${escapePointer(String(key))}`).join("");
    const stored = blob(hash);
    if (stored === null) throw new BlobFault(where, `its blob ${hash} is missing`);
    if (digest(stored) !== hash) throw new BlobFault(where, `its blob ${hash} is not what its hash says`);
    put(root, ["value", ...keys], unpackAt(stored, blob, where), where);
  }
  return root.value;
}

function put(root: object, keys: readonly Key[], value: unknown, where: string): void {
  let inside: unknown = root;
  for (const [i, key] of keys.entries()) {
    if (typeof inside !== "object" || inside === null || !Object.hasOwn(inside, key)) {
      throw new BlobFault(where, "there is no place for its blob");
    }
    if (i === keys.length - 1) Reflect.set(inside, key, value);
    else inside = Reflect.get(inside, key);
  }
}

function isPlace(place: unknown): place is Place {
  return (
    Array.isArray(place) &&
    typeof place[0] === "string" &&
    place.slice(1).every((key) => typeof key === "string" || typeof key === "number")
  );
}

function parse(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new BlobFault(where, `its text is not JSON (${text.length} characters)`);
  }
}
