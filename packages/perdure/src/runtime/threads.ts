import type { Entry } from "../log/entries.ts";
import { fold, type RunState } from "../log/fold.ts";
import { brokenLog, LogError } from "../log/log-error.ts";
import type { Json } from "../protocol/json.ts";
import { estimateBytes } from "../protocol/size.ts";
import type { Uid } from "../protocol/words.ts";
import type { EventStore, Run } from "../store/store.ts";
import { childUids } from "./child-start.ts";

/** How many runs are kept folded, and about how many bytes of what they hold. */
const KEPT = 256;
const KEPT_BYTES = 16 * 1024 * 1024;

/** A run, and the thread before it. */
export interface LoadedRun {
  readonly state: RunState;
  readonly before: readonly RunState[];
}

/** The runs of threads, folded. Those that rest are kept for a while: whoever goes on with one need not read its log again. */
export class Threads {
  readonly #kept = new Map<Uid, { readonly state: RunState; readonly bytes: number }>();
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
    for (const other of earlier) {
      const state = this.#known(other) ?? fold(await this.entries(other.uid, -1), states.at(-1));
      states.push(state);
      this.keep(state);
    }
    return states;
  }

  /** A run as it was, if nothing has been added since. */
  #known({ uid, head }: Pick<Run, "uid" | "head">): RunState | undefined {
    const state = this.#kept.get(uid)?.state;
    return state?.head === head ? state : undefined;
  }

  /** A run with everything that is committed. One that is kept costs no read. Otherwise as {@link load}. */
  async state(run: Run): Promise<RunState> {
    return this.#known(run) ?? (await this.load(run)).state;
  }

  /**
   * A run with everything that is committed, and the thread before it. If those make no sense they will make none tomorrow: the run is set
   * aside, as one whose rows cannot be read is by the store.
   */
  async load(run: Run): Promise<LoadedRun> {
    const known = this.#known(run);
    if (known !== undefined) return { state: known, before: await this.before(run) };
    const { state, before } = await this.read(run);
    return { state, before };
  }

  /** As {@link load}, with the entries themselves. */
  async read(run: Run): Promise<LoadedRun & { readonly entries: readonly Entry[] }> {
    try {
      const before = await this.before(run);
      const entries = await this.entries(run.uid, -1);
      const state = fold(entries, before.at(-1));
      this.keep(state);
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
    const from = await this.forkedFrom(fork);
    const source = from === undefined ? null : await this.store.run(from.uid);
    return source === null ? [] : await this.before(source);
  }

  /** Where a run was forked, if it was. */
  async forkedFrom(uid: Uid): Promise<RunState["run"]["forkedFrom"]> {
    const kept = this.#kept.get(uid);
    if (kept !== undefined) return kept.state.run.forkedFrom;
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

  /** Keeps a run with everything that is committed, if it rests. */
  keep(state: RunState): void {
    const { uid } = state.run;
    if (state.leg !== null || this.#kept.get(uid)?.state === state) return;
    this.#drop(uid);
    const bytes = bytesOf(state);
    this.#kept.set(uid, { state, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= KEPT && this.#bytes <= KEPT_BYTES) break;
      this.#drop(oldest);
    }
  }

  #drop(uid: Uid): void {
    this.#bytes -= this.#kept.get(uid)?.bytes ?? 0;
    this.#kept.delete(uid);
  }
}

/**
 * About how much it holds of its own: what it was asked last and has shown, its state, and what its steps have returned. What its thread holds
 * beside is shared with the runs before it.
 */
function bytesOf(run: RunState): number {
  const own = [run.run.uid, ...childUids(run)].map((uid) => `${uid}:`);
  const shown = run.messages.filter(({ id }) => own.some((prefix) => id.startsWith(prefix)));
  const asked = run.lastLeg?.started.request?.messages ?? [];
  const ends = [...run.steps.values()].map(({ finished }) => finished ?? null);
  return estimateBytes([asked, shown, run.committed, ends] as unknown as Json);
}
