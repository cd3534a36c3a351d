/** A call that a server works on. It outlives the attempt that made it while its server waits for a human. */
import {
  type CallToolResult,
  type ElicitResult,
  type Progress,
  SdkError,
  SdkErrorCode,
} from "@modelcontextprotocol/client";
import type { Json } from "../../protocol/json.ts";

/** What a call comes to next. */
export type Next =
  | { readonly is: "result"; readonly result: CallToolResult }
  | { readonly is: "question"; readonly params: Json };

export class OpenCall {
  readonly #abort = new AbortController();
  readonly #idleTimeout: number | undefined;
  #result: Promise<CallToolResult> | undefined;
  #onProgress: ((progress: Progress) => void) | undefined;
  #question: { readonly params: Json; readonly answer: (reply: ElicitResult) => void } | undefined;
  #onQuestion: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param idleTimeout - how long the server may be silent. Milliseconds */
  constructor(idleTimeout: number | undefined) {
    this.#idleTimeout = idleTimeout;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Whether its server works, and does not wait for an answer: only then can it ask. */
  get isAtWork(): boolean {
    return this.#question === undefined;
  }

  sent(result: Promise<CallToolResult>): void {
    this.#result = result;
    this.#alive();
    result.catch(() => {}).finally(() => clearTimeout(this.#timer));
  }

  progressed(progress: Progress): void {
    this.#alive();
    this.#onProgress?.(progress);
  }

  /** Its server asks. @returns what it is answered */
  ask(params: Json): Promise<ElicitResult> {
    clearTimeout(this.#timer);
    return new Promise((answer) => {
      this.#question = { params, answer };
      this.#onQuestion?.();
    });
  }

  answer(reply: ElicitResult): void {
    const question = this.#question;
    this.#question = undefined;
    this.#alive();
    question?.answer(reply);
  }

  /** Its end, or its next question. While it is waited for, the signal ends it. */
  async next(signal: AbortSignal, onProgress: (progress: Progress) => void): Promise<Next> {
    const stop = (): void => this.#abort.abort(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    this.#onProgress = onProgress;
    const asked = new Promise<Next>((resolve) => {
      this.#onQuestion = () => resolve({ is: "question", params: this.#question?.params ?? null });
      if (this.#question !== undefined) this.#onQuestion();
    });
    try {
      const ended = this.#result?.then((result): Next => ({ is: "result", result }));
      return await (ended === undefined ? asked : Promise.race([ended, asked]));
    } finally {
      signal.removeEventListener("abort", stop);
      this.#onProgress = undefined;
      this.#onQuestion = undefined;
    }
  }

  #alive(): void {
    clearTimeout(this.#timer);
    const ms = this.#idleTimeout;
    if (ms === undefined) return;
    const silent = new SdkError(SdkErrorCode.RequestTimeout, `nothing was heard for ${ms} ms`);
    this.#timer = setTimeout(() => this.#abort.abort(silent), ms);
  }
}
