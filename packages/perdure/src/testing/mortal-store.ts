/**
 * A store as one life of a process has it. A life ends after, or right before, a given commit, or when a body says so: from then on nothing
 * it asks for is done, and nothing is answered any more. What it had committed is in the store below, for the next life.
 */
import type { NewEntry } from "../log/entries.ts";
import type { Uid } from "../protocol/words.ts";
import { StoreError } from "../store/errors.ts";
import type { Batch, EventStore, Lease } from "../store/store.ts";

/** Where a life ends: its nth commit is durable, and nobody has heard of it; it is about to make the next one; or it made one that holds this. */
export type Death =
  | { readonly when: "after" | "before"; readonly commits: number }
  | { readonly when: "behind"; readonly holds: (entry: NewEntry) => boolean };

/** A change of the store, as far as it tells what was going on. */
export interface Commit {
  readonly operation: string;
  /** Of an append. */
  readonly run: Uid | null;
  readonly entries: readonly NewEntry[];
}

/** What a dead process waits for. */
export function never<T>(): Promise<T> {
  return new Promise<T>(() => {});
}

/** One turn of the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The operations that change what the store holds. */
const COMMITS = new Set<PropertyKey>(["append", "post", "answer", "put", "wake", "claim"]);

const OWNER = "driver";

/** Whoever asks for so much lets others come in between: a driver that asks without end must not keep out who would notice. */
const BREATH = 1_000;

export class Mortal {
  readonly store: EventStore;
  readonly died: Promise<void>;
  /** Made so far. */
  commits = 0;
  /** Called before each commit, which waits for it. */
  gate: (() => Promise<void>) | undefined;
  /** Told of each commit that is about to be made, also of one that death forestalls. */
  onCommit: ((commit: Commit) => void) | undefined;
  #lastAppend: Promise<unknown> = Promise.resolve();
  #asked = 0;
  #isDead = false;
  #isDying = false;
  #onDeath: () => void = () => {};
  #onBurial: () => void = () => {};
  /** What those who ask a dead process for something wait for: nothing, until nobody looks any more. */
  readonly #limbo: Promise<never>;

  constructor(
    /** What outlives this process. */
    readonly below: EventStore,
    private readonly death: Death | null = null,
  ) {
    this.died = new Promise((resolve) => {
      this.#onDeath = resolve;
    });
    this.#limbo = new Promise((_, reject) => {
      this.#onBurial = () => reject(new StoreError("STORE_CLOSED", "the process is dead, and so is its store"));
    });
    this.#limbo.catch(() => {});
    this.store = new Proxy(below, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name);
        if (typeof member !== "function") return member;
        return (...args: unknown[]) => this.#call(name, (given) => member.apply(target, given), args);
      },
    });
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  die(): void {
    this.#isDead = true;
    this.#onDeath();
  }

  /** Lets what is left of a dead process unwind, with its timers: from now on each operation fails at once. Its bodies are told by their signals. */
  bury(): void {
    this.#onBurial();
  }

  #call(name: PropertyKey, call: (args: readonly unknown[]) => unknown, args: readonly unknown[]): unknown {
    if (name === "read") return this.#read(() => call(args) as AsyncIterable<unknown>);
    // It only says where to look; a dead one looks and sees nothing.
    if (name === "watch") return call(args);
    this.#asked += 1;
    const isOutOfBreath = this.#asked % BREATH === 0;
    if (this.#isDead || this.#isDying) return isOutOfBreath ? turn().then(() => this.#limbo) : this.#limbo;
    const make = (): Promise<unknown> => this.#answered(() => this.#commit(name, asDriver(name, args), call));
    if (name === "claim") return this.gate === undefined ? make() : this.gate().then(make);
    if (name !== "append") return isOutOfBreath ? turn().then(make) : make();
    // A commit takes its time, in which whoever does not wait for it goes on. Those of one caller are made in the order of its calls.
    const appended = this.#lastAppend.then(turn).then(this.gate).then(make);
    this.#lastAppend = Promise.race([appended.catch(() => {}), this.died]);
    return appended;
  }

  #commit(name: PropertyKey, args: readonly unknown[], call: (args: readonly unknown[]) => unknown): unknown {
    const { death } = this;
    if (!COMMITS.has(name)) return call(args);
    if (this.#isDead || this.#isDying) return this.#limbo;
    const entries = name === "append" ? (args[1] as Batch).entries : [];
    const run = name === "append" ? (args[0] as Lease).uid : null;
    this.onCommit?.({ operation: String(name), run, entries });
    if (death?.when === "before" && this.commits === death.commits) {
      this.die();
      return this.#limbo;
    }
    this.commits += 1;
    const done = call(args) as Promise<unknown>;
    if (!this.#isLast(entries)) return done;
    this.#isDying = true;
    done.finally(() => this.die()).catch(() => {});
    return this.#limbo;
  }

  #isLast(entries: readonly NewEntry[]): boolean {
    const { death } = this;
    if (death?.when === "behind") return entries.some(death.holds);
    return death?.when === "after" && death.commits === this.commits;
  }

  /** What a call brings; a dead process never learns of it. */
  async #answered(call: () => unknown): Promise<unknown> {
    const answer = await call();
    return this.#isDead ? await this.#limbo : answer;
  }

  async *#read(entries: () => AsyncIterable<unknown>): AsyncGenerator<unknown> {
    if (this.#isDead) await this.#limbo;
    for await (const entry of entries()) {
      yield entry;
      if (this.#isDead) await this.#limbo;
    }
  }
}

/** All lives drive under one name: whoever opens the store under it is the same driver started again, and the leases of the life before are void. */
function asDriver(name: PropertyKey, args: readonly unknown[]): readonly unknown[] {
  if (name === "open" || name === "claim") return [OWNER];
  if (name !== "post") return args;
  const [request, ...rest] = args;
  return [{ ...(request as object), owner: OWNER }, ...rest];
}
