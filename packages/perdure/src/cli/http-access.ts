import type { ShownDetail, ShownQuestion, ShownRun } from "../http/shown.ts";
import type { Entry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import { isJsonObject, type Json } from "../protocol/json.ts";
import type { ForkOptions } from "../runtime/fork.ts";
import type { Reply, Verified } from "../store/store.ts";
import type { Access, ForkedInstead, ListQuery, Pruning, Taken } from "./access.ts";
import { CommandError, noInterrupt, noRun, usage } from "./command-error.ts";

/** A server's control plane, as the one who asks may see it. */
export class HttpAccess implements Access {
  readonly #base: URL;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #over = new AbortController();

  constructor(url: string, headers: Readonly<Record<string, string>>) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw usage(`"${url}" is not the address of a server: it looks like http://127.0.0.1:8787`);
    }
    this.#base = new URL(url.endsWith("/") ? url : `${url}/`);
    this.#headers = headers;
  }

  async runs(query: ListQuery & { readonly state?: string }) {
    const { runs, next } = await this.#get<{ runs: ShownRun[]; next?: string }>(`runs${queryText(query)}`);
    return { runs, next: next ?? null };
  }

  detail(uid: string): Promise<ShownDetail> {
    return this.#get(`runs/${encodeURIComponent(uid)}`, noRun(uid));
  }

  async earlier({ agent, thread, turn }: ShownRun): Promise<readonly ShownRun[]> {
    const found: ShownRun[] = [];
    if (thread === null) return found;
    for (let after: string | null | undefined; after !== null; ) {
      const page = await this.runs({ agent, thread, limit: 500, ...(after !== undefined && { after }) });
      found.push(...page.runs.filter((run) => run.turn < turn));
      after = page.next;
    }
    return found.reverse();
  }

  async *log(uid: string, after: number, follow: boolean): AsyncGenerator<Entry, void> {
    const response = await this.#ask(`runs/${encodeURIComponent(uid)}/log?after=${after}${follow ? "&follow=1" : ""}`);
    if (!response.ok) await this.#refused(response, noRun(uid));
    let last = after;
    let hasEnded = false;
    let rest = "";
    const decoder = new TextDecoder();
    try {
      for await (const piece of response.body ?? []) {
        const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const entry = JSON.parse(line) as Entry;
          yield entry;
          last = entry.seq;
          hasEnded ||= entry.kind === "run.finished";
        }
      }
    } catch (cause) {
      if (this.#over.signal.aborted) return;
      const where = last < 0 ? "before its first entry" : `behind entry ${last}`;
      throw new CommandError("LOG_CUT", `the log of run ${uid} broke off ${where}: the server could not go on`, {
        ...{ cause, next: ["why", uid] },
      });
    }
    if (!follow || hasEnded || this.#over.signal.aborted) return;
    // A server that stops ends its streams in order, and the run is not over by that.
    const { run } = await this.detail(uid);
    if (run.outcome !== null || run.aside !== null) return;
    throw new CommandError(
      "LOG_CUT",
      `the server has stopped behind entry ${last} of run ${uid}, which goes on later`,
      {
        next: ["log", uid, "--follow", "--after", String(last)],
      },
    );
  }

  async questions(query: ListQuery) {
    const found = await this.#get<{ interrupts: ShownQuestion[]; next?: string }>(`inbox${queryText(query)}`);
    return { interrupts: found.interrupts, next: found.next ?? null };
  }

  async answer(interrupt: string, reply: Reply): Promise<Taken | ForkedInstead> {
    const response = await this.#ask(`inbox/${encodeURIComponent(interrupt)}`, { ...reply });
    if (!response.ok) await this.#refused(response, noInterrupt(interrupt));
    const { interrupt: taken, fork } = await this.#read<{ interrupt: Taken; fork?: ShownRun }>(response);
    return fork === undefined ? taken : { id: taken.id, run: taken.run, state: "open", fork };
  }

  async put(uid: string, kind: "cancel" | "abandon"): Promise<{ readonly run: ShownRun; readonly isLate: boolean }> {
    const response = await this.#ask(`runs/${encodeURIComponent(uid)}/${kind}`, {});
    if (!response.ok) await this.#refused(response, noRun(uid));
    return { run: (await this.#read<{ run: ShownRun }>(response)).run, isLate: response.status === 200 };
  }

  async prune(uids: readonly string[]): Promise<readonly Pruning[]> {
    const done: Pruning[] = [];
    for (const uid of uids) {
      const response = await this.#ask(`runs/${encodeURIComponent(uid)}/prune`, {});
      const body: unknown = await response.json().catch((cause: unknown) => {
        throw this.#notPerdure(response, cause);
      });
      if (response.ok && isJsonObject(body) && (body.is === "pruned" || body.is === "already")) {
        done.push({ run: uid, is: body.is });
        continue;
      }
      const error = isJsonObject(body) && isJsonObject(body.error) ? body.error : undefined;
      if (typeof error?.code !== "string" || typeof error.message !== "string") throw this.#notPerdure(response);
      done.push({ run: uid, is: "refused", code: error.code, why: error.message });
    }
    return done;
  }

  async fork(uid: string, options: ForkOptions) {
    const response = await this.#ask(`runs/${encodeURIComponent(uid)}/fork`, options);
    if (!response.ok) await this.#refused(response, noRun(uid));
    const { run, forkedFrom } = await this.#read<{ run: ShownRun; forkedFrom: { seq: number } }>(response);
    return { run, seq: forkedFrom.seq };
  }

  export(uid: string): Promise<RunFixture> {
    return this.#get(`runs/${encodeURIComponent(uid)}/export`, noRun(uid));
  }

  verify(): Promise<Verified> {
    throw usage("verify reads a store's file, also beside its server: perdure verify --store FILE");
  }

  async close(): Promise<void> {
    this.#over.abort();
  }

  async #get<T>(path: string, missing?: CommandError): Promise<T> {
    const response = await this.#ask(path);
    if (!response.ok) await this.#refused(response, missing);
    return await this.#read(response);
  }

  async #ask(path: string, body?: object): Promise<Response> {
    const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    const headers = { ...this.#headers, ...(body !== undefined && { "content-type": "application/json" }) };
    try {
      return await fetch(new URL(path, this.#base), { ...post, headers, signal: this.#over.signal });
    } catch (cause) {
      const because = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
      const why = because instanceof Error ? ("code" in because && because.code) || because.message : because;
      throw new CommandError(
        "SERVER_UNREACHABLE",
        `no server answers at ${this.#base.origin} (${String(why)}): start it, or read its file with --store`,
        { cause },
      );
    }
  }

  async #read<T>(response: Response): Promise<T> {
    try {
      return (await response.json()) as T;
    } catch (cause) {
      throw this.#notPerdure(response, cause);
    }
  }

  /** @param missing - what a 404 of ours means here */
  async #refused(response: Response, missing?: CommandError): Promise<never> {
    const body: unknown = await response.json().catch(() => undefined);
    const error = isJsonObject(body) && isJsonObject(body.error) ? body.error : undefined;
    if (typeof error?.code !== "string" || typeof error.message !== "string") throw this.#notPerdure(response);
    if (missing !== undefined && error.code === missing.code) throw missing;
    const { code, message, details } = error as { code: string; message: string; details?: Json };
    const hint = response.status === 401 ? ' (--header "authorization: …", or PERDURE_AUTHORIZATION)' : "";
    throw new CommandError(code, `${message}${hint}`, details === undefined ? {} : { details });
  }

  #notPerdure({ status, url }: Response, cause?: unknown): CommandError {
    return new CommandError(
      "NOT_A_PERDURE_SERVER",
      `${url} does not answer as a Perdure server does (status ${status}): check the address given as --url`,
      { cause },
    );
  }
}

function queryText(query: ListQuery & { readonly state?: string }): string {
  const text = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? "" : `?${text}`;
}
