import { setTimeout as delay } from "node:timers/promises";

/** A text word by word, as a model streams it. */
export async function* words(text: string, delayMs: number, signal: AbortSignal): AsyncGenerator<string, void> {
  for (const word of text.match(/\s*\S+/g) ?? []) {
    await delay(delayMs, undefined, { signal });
    yield word;
  }
}
