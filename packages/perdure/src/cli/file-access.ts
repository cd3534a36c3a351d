/**
 * A store's file without its server, for whoever holds the file: all tenants' runs.
 *
 * A1. Looking on takes no lock and writes nothing, so a server may drive meanwhile.
 * A2. What is put in goes through the store's own transaction, under its owner's lock, and is refused while a server holds that. Nothing is
 *     driven here: the next server goes on with it.
 */
import { existsSync } from "node:fs";
import { userInfo } from "node:os";
import { logEntries } from "../http/log-entries.ts";
import {
  listRuns,
  refusedAside,
  type ShownDetail,
  type ShownRun,
  showDetail,
  showQuestions,
  showRun,
} from "../http/shown.ts";
import type { Entry } from "../log/entries.ts";
import type { RunFixture } from "../log/fixture.ts";
import type { Json } from "../protocol/json.ts";
import type { Uid } from "../protocol/words.ts";
import { answerQuestion, EVERY_SCOPE } from "../runtime/answers.ts";
import { exportRun } from "../runtime/export-run.ts";
import { PruneRefusedError, prune } from "../runtime/prune.ts";
import { Threads } from "../runtime/threads.ts";
import { StoreLockedError } from "../store/errors.ts";
import { sqlite } from "../store/sqlite.ts";
import type { EventStore, Query, Reply, Run, Verified } from "../store/store.ts";
import type { Access, ListQuery, Pruning, Taken } from "./access.ts";
import { CommandError, noInterrupt, noRun, usage } from "./command-error.ts";

const OWNER = "perdure-command";
/** How often a log that is followed is looked at: a reader beside a server gets no hints. Milliseconds. */
const POLL = 250;

export class FileAccess implements Access {
  readonly #file: string;
  readonly #over = new AbortController();
  #onlooker: Promise<EventStore> | undefined;

  constructor(file: string) {
    if (!existsSync(file)) {
      throw new CommandError("STORE_FILE", `there is no store ${file}: name the file that the server was given`);
    }
    this.#file = file;
  }

  async runs({ state, ...query }: ListQuery & { readonly state?: string }) {
    return await listRuns(await this.#look(), { ...query, tenant: null }, { state, now: Date.now() });
  }

  async detail(uid: string): Promise<ShownDetail> {
    const store = await this.#look();
    return await showDetail(store, await this.#run(store, uid), Date.now());
  }

  async earlier({ uid, thread, turn }: ShownRun): Promise<readonly ShownRun[]> {
    const store = await this.#look();
    const { tenant, subject, agent } = await this.#run(store, uid);
    const found: Run[] = [];
    if (thread === null) return [];
    for (let after: string | null | undefined; after !== null; ) {
      const query: Query = { tenant, subject, agent, thread, limit: 500, ...(after !== undefined && { after }) };
      const page = await store.runs(query);
      found.push(...page.items.filter((run) => run.turn < turn));
      after = page.next;
    }
    return await Promise.all(found.reverse().map((run) => showRun(store, run, Date.now())));
  }

  async *log(uid: string, after: number, follow: boolean): AsyncGenerator<Entry, void> {
    const store = await this.#look();
    for (let last = after; ; ) {
      const run = await this.#run(store, uid);
      for await (const entry of logEntries(store, run.uid, last)) {
        yield entry;
        last = entry.seq;
      }
      if (!follow || run.outcome !== null || run.aside !== null || this.#over.signal.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
  }

  async questions(query: ListQuery) {
    const store = await this.#look();
    const { items, next } = await store.questions({ ...query, tenant: null });
    return { interrupts: await showQuestions(new Threads(store), items), next };
  }

  async answer(interrupt: string, reply: Reply): Promise<Taken> {
    return await this.#visit("take the answer", async (store) => {
      const question = await store.question(interrupt);
      const run = question === null ? null : await store.run(question.uid);
      if (question === null || run === null) throw noInterrupt(interrupt);
      const by = { tenant: run.tenant, subject: operator(), scopes: [EVERY_SCOPE] };
      const answered = await answerQuestion(store, { interrupt, ...reply, by });
      switch (answered.is) {
        case "taken":
        case "covered":
          return { id: interrupt, run: run.uid, state: answered.is === "taken" ? "answered" : "covered" };
        case "none":
          throw noInterrupt(interrupt);
        case "refused":
          throw new CommandError(answered.code, `the answer to interrupt ${interrupt} is refused: ${answered.why}`, {
            details: answered.details,
          });
        case "conflict": {
          const { status, by: winner, at } = answered;
          const details: Json = { status, by: winner, at };
          throw new CommandError("INTERRUPT_ANSWERED", `${winner} has answered interrupt ${interrupt} already`, {
            details,
          });
        }
        default:
          return answered satisfies never;
      }
    });
  }

  async put(uid: string, kind: "cancel" | "abandon"): Promise<{ readonly run: ShownRun; readonly isLate: boolean }> {
    return await this.#visit(`${kind} the run`, async (store) => {
      const run = await this.#run(store, uid);
      if (run.aside !== null) {
        throw new CommandError("RUN_SET_ASIDE", refusedAside(run.uid, kind), {
          details: run.aside,
          next: ["why", uid],
        });
      }
      const put = await store.put(run.uid, operator(), { kind });
      return { run: await showRun(store, await this.#run(store, uid), Date.now()), isLate: put === "finished" };
    });
  }

  async prune(uids: readonly string[]): Promise<readonly Pruning[]> {
    return await this.#visit("prune its runs", async (store) => {
      const threads = new Threads(store);
      const done: Pruning[] = [];
      for (const uid of uids) {
        try {
          done.push({ run: uid, is: await prune(store, threads, uid as Uid) });
        } catch (error) {
          if (!(error instanceof PruneRefusedError)) throw error;
          done.push({ run: uid, is: "refused", code: error.code, why: error.message });
        }
      }
      return done;
    });
  }

  fork(): Promise<never> {
    throw usage("a fork goes on with its agent, which only a server has: perdure fork RUN --url http://127.0.0.1:8787");
  }

  /** Without its agent: what the model was asked stays what the log has of it. */
  async export(uid: string): Promise<RunFixture> {
    const store = await this.#look();
    const run = await this.#run(store, uid);
    return await exportRun({ store, threads: new Threads(store), agents: new Map() }, run.uid, {});
  }

  async verify(): Promise<Verified> {
    return await (await this.#look()).verify();
  }

  async close(): Promise<void> {
    this.#over.abort();
    const onlooker = this.#onlooker;
    this.#onlooker = undefined;
    await (await onlooker?.catch(() => undefined))?.close();
  }

  #look(): Promise<EventStore> {
    this.#onlooker ??= (async () => {
      const store = sqlite(this.#file, { access: "read" });
      await store.open(OWNER);
      return store;
    })();
    return this.#onlooker;
  }

  /** A2. */
  async #visit<T>(what: string, work: (store: EventStore) => Promise<T>): Promise<T> {
    const store = sqlite(this.#file, { access: "visit" });
    try {
      await store.open(OWNER);
    } catch (cause) {
      if (!(cause instanceof StoreLockedError)) throw cause;
      const who = cause.pid === null ? "a process" : `process ${cause.pid}`;
      throw new CommandError(
        "STORE_LOCKED",
        `${who} drives store ${this.#file} and has to ${what} itself: ask its server, with --url instead of --store`,
        { cause },
      );
    }
    try {
      return await work(store);
    } finally {
      await store.close();
    }
  }

  async #run(store: EventStore, uid: string): Promise<Run> {
    const run = await store.run(uid as Uid);
    if (run === null) throw noRun(uid);
    return run;
  }
}

/** Whoever can write the file may do anything with it; the log gets his name. */
function operator(): string {
  try {
    return userInfo().username;
  } catch {
    return "operator"; // a user id without a name, as in many containers
  }
}
