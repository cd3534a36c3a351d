import type { Uid } from "../protocol/words.ts";

/** A place in a thread's stream, and the run id under which its reader knows the leg. Opaque outside. */
export interface Cursor {
  readonly uid: Uid;
  readonly seq: number;
  readonly runId: string;
}

/** Makes the cursors of one leg. What they have in common is encoded once: every frame has one. */
export function cursorsOf({ uid, runId }: Omit<Cursor, "seq">): (seq: number) => string {
  const leg = Buffer.from(JSON.stringify([uid, runId])).toString("base64url");
  return (seq) => `${seq}.${leg}`;
}

const CURSOR = /^(?<seq>\d{1,15})\.(?<leg>[\w-]+)$/;

/** @returns undefined for what is not a cursor of ours: then the reader starts anew */
export function decodeCursor(text: string | null | undefined): Cursor | undefined {
  const { seq, leg } = CURSOR.exec(text ?? "")?.groups ?? {};
  if (seq === undefined || leg === undefined) return undefined;
  try {
    const parts: unknown = JSON.parse(Buffer.from(leg, "base64url").toString());
    if (!Array.isArray(parts)) return undefined;
    const [uid, runId] = parts as unknown[];
    if (typeof uid !== "string" || typeof runId !== "string") return undefined;
    return { uid: uid as Uid, seq: Number(seq), runId };
  } catch {
    return undefined;
  }
}
