/**
 * One process: a runtime over a store that dies with it.
 *
 * L1. From its death on nothing that it asks for is done, and nobody hears of it any more.
 * L2. A kill fires no signal. A body that was running runs on, with nobody to tell, to its end or to its next `cutHere()`; the next process
 * begins when the last one has come there.
 */
import { createRuntimeFrom, type Runtime, type RuntimeOptions } from "../http/create-runtime.ts";
import type { Agent } from "../runtime/agent-definition.ts";
import { instrumented } from "./instrumented.ts";
import { type Commit, type Death, Mortal, never } from "./mortal-store.ts";
import type { Outside } from "./outside.ts";
import { type Body, inhabit, type Place, placeIn } from "./places.ts";

/** What ends a life: a commit, or the nth time that some body comes to a place. */
export type Fate = Death | { readonly at: string; readonly nth: number };

/** Where a life has ended. */
export type EndOfLife =
  | { readonly place: Place; readonly nth: number }
  | { readonly commit: Commit; readonly when: Death["when"]; readonly nth: number };

export class Life {
  readonly mortal: Mortal;
  readonly runtime: Runtime;
  readonly reported: unknown[] = [];
  readonly #outside: Outside;
  readonly #fate: Fate | null;
  #isOpen = false;
  readonly #running = new Map<Promise<void>, Body>();
  /** Made, but for a last one that its death has forestalled. */
  readonly commits: Commit[] = [];
  #diedAt: { readonly place: Place; readonly nth: number } | undefined;

  /** @param authorize - who asks; default: everybody is the one local principal */
  constructor(
    outside: Outside,
    fate: Fate | null,
    agent: Agent,
    authorize?: RuntimeOptions["authorize"],
    telemetry?: RuntimeOptions["telemetry"],
  ) {
    this.#outside = outside;
    this.#fate = fate;
    this.mortal = new Mortal(outside.nextStore(), fate !== null && "when" in fate ? fate : null);
    this.mortal.onCommit = (commit) => {
      outside.progress += 1;
      this.commits.push(commit);
    };
    this.runtime = createRuntimeFrom(
      { now: outside.clock, random: () => 0, newUid: outside.newUid },
      {
        agents: [instrumented(agent, this)],
        store: this.mortal.store,
        ...(authorize && { authorize }),
        ...(telemetry && { telemetry }),
        onError: (error) => this.reported.push(error),
      },
    );
  }

  /** Resolves when it serves, or is dead. */
  async open(): Promise<void> {
    await Promise.race([this.runtime.open(), this.mortal.died]);
    this.#isOpen = true;
  }

  /** Whether it serves. */
  get isServing(): boolean {
    return this.#isOpen && !this.mortal.isDead;
  }

  /** Where it has ended, if it has. */
  get end(): EndOfLife | undefined {
    if (!this.mortal.isDead) return undefined;
    if (this.#diedAt !== undefined) return this.#diedAt;
    const commit = this.commits.at(-1);
    if (commit === undefined || this.#fate === null || !("when" in this.#fate)) return undefined;
    return { commit, when: this.#fate.when, nth: this.commits.length };
  }

  /** A body is at a place. The process may die here, without that what comes next can be held up. */
  pass(place: Place): void {
    if (this.mortal.isDead) return;
    const nth = this.#outside.visited(place);
    if (this.#fate === null || "when" in this.#fate) return;
    if (this.#fate.at !== place.key || this.#fate.nth !== nth) return;
    this.#diedAt = { place, nth };
    this.mortal.die();
  }

  /** A body is at a place, behind which a dead process does not come. */
  async at(place: Place): Promise<void> {
    this.pass(place);
    if (this.mortal.isDead) await never();
  }

  /** Runs a body of the user's, and keeps it in mind until it has ended, or has come to a place where it ends with its process. */
  async runs<T>(body: Body, work: () => Promise<T>): Promise<T> {
    await this.at(placeIn(body, "before"));
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    // A model changes nothing outside; the code of a loop does so in its steps, and waits for ever for what its dead process began.
    if (body.phase !== "model" && body.phase !== "loop") this.#running.set(ended, body);
    ended.then(() => this.#running.delete(ended)).catch(() => {});
    const at = (place: Place): Promise<void> => {
      const going = this.at(place);
      if (this.mortal.isDead) end();
      return going;
    };
    try {
      return await inhabit({ body, at }, work);
    } finally {
      end();
      await this.at(placeIn(body, "after"));
    }
  }

  /**
   * Waits for the bodies that a death has left running.
   *
   * @param ms - how long
   * @param hopeless - bodies that are known not to end; they are not waited for
   * @returns those that have not ended
   */
  async bodiesEnded(ms: number, hopeless: ReadonlySet<string>): Promise<readonly Body[]> {
    const hopeful = [...this.#running].filter(([, body]) => !hopeless.has(nameOf(body)));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([Promise.all(hopeful.map(([ended]) => ended)), late]);
    clearTimeout(timer);
    return [...this.#running.values()];
  }

  get running(): readonly Body[] {
    return [...this.#running.values()];
  }

  /** An HTTP request; it fails when the process dies, also in the middle of its answer. */
  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const cut = this.mortal.died.then((): never => {
      throw new ConnectionCut();
    });
    cut.catch(() => {});
    const response = await Promise.race([this.runtime.fetch(new Request(url, init)), cut]);
    if (response.body === null) return response;
    const reader = response.body.getReader();
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          const { done, value } = await Promise.race([reader.read(), cut]);
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: (reason) => reader.cancel(reason),
      },
      { highWaterMark: 0 },
    );
    return new Response(body, { status: response.status, headers: response.headers });
  };
}

/** What a body is known by across lives. */
export function nameOf({ run, step, tool, phase }: Body): string {
  return [run, step, tool, phase].join(" ");
}

/** The published client rethrows any other name into nowhere when it lets go of a body that has failed. */
class ConnectionCut extends Error {
  override readonly name = "AbortError";
}
