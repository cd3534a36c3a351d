import type { Uid } from "../protocol/words.ts";

/** A place in a thread's stream, and the run id under which its reader knows the leg. Opaque outside. */
export interface Cursor {
  readonly uid: Uid;
  readonly seq: number;
  readonly runId: string;
}

export function encodeCursor({ uid, seq, runId }: Cursor): string {
  return Buffer.from(JSON.stringify([uid, seq, runId])).toString("base64url");
}

/** @returns undefined for what is not a cursor of ours: then the reader starts anew */
export function decodeCursor(text: string | null | undefined): Cursor | undefined {
  if (!text) return undefined;
  try {
    const parts: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    if (!Array.isArray(parts)) return undefined;
    const [uid, seq, runId] = parts as unknown[];
    if (typeof uid !== "string" || typeof runId !== "string" || !isPlace(seq)) return undefined;
    return { uid: uid as Uid, seq, runId };
  } catch {
    return undefined;
  }
}

function isPlace(seq: unknown): seq is number {
  return typeof seq === "number" && Number.isSafeInteger(seq) && seq >= 0;
}
