/**
 * Measures alternatives side by side in one process and judges the promised bounds.
 *
 * 1. A ratio is taken within one round, where both ran moments apart, and the median of the rounds counts: what the machine does in between, or
 *    does differently today, touches both sides.
 * 2. Rounds run A B, then B A, so that neither always comes first; garbage is collected before each slice, so that neither pays for the other's.
 * 3. A miss is always printed; it is an error only with `--check`, since a busy machine proves nothing.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type Bound, judge, type Spread, spreadOf, type Verdict } from "./judge.ts";

/** One way to do the job. */
export interface Contender {
  readonly name: string;
  /**
   * Does the job `times` times.
   *
   * @returns a number that depends on all of the work, so that the compiler cannot leave any of it out
   */
  run(times: number): number | Promise<number>;
  /** How long a slice of it is, in ms; {@link SLICE_MS} by default. */
  readonly sliceMs?: number;
  /**
   * How long it runs before each slice, in ms, and is not measured; by default not at all. The collection before a slice also throws away what the
   * compiler knew of shapes that no object has just then, and a way through much code takes seconds to be as quick again. All contenders of a
   * comparison get the same.
   */
  readonly leadInMs?: number;
}

/**
 * Reads one character of a text. The engine keeps joined strings as their parts until somebody reads them, and only then is the text made.
 *
 * @returns what to add to a contender's number
 */
export function made(text: string): number {
  return text.charCodeAt(text.length >> 1);
}

interface Comparison {
  readonly title: string;
  /** Nanoseconds for one job, and how many times those of each other contender ours take. */
  readonly contenders: readonly { readonly name: string; readonly ns: Spread; readonly ratio: Spread }[];
  readonly verdicts: readonly Verdict[];
}

/** What was measured in another way than by jobs in slices, in a unit of its own. */
interface Reading {
  readonly title: string;
  readonly figures: { readonly [name: string]: Spread };
  readonly verdicts: readonly Verdict[];
}

const ROUNDS = 15;
const SLICE_MS = 40;
const WARM_UP_MS = 300;

/** Collects the comparisons of one bench. */
export class Bench {
  readonly #comparisons: (Comparison | Reading)[] = [];
  #checksum = 0;

  constructor(
    /** Names the file of results. */
    readonly name: string,
  ) {}

  /**
   * Measures, prints and judges one comparison.
   *
   * @param ours what the bounds are about
   * @param others what it is held against; may be empty
   */
  async compare(title: string, ours: Contender, others: readonly Contender[], bounds: readonly Bound[]): Promise<void> {
    const contenders = [ours, ...others];
    const times = new Map<Contender, number>();
    for (const contender of contenders) times.set(contender, await this.#warmUp(contender));

    const rounds = new Map<Contender, number[]>(contenders.map((contender) => [contender, []]));
    for (let round = 0; round < ROUNDS; round++) {
      for (const contender of round % 2 === 0 ? contenders : contenders.toReversed()) {
        rounds.get(contender)?.push(await this.#slice(contender, times.get(contender) ?? 1));
      }
    }

    const ourRounds = rounds.get(ours) ?? [];
    const measured = contenders.map((contender) => {
      const own = rounds.get(contender) ?? [];
      const ratio = spreadOf(own.map((ns, round) => (ourRounds[round] ?? Number.NaN) / ns));
      return { name: contender.name, ns: spreadOf(own), ratio };
    });
    const comparison = { title, contenders: measured, verdicts: bounds.map((bound) => judge(bound, measured)) };
    this.#comparisons.push(comparison);
    print(comparison);
  }

  /**
   * Prints and keeps what was measured elsewhere.
   *
   * @param figures by name and unit
   */
  report(title: string, figures: { readonly [name: string]: Spread }, verdicts: readonly Verdict[] = []): void {
    this.#comparisons.push({ title, figures, verdicts });
    console.log(`\n${title}`);
    const width = Math.max(...Object.keys(figures).map((name) => name.length));
    for (const [name, figure] of Object.entries(figures))
      console.log(`  ${name.padEnd(width)}  ${spread(figure, digits)}`);
    printVerdicts(verdicts);
  }

  /** Writes the results, and with `--check` makes a missed bound the process's exit code. */
  finish(): void {
    const folder = new URL("../results/", import.meta.url);
    mkdirSync(folder, { recursive: true });
    const machine = { node: process.version, cpu: cpus()[0]?.model ?? "", cores: availableParallelism() };
    const results = { bench: this.name, ...machine, checksum: this.#checksum, comparisons: this.#comparisons };
    writeFileSync(new URL(`${this.name}.json`, folder), `${JSON.stringify(results, null, 2)}\n`);

    const missed = this.#comparisons.flatMap(({ verdicts }) => verdicts).filter(({ passed }) => !passed).length;
    if (missed > 0 && process.argv.includes("--check")) process.exitCode = 1;
  }

  /** Runs it until it is compiled, and finds how many jobs fill a slice. */
  async #warmUp(contender: Contender): Promise<number> {
    const { sliceMs = SLICE_MS } = contender;
    const end = performance.now() + Math.max(WARM_UP_MS, 4 * sliceMs);
    let times = 1;
    for (;;) {
      const ms = ((await this.#slice(contender, times)) * times) / 1e6;
      if (performance.now() >= end) return Math.max(1, Math.round((times * sliceMs) / Math.max(ms, sliceMs / 100)));
      if (ms < sliceMs / 2) times *= 2;
    }
  }

  /** Nanoseconds for one job. */
  async #slice(contender: Contender, times: number): Promise<number> {
    collectGarbage();
    const warm = performance.now() + (contender.leadInMs ?? 0);
    while (performance.now() < warm) this.#checksum += await contender.run(1);
    const begun = process.hrtime.bigint();
    const result = contender.run(times);
    this.#checksum += typeof result === "number" ? result : await result;
    return Number(process.hrtime.bigint() - begun) / times;
  }
}

function exposedCollector(): () => void {
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc");
}
export const collectGarbage = exposedCollector();

function print({ title, contenders, verdicts }: Comparison): void {
  console.log(`\n${title}`);
  const width = Math.max(...contenders.map(({ name }) => name.length));
  for (const [index, { name, ns, ratio }] of contenders.entries()) {
    const time = spread(ns, (value) => (value >= 1e6 ? `${digits(value / 1e6)} ms` : `${digits(value / 1e3)} µs`));
    console.log(
      `  ${name.padEnd(width)}  ${time.padEnd(32)}${index === 0 ? "" : `  ours takes ${spread(ratio, (value) => `${digits(value)}x`)}`}`,
    );
  }
  printVerdicts(verdicts);
}

function printVerdicts(verdicts: readonly Verdict[]): void {
  for (const { claim, value, passed } of verdicts)
    console.log(`  ${passed ? "PASS" : "MISS"}  ${claim}: ${spread(value, digits)}`);
}

function spread({ median, min, max }: Spread, show: (value: number) => string): string {
  return `${show(median)} (${show(min)} to ${show(max)})`;
}

function digits(value: number): string {
  return value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}
