import type { Entry } from "../log/entries.ts";
import { fold, type RunState } from "../log/fold.ts";
import { LogError } from "../log/log-error.ts";
import { PatchError } from "../protocol/patch.ts";
import { ProtocolError } from "../protocol/rules.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";

/** How many finished runs are kept folded. */
const KEPT = 256;

/** The finished runs of threads, folded. They never change, so what was read once is kept for a while. */
export class Threads {
  readonly #finished = new Map<Uid, RunState>();

  constructor(private readonly store: EventStore) {}

  /** The runs of a thread before `run`, oldest first, each folded onto the one before it. */
  async before(run: Pick<Run, "tenant" | "subject" | "agent" | "thread" | "turn">): Promise<readonly RunState[]> {
    const { thread, turn } = run;
    if (thread === null || turn <= 1) return [];
    const earlier = (await this.#runsOf({ ...run, thread })).filter((other) => other.turn < turn);
    const states: RunState[] = [];
    for (const { uid } of earlier) {
      const known = this.#finished.get(uid);
      const state = known ?? fold(await this.entries(uid, -1), states.at(-1));
      states.push(state);
      if (known === undefined && state.finished !== null) this.#keep(uid, state);
    }
    return states;
  }

  /**
   * A run with everything that is committed, and the thread before it. If those make no sense they will make none tomorrow: the run is set
   * aside, as one whose rows cannot be read is by the store.
   */
  async load(run: Run): Promise<{ readonly state: RunState; readonly before: readonly RunState[] }> {
    try {
      const before = await this.before(run);
      return { state: fold(await this.entries(run.uid, -1), before.at(-1)), before };
    } catch (error) {
      if (error instanceof LogError || error instanceof ProtocolError || error instanceof PatchError) {
        await this.store.setAside(run.uid, error.message);
      }
      throw error;
    }
  }

  async entries(uid: Uid, after: number): Promise<Entry[]> {
    const entries: Entry[] = [];
    for await (const entry of this.store.read(uid, after)) entries.push(entry);
    return entries;
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

  #keep(uid: Uid, state: RunState): void {
    this.#finished.set(uid, state);
    const [oldest] = this.#finished.keys();
    if (this.#finished.size > KEPT && oldest !== undefined) this.#finished.delete(oldest);
  }
}
