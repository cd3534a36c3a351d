/**
 * Parallel branches as a tree, so that an interrupt in one of them ends the leg only when nothing else can go on.
 *
 * A strand is the root or one branch. It rests when it waits for a human, or when each branch of its group rests or has ended and at
 * least one rests. When the root rests, the leg ends.
 */
export class Strand {
  #rests = false;

  constructor(private readonly onRest: () => void) {}

  /** Two questions of one strand rest it once. */
  rest(): void {
    if (this.#rests) return;
    this.#rests = true;
    this.onRest();
  }
}

/** The branches of one `parallel`: they all settle before it does, so no branch outlives its group. */
export class Branches<T> {
  #running = 0;
  #resting = 0;
  #failure: { readonly error: unknown } | undefined;
  #settle: { resolve(): void; reject(error: unknown): void } | undefined;

  constructor(private readonly parent: Strand) {}

  async run(branches: readonly ((strand: Strand) => Promise<T>)[]): Promise<T[]> {
    this.#running = branches.length;
    if (branches.length === 0) return [];
    const results: T[] = [];
    await new Promise<void>((resolve, reject) => {
      this.#settle = { resolve, reject };
      branches.forEach((branch, i) => {
        const strand = new Strand(() => {
          this.#resting++;
          this.#stopped();
        });
        start(branch, strand).then(
          (value) => {
            results[i] = value;
            this.#stopped();
          },
          (error: unknown) => {
            this.#failure ??= { error };
            this.#stopped();
          },
        );
      });
    });
    return results;
  }

  /** A branch ended or rests. */
  #stopped(): void {
    if (--this.#running > 0) return;
    // A failure wins over a question: the question would be asked again by the next leg, the failure would be lost.
    if (this.#failure) this.#settle?.reject(this.#failure.error);
    else if (this.#resting > 0) this.parent.rest();
    else this.#settle?.resolve();
  }
}

/** A branch that throws before its first await fails like any other. */
async function start<T>(branch: (strand: Strand) => Promise<T>, strand: Strand): Promise<T> {
  return branch(strand);
}
