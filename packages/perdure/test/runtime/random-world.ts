/** What people and truths of a random play know of its bodies, beside the ledger. */
import { never } from "../../src/testing/mortal-store.ts";
import type { World } from "./world.ts";

const known = new WeakMap<World, RandomWorld>();

export class RandomWorld {
  /** Bodies that run in the process that lives, by their calls. */
  readonly #running = new Map<string, number>();
  readonly #turnsLeft = new Map<string, number>();
  readonly #hanging = new Set<string>();
  readonly #lies = new Map<string, Set<string>>();
  /** Writes that were not done, and somebody has said that they were. */
  readonly invented = new Set<string>();
  /** How often a "no" in the inbox, or of another tab, was refused because the write still ran. */
  hasty = 0;
  /** Attempts that outran their time. */
  outruns = 0;
  /** Writes that ended with an output behind their deadline, and whether a human had begun to answer by then. */
  readonly lateOutputs: { readonly name: string; readonly isAnswered: boolean }[] = [];
  /** Calls about which somebody has said something. */
  readonly answered = new Set<string>();
  /** What others were told whose word came too late, was not theirs to say, or was nonsense: expected, and told. */
  readonly told: { readonly expected: readonly number[]; readonly status: number; readonly who: string }[] = [];

  static of(world: World): RandomWorld {
    const one = known.get(world) ?? new RandomWorld();
    known.set(world, one);
    return one;
  }

  /** A process begins, so what ran in the one before does not. */
  begins(): void {
    this.#running.clear();
    this.#hanging.clear();
  }

  /** @returns ends it */
  running(name: string): () => void {
    const change = (by: number) => this.#running.set(name, (this.#running.get(name) ?? 0) + by);
    change(1);
    return () => void change(-1);
  }

  isRunning(name: string): boolean {
    return (this.#running.get(name) ?? 0) > 0;
  }

  /** A body whose time is over ends in so many turns of the event loop. */
  endsIn(name: string, turns: number): void {
    this.#turnsLeft.set(name, turns);
  }

  turnsLeft(name: string): number {
    return this.#turnsLeft.get(name) ?? 0;
  }

  /** A body that comes to no end. */
  hangs(name: string): Promise<never> {
    this.#hanging.add(name);
    return never();
  }

  isHanging(name: string): boolean {
    return this.#hanging.has(name);
  }

  landed(name: string): string {
    this.lateOutputs.push({ name, isAnswered: this.answered.has(name) });
    return name;
  }

  /** Somebody has said of a write that was done that it was not. @param how - a lie that is told again is the same one */
  lied(name: string, how: string): void {
    this.#lies.set(name, (this.#lies.get(name) ?? new Set()).add(how));
  }

  /** How many times a write was said not to be done although it was. */
  lies(name: string): number {
    return this.#lies.get(name)?.size ?? 0;
  }
}
