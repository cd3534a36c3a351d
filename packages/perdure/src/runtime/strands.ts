import type { Strand } from "../emit/branches.ts";

/**
 * Which strands of a custom loop's code run by themselves, and which wait for steps. When all of them wait, nothing happens before a step ends: then
 * the code may be let go of.
 */
export class Strands {
  readonly #waiting = new Map<Strand, number>();
  #haveBranched = false;

  /** @param onRest - called when one ends and those that are left wait */
  constructor(private readonly onRest: () => void) {}

  open(strand: Strand): void {
    if (this.#waiting.size > 0) this.#haveBranched ||= !this.#waiting.has(strand);
    if (!this.#waiting.has(strand)) this.#waiting.set(strand, 0);
  }

  /** Whether there has been more than one. */
  get haveBranched(): boolean {
    return this.#haveBranched;
  }

  close(strand: Strand): void {
    this.#waiting.delete(strand);
    if (!this.isRunning) this.onRest();
  }

  /** It waits for one thing more. */
  wait(strand: Strand): void {
    const waiting = this.#waiting.get(strand);
    if (waiting !== undefined) this.#waiting.set(strand, waiting + 1);
  }

  resume(strand: Strand): void {
    const waiting = this.#waiting.get(strand);
    if (waiting !== undefined) this.#waiting.set(strand, waiting - 1);
  }

  /** Whether one of them runs: what it waits for, if for anything, is none of ours. */
  get isRunning(): boolean {
    return [...this.#waiting.values()].some((waiting) => waiting === 0);
  }
}
