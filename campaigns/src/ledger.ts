import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

/** Something that was done to the world. */
export interface Effect {
  /** What the call was for: its tool and order. */
  readonly what: string;
  readonly key: string;
}

/**
 * The world outside: a file of lines that has no unique keys, so what is done twice stands there twice. Each line is on the disk before the
 * call returns, and the calls are synchronous, so nothing lands after its process has died.
 */
export class Ledger {
  readonly #file: number;

  constructor(private readonly path: string) {
    this.#file = openSync(path, "a");
  }

  /** Does it, whether or not it was done before. */
  write(effect: Effect): void {
    writeSync(this.#file, `${JSON.stringify(effect)}\n`);
    fsyncSync(this.#file);
  }

  /** Does it unless something was done under that key: a service that honours idempotency keys. */
  writeOnce(effect: Effect): void {
    if (!this.effects().some(({ key }) => key === effect.key)) this.write(effect);
  }

  has(what: string): boolean {
    return this.effects().some((effect) => effect.what === what);
  }

  effects(): Effect[] {
    const lines = readFileSync(this.path, "utf8").split("\n");
    return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Effect);
  }

  close(): void {
    closeSync(this.#file);
  }
}
