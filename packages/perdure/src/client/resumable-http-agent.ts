import {
  type AgentSubscriber,
  type BaseEvent,
  enforceOutgoingInput,
  HttpAgent,
  type HttpAgentConfig,
  type Interrupt,
  type RunAgentInput,
  type RunAgentParameters,
  type RunAgentResult,
  type State,
} from "@ag-ui/client";
import { Observable } from "rxjs";
import { PerdureError } from "../protocol/errors.ts";
import type { AGUIEvent } from "../protocol/events.ts";
import { ask, textOf } from "./connection.ts";
import { AnswerConflictError, RequestError } from "./errors.ts";
import { Patience, type Reconnecting, type ReconnectOptions } from "./lost.ts";
import { Questions } from "./questions.ts";
import { Reading } from "./reading.ts";
import { Routes } from "./routes.ts";

export interface ResumableOptions {
  /** Under which the runtime's routes are. Default: what stands before `/agents/NAME` in `url`. */
  readonly runtimeUrl?: string;
  /** The agent's name at the runtime. Default: NAME in `url`. */
  readonly agentName?: string;
  /** How often and how soon a lost connection is made again. */
  readonly reconnect?: ReconnectOptions;
  /** Silence after which a connection counts as lost. More than the runtime's `keepAlive`. Milliseconds; default 60,000. */
  readonly idleTimeoutMs?: number;
  /** Called before each wait for the next attempt: a stream or a request was lost. */
  readonly onReconnect?: (info: Reconnecting) => void;
  /** Called when a stream that was lost goes on. */
  readonly onReconnected?: () => void;
  /** Waits, or returns early when the signal fires. Default: a timer. For tests. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  /** In [0, 1): for the jitter of what is waited for. Default `Math.random`. For tests. */
  readonly random?: () => number;
}

export interface ResumableHttpAgentConfig<S = State> extends Omit<HttpAgentConfig, "initialState">, ResumableOptions {
  initialState?: S;
}

export interface ConnectParameters extends RunAgentParameters {
  /** Stays behind the end of a leg, for whatever comes in the thread: later turns too. Until `detach()` or `abortRun()`. */
  follow?: boolean;
  abortController?: AbortController;
}

/** What a human says to a question. */
export type AnswerReply =
  | { readonly status: "resolved"; readonly payload?: unknown }
  /** He will not say. What that means is the question's kind: an approval counts as rejected. */
  | { readonly status: "cancelled" };

export interface RequestOptions {
  /** Gives the request up; the server may have got it all the same. */
  readonly signal?: AbortSignal;
}

/**
 * A client of one agent of a Perdure runtime, over connections that may be lost. It is an `HttpAgent`: whoever subscribes to it, and whoever waits
 * for `runAgent()`, sees one unbroken run, each event once, while sockets drop and servers are deployed. `connectAgent()` attaches to what a thread
 * shows, also after a reload.
 *
 * `S` is the type of its state. What arrives is not validated by it: it is what the agent's own schema let through.
 */
export class ResumableHttpAgent<S = State> extends HttpAgent {
  declare state: S;
  // Not `#private`, and no initialisers: the published `clone()` makes its copy without a constructor.
  private options: ResumableOptions;
  private questions: Questions;
  private uid: string | undefined;
  /** The parameters, and then the input, of each `connectAgent()`. */
  private connecting: WeakMap<object, { readonly follow: boolean }>;

  /** @throws {@link PerdureError} `RUNTIME_URL_UNKNOWN` when `url` does not end with `/agents/NAME` and the options do not say more */
  constructor(config: ResumableHttpAgentConfig<S>) {
    super(config);
    const { runtimeUrl, agentName, reconnect, idleTimeoutMs, onReconnect, onReconnected, sleep, random } = config;
    this.options = {
      ...(runtimeUrl !== undefined && { runtimeUrl }),
      ...(agentName !== undefined && { agentName }),
      ...(reconnect !== undefined && { reconnect: { ...reconnect } }),
      ...(idleTimeoutMs !== undefined && { idleTimeoutMs }),
      ...(onReconnect !== undefined && { onReconnect }),
      ...(onReconnected !== undefined && { onReconnected }),
      ...(sleep !== undefined && { sleep }),
      ...(random !== undefined && { random }),
    };
    this.questions = new Questions();
    this.connecting = new WeakMap();
    this.routes();
  }

  /** The uid of the run that a stream has named last. */
  get runUid(): string | undefined {
    return this.uid;
  }

  /**
   * What is asked of a human and not answered, as far as this agent was told. Other than `pendingInterrupts`, which the end of a leg sets, it has
   * a question at once, while the run goes on.
   */
  get openInterrupts(): readonly Interrupt[] {
    return this.questions.open;
  }

  override setState(state: S): void {
    super.setState(state);
  }

  override run(input: RunAgentInput): Observable<BaseEvent> {
    return this.read(input, {
      isFollowing: false,
      begin: (signal) => this.request(this.url, this.requestInit(enforceOutgoingInput(input)), signal),
    });
  }

  /**
   * Attaches to what the thread shows and starts nothing: to the run that is under way, also one that nobody's request has begun; or, when the
   * thread rests, to what it has come to. Resolves with the terminal event, and at once when there is no such thread.
   *
   * @param parameters - what begins a run is left unused
   */
  override connectAgent(parameters: ConnectParameters = {}, subscriber?: AgentSubscriber): Promise<RunAgentResult> {
    this.abortController = parameters.abortController ?? new AbortController();
    const own = { ...parameters };
    this.connecting.set(own, { follow: parameters.follow === true });
    return super.connectAgent(own, subscriber);
  }

  /** Stops reading. The run goes on, and `connectAgent()` comes back to it. */
  detach(): Promise<void> {
    return this.detachActiveRun();
  }

  /**
   * Asks the server to cancel the run: the one that was read last, or else the thread's newest. It ends as a cancelled one, which its readers see.
   * To stop reading alone is `detach()`.
   *
   * @returns the run, and its state at the server; it may have ended by itself
   * @throws {@link RequestError} `RUN_NOT_FOUND` when there is none; `ConnectionLostError`
   */
  async cancel(options: RequestOptions = {}): Promise<{ readonly uid: string; readonly state: string }> {
    const uid = this.uid ?? (await this.newestRun(options));
    const { run } = await this.call<{ run: { uid: string; state: string } }>(this.routes().cancel(uid), options, {});
    return { uid: run.uid, state: run.state };
  }

  /**
   * Answers a question in the inbox, whether or not its run is being read. Several may, in any order; what an answer leads to is on the thread's
   * stream. The same answer again is fine.
   *
   * @returns `covered` when it was answered so before
   * @throws {@link AnswerConflictError}, `AnswerForbiddenError`, `InterruptNotFoundError`, `InvalidAnswerError`, or another {@link RequestError};
   * `ConnectionLostError`
   */
  async answer(
    interruptId: string,
    reply: AnswerReply,
    options: RequestOptions = {},
  ): Promise<{ readonly id: string; readonly run: string; readonly state: "answered" | "covered" }> {
    type Taken = { id: string; run: string; state: "answered" | "covered" };
    try {
      const { interrupt } = await this.call<{ interrupt: Taken }>(this.routes().interrupt(interruptId), options, reply);
      this.close(interruptId);
      return interrupt;
    } catch (error) {
      if (error instanceof AnswerConflictError) this.close(interruptId);
      throw error;
    }
  }

  override clone(): ResumableHttpAgent<S> {
    const cloned = super.clone() as ResumableHttpAgent<S>;
    cloned.options = this.options;
    cloned.questions = new Questions(this.questions.open);
    cloned.uid = this.uid;
    cloned.connecting = new WeakMap();
    return cloned;
  }

  protected override connect(input: RunAgentInput): Observable<BaseEvent> {
    const { follow } = this.connecting.get(input) ?? { follow: false };
    const url = this.routes().stream(input.threadId, { follow });
    // Nothing is taken from it but its run id and version.
    const { threadId, runId, protocolVersion } = input;
    const asked = {
      threadId,
      runId,
      messages: [],
      tools: [],
      context: [],
      ...(protocolVersion && { protocolVersion }),
    };
    return this.read(input, {
      isFollowing: follow,
      begin: (signal) => this.request(url, this.requestInit(enforceOutgoingInput(asked)), signal),
    });
  }

  protected override prepareRunAgentInput(parameters?: RunAgentParameters): RunAgentInput {
    const input = super.prepareRunAgentInput(parameters);
    const connecting = parameters && this.connecting.get(parameters);
    if (connecting) this.connecting.set(input, connecting);
    return input;
  }

  /** Whoever connects says nothing to the thread, so no question stands in his way. */
  protected override async onInitialize(input: RunAgentInput, subscribers: AgentSubscriber[]): Promise<void> {
    if (!this.connecting.has(input)) return await super.onInitialize(input, subscribers);
    const pending = this.pendingInterrupts;
    this.pendingInterrupts = [];
    try {
      await super.onInitialize(input, subscribers);
    } finally {
      this.pendingInterrupts = pending;
    }
  }

  private read(
    input: RunAgentInput,
    how: { readonly isFollowing: boolean; readonly begin: (signal: AbortSignal) => Promise<Response> },
  ): Observable<BaseEvent> {
    const { signal: aborted } = this.abortController;
    return new Observable((subscriber) => {
      const over = new AbortController();
      const abort = (): void => over.abort(aborted.reason);
      const reading = new Reading({
        ...how,
        resume: (after, signal) => this.resume(input.threadId, { after, follow: how.isFollowing }, signal),
        messages: this.messages,
        patience: this.patience(),
        idleTimeoutMs: this.options.idleTimeoutMs ?? 60_000,
        questions: this.questions,
        onEvent: (event) => {
          this.debugLogger?.event("HTTP", "Event received:", event, { type: event.type });
          subscriber.next(event as BaseEvent);
        },
        onRun: (uid) => {
          this.uid = uid;
        },
        onReconnected: () => this.tell(() => this.options.onReconnected?.()),
      });
      if (aborted.aborted) abort();
      else aborted.addEventListener("abort", abort);
      reading
        .read(over.signal)
        .catch((error: unknown) => {
          // A thread that nobody has written to yet shows nothing.
          if (!reading.hasBegun && this.connecting.has(input) && isNoThread(error)) return;
          if (!aborted.aborted) throw error;
          if (!reading.hasBegun || !isAbortError(aborted.reason)) throw aborted.reason;
          if (reading.isInRun) subscriber.next(abortEvent(aborted.reason) as BaseEvent);
        })
        .finally(() => aborted.removeEventListener("abort", abort))
        .then(
          () => subscriber.complete(),
          (error: unknown) => subscriber.error(error),
        );
      return () => over.abort();
    });
  }

  private async resume(
    thread: string,
    from: { readonly after: string; readonly follow: boolean },
    signal: AbortSignal,
  ): Promise<Response> {
    const { method: _, body: __, ...init } = this.plainInit();
    return await this.request(this.routes().stream(thread, from), init, signal);
  }

  private async newestRun(options: RequestOptions): Promise<string> {
    const { runs } = await this.call<{ runs: { uid: string }[] }>(this.routes().newestRun(this.threadId), options);
    if (runs[0] !== undefined) return runs[0].uid;
    const why = `thread "${this.threadId}" has no run of yours`;
    throw new RequestError(404, "RUN_NOT_FOUND", why, undefined, undefined);
  }

  /** One request to the control plane, made again while nothing answers: none of them does more when it comes twice. */
  private async call<T>(
    url: string,
    { signal = new AbortController().signal }: RequestOptions,
    body?: object,
  ): Promise<T> {
    const { method: _, body: __, ...init } = this.plainInit();
    const headers = { ...(init.headers as Record<string, string>), accept: "application/json" };
    const post = body !== undefined && {
      method: "POST",
      body: JSON.stringify(body),
      headers: { ...headers, "content-type": "application/json" },
    };
    return await this.patience().persist(async () => {
      const response = await this.request(url, { ...init, headers, ...post }, signal);
      return answerIn<T>(url, await textOf(response, signal));
    }, signal);
  }

  /** What `requestInit` says of every request, as credentials and headers, without what it says of a body. */
  private plainInit(): RequestInit {
    const { threadId } = this;
    const init = this.requestInit({ threadId, runId: "", messages: [], tools: [], context: [] });
    const headers = Object.fromEntries(new Headers(init.headers));
    delete headers["content-type"];
    return { ...init, headers };
  }

  private async request(url: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
    return await ask((to, how) => this.fetch(to, how), url, { ...init, signal });
  }

  private patience(): Patience {
    const { reconnect, sleep, random } = this.options;
    const onWait = (info: Reconnecting): void => this.tell(() => this.options.onReconnect?.(info));
    return new Patience({ ...reconnect, onWait, sleep, random });
  }

  private routes(): Routes {
    return new Routes(this.url, this.options);
  }

  /** It is answered: neither a run nor its reader waits for it any more. */
  private close(interruptId: string): void {
    this.questions.close(interruptId);
    this.pendingInterrupts = this.pendingInterrupts.filter(({ id }) => id !== interruptId);
  }

  /** A listener that throws must not cost the run its reader. */
  private tell(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      console.error("A listener of ResumableHttpAgent threw:", error);
    }
  }
}

/** The one cast: what a Perdure runtime answers has that form, and what is no JSON at all is no answer of one. */
function answerIn<T>(url: string, text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (cause) {
    throw new PerdureError(
      "NOT_A_PERDURE_SERVER",
      `${url} does not answer as a Perdure runtime does: check runtimeUrl`,
      {
        cause,
      },
    );
  }
}

function isNoThread(error: unknown): boolean {
  return error instanceof RequestError && error.code === "THREAD_NOT_FOUND";
}

function isAbortError(reason: unknown): reason is Error {
  return reason instanceof Error ? reason.name === "AbortError" : false;
}

/** What the published agent shows its subscribers when its reading is aborted in the middle. */
function abortEvent(reason: Error): AGUIEvent {
  return { type: "RUN_ERROR", message: reason.message || "Request aborted", code: "abort", rawEvent: reason };
}
