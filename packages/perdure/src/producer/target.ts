/** Sends one request to the server that is checked, and keeps all that comes back: status, headers, bytes, and how it ended. */
import { PerdureError } from "../protocol/errors.ts";

/** A server: the address of its agent, or what answers a request to it. */
export type ProducerTarget = string | URL | ((request: Request) => Response | Promise<Response>);

/** Nobody answers there, so nothing can be said. */
export class ProducerUnreachableError extends PerdureError {
  override readonly name = "ProducerUnreachableError";
  constructor(target: string, cause: unknown) {
    const why =
      cause instanceof Error
        ? `${cause.message}${cause.cause instanceof Error ? `: ${cause.cause.message}` : ""}`
        : String(cause);
    super("PRODUCER_UNREACHABLE", `${target} cannot be reached: ${why}`, { cause });
  }
}

export interface Sent {
  readonly method?: "GET" | "POST";
  readonly url?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Closes the connection when so many frames have come, comments too; 0: when there are headers. */
  readonly cutAfter?: number;
  /** Called when the first bytes of the body are there. */
  readonly heard?: () => void;
}

export interface Answer {
  /** 0 when there was no answer. */
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Uint8Array;
  /** `cut` by us, `broken` by the server, `late` when it took longer than anybody waits. */
  readonly ended: "whole" | "cut" | "broken" | "late";
  /** Of one that is broken. */
  readonly why?: string;
}

/** No answer is read further than this. Bytes. */
const MAX_BODY = 64 * 1024 * 1024;

/** The name under which a handler is served. */
const HANDLER_URL = "http://localhost/";

export interface TargetOptions {
  /** Of a handler. */
  readonly url: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
}

export class Target {
  readonly name: string;
  /** Whether a server stands behind it that may not be there. */
  readonly isRemote: boolean;
  requests = 0;
  readonly #url: string;
  readonly #send: (url: string, init: RequestInit) => Promise<Response>;

  constructor(
    target: ProducerTarget,
    private readonly options: TargetOptions,
  ) {
    const handler = typeof target === "function" ? target : undefined;
    this.#url = handler === undefined ? String(target) : (options.url ?? HANDLER_URL);
    this.isRemote = handler === undefined;
    this.name = handler === undefined ? this.#url : handler.name || "the handler";
    this.#send = handler === undefined ? fetch : async (url, init) => await handler(new Request(url, init));
  }

  async ask({ method = "POST", url = this.#url, headers = {}, body, cutAfter, heard }: Sent): Promise<Answer> {
    const { signal } = this.options;
    signal?.throwIfAborted();
    this.requests++;
    const gone = new AbortController();
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      gone.abort();
    }, this.options.timeoutMs);
    const leave = (): void => gone.abort();
    signal?.addEventListener("abort", leave, { once: true });
    const recording = new Recording(cutAfter, heard);
    try {
      const init = {
        method,
        headers: { ...this.options.headers, ...headers },
        signal: gone.signal,
        ...(body !== undefined && { body }),
      };
      const response = await orGone(this.#send(url, init), gone.signal);
      recording.begin(response);
      await recording.read(response, gone.signal);
      return recording.answer(recording.isCut ? "cut" : "whole");
    } catch (error) {
      signal?.throwIfAborted();
      if (late) return recording.answer("late", `no end within ${this.options.timeoutMs} ms`);
      if (this.requests === 1 && this.isRemote && !recording.hasBegun)
        throw new ProducerUnreachableError(this.name, error);
      return recording.answer("broken", error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", leave);
      // Closes what is still open, as a browser does whose tab is closed.
      gone.abort();
    }
  }
}

const LF = 10;
const CR = 13;

/** What has come of an answer so far. */
class Recording {
  isCut = false;
  #response: Response | undefined;
  readonly #chunks: Uint8Array[] = [];
  #length = 0;
  #frames = 0;
  #last = 0;

  constructor(
    private readonly cutAfter: number | undefined,
    private readonly heard: (() => void) | undefined,
  ) {}

  get hasBegun(): boolean {
    return this.#response !== undefined;
  }

  begin(response: Response): void {
    this.#response = response;
  }

  async read({ body }: Response, gone: AbortSignal): Promise<void> {
    if (body === null) return;
    const reader = body.getReader();
    try {
      while (!this.isCut && this.cutAfter !== 0) {
        const { done, value } = await orGone(reader.read(), gone);
        if (done) return;
        this.#take(value);
      }
      this.isCut = true;
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  #take(chunk: Uint8Array): void {
    if (this.#length === 0) this.heard?.();
    const end = this.#cutIn(chunk);
    if (end !== undefined) this.isCut = true;
    const taken = end === undefined ? chunk : chunk.subarray(0, end);
    this.#chunks.push(taken);
    this.#length += taken.byteLength;
    if (this.#length > MAX_BODY) throw new Error(`the answer is over ${MAX_BODY} bytes`);
  }

  /** Where the last frame ends that is still read. A chunk may have many of them, or a part of one. */
  #cutIn(chunk: Uint8Array): number | undefined {
    for (const [i, byte] of chunk.entries()) {
      // Two LF end a frame, also when they come in two chunks.
      if (byte === LF && this.#last === LF && ++this.#frames === this.cutAfter) return i + 1;
      if (byte !== CR) this.#last = byte;
    }
    return undefined;
  }

  answer(ended: Answer["ended"], why?: string): Answer {
    const bytes = new Uint8Array(this.#length);
    let at = 0;
    for (const chunk of this.#chunks) {
      bytes.set(chunk, at);
      at += chunk.byteLength;
    }
    return {
      ...{ status: this.#response?.status ?? 0, headers: this.#response?.headers ?? new Headers(), bytes, ended },
      ...(why !== undefined && { why }),
    };
  }
}

/** A promise that nobody waits for any longer when the connection is gone: a handler need not look at its signal. */
function orGone<T>(promise: Promise<T>, gone: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(new Error("the connection was closed"));
    if (gone.aborted) leave();
    gone.addEventListener("abort", leave, { once: true });
    promise.then(resolve, reject).finally(() => gone.removeEventListener("abort", leave));
  });
}
