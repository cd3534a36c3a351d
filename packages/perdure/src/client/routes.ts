import { PerdureError } from "../protocol/errors.ts";

/** Where the routes of a runtime are that serves an agent. A path alone will do, as a browser's `fetch` takes it. */
export class Routes {
  readonly #base: string;
  readonly #agent: string;

  /**
   * @param agentUrl - where the agent is run by POST
   * @param given - what cannot be read off that, because a proxy serves it elsewhere
   * @throws {@link PerdureError} `RUNTIME_URL_UNKNOWN` when it is neither given nor in the agent's URL
   */
  constructor(
    agentUrl: string,
    given: { readonly runtimeUrl?: string | undefined; readonly agentName?: string | undefined },
  ) {
    const [, base, name] = /^([^?#]*)\/agents\/([\w-]+)\/?(?:[?#].*)?$/.exec(agentUrl) ?? [];
    const runtimeUrl = given.runtimeUrl ?? base;
    const agentName = given.agentName ?? name;
    if (runtimeUrl === undefined || agentName === undefined) {
      throw new PerdureError(
        "RUNTIME_URL_UNKNOWN",
        `"${agentUrl}" does not end with /agents/NAME: give runtimeUrl, under which the runtime's routes are, and agentName`,
      );
    }
    this.#base = runtimeUrl.replace(/\/+$/, "");
    this.#agent = agentName;
  }

  /** What a thread shows, behind a cursor or from a prelude on. */
  stream(thread: string, options: { readonly after?: string; readonly follow: boolean }): string {
    const { after, follow } = options;
    const query = new URLSearchParams({
      agent: this.#agent,
      ...(after !== undefined && { after }),
      ...(follow && { follow: "1" }),
    });
    return `${this.#base}/threads/${encodeURIComponent(thread)}/stream?${query.toString()}`;
  }

  newestRun(thread: string): string {
    const query = new URLSearchParams({ agent: this.#agent, thread, limit: "1" });
    return `${this.#base}/runs?${query.toString()}`;
  }

  cancel(uid: string): string {
    return `${this.#base}/runs/${encodeURIComponent(uid)}/cancel`;
  }

  interrupt(id: string): string {
    return `${this.#base}/inbox/${encodeURIComponent(id)}`;
  }
}
