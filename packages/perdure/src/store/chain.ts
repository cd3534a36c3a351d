import { hash } from "node:crypto";
import type { Uid } from "../protocol/words.ts";

/** SHA-256 of a text's UTF-8, in 43 characters. */
export function digest(text: string): string {
  return hash("sha256", text, "base64url");
}

/** Where a run's chain has got to: the place of its last fact, and what that one holds. */
export interface Tail {
  readonly fact: number;
  readonly chain: string;
}

/** Before the first fact: what binds a chain to its run. */
export function startOf(uid: Uid): Tail {
  return { fact: -1, chain: uid };
}

/** What a fact holds of itself and of all before it. */
export function link(before: Tail, seq: number, at: number, text: string): string {
  return digest(`${before.chain} ${seq} ${at} ${text}`);
}
