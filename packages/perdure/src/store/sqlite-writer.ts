import type { Pace } from "./engine.ts";
import { CommitFailedError } from "./errors.ts";
import { type SqliteDatabase, SqliteError } from "./sqlite-database.ts";

/** What waits to be committed. */
interface Job {
  /** Runs inside the commit's transaction. @returns whether what it did is to be kept @throws what concerns all jobs */
  attempt(): boolean;
  /** The commit is durable. */
  done(): void;
  failed(error: unknown): void;
}

/**
 * The only writer of a file: it commits together what has gathered.
 *
 * 1. Jobs run and are committed in the order of their calls.
 * 2. A job is whole or not at all, and one that throws does not touch its neighbours: each has a savepoint.
 * 3. Nothing is reported before the commit that holds it is on the disk.
 * 4. A commit that fails fails for all its jobs, and is not tried again: what the disk then holds is known only by reading it.
 *
 * What must be durable at once is committed at the end of this turn of the event loop, so that all runs that got their input in one turn share
 * a commit. What is not urgent waits for such a commit, or for 5 ms or three times the last commit, whichever is longer, but no
 * longer than 250 ms: on a slow disk, frames alone then take no more than a quarter of its time.
 */
export class SqliteWriter {
  #jobs: Job[] = [];
  #soon: NodeJS.Timeout | null = null;
  #now: NodeJS.Immediate | null = null;
  #lastCommitMs = 0;
  /** How many commits were made. */
  commits = 0;

  /** @param rolledBack - told whenever what jobs have written is gone */
  constructor(
    readonly db: SqliteDatabase,
    private readonly rolledBack: () => void,
  ) {}

  transact<T>(work: () => T, pace: Pace): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#jobs.push(jobOf(work, resolve, reject));
      if (pace === "now") this.#now ??= setImmediate(() => this.flush());
      else if (this.#now === null) this.#soon ??= setTimeout(() => this.flush(), this.#patience());
    });
  }

  /** Commits what has gathered. */
  flush(): void {
    if (this.#soon !== null) clearTimeout(this.#soon);
    if (this.#now !== null) clearImmediate(this.#now);
    this.#soon = null;
    this.#now = null;
    const jobs = this.#jobs;
    this.#jobs = [];
    if (jobs.length === 0) return;
    const begun = performance.now();
    try {
      this.#commit(jobs);
    } catch (cause) {
      const reason = cause instanceof SqliteError ? cause.reason : "UNKNOWN";
      for (const job of jobs) job.failed(new CommitFailedError(reason, this.db.file, { cause }));
      return;
    } finally {
      this.#lastCommitMs = performance.now() - begun;
    }
    for (const job of jobs) job.done();
  }

  #commit(jobs: readonly Job[]): void {
    this.db.run("BEGIN IMMEDIATE");
    try {
      const keep = this.#attemptEach(jobs);
      if (keep) this.db.run("COMMIT");
      else this.#rollBack("ROLLBACK");
      this.commits += 1;
    } catch (error) {
      try {
        this.#rollBack("ROLLBACK");
      } catch {
        // After some errors SQLite has rolled back by itself, and says so by failing here; the first error is the one to tell.
      }
      throw error;
    }
  }

  /** The first job, often the only one, needs no savepoint: a tenth of a lone commit's time is saved (2). */
  #attemptEach([first, ...others]: readonly Job[]): boolean {
    const keeps = first?.attempt() ?? false;
    if (others.length === 0) return keeps;
    if (!keeps) {
      this.#rollBack("ROLLBACK");
      this.db.run("BEGIN IMMEDIATE");
    }
    for (const job of others) {
      this.db.run("SAVEPOINT job");
      if (!job.attempt()) this.#rollBack("ROLLBACK TO job");
      this.db.run("RELEASE job");
    }
    return true;
  }

  #rollBack(sql: "ROLLBACK" | "ROLLBACK TO job"): void {
    this.rolledBack();
    this.db.run(sql);
  }

  #patience(): number {
    return Math.min(250, Math.max(5, 3 * this.#lastCommitMs));
  }
}

function jobOf<T>(work: () => T, resolve: (value: T) => void, reject: (error: unknown) => void): Job {
  let outcome: { readonly value: T } | { readonly error: unknown } | null = null;
  return {
    attempt() {
      try {
        outcome = { value: work() };
        return true;
      } catch (error) {
        if (error instanceof SqliteError && !concernsOneJob(error)) throw error;
        outcome = { error };
        return false;
      }
    },
    done() {
      if (outcome === null) return;
      if ("value" in outcome) resolve(outcome.value);
      else reject(outcome.error);
    },
    failed: reject,
  };
}

/** A full or failing disk concerns everybody; a row that does not fit, only whoever wanted it. */
function concernsOneJob({ reason }: SqliteError): boolean {
  return reason === "SQLITE_CONSTRAINT" || reason === "SQLITE_TOOBIG" || reason === "SQLITE_MISMATCH";
}
