import { createHash } from "node:crypto";
import type { Hash } from "../protocol/words.ts";

export function sha256(text: string): Hash {
  // The brand is earned here and nowhere else.
  return createHash("sha256").update(text).digest("hex") as Hash;
}
