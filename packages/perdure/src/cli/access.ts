/** The runs that a command is about: a server's, or those of a store's file. Both show the same. */
import type { ShownDetail, ShownQuestion, ShownRun } from "../http/shown.ts";
import type { Entry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import type { ForkOptions } from "../runtime/fork.ts";
import type { Reply, Verified } from "../store/store.ts";

export interface ListQuery {
  readonly agent?: string;
  readonly thread?: string;
  readonly after?: string;
  readonly limit?: number;
}

/** Everything rejects with a `CommandError` for what is not there or refused. */
export interface Access {
  runs(query: ListQuery & { readonly state?: string }): Promise<{
    readonly runs: readonly ShownRun[];
    readonly next: string | null;
  }>;
  detail(uid: string): Promise<ShownDetail>;
  /** The runs of its thread before it, oldest first. */
  earlier(run: ShownRun): Promise<readonly ShownRun[]>;
  /** @param follow - stays until the run has ended */
  log(uid: string, after: number, follow: boolean): AsyncIterable<Entry>;
  questions(query: ListQuery): Promise<{ readonly interrupts: readonly ShownQuestion[]; readonly next: string | null }>;
  answer(interrupt: string, reply: Reply): Promise<Taken | ForkedInstead>;
  /** @returns the run after it; `isLate`: it had ended already */
  put(uid: string, kind: "cancel" | "abandon"): Promise<{ readonly run: ShownRun; readonly isLate: boolean }>;
  /** One after the other; what is refused of one does not keep the others. */
  prune(uids: readonly string[]): Promise<readonly Pruning[]>;
  /** Begins a run that goes on from an entry of this one. Only where its agent is. */
  fork(uid: string, options: ForkOptions): Promise<{ readonly run: ShownRun; readonly seq: number }>;
  export(uid: string): Promise<RunFixture>;
  verify(): Promise<Verified>;
  close(): Promise<void>;
}

/** What came of pruning one run. */
export type Pruning =
  | { readonly run: string; readonly is: "pruned" | "already" }
  | { readonly run: string; readonly is: "refused"; readonly code: string; readonly why: string };

export interface Taken {
  readonly id: string;
  readonly run: string;
  /** `covered`: it had this answer already. */
  readonly state: "answered" | "covered";
}

/** In place of an answer: another run goes on, and the question stays open. */
export interface ForkedInstead {
  readonly id: string;
  readonly run: string;
  readonly state: "open";
  readonly fork: ShownRun;
}
