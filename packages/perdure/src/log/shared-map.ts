/** A map that is copied when it is changed, once between two looks at it (F2 of `fold.ts`). */
export class SharedMap<K, V> {
  #seen: ReadonlyMap<K, V>;
  #own: Map<K, V> | undefined;

  constructor(map: ReadonlyMap<K, V> = new Map()) {
    this.#seen = map;
  }

  get size(): number {
    return (this.#own ?? this.#seen).size;
  }

  get(key: K): V | undefined {
    return (this.#own ?? this.#seen).get(key);
  }

  set(key: K, value: V): void {
    this.#mine().set(key, value);
  }

  delete(key: K): void {
    if (this.get(key) !== undefined) this.#mine().delete(key);
  }

  clear(): void {
    this.#own = new Map();
  }

  /** The map as it is now. It will not change any more. */
  look(): ReadonlyMap<K, V> {
    if (this.#own !== undefined) this.#seen = this.#own;
    this.#own = undefined;
    return this.#seen;
  }

  #mine(): Map<K, V> {
    this.#own ??= new Map(this.#seen);
    return this.#own;
  }
}
