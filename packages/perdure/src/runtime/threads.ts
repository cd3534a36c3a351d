import type { Entry } from "../log/entries.ts";
import { fold, type RunState } from "../log/fold.ts";
import { brokenLog, LogError } from "../log/log-error.ts";
import type { Json } from "../protocol/json.ts";
import { estimateBytes } from "../protocol/size.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";

/** How many finished runs are kept folded, and about how many bytes of their logs. */
const KEPT = 256;
const KEPT_BYTES = 16 * 1024 * 1024;

/** A run, and the thread before it. */
export interface LoadedRun {
  readonly state: RunState;
  readonly before: readonly RunState[];
}

/** The finished runs of threads, folded. They never change, so what was read once is kept for a while. */
export class Threads {
  readonly #finished = new Map<Uid, { readonly state: RunState; readonly bytes: number }>();
  #bytes = 0;

  constructor(private readonly store: EventStore) {}

  /** The runs of a thread before `run`, oldest first, each folded onto the one before it. A forked thread goes on from the one it left. */
  async before(
    run: Pick<Run, "uid" | "tenant" | "subject" | "agent" | "thread" | "turn">,
  ): Promise<readonly RunState[]> {
    const { thread, turn } = run;
    if (thread === null || turn <= 1) return [];
    const earlier = (await this.#runsOf({ ...run, thread })).filter((other) => other.turn < turn);
    const first = earlier[0] ?? run;
    const states: RunState[] = first.turn > 1 ? [...(await this.#leftBy(first.uid))] : [];
    for (const { uid } of earlier) {
      const known = this.#finished.get(uid)?.state;
      if (known !== undefined) states.push(known);
      else {
        const entries = await this.entries(uid, -1);
        const state = fold(entries, states.at(-1));
        states.push(state);
        this.#keep(uid, state, entries);
      }
    }
    return states;
  }

  /**
   * A run with everything that is committed, and the thread before it. If those make no sense they will make none tomorrow: the run is set
   * aside, as one whose rows cannot be read is by the store.
   */
  async load(run: Run): Promise<LoadedRun> {
    const known = this.#finished.get(run.uid)?.state;
    if (known?.head === run.head) return { state: known, before: await this.before(run) };
    const { state, before } = await this.read(run);
    return { state, before };
  }

  /** As {@link load}, with the entries themselves. */
  async read(run: Run): Promise<LoadedRun & { readonly entries: readonly Entry[] }> {
    try {
      const before = await this.before(run);
      const entries = await this.entries(run.uid, -1);
      const state = fold(entries, before.at(-1));
      this.#keep(run.uid, state, entries);
      return { entries, state, before };
    } catch (error) {
      const broken = brokenLog(run.uid, error);
      if (broken instanceof LogError) await this.store.setAside(run.uid, broken.message);
      throw broken;
    }
  }

  async entries(uid: Uid, after: number): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read(uid, after)) entries.push(entry);
    return entries;
  }

  /** What came before the run from which `fork` was made. */
  async #leftBy(fork: Uid): Promise<readonly RunState[]> {
    const from = this.#finished.get(fork)?.state.run.forkedFrom ?? (await this.#forkedFrom(fork));
    const source = from === undefined ? null : await this.store.run(from.uid);
    return source === null ? [] : await this.before(source);
  }

  async #forkedFrom(uid: Uid): Promise<RunState["run"]["forkedFrom"]> {
    for await (const entry of this.store.read(uid, -1)) {
      return entry.kind === "run.started" ? entry.forkedFrom : undefined;
    }
    return undefined;
  }

  async #runsOf(thread: { tenant: string; subject: string; agent: string; thread: string }): Promise<Run[]> {
    const { tenant, subject, agent } = thread;
    const runs: Run[] = [];
    let after: string | undefined;
    for (;;) {
      const page = await this.store.runs({
        tenant,
        subject,
        agent,
        thread: thread.thread,
        limit: 500,
        ...(after !== undefined && { after }),
      });
      runs.push(...page.items);
      if (page.next === null) break;
      after = page.next;
    }
    return runs.sort((a, b) => a.turn - b.turn);
  }

  #keep(uid: Uid, state: RunState, entries: readonly Entry[]): void {
    if (state.finished === null) return;
    this.#bytes -= this.#finished.get(uid)?.bytes ?? 0;
    const bytes = entries.reduce((sum, entry) => sum + estimateBytes(entry as unknown as Json), 0);
    this.#finished.set(uid, { state, bytes });
    this.#bytes += bytes;
    for (const [oldest, kept] of this.#finished) {
      if (this.#finished.size <= KEPT && this.#bytes <= KEPT_BYTES) break;
      this.#finished.delete(oldest);
      this.#bytes -= kept.bytes;
    }
  }
}
