import { type Json, NotJsonError, toJson } from "../protocol/json.ts";

/** A request's body, or why there is none to work with. */
export type Body<T = unknown> =
  | { readonly ok: true; readonly json: T }
  | { readonly ok: false; readonly because: "too-large" | "cut" }
  | { readonly ok: false; readonly because: "not-json"; readonly why: string };

/** Whether a body says that it is JSON. A page of another origin may post anything else without asking first. */
export function isJson(request: Request): boolean {
  return /^application\/json\s*(;|$)/i.test(request.headers.get("content-type") ?? "");
}

/**
 * Reads a body as JSON of at most `limit` bytes. What is too large by its own word is not read; what turns out to be is given up at the limit.
 */
export async function readJsonBody(request: Request, limit: number): Promise<Body> {
  if (Number(request.headers.get("content-length")) > limit) return { ok: false, because: "too-large" };
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const piece of piecesOf(request)) {
      bytes += piece.byteLength;
      if (bytes > limit) return { ok: false, because: "too-large" };
      pieces.push(piece);
    }
  } catch {
    return { ok: false, because: "cut" };
  }
  try {
    return { ok: true, json: JSON.parse(decode(pieces)) };
  } catch (error) {
    return { ok: false, because: "not-json", why: error instanceof Error ? error.message : String(error) };
  }
}

/** The same, of what is to be kept as it is: not all that a parser makes is such ({@link toJson}). */
export async function readKeptBody(request: Request, limit: number): Promise<Body<Json>> {
  const body = await readJsonBody(request, limit);
  if (!body.ok) return body;
  try {
    return { ok: true, json: toJson(body.json, "the request body") };
  } catch (error) {
    if (!(error instanceof NotJsonError)) throw error;
    return { ok: false, because: "not-json", why: error.message };
  }
}

/** @throws TypeError for what is not UTF-8: with a replaced byte it would be another text than the client sent. */
function decode(pieces: readonly Uint8Array[]): string {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  return pieces.map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode();
}

async function* piecesOf({ body }: Request): AsyncGenerator<Uint8Array> {
  if (body === null) return;
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // The rest of a body that nobody wants; one that was read to its end has none.
    reader.cancel().catch(() => {});
  }
}
