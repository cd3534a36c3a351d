/**
 * Reads one run, over as many connections as it takes, as one unbroken sequence of events.
 *
 * R1. A cursor is used only within the reading that saw RUN_STARTED: behind it comes exactly the rest, which only fits what was seen before.
 * R2. Without one, the request is made again. Its run id says that it is the same one, so the server rejoins.
 * R3. A prelude that comes inside a run is spliced in whole, when its last frame is there, or not at all.
 * R4. A run ends as the run id under which it began here, whatever it is called in the prelude of another connection.
 */
import { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent, Message } from "../protocol/events.ts";
import { RUN_HEADER } from "../protocol/negotiate.ts";
import { newWire, type Wire } from "../protocol/verify.ts";
import { type Framed, framesOf } from "./connection.ts";
import { Lost, type Patience } from "./lost.ts";
import type { Questions } from "./questions.ts";
import { observe, splice } from "./splice.ts";

export interface ReadingOptions {
  /** Makes the request. */
  readonly begin: (signal: AbortSignal) => Promise<Response>;
  /** Asks for what follows a cursor. */
  readonly resume: (cursor: string, signal: AbortSignal) => Promise<Response>;
  /** Whether it goes on behind a terminal event. */
  readonly isFollowing: boolean;
  /** What the reader holds before the first event. */
  readonly messages: readonly Message[];
  readonly patience: Patience;
  /** Milliseconds of silence of which a connection dies. */
  readonly idleTimeoutMs: number;
  readonly onEvent: (event: AGUIEvent) => void;
  /** What is asked of a human: kept up to date. */
  readonly questions: Questions;
  /** Told the uid of the run that it reads; undefined when that is not known. */
  readonly onRun: (uid: string | undefined) => void;
  /** Something has come again after a loss. */
  readonly onReconnected: () => void;
}

export class Reading {
  readonly #options: ReadingOptions;
  #wire: Wire;
  #cursor: string | undefined;
  #prelude: AGUIEvent[] | undefined;
  /** The run that has begun and not ended, as it is called here. */
  #run: { readonly runId: string; readonly threadId: string } | undefined;
  #hasBegun = false;
  #isPerdure = false;
  #isLost = false;

  constructor(options: ReadingOptions) {
    this.#options = options;
    this.#wire = newWire({ messages: options.messages });
  }

  /** Whether anything was given out. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Whether RUN_STARTED was given out, and no terminal event behind it. */
  get isInRun(): boolean {
    return this.#run !== undefined;
  }

  /**
   * Resolves behind the terminal event; when following, never.
   *
   * @throws `RequestError`, `ConnectionLostError`, or what the signal says when it fires
   */
  async read(signal: AbortSignal): Promise<void> {
    await this.#options.patience.persist(() => this.#connection(signal), signal);
  }

  async #connection(signal: AbortSignal): Promise<void> {
    const { begin, resume, idleTimeoutMs } = this.#options;
    // Of a connection that died in silence only this lets go.
    const connection = new AbortController();
    const cut = (): void => connection.abort(signal.reason);
    signal.addEventListener("abort", cut);
    try {
      signal.throwIfAborted();
      this.#prelude = undefined;
      const response = await (this.#cursor === undefined
        ? begin(connection.signal)
        : resume(this.#cursor, connection.signal));
      this.#greet(response);
      for await (const frame of framesOf(response, { idleTimeoutMs, signal })) {
        // Another reader of the same thread may have let go of this one, in the middle of what has come.
        signal.throwIfAborted();
        if (this.#take(frame)) return;
      }
      throw new Lost("the stream ended before the run did");
    } catch (error) {
      signal.throwIfAborted();
      this.#isLost = true;
      throw this.#orFinal(error);
    } finally {
      signal.removeEventListener("abort", cut);
      connection.abort();
    }
  }

  #greet({ headers }: Response): void {
    const uid = headers.get(RUN_HEADER);
    this.#isPerdure ||= uid !== null;
    if (uid !== null) this.#options.onRun(uid);
  }

  /** A run of another server would begin once more if its request were made again. */
  #orFinal(error: unknown): unknown {
    if (!(error instanceof Lost) || !this.isInRun || this.#cursor !== undefined || this.#isPerdure) return error;
    return new PerdureError(
      "NOT_RESUMABLE",
      `${error.message}, and it carries no cursors: only what a Perdure runtime streams can be gone on with`,
      { cause: error },
    );
  }

  /** @returns whether that was the last one */
  #take({ event, cursor }: Framed): boolean {
    if (isNotice(event, cursor)) throw new Lost("the server ends this connection, and the run goes on");
    if (this.#isLost) {
      this.#isLost = false;
      this.#options.onReconnected();
    }
    if (event.type === "RUN_STARTED") this.#meet(cursor);
    this.#prelude?.push(event);
    if (this.#prelude === undefined) this.#give(event);
    else if (cursor !== undefined) this.#splice(this.#prelude);
    if (cursor !== undefined && cursor !== this.#cursor) {
      this.#cursor = cursor;
      this.#options.patience.reset();
    }
    return isTerminal(event) && this.#prelude === undefined && !this.#options.isFollowing;
  }

  /** A run begins: the one that is read or, when following, one that nobody here knows yet. Without a cursor it is a prelude. */
  #meet(cursor: string | undefined): void {
    const { questions, onRun } = this.#options;
    if (this.isInRun) this.#prelude = [];
    else if (cursor === undefined) {
      // Until the prelude is whole there is no way to go on behind a part of it.
      this.#cursor = undefined;
      questions.forget();
    } else if (this.#cursor !== undefined) onRun(undefined);
  }

  #splice(prelude: readonly AGUIEvent[]): void {
    const { questions } = this.#options;
    const known = new Set(questions.open.map(({ id }) => id));
    questions.forget();
    for (const event of splice(prelude, this.#wire)) {
      const question = questions.take(event);
      // It was asked here before, and still is.
      if (question === undefined || !known.has(question)) this.#give(event);
    }
    this.#prelude = undefined;
  }

  #give(event: AGUIEvent): void {
    this.#hasBegun = true;
    const run = this.#run;
    const own = event.type === "RUN_FINISHED" && run !== undefined ? { ...event, ...run } : event;
    if (own.type === "RUN_STARTED") this.#run = { runId: own.runId, threadId: own.threadId };
    else if (isTerminal(own)) this.#run = undefined;
    this.#wire = observe(this.#wire, own);
    this.#options.questions.take(own);
    this.#options.onEvent(own);
  }
}

/** A server says so to a connection, not of the run: what is in the run's log has a cursor. */
function isNotice(event: AGUIEvent, cursor: string | undefined): boolean {
  return event.type === "RUN_ERROR" && event.code === "RECONNECT" && cursor === undefined;
}

function isTerminal({ type }: AGUIEvent): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}
