/**
 * An immutable map for the ids of a long run: what was remembered stays as it is for whoever holds it, and adding costs O(log n)
 * amortised instead of a copy of everything. It is a short stack of maps, newest last, merged as they grow (a log-structured merge).
 */
export class Ledger<V> {
  /** Sizes at least double towards the start, so there are at most log2(n) maps. None is changed once it is in here. */
  readonly #levels: readonly ReadonlyMap<string, V>[];

  private constructor(levels: readonly ReadonlyMap<string, V>[]) {
    this.#levels = levels;
  }

  static empty<V>(): Ledger<V> {
    return new Ledger<V>([]);
  }

  static of<V>(entries: ReadonlyMap<string, V>): Ledger<V> {
    return new Ledger<V>(entries.size === 0 ? [] : [entries]);
  }

  get(id: string): V | undefined {
    for (let i = this.#levels.length - 1; i >= 0; i--) {
      const value = this.#levels[i]?.get(id);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  has(id: string): boolean {
    return this.get(id) !== undefined;
  }

  set(id: string, value: V): Ledger<V> {
    const levels = [...this.#levels];
    let top: ReadonlyMap<string, V> = new Map([[id, value]]);
    for (let below = levels.at(-1); below !== undefined && below.size < 2 * top.size; below = levels.at(-1)) {
      levels.pop();
      top = new Map([...below, ...top]);
    }
    levels.push(top);
    return new Ledger(levels);
  }

  /** Everything, in one fresh map that the caller may change. */
  toMap(): Map<string, V> {
    const all = new Map<string, V>();
    for (const level of this.#levels) for (const [id, value] of level) all.set(id, value);
    return all;
  }
}
