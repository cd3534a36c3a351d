import type { Sent } from "./feed.ts";

/**
 * What a connection is sent, in the batches in which it came. By hand and not an async iterator: one lives for every reader of every run, and
 * the promises of each frame would be half of what a stream allocates.
 */
export interface Batches {
  /**
   * The next batch, if it is there.
   *
   * @returns undefined while there is none yet, null after the last one
   * @throws what broke the stream; then it is over
   */
  take(): readonly Sent[] | undefined | null;
  /** Called when `take` may have something else to say. Belongs to whoever takes. */
  onNews: () => void;
}

/** The streams of one turn after another, as one. */
export class Turns implements Batches {
  onNews = (): void => {};
  #turn: Batches | null | undefined;
  #failure: { readonly error: unknown } | undefined;

  /** @param next - the next one; null when there is none any more */
  constructor(
    first: Batches,
    private readonly next: () => Promise<Batches | null>,
  ) {
    this.#begin(first);
  }

  take(): readonly Sent[] | undefined | null {
    if (this.#failure !== undefined) throw this.#failure.error;
    const turn = this.#turn;
    if (turn === undefined || turn === null) return turn;
    const sent = turn.take();
    if (sent !== null) return sent;
    this.#turn = undefined;
    void this.#goOn();
    return undefined;
  }

  async #goOn(): Promise<void> {
    try {
      this.#begin(await this.next());
    } catch (error) {
      this.#failure = { error };
    }
    this.onNews();
  }

  #begin(turn: Batches | null): void {
    this.#turn = turn;
    if (turn !== null) turn.onNews = () => this.onNews();
  }
}
